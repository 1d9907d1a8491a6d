"""Reads events files on remote file systems, through the gfile at hand, and fetches ahead.

TensorFlow's where it is loaded and knows the scheme, as the writer's (`supervisor_core.storage.remote`); else fsspec
where it has a package for that; else TensorBoard's own client. fsspec itself is asked directly, because it can list a
directory with the kinds of its entries in one request, and because its cached listings must be dropped: a file that
grows would keep its first size.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from supervisor_core.storage.remote import scheme_of, tensorboard_filesystem, tensorflow_gfile
from supervisor_core.storage.source import FIRST_BYTES, Entry

NAMES_OF_A_REQUEST = 1000
"""Names that a store lists in one request: the page size of S3 and GCS."""


@dataclass(frozen=True, slots=True)
class RemoteStatus:
    """See `supervisor_core.storage.source.FileStatus`; stores have no inodes."""

    st_size: int
    st_mode: int = stat.S_IFREG
    st_mtime_ns: int = 0
    st_ino: int = 0
    st_dev: int = 0


class _Client(Protocol):
    def size(self, path: str) -> int | None:
        """Return a file's length; None for a directory. Raises whatever the store's library raises."""

    def read(self, path: str, length: int, offset: int) -> bytes: ...

    def list(self, path: str) -> Iterator[Entry]: ...


@dataclass(frozen=True, slots=True)
class _Listing:
    """A listing of everything below a directory, by paths without their scheme."""

    root: str
    sizes: Mapping[str, int]
    entries: Mapping[str, Mapping[str, Entry]]
    """Directory -> name -> what it is."""


class _FsspecClient:
    def __init__(self, filesystem: Any) -> None:
        self._filesystem = filesystem

    def list_all(self, root: str) -> _Listing:
        """List everything below a directory; object stores return a thousand names per request."""
        self._filesystem.invalidate_cache()
        own = self.key(root)
        sizes: dict[str, int] = {}
        entries: dict[str, dict[str, Entry]] = {}
        for path, info in self._filesystem.find(root, detail=True).items():
            path = path.rstrip("/")
            if info["type"] == "directory" or not path.startswith(own + "/"):
                continue
            sizes[path] = int(info["size"] or 0)
            above, _, name = path.rpartition("/")
            known = above in entries
            entries.setdefault(above, {})[name] = Entry(name, False, False)
            while not known and above != own:
                above, _, name = above.rpartition("/")
                known = above in entries
                entries.setdefault(above, {})[name] = Entry(name, True, False)
        return _Listing(own, sizes, entries)

    def key(self, path: str) -> str:
        """Return a path without its scheme."""
        return str(self._filesystem._strip_protocol(path)).rstrip("/")

    def size(self, path: str) -> int | None:
        self._filesystem.invalidate_cache()
        info = self._filesystem.info(path)
        return None if info["type"] == "directory" else int(info["size"])

    def read(self, path: str, length: int, offset: int) -> bytes:
        return bytes(self._filesystem.cat_file(path, start=offset, end=offset + length))

    def list(self, path: str) -> Iterator[Entry]:
        own = self._filesystem._strip_protocol(path).rstrip("/")
        for info in self._filesystem.ls(path, detail=True):
            name = info["name"].rstrip("/")
            if name != own:  # a store without directories may list a marker for the directory itself
                yield Entry(name.rpartition("/")[2], info["type"] == "directory", False)


class _TensorBoardClient:
    def __init__(self, filesystem: Any) -> None:
        self._filesystem = filesystem

    def size(self, path: str) -> int | None:
        return None if self._filesystem.isdir(path) else int(self._filesystem.stat(path).length)

    def read(self, path: str, length: int, offset: int) -> bytes:
        return bytes(self._filesystem.read(path, True, length, {"opaque_offset": offset})[0])

    def list(self, path: str) -> Iterator[Entry]:
        for name in self._filesystem.listdir(path):
            name = name.rstrip("/")
            yield Entry(name, bool(self._filesystem.isdir(f"{path.rstrip('/')}/{name}")), False)


class _TensorFlowClient:
    def __init__(self, gfile: Any) -> None:
        self._gfile = gfile

    def size(self, path: str) -> int | None:
        found = self._gfile.stat(path)
        return None if found.is_directory else int(found.length)

    def read(self, path: str, length: int, offset: int) -> bytes:
        with self._gfile.GFile(path, "rb") as file:
            file.seek(offset)
            return bytes(file.read(length))

    def list(self, path: str) -> Iterator[Entry]:
        for name in self._gfile.listdir(path):
            is_directory = name.endswith("/") or self._gfile.isdir(f"{path.rstrip('/')}/{name}")
            yield Entry(name.rstrip("/"), bool(is_directory), False)


class RemoteReadFile:
    """A remote file; each read is a request for a range."""

    def __init__(self, source: RemoteSource, path: str) -> None:
        self._source = source
        self._path = path

    def pread(self, length: int, offset: int) -> bytes:
        """See `supervisor_core.storage.source.ReadFile`."""
        return self._source.read(self._path, length, offset)

    def close(self) -> None:
        """Do nothing: nothing is held open."""


class RemoteSource:
    """See `supervisor_core.storage.source.ReadFileSystem`; exceptions of a store's library become ``OSError``."""

    def __init__(self, client: _Client) -> None:
        self._client = client
        self._listing: _Listing | None = None
        self._ahead: ReadAhead | None = None
        self._count_lock = threading.Lock()
        self.requests = 0
        """Number of requests so far; a listing of many names counts as one for each thousand."""

    def list_all(self, root: str) -> None:
        """List everything below a directory; until the next call `stat` and `list` answer from this listing.

        Where the store's library has no such request, or fails, each directory is listed on demand.
        """
        self._listing = None
        if isinstance(self._client, _FsspecClient):
            try:
                listing = self._client.list_all(root)
            except Exception:  # the request for the first directory raises it again
                self._count(1)
                return
            self._count(1 + len(listing.sizes) // NAMES_OF_A_REQUEST)
            self._listing = listing if listing.sizes else None  # empty, or no such directory: a request decides

    def names(self, directory: str) -> list[str] | None:
        """Return the names in a directory, if they are part of the listing; None if not."""
        listing, key = self._known(directory)
        return None if listing is None else list(listing.entries.get(key, ()))

    def _known(self, path: str) -> tuple[_Listing | None, str]:
        listing = self._listing
        if listing is None or not isinstance(self._client, _FsspecClient):
            return None, ""
        key = self._client.key(path)
        return (listing if key == listing.root or key.startswith(listing.root + "/") else None), key

    def stat(self, path: str) -> RemoteStatus:
        """See `supervisor_core.storage.source.ReadFileSystem`."""
        listing, key = self._known(path)
        if listing is not None:
            if key in listing.sizes:
                return RemoteStatus(listing.sizes[key])
            if key in listing.entries:
                return RemoteStatus(0, stat.S_IFDIR)
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        self._count(1)
        try:
            size = self._client.size(path)
        except Exception as error:
            raise _os_error(error, path) from error
        return RemoteStatus(0, stat.S_IFDIR) if size is None else RemoteStatus(size)

    def open(self, path: str) -> RemoteReadFile:
        """See `supervisor_core.storage.source.ReadFileSystem`."""
        return RemoteReadFile(self, path)

    def read(self, path: str, length: int, offset: int) -> bytes:
        """Return a range of a file."""
        ahead = self._ahead
        fetched = None if ahead is None else ahead.take(path, length, offset)
        return self._fetch(path, length, offset) if fetched is None else fetched

    def read_ahead(self, ranges: Sequence[Range]) -> None:
        """Begin to fetch the first ranges of the files in parallel, in the order in which they will be read; ends with
        `stop_read_ahead`."""
        if self._listing is not None and ranges:
            self._ahead = ReadAhead(self._fetch, ranges)

    def stop_read_ahead(self) -> None:
        """Stop fetching ahead."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.close()

    def _fetch(self, path: str, length: int, offset: int) -> bytes:
        self._count(1)
        try:
            return self._client.read(path, length, offset)
        except Exception as error:
            raise _os_error(error, path) from error

    def _count(self, requests: int) -> None:
        with self._count_lock:
            self.requests += requests

    def list(self, directory: str) -> Iterator[Entry]:
        """See `supervisor_core.storage.source.ReadFileSystem`."""
        listing, key = self._known(directory)
        if listing is not None:
            yield from listing.entries.get(key, {}).values()
            return
        self._count(1)
        try:
            yield from self._client.list(directory)
        except Exception as error:
            raise _os_error(error, directory) from error


def _os_error(error: Exception, path: str) -> OSError:
    if isinstance(error, OSError) and error.errno is not None:
        return error
    # TensorFlow's and TensorBoard's errors are recognized by their names: neither package is loaded.
    kind = type(error).__name__
    if isinstance(error, FileNotFoundError) or kind == "NotFoundError":
        return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    if isinstance(error, PermissionError) or kind in ("PermissionDeniedError", "UnauthenticatedError"):
        return PermissionError(errno.EACCES, str(error), path)
    return OSError(errno.EIO, f"{kind}: {error}", path)


def remote_source(path: str) -> RemoteSource:
    """Return the file system of a path with ``://`` in it.

    Raises:
        EventsError: if no file system for its scheme is installed.
    """
    gfile = tensorflow_gfile(path)
    if gfile is not None:
        return RemoteSource(_TensorFlowClient(gfile))
    filesystem = _fsspec_filesystem(path, scheme_of(path))
    if filesystem is not None:
        return RemoteSource(_FsspecClient(filesystem))
    return RemoteSource(_TensorBoardClient(tensorboard_filesystem(path, "read events from")))


def _fsspec_filesystem(path: str, scheme: str) -> Any | None:
    """Return fsspec's own file system for a path; None where its package is not installed.

    It comes before TensorBoard's client for S3, which takes several requests for each directory. Like that one it goes
    to the endpoint that ``S3_ENDPOINT`` names.
    """
    endpoint = os.environ.get("S3_ENDPOINT") if scheme == "s3" else None
    try:
        from fsspec.core import url_to_fs

        return url_to_fs(path, **({"endpoint_url": endpoint} if endpoint else {}))[0]
    except (ImportError, ValueError):
        return None


PARALLEL_REQUESTS = 8
"""Limit of the ranges that are being fetched or wait to be taken."""

RANGE_BYTES = FIRST_BYTES * (1 + 4 + 16 + 64)
"""Limit of the bytes of one file fetched ahead: a reader's first four pieces."""


@dataclass(frozen=True, slots=True)
class Range:
    """The part of a file that a reader will read first."""

    path: str
    offset: int
    length: int


@dataclass(slots=True)
class _Job:
    range: Range
    done: threading.Event = field(default_factory=threading.Event)
    data: bytes = b""
    error: BaseException | None = None


class ReadAhead:
    """Fetches ranges in their order, at most `PARALLEL_REQUESTS` ahead of the reader.

    Threads are daemons: a store that does not answer does not block the exit.

    Args:
        fetch: reads a range: path, length, offset. Called from several threads at once.
        ranges: one for each file, in the order in which they will be taken; cut to `RANGE_BYTES`.
    """

    def __init__(self, fetch: Callable[[str, int, int], bytes], ranges: Sequence[Range]) -> None:
        self._fetch = fetch
        self._jobs = [_Job(Range(each.path, each.offset, min(each.length, RANGE_BYTES))) for each in ranges]
        self._places = {job.range.path: place for place, job in enumerate(self._jobs)}
        self._slots = threading.Semaphore(PARALLEL_REQUESTS)
        self._lock = threading.Lock()  # guards what follows
        self._begun = self._passed = 0
        for _ in range(min(PARALLEL_REQUESTS, len(self._jobs))):
            threading.Thread(target=self._work, name="supervisor_read_ahead", daemon=True).start()

    def take(self, path: str, length: int, offset: int) -> bytes | None:
        """Return bytes of a file; None where they were not fetched ahead. Files are taken in their order: the ranges of
        earlier ones are released.

        Raises:
            Exception: that of the fetch.
        """
        place = self._places.get(path)
        if place is None or not self._pass(place):
            return None
        job = self._jobs[place]
        start = offset - job.range.offset
        if start < 0 or start + length > job.range.length:
            return None
        job.done.wait()
        if job.error is not None:
            raise job.error
        return job.data[start : start + length]

    def close(self) -> None:
        """Release all ranges, and begin no further request."""
        self._pass(len(self._jobs))

    def _pass(self, place: int) -> bool:
        """Release the ranges before a place; return whether the place itself is still held."""
        with self._lock:
            for job in self._jobs[self._passed : place]:
                job.data = b""
            freed = max(0, min(place, self._begun) - self._passed)
            is_held = place >= self._passed
            self._passed = max(self._passed, place)
            self._begun = max(self._begun, self._passed)
        if freed:
            self._slots.release(freed)
        if place == len(self._jobs):
            self._slots.release(PARALLEL_REQUESTS)  # for threads that wait for one
        return is_held

    def _work(self) -> None:
        while True:
            self._slots.acquire()
            with self._lock:
                if self._begun == len(self._jobs):
                    self._slots.release()
                    return
                job = self._jobs[self._begun]
                self._begun += 1
            try:
                job.data = self._fetch(job.range.path, job.range.length, job.range.offset)
            except BaseException as error:  # raised where it is taken
                job.error = error
            job.done.set()
