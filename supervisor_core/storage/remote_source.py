"""Reads events files on remote file systems, and fetches ahead.

Through TensorFlow where it is loaded and knows the scheme, as the writer (`supervisor_core.storage.remote`); else
through fsspec where it has a package for that; else through TensorBoard's own client. fsspec itself is asked directly,
because it can list a directory with the kinds of its entries in one request, and because its cached listings must be
dropped: a file that grows would keep its first size.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, NamedTuple

from supervisor_core.storage.filesystem import FIRST_BYTES, DirectoryEntry, RemoteStatus
from supervisor_core.storage.remote import RemoteFilesystem, as_os_error, remote_filesystem, scheme_of, tensorflow_knows

NAMES_OF_A_REQUEST = 1000
"""Names that a store lists in one request: the page size of S3 and GCS."""


class _Listing(NamedTuple):
    """A listing of everything below a directory, by paths that begin as that of the directory does."""

    root: str
    sizes: Mapping[str, int]
    entries: Mapping[str, Mapping[str, DirectoryEntry]]
    """Directory -> name -> what it is."""


class _FsspecClient:
    def __init__(self, filesystem: Any) -> None:
        self._filesystem = filesystem

    def list_all(self, root: str) -> _Listing:
        """List everything below a directory; object stores return a thousand names per request."""
        self._filesystem.invalidate_cache()
        own, root = self._stripped(root), root.rstrip("/")
        sizes: dict[str, int] = {}
        entries: dict[str, dict[str, DirectoryEntry]] = {}
        for found, info in self._filesystem.find(root, detail=True).items():
            if info["type"] == "directory" or not found.startswith(own + "/"):
                continue
            path = root + found.rstrip("/").removeprefix(own)
            sizes[path] = int(info["size"] or 0)
            is_directory = is_known = False
            while path != root and not is_known:  # what is above a known directory is known
                above, _, name = path.rpartition("/")
                is_known = above in entries
                entries.setdefault(above, {})[name] = DirectoryEntry(name, is_directory)
                path, is_directory = above, True
        return _Listing(root, sizes, entries)

    def _stripped(self, path: str) -> str:
        """Return a path without its scheme."""
        return str(self._filesystem._strip_protocol(path)).rstrip("/")

    @as_os_error
    def size_of(self, path: str) -> int | None:
        self._filesystem.invalidate_cache()
        info = self._filesystem.info(path)
        return None if info["type"] == "directory" else int(info["size"])

    @as_os_error
    def read_range(self, path: str, offset: int, length: int) -> bytes:
        return bytes(self._filesystem.cat_file(path, start=offset, end=offset + length))

    @as_os_error
    def entries(self, path: str) -> list[DirectoryEntry]:
        own = self._stripped(path)
        found = {info["name"].rstrip("/"): info["type"] for info in self._filesystem.ls(path, detail=True)}
        # A store without directories may list a marker for the directory itself.
        return [
            DirectoryEntry(os.path.basename(name), kind == "directory") for name, kind in found.items() if name != own
        ]


class RemoteReadFile:
    """A remote file; each read is a request for a range."""

    def __init__(self, source: RemoteSource, path: str) -> None:
        self._source = source
        self._path = path

    def read_at(self, offset: int, length: int) -> bytes:
        """See `supervisor_core.storage.filesystem.ReadFile`."""
        return self._source.read(self._path, offset, length)

    def close(self) -> None:
        """Do nothing: nothing is held open."""


class RemoteSource:
    """See `supervisor_core.storage.filesystem.ReadFilesystem`; exceptions of a store's library become ``OSError``."""

    def __init__(self, client: RemoteFilesystem | _FsspecClient) -> None:
        self._client = client
        self._listing: _Listing | None = None
        self._ahead: ReadAhead | None = None
        self._count_lock = threading.Lock()
        self.requests = 0
        """Number of requests so far; a listing of many names counts as one for each thousand."""

    def list_all(self, root: str) -> None:
        """List everything below a directory; until the next call `stat` and `entries` answer from this listing.

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
        listing, key = self._listing, path.rstrip("/")
        is_below = listing is not None and (key + "/").startswith(listing.root + "/")
        return (listing if is_below else None), key

    def stat(self, path: str) -> RemoteStatus:
        """See `supervisor_core.storage.filesystem.ReadFilesystem`."""
        listing, key = self._known(path)
        if listing is None:
            self._count(1)
            size = self._client.size_of(path)
        elif key in listing.sizes or key in listing.entries:
            size = listing.sizes.get(key)
        else:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return RemoteStatus(0, stat.S_IFDIR) if size is None else RemoteStatus(size)

    def open(self, path: str) -> RemoteReadFile:
        """See `supervisor_core.storage.filesystem.ReadFilesystem`."""
        return RemoteReadFile(self, path)

    def entries(self, directory: str) -> Iterable[DirectoryEntry]:
        """See `supervisor_core.storage.filesystem.ReadFilesystem`."""
        listing, key = self._known(directory)
        if listing is not None:
            return listing.entries.get(key, {}).values()
        self._count(1)
        return self._client.entries(directory)

    def read(self, path: str, offset: int, length: int) -> bytes:
        """Return a range of a file."""
        ahead = self._ahead
        fetched = None if ahead is None else ahead.take(path, offset, length)
        return self._fetch(path, offset, length) if fetched is None else fetched

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

    def _fetch(self, path: str, offset: int, length: int) -> bytes:
        self._count(1)
        return self._client.read_range(path, offset, length)

    def _count(self, requests: int) -> None:
        with self._count_lock:
            self.requests += requests


def remote_source(path: str) -> RemoteSource:
    """Return the file system of a path with ``://`` in it.

    fsspec comes before TensorBoard's client for S3, which takes several requests for each directory. Like that one it
    goes to the endpoint that ``S3_ENDPOINT`` names.

    Raises:
        EventsError: if no file system for its scheme is installed.
    """
    if not tensorflow_knows(path):
        endpoint = os.environ.get("S3_ENDPOINT") if scheme_of(path) == "s3" else None
        with suppress(ImportError, ValueError):  # its package for the scheme is not installed
            from fsspec.core import url_to_fs

            return RemoteSource(_FsspecClient(url_to_fs(path, **({"endpoint_url": endpoint} if endpoint else {}))[0]))
    return RemoteSource(remote_filesystem(path, "read events from"))


PARALLEL_REQUESTS = 8
"""Limit of the ranges that are being fetched or wait to be taken."""

RANGE_BYTES = FIRST_BYTES * (1 + 4 + 16 + 64)
"""Limit of the bytes of one file fetched ahead: a reader's first four pieces."""


class Range(NamedTuple):
    """The part of a file that a reader will read first."""

    path: str
    offset: int
    length: int


class ReadAhead:
    """Fetches ranges in their order, at most `PARALLEL_REQUESTS` ahead of the reader.

    Threads are daemons: a store that does not answer does not block the exit.

    Args:
        fetch: reads a range: path, offset, length. Called from several threads at once.
        ranges: one for each file, in the order in which they will be taken; cut to `RANGE_BYTES`.
    """

    def __init__(self, fetch: Callable[[str, int, int], bytes], ranges: Sequence[Range]) -> None:
        self._fetch = fetch
        self._ranges = [Range(each.path, each.offset, min(each.length, RANGE_BYTES)) for each in ranges]
        self._positions = {each.path: position for position, each in enumerate(ranges)}
        self._slots = threading.Semaphore(PARALLEL_REQUESTS)
        self._begun: dict[int, Future[bytes]] = {}
        self._passed = 0
        self._pass(0)

    def take(self, path: str, offset: int, length: int) -> bytes | None:
        """Return bytes of a file; None where they were not fetched ahead. Files are taken in their order, by one
        thread: the ranges of earlier ones are released.

        Raises:
            Exception: that of the fetch.
        """
        position = self._positions.get(path, -1)
        if position < self._passed:
            return None
        self._pass(position)
        start = offset - self._ranges[position].offset
        if start < 0 or start + length > self._ranges[position].length:
            return None
        return self._begun[position].result()[start : start + length]

    def close(self) -> None:
        """Release all ranges, and begin no further request."""
        self._pass(len(self._ranges))

    def _pass(self, position: int) -> None:
        """Release the ranges before a position, and begin to fetch those that are now near enough."""
        self._passed = position
        near = range(position, min(position + PARALLEL_REQUESTS, len(self._ranges)))
        self._begun = {each: self._begun.get(each) or self._begin(each) for each in near}

    def _begin(self, position: int) -> Future[bytes]:
        future: Future[bytes] = Future()
        threading.Thread(target=self._work, args=(position, future), name="supervisor_read_ahead", daemon=True).start()
        return future

    def _work(self, position: int, future: Future[bytes]) -> None:
        wanted = self._ranges[position]
        with self._slots:  # what was passed over may still be under way
            if position < self._passed:
                return
            try:
                future.set_result(self._fetch(wanted.path, wanted.offset, wanted.length))
            except BaseException as error:  # raised where it is taken
                future.set_exception(error)
