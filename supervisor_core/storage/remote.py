"""Object stores and other remote file systems, through a gfile: tensorflow's, or TensorBoard's stand-in for it.

Checkpoints: where tensorflow is loaded (a training), tensorflow's own, which reads and writes. Where it is not (a
monitoring host), TensorBoard's stand-in (fsspec, boto3), with which checkpoints can be read and verified; there nothing
can be deleted.

Events: where tensorflow is loaded and knows the scheme, tensorflow's, so that summaries and checkpoints share one
client and its credentials; everywhere else TensorBoard's, which supports every store for which fsspec has a package.
"""

from __future__ import annotations

import errno
import functools
import os
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ParamSpec, TypeVar

from supervisor_core.errors import EventsError
from supervisor_core.install import install_command
from supervisor_core.storage.filesystem import Check, DirectoryEntry, Reader, unguarded
from supervisor_core.storage.opening import read_whole

READ_AHEAD_BYTES = 8 << 20
"""The least size of a request to a remote store: a round trip costs more than a megabyte."""

_P = ParamSpec("_P")
_T = TypeVar("_T")

# The canonical status codes, as tensorflow's errors and TensorBoard's stand-ins both carry them.
_ERRNO_OF_CODE = {
    5: errno.ENOENT, 6: errno.EEXIST, 7: errno.EACCES, 8: errno.ENOSPC, 12: errno.ENOTSUP, 16: errno.EACCES,
}  # fmt: skip


def os_error(error: Exception, path: str | None) -> OSError:
    """Return the `OSError` that is equivalent to what a store's client raised; such clients share no base class."""
    if isinstance(error, OSError) and error.errno is not None:
        return error
    if isinstance(error, FileNotFoundError):
        return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    if isinstance(error, PermissionError):
        return PermissionError(errno.EACCES, str(error), path)
    kind = type(error).__name__
    text = getattr(error, "message", None) or (f"{kind}: {error}" if str(error) else kind)
    return OSError(_ERRNO_OF_CODE.get(getattr(error, "error_code", None) or 0, errno.EIO), text, path)


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
    """A `Filesystem`; the paths keep their scheme.

    Args:
        gfile: tensorflow's, or the stand-in's module.
    """

    prompt = False

    def __init__(self, gfile: Any) -> None:
        self._gfile = gfile
        self._stand_in = hasattr(gfile, "get_filesystem")

    @as_os_error
    def size_of(self, path: str) -> int | None:
        """Return a file's length; None for a directory."""
        if self._stand_in and self._gfile.isdir(path):  # its status does not say
            return None
        found = self._gfile.stat(path)
        return None if getattr(found, "is_directory", False) else int(found.length)

    @as_os_error
    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """Return a part of a file; fewer bytes only where it ends."""
        if self._stand_in:
            # TensorBoard's client for S3 has a name of its own for the offset, and returns a byte more.
            token = {"opaque_offset": offset, "byte_offset": offset}
            return bytes(self._gfile.get_filesystem(path).read(path, True, length, token)[0])[:length]
        with self._gfile.GFile(path, "rb") as file:
            return _read_at(file, offset, length)

    @as_os_error
    def entries(self, path: str) -> list[DirectoryEntry]:
        """Return the entries of a directory; a request for each."""
        names, is_directory = self._gfile.listdir(path), self._gfile.isdir
        return [
            DirectoryEntry(name.rstrip("/"), name.endswith("/") or bool(is_directory(f"{path.rstrip('/')}/{name}")))
            for name in names
        ]

    @as_os_error
    def list_names(self, directory: str) -> list[str]:
        """See `Filesystem.list_names`."""
        return [name.rstrip("/") for name in self._gfile.listdir(directory)]

    def walk(self, top: str, on_error: Callable[[OSError], None]) -> Iterator[tuple[str, list[str]]]:
        """See `Filesystem.walk`."""
        try:
            for directory, _, files in self._gfile.walk(top):
                yield directory, sorted(files)
        except Exception as error:
            on_error(os_error(error, top))

    @as_os_error
    def is_file(self, path: str) -> bool:
        """See `Filesystem.is_file`."""
        return bool(self._gfile.exists(path)) and not self._gfile.isdir(path)

    @as_os_error
    def open(self, path: str) -> Reader:
        """See `Filesystem.open`."""
        size = int(self._gfile.stat(path).length)
        if self._stand_in:
            return _RemoteReader(size, functools.partial(self.read_range, path))
        file = self._gfile.GFile(path, "rb")
        return _RemoteReader(size, functools.partial(_read_at, file), file.close)

    @as_os_error
    def read(self, path: str) -> bytes:
        """See `Filesystem.read`."""
        with self._gfile.GFile(path, "rb") as file:
            return read_whole(file, path)

    def replace(self, path: str, data: bytes, check: Check = unguarded) -> None:
        """See `Filesystem.replace`; an object store replaces atomically, others by a rename."""
        put = as_os_error(self.put)
        if self._stand_in:
            check()
            put(path, data)
            return
        temporary = f"{path}.tmp{uuid.uuid4().hex}"
        put(temporary, data)
        try:
            check()
        except BaseException:
            self.remove(temporary)
            raise
        self.move(temporary, path)

    def sync(self, paths: Iterable[str], directory: str) -> None:
        """Return at once: a remote file is durable when its writer has closed it."""

    @as_os_error
    def remove(self, path: str) -> None:
        """See `Filesystem.remove`."""
        self._full_gfile("delete", path).remove(path)

    @as_os_error
    def remove_tree(self, path: str) -> None:
        """See `Filesystem.remove_tree`."""
        self._full_gfile("delete", path).rmtree(path)

    @as_os_error
    def move(self, path: str, target: str) -> None:
        """See `Filesystem.move`; an object store copies it, then deletes the first."""
        self._full_gfile("rename", path).rename(path, target, overwrite=True)

    @as_os_error
    def make_directory(self, path: str) -> None:
        """See `Filesystem.make_directory`."""
        self._gfile.makedirs(path)

    @as_os_error
    def modified_at(self, path: str) -> float | None:
        """See `Filesystem.modified_at`."""
        nanoseconds = getattr(self._gfile.stat(path), "mtime_nsec", 0)
        return nanoseconds / 1e9 if nanoseconds else None

    @as_os_error
    def now_in(self, directory: str) -> float | None:
        """See `Filesystem.now_in`."""
        if self._stand_in:
            return None
        probe = os.path.join(directory, f".supervisor.probe{uuid.uuid4().hex}")
        self.put(probe, b"\n")
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
        with self._gfile.GFile(path, "wb") as file:
            file.write(data)

    def append(self, path: str, data: bytes) -> None:
        """Append to a file.

        Raises:
            NotImplementedError: if the store cannot; a `ValueError`, of some.
        """
        if self._stand_in:
            filesystem = self._gfile.get_filesystem(path)
            if not hasattr(filesystem, "append"):
                raise NotImplementedError(path)
            filesystem.append(path, data, True)
            return
        # Opened for each append: an open handle buffers, and a forked child would write the buffer again.
        with self._gfile.GFile(path, "ab") as file:
            file.write(data)

    def create(self, path: str, data: bytes) -> RemoteAppendFile:
        """See `Filesystem.create`; stores have no exclusive creation, so this asks first and then writes."""
        if self._gfile.exists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        self.put(path, data)
        return RemoteAppendFile(self, path)

    def _full_gfile(self, verb: str, path: str) -> Any:
        if self._stand_in:
            raise OSError(errno.ENOTSUP, f"cannot {verb} without tensorflow", path)
        return self._gfile


def _read_at(file: Any, offset: int, length: int) -> bytes:
    file.seek(offset)
    return bytes(file.read(length))


class _RemoteReader(Reader):
    status = None
    is_linked = False

    def __init__(self, size: int, read: Callable[[int, int], bytes], close: Callable[[], None] = lambda: None) -> None:
        self.size = size
        self._read = as_os_error(read)
        self._close = close
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
        self._close()


class RemoteAppendFile:
    """A file behind a gfile. Each append is a request of its own; where the store cannot append, the whole file is
    rewritten each time, from a copy in memory."""

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
        return self._filesystem.size_of(self._path) or 0

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
        task: what events at the path are for, for the error's text; None for checkpoints. Those are on TensorFlow's
            file system wherever it is loaded; each call fails if it does not know the scheme.

    Raises:
        EventsError: if none is installed for the events' scheme, or TensorBoard is missing; the text says what to
            install.
    """
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is not None and (task is None or tensorflow_knows(path)):
        return RemoteFilesystem(tensorflow.io.gfile)
    try:
        from tensorboard.compat.tensorflow_stub.io import gfile
    except ImportError as error:
        text = f"remote files need TensorBoard's file layer, which is not installed: {install_command('tab')}"
        raise EventsError(f"Cannot {task or 'open'} {path!r}: {text}") from error
    try:
        if task is not None:
            gfile.get_filesystem(path)
    except (ImportError, ValueError) as error:
        scheme = scheme_of(path)
        if scheme in ("http", "https"):
            raise EventsError(
                f"Cannot {task} {path!r}: that is the address of a web page. Give a directory, or an object store's, "
                "as gs://bucket/logs."
            ) from error
        raise EventsError(
            f"Cannot {task} {path!r}: no file system for {scheme}:// is installed ({error}). Install fsspec "
            f"and its package for {scheme}:// (for gs:// that is gcsfs, for s3:// s3fs), or give a local directory."
        ) from error
    return RemoteFilesystem(gfile)


def tensorflow_knows(path: str) -> bool:
    """Return whether TensorFlow is loaded, and knows a path's scheme."""
    tensorflow = sys.modules.get("tensorflow")
    return tensorflow is not None and scheme_of(path) in tensorflow.io.gfile.get_registered_schemes()


def scheme_of(path: str) -> str:
    """Return the scheme of a remote path; of a chained one (``simplecache::gs://...``) the first."""
    return path.partition("::")[0].partition("://")[0]
