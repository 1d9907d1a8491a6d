"""Reads events files on remote file systems, and fetches ahead.

Through TensorFlow where it is loaded and knows the scheme, as the writer (`supervisor_core.storage.remote`); else
through fsspec where it has a package for that; else through TensorBoard's own client.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import NamedTuple

from supervisor_core.clock import Clock
from supervisor_core.storage.filesystem import FIRST_BYTES, DirectoryEntry, RemoteStatus
from supervisor_core.storage.remote import RemoteFilesystem, remote_filesystem, scheme_of, tensorflow_knows
from supervisor_core.storage.remote_clients import FsspecClient, client_of
from supervisor_core.storage.remote_listing import RemoteListing


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

    def __init__(self, client: RemoteFilesystem | FsspecClient) -> None:
        self._client = client
        self._kept: RemoteListing | None = None
        self._listing: RemoteListing | None = None
        self._ahead: ReadAhead | None = None
        self._count_lock = threading.Lock()
        self._listings = self._reads = 0

    @property
    def requests(self) -> int:
        """Number of requests so far."""
        return self.listings + self.reads

    @property
    def listings(self) -> int:
        """Number of requests so far that list names."""
        return self._listings + (0 if self._kept is None else self._kept.listings)

    @property
    def reads(self) -> int:
        """Number of requests so far that read files, or their sizes."""
        return self._reads + (0 if self._kept is None else self._kept.reads)

    def look(self, root: str, is_watched: Callable[[str], bool], clock: Clock) -> None:
        """Bring what is known of everything below a directory up to date, see `RemoteListing`; until the next call
        `stat` and `entries` answer from it.

        Where the store's library cannot list everything, or has failed, each directory is listed on demand.

        Args:
            root: the directory; the same each time.
            is_watched: says by its name whether a file is an events file.
            clock: paces the requests.
        """
        if not isinstance(self._client, FsspecClient):
            return
        if self._listing is None:
            self._forget()
            self._kept = RemoteListing(self._client, root, is_watched, clock)
        assert self._kept is not None
        self._kept.look()
        is_known = self._kept.is_complete and bool(self._kept.entries[self._kept.root])
        self._listing = self._kept if is_known else None  # empty, or no such directory: a request decides

    def _forget(self) -> None:
        self._listings, self._reads, self._kept = self.listings, self.reads, None

    def names(self, directory: str) -> tuple[list[str], bool] | None:
        """Return the names in a directory, and whether they are those of this moment; None where it is not below what
        `look` looks at.

        Raises:
            OSError: if the names are not known.
        """
        listing, key = self._known(directory)
        if listing is None:
            return None
        if key not in listing.entries:
            raise OSError(errno.ENODATA, "not listed", directory)
        return list(listing.entries[key]), listing.fresh is None or key in listing.fresh

    def _known(self, path: str) -> tuple[RemoteListing | None, str]:
        listing, key = self._listing, path.rstrip("/")
        is_below = listing is not None and (key + "/").startswith(listing.root + "/")
        return (listing if is_below else None), key

    def stat(self, path: str) -> RemoteStatus:
        """See `supervisor_core.storage.filesystem.ReadFilesystem`."""
        listing, key = self._known(path)
        if listing is not None and key == listing.root and listing.fault is not None:
            raise listing.fault
        if listing is not None and key in listing.sizes:
            return RemoteStatus(listing.sizes[key])
        above, _, name = key.rpartition("/")
        if listing is not None and (key in listing.entries or _is_directory(listing, above, name)):
            return RemoteStatus(0, stat.S_IFDIR, listing.versions.get(key, 0))  # what changes when its names do
        if listing is not None and name not in listing.entries.get(above, (name,)):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        self._count_read()
        size = self._client.size_of(path)
        return RemoteStatus(0, stat.S_IFDIR) if size is None else RemoteStatus(size)

    def open(self, path: str) -> RemoteReadFile:
        """See `supervisor_core.storage.filesystem.ReadFilesystem`."""
        return RemoteReadFile(self, path)

    def entries(self, directory: str) -> Iterable[DirectoryEntry]:
        """See `supervisor_core.storage.filesystem.ReadFilesystem`."""
        listing, key = self._known(directory)
        if listing is not None:
            return listing.entries.get(key, {}).values()
        with self._count_lock:
            self._listings += 1
        return self._client.entries(directory)

    def read(self, path: str, offset: int, length: int) -> bytes:
        """Return a range of a file."""
        known = self._tail_of(path, offset, length)
        if known is not None:
            return known
        ahead = self._ahead
        fetched = None if ahead is None else ahead.take(path, offset, length)
        return self._fetch(path, offset, length) if fetched is None else fetched

    def read_ahead(self, ranges: Sequence[Range]) -> None:
        """Begin to fetch the first ranges of the files in parallel, in the order in which they will be read; ends with
        `stop_read_ahead`."""
        wanted = [each for each in ranges if self._tail_of(each.path, each.offset, each.length) is None]
        if self._listing is not None and wanted:
            self._ahead = ReadAhead(self._fetch, wanted)

    def stop_read_ahead(self) -> None:
        """Stop fetching ahead."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.close()
        if self._listing is not None:
            self._listing.release()

    def _tail_of(self, path: str, offset: int, length: int) -> bytes | None:
        listing = self._listing
        return None if listing is None else listing.tail_of(path, offset, length)

    def _fetch(self, path: str, offset: int, length: int) -> bytes:
        self._count_read()
        return self._client.read_range(path, offset, length)

    def _count_read(self) -> None:
        with self._count_lock:
            self._reads += 1


def _is_directory(listing: RemoteListing, above: str, name: str) -> bool:
    entry = listing.entries.get(above, {}).get(name)
    return entry is not None and entry.is_directory


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

            return RemoteSource(client_of(url_to_fs(path, **({"endpoint_url": endpoint} if endpoint else {}))[0]))
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
