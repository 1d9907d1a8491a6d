"""Object stores and other remote file systems, through fsspec."""

from __future__ import annotations

import errno
import functools
import os
import stat
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, ParamSpec, TypeVar

from supervisor_core.base.errors import EventsError
from supervisor_core.storage.filesystem import Check, DirectoryEntry, Range, Reader, RemoteStatus, unguarded
from supervisor_core.storage.opening import MAX_READ_BYTES

READ_AHEAD_BYTES = 8 << 20
"""The least size of a request to a remote store: a round trip costs more than a megabyte."""

_P = ParamSpec("_P")
_T = TypeVar("_T")


def os_error(error: Exception, path: str | None) -> OSError:
    """Return the `OSError` that is equivalent to what a store's client raised; such clients share no base class."""
    if isinstance(error, OSError) and error.errno is not None:
        return error
    if isinstance(error, FileNotFoundError):
        return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    if isinstance(error, PermissionError):
        return PermissionError(errno.EACCES, str(error), path)
    kind = type(error).__name__
    return OSError(errno.EIO, f"{kind}: {error}" if str(error) else kind, path)


def as_os_error(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Turn the exceptions of a file system's client into the equivalent `OSError`, with the first text as its path."""

    @functools.wraps(function)
    def wrapped(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            raise os_error(error, next((value for value in args if isinstance(value, str)), None)) from error

    return wrapped


class RemoteFilesystem:
    """A `Filesystem`; the paths keep their scheme. Failures raise `OSError`; of appending whatever the client raises.

    Args:
        path: one with ``://`` in it.
        client: a file system of fsspec's. Default: that of the path, found when it is first used.
    """

    prompt = False

    def __init__(self, path: str, client: Any = None) -> None:
        self._path = path
        self._client = client

    @property
    def client(self) -> Any:
        """The client. S3 is at the endpoint that ``S3_ENDPOINT`` names, as for TensorFlow.

        Raises:
            ImportError: if its package is not installed; a `ValueError` for an unknown scheme.
        """
        if self._client is None:
            if scheme_of(self._path) in ("http", "https"):  # a file may name any address as a path
                raise ValueError("that is the address of a web page")
            from fsspec.core import url_to_fs

            endpoint = os.environ.get("S3_ENDPOINT") if scheme_of(self._path) == "s3" else None
            self._client = url_to_fs(self._path, **({"endpoint_url": endpoint} if endpoint else {}))[0]
        return self._client

    @property
    def _fresh(self) -> Any:
        """The client, without its cached listings: a file that grows would keep its first size."""
        self.client.invalidate_cache()
        return self.client

    @as_os_error
    def stat(self, path: str) -> RemoteStatus:
        """Return the status of a path."""
        return _status(self._fresh.info(path))

    @as_os_error
    def entries(self, directory: str) -> list[DirectoryEntry]:
        """Return the entries of a directory."""
        found = self._below(directory, self._fresh.ls(directory, detail=True))
        return [DirectoryEntry(path.rpartition("/")[2], stat.S_ISDIR(each.st_mode)) for path, each in found]

    @as_os_error
    def find(self, root: str) -> list[tuple[str, RemoteStatus]]:
        """Return path and status of everything below a directory, in any order; there may be directories among it. Most
        stores list a thousand names in one request."""
        return list(self._below(root, self._fresh.find(root, detail=True).values()))

    def _below(self, directory: str, infos: Iterable[Any]) -> Iterator[tuple[str, RemoteStatus]]:
        """Yield what is below a directory; a store without directories may list a marker for the directory itself."""
        own = str(self.client._strip_protocol(directory)).rstrip("/")
        for info in infos:
            name = info["name"].rstrip("/")
            if name.startswith(own + "/"):
                yield directory.rstrip("/") + name.removeprefix(own), _status(info)

    @as_os_error
    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """Return a part of a file; fewer bytes only where it ends."""
        return bytes(self.client.cat_file(path, start=offset, end=offset + length))

    @as_os_error
    def read_ranges(self, ranges: Sequence[Range]) -> list[bytes | None]:
        """Return parts of several files, fetched side by side where the client can; None for one that it refuses."""
        paths, starts, lengths = zip(*ranges, strict=True)
        ends = [start + length for start, length in zip(starts, lengths, strict=True)]
        found = self.client.cat_ranges(list(paths), list(starts), ends, on_error="return")
        return [bytes(data) if isinstance(data, (bytes, bytearray)) else None for data in found]

    @as_os_error
    def sizes(self, paths: list[str]) -> list[int]:
        """Return the sizes of several files, asked for side by side where the client can."""
        return list(self._fresh.sizes(paths))

    @as_os_error
    def list_names(self, directory: str) -> list[str]:
        """See `Filesystem.list_names`."""
        names = (name.rstrip("/").rpartition("/")[2] for name in self._fresh.ls(directory, detail=False))
        return [name for name in names if name]

    def walk(self, top: str, on_error: Callable[[OSError], None]) -> Iterator[tuple[str, list[str]]]:
        """See `Filesystem.walk`."""
        waiting = [top]
        while waiting:
            directory = waiting.pop()
            try:
                entries = sorted(self.entries(directory))
            except OSError as error:
                on_error(error)
                continue
            yield directory, [entry.name for entry in entries if not entry.is_directory]
            waiting += [f"{directory.rstrip('/')}/{entry.name}" for entry in reversed(entries) if entry.is_directory]

    def is_file(self, path: str) -> bool:
        """See `Filesystem.is_file`."""
        try:
            return stat.S_ISREG(self.stat(path).st_mode)
        except FileNotFoundError:
            return False

    def open(self, path: str) -> Reader:
        """See `Filesystem.open`."""
        return _RemoteReader(self, path)

    def read(self, path: str) -> bytes:
        """See `Filesystem.read`."""
        data = self.read_range(path, 0, MAX_READ_BYTES + 1)
        if len(data) > MAX_READ_BYTES:
            raise OSError(errno.EFBIG, f"it has more than {MAX_READ_BYTES:,} bytes", path)
        return data

    def replace(self, path: str, data: bytes, check: Check = unguarded) -> None:
        """See `Filesystem.replace`; an object store replaces atomically."""
        check()
        as_os_error(self.put)(path, data)

    def sync(self, paths: Iterable[str], directory: str) -> None:
        """Return at once: a remote file is durable when its writer has closed it."""

    @as_os_error
    def remove(self, path: str) -> None:
        """See `Filesystem.remove`."""
        self.client.rm_file(path)

    @as_os_error
    def remove_tree(self, path: str) -> None:
        """See `Filesystem.remove_tree`."""
        self.client.rm(path, recursive=True)

    @as_os_error
    def move(self, path: str, target: str) -> None:
        """See `Filesystem.move`; an object store copies it, then deletes the first."""
        self.client.mv(path, target)

    @as_os_error
    def make_directory(self, path: str) -> None:
        """See `Filesystem.make_directory`."""
        self.client.makedirs(path, exist_ok=True)

    def modified_at(self, path: str) -> float | None:
        """See `Filesystem.modified_at`."""
        return self.stat(path).st_mtime_ns / 1e9 or None

    def now_in(self, directory: str) -> float | None:
        """See `Filesystem.now_in`."""
        probe = os.path.join(directory, f".supervisor.probe{uuid.uuid4().hex}")
        as_os_error(self.put)(probe, b"\n")
        try:
            return self.modified_at(probe)
        finally:
            self.remove(probe)

    def contains(self, directory: str, path: str) -> bool:
        """See `Filesystem.contains`; by the names alone, as these file systems have no symbolic links."""
        return path.startswith(directory.rstrip("/") + "/") and ".." not in path.split("/")

    # For events: what follows raises whatever the client raises.

    def put(self, path: str, data: bytes) -> None:
        """Write a whole file, in place of one that is there."""
        self.client.pipe_file(path, data)

    def append(self, path: str, data: bytes) -> None:
        """Append to a file.

        Raises:
            NotImplementedError: if the store cannot; a `ValueError`, of some.
        """
        # Opened for each append: an open handle buffers, and a forked child would write the buffer again.
        with self.client.open(path, "ab") as file:
            file.write(data)

    def create(self, path: str, data: bytes) -> RemoteAppendFile:
        """See `Filesystem.create`; stores have no exclusive creation, so this asks first and then writes."""
        if self.client.exists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        self.put(path, data)
        return RemoteAppendFile(self, path)


def _status(info: Any) -> RemoteStatus:
    at = info.get("LastModified") or info.get("mtime") or info.get("updated") or info.get("last_modified") or 0
    secs = at.timestamp() if isinstance(at, datetime) else at if isinstance(at, (int, float)) else 0
    kind = stat.S_IFDIR if info["type"] == "directory" else stat.S_IFREG
    return RemoteStatus(int(info["size"] or 0), kind, int(secs * 1e9))


class _RemoteReader(Reader):
    status = None
    is_linked = False
    descriptor = None

    def __init__(self, filesystem: RemoteFilesystem, path: str) -> None:
        found = filesystem.stat(path)
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, "it is a directory, not a regular file", path)
        self.size = found.st_size
        self._read = functools.partial(filesystem.read_range, path)
        self._start = 0
        self._block = b""

    def read_at(self, offset: int, length: int) -> bytes:
        length = max(0, min(length, self.size - offset))
        end = offset + length
        if not self._start <= offset or end > self._start + len(self._block):
            self._start = offset
            self._block = self._read(offset, min(max(length, READ_AHEAD_BYTES), self.size - offset)) if length else b""
        return self._block[offset - self._start : end - self._start]

    def close(self) -> None:
        """Do nothing: nothing is held open."""


class RemoteAppendFile:
    """A remote file. Each append is a request of its own; where the store cannot append, the whole file is rewritten
    each time, from a copy in memory."""

    def __init__(self, filesystem: RemoteFilesystem, path: str) -> None:
        self._filesystem = filesystem
        self._path = path
        self._whole: bytearray | None = None

    def append(self, chunks: Sequence[bytes]) -> None:
        """See `AppendFile.append`."""
        data = b"".join(chunks)
        if self._whole is None:
            try:
                self._filesystem.append(self._path, data)
                return
            except (NotImplementedError, ValueError):  # how fsspec says that a store cannot append
                self._whole = bytearray(self._filesystem.read_range(self._path, 0, self.size()))
        self._filesystem.put(self._path, bytes(self._whole) + data)
        self._whole += data

    def size(self) -> int:
        """See `AppendFile.size`."""
        return self._filesystem.stat(self._path).st_size

    def truncate(self, size: int) -> None:
        """Raise: remote files cannot be cut."""
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP), self._path)

    def is_gone(self) -> bool:
        """Return False: asking would cost a request for each append."""
        return False

    def sync(self) -> None:
        """Do nothing: a store that has acknowledged an append has it."""

    def close(self) -> None:
        """Do nothing: nothing is held open."""


def remote_filesystem(path: str, task: str | None = None) -> RemoteFilesystem:
    """Return the file system of a remote path.

    Args:
        path: one with ``://`` in it.
        task: what events at the path are for, for the error's text; None for checkpoints: then each call fails if no
            file system is installed for the scheme.

    Raises:
        EventsError: if none is installed for the events' scheme; the text says what to install.
    """
    found, scheme = RemoteFilesystem(path), scheme_of(path)
    if task is None:
        return found
    try:
        assert found.client is not None
    except (ImportError, ValueError) as error:
        if scheme in ("http", "https"):
            raise EventsError(
                f"Cannot {task} {path!r}: that is the address of a web page. Give a directory, or an object store's, "
                "as gs://bucket/logs."
            ) from error
        raise EventsError(
            f"Cannot {task} {path!r}: no file system for {scheme}:// is installed ({error}). Install fsspec "
            f"and its package for {scheme}:// (for gs:// that is gcsfs, for s3:// s3fs), or give a local directory."
        ) from error
    return found


def scheme_of(path: str) -> str:
    """Return the scheme of a remote path; of a chained one (``simplecache::gs://...``) the first."""
    return path.partition("::")[0].partition("://")[0]
