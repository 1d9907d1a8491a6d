"""`RemoteSource`: what is below a remote directory and in its events files, with a bounded number of requests per look.

A look lists everything below the directory, if that takes no more than `LOOK_LISTINGS` requests. A larger directory is
listed as often as keeps to that on average; each look between asks for the sizes of the files that have grown of late.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Generic, NamedTuple, TypeVar

from supervisor_core.base.clock import Clock
from supervisor_core.storage.filesystem import FIRST_BYTES, DirectoryEntry, RemoteStatus
from supervisor_core.storage.remote import Gfile, RemoteFilesystem, remote_filesystem

NAMES_OF_A_REQUEST = 1000
"""Names that a store lists in one request: the page size of S3 and GCS."""
LOOK_LISTINGS = 20
"""Requests that list names, per look on average: a listing of 20,000 names takes some seconds."""
LOOK_SIZES = 1000
"""Limit of the sizes asked for in a look without a listing."""
LIVE_SECS = 3600.0
"""The size of a file that has not grown for longer is known from listings only."""
PARALLEL_REQUESTS = 16
"""Limit of the requests under way, and of the ranges that wait to be taken."""
RANGE_BYTES = FIRST_BYTES * (1 + 4 + 16 + 64)
"""Limit of the bytes of one file fetched ahead: a reader's first four pieces."""

_T = TypeVar("_T")
_R = TypeVar("_R")


class Range(NamedTuple):
    """The part of a file that a reader will read first."""

    path: str
    offset: int
    length: int


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
    """A `supervisor_core.storage.filesystem.ReadFilesystem`. Used by one thread at a time.

    Args:
        filesystem: lists and reads. Where it cannot list everything at once, each directory is listed on demand.
    """

    def __init__(self, filesystem: RemoteFilesystem) -> None:
        self._filesystem = filesystem
        self._root = ""
        self._names: dict[str, dict[str, bool]] = {}
        """Directory -> name -> whether it is one, of all below the root. Empty before the first listing."""
        self._sizes: dict[str, int] = {}
        """Of the watched files."""
        self._grown_at: dict[str, float] = {}
        """When each live file has grown, by the monotonic clock; the one whose size was asked for last is the last."""
        self._fault: OSError | None = None
        """Why the last look broke off."""
        self._version = 0
        """Rises when names may have changed."""
        self._is_listed = False
        """Whether the last look has listed everything."""
        self._to_wait = 0
        """Looks until the next listing."""
        self._ahead: Ahead[Range, bytes] | None = None
        self._ranges: dict[str, Range] = {}
        """What is fetched ahead of each file."""
        self._count_lock = threading.Lock()
        self.requests = 0
        """Number of requests so far."""

    def look(self, root: str, is_watched: Callable[[str], bool], clock: Clock) -> None:
        """Bring what is known of everything below a directory up to date; `stat` and `entries` then answer from it.

        Raises nothing: after a fault everything stays as it was known, and `stat` of the root raises the fault.

        Args:
            root: the directory; the same each time.
            is_watched: says by its name whether a file is an events file.
            clock: its wall time is compared with when files were written.
        """
        if isinstance(self._filesystem.client, Gfile):
            return
        self._root, self._fault = root.rstrip("/"), None
        self._to_wait -= 1
        self._is_listed = self._to_wait < 0
        try:
            if self._is_listed:
                self._list(is_watched, clock)
            else:
                self._ask_for_sizes(clock.monotonic())
        except OSError as error:
            self._fault, self._is_listed = error, False

    def _list(self, is_watched: Callable[[str], bool], clock: Clock) -> None:
        now, wall = clock.monotonic(), clock.wall()
        found = self._filesystem.find(self._root)
        requests = 1 + len(found) // NAMES_OF_A_REQUEST
        self._count(requests)
        self._to_wait = (requests - 1) // LOOK_LISTINGS
        names: dict[str, dict[str, bool]] = {self._root: {}}
        sizes: dict[str, int] = {}
        for path, status in found:
            if "//" in f"{path.removeprefix(self._root)}/":  # a store takes that for a name; no path leads there
                continue
            is_directory = stat.S_ISDIR(status.st_mode)
            if is_directory:
                names.setdefault(path, {})
            elif is_watched(path.rpartition("/")[2]):
                sizes[path] = status.st_size
                if path not in self._sizes and status.st_mtime_ns:
                    idle = max(0.0, wall - status.st_mtime_ns / 1e9)
                    self._grown_at[path] = now - idle
                elif self._sizes.get(path) != status.st_size:
                    self._grown_at[path] = now
            above, _, name = path.rpartition("/")
            while name not in names.setdefault(above, {}):
                names[above][name] = is_directory
                if above == self._root:
                    break
                (above, _, name), is_directory = above.rpartition("/"), True
        self._names, self._sizes = names, sizes
        self._grown_at = {path: at for path, at in self._grown_at.items() if path in sizes and now - at <= LIVE_SECS}
        self._version += 1

    def _ask_for_sizes(self, now: float) -> None:
        """Ask for the sizes of the files that have grown within the last hour; of many those asked for longest ago."""
        due = list(self._grown_at)[:LOOK_SIZES]
        self._count(len(due))
        asked, faults = Ahead(self._size_of, due), []
        for path in due:
            size, grown_at = asked.take(path), self._grown_at.pop(path)
            if isinstance(size, FileNotFoundError):
                del self._sizes[path]
                del self._names[path.rpartition("/")[0]][path.rpartition("/")[2]]
                self._version += 1
                continue
            if isinstance(size, OSError):  # one that may not be read holds up nothing else
                faults.append(size)
            elif size is not None and size != self._sizes[path]:
                self._sizes[path], grown_at = size, now
            if now - grown_at <= LIVE_SECS:
                self._grown_at[path] = grown_at
        if faults and len(faults) == len(due):
            raise faults[0]

    def _size_of(self, path: str) -> int | OSError:
        try:
            return self._filesystem.stat(path).st_size
        except OSError as error:
            return error

    def names(self, directory: str) -> tuple[list[str], bool] | None:
        """Return the names in a directory, and whether they are those of this look; None where it is not below what
        `look` looks at."""
        if not self._is_known(directory):
            return None
        return list(self._names.get(directory.rstrip("/"), ())), self._is_listed

    def _is_known(self, path: str) -> bool:
        """Return whether a path is below what was listed. Of an empty directory a request says whether it is there."""
        return bool(self._names.get(self._root)) and (path.rstrip("/") + "/").startswith(self._root + "/")

    def stat(self, path: str) -> RemoteStatus:
        """See `supervisor_core.storage.filesystem.ReadFilesystem`."""
        key = path.rstrip("/")
        if self._is_known(path):
            if key == self._root and self._fault is not None:
                raise self._fault
            if key in self._sizes:
                return RemoteStatus(self._sizes[key])
            if key in self._names:
                return RemoteStatus(0, stat.S_IFDIR, self._version)  # what changes when its names do
            above, _, name = key.rpartition("/")
            if name not in self._names.get(above, ()):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        self._count(1)
        found = self._filesystem.stat(path)
        return RemoteStatus(found.st_size, found.st_mode)

    def open(self, path: str) -> RemoteReadFile:
        """See `supervisor_core.storage.filesystem.ReadFilesystem`."""
        return RemoteReadFile(self, path)

    def entries(self, directory: str) -> Iterable[DirectoryEntry]:
        """See `supervisor_core.storage.filesystem.ReadFilesystem`."""
        if self._is_known(directory):
            return [DirectoryEntry(*each) for each in self._names.get(directory.rstrip("/"), {}).items()]
        self._count(1)
        return self._filesystem.entries(directory)

    def read(self, path: str, offset: int, length: int) -> bytes:
        """Return a range of a file."""
        ahead, first = self._ahead, self._ranges.get(path)
        if ahead is not None and first is not None and 0 <= offset - first.offset <= first.length - length:
            data = ahead.take(first)
            if data is not None:
                return data[offset - first.offset : offset - first.offset + length]
        return self._fetch(Range(path, offset, length))

    def read_ahead(self, ranges: Sequence[Range]) -> None:
        """Begin to fetch the first ranges of the files in parallel, in the order in which they will be read; ends with
        `stop_read_ahead`."""
        self._ranges = {each.path: each._replace(length=min(each.length, RANGE_BYTES)) for each in ranges}
        self._ahead = Ahead(self._fetch, tuple(self._ranges.values()))

    def stop_read_ahead(self) -> None:
        """Stop fetching ahead."""
        if self._ahead is not None:
            self._ahead.close()
        self._ahead, self._ranges = None, {}

    def _fetch(self, wanted: Range) -> bytes:
        self._count(1)
        return self._filesystem.read_range(*wanted)

    def _count(self, requests: int) -> None:
        with self._count_lock:
            self.requests += requests


class Ahead(Generic[_T, _R]):
    """Calls a function with each of some items in their order, at most `PARALLEL_REQUESTS` ahead of `take`.

    Threads are daemons: a store that does not answer does not block the exit.

    Args:
        call: called from several threads at once.
        items: in the order in which they will be taken; no two are equal.
    """

    def __init__(self, call: Callable[[_T], _R], items: Sequence[_T]) -> None:
        self._call = call
        self._items = items
        self._positions = {item: position for position, item in enumerate(items)}
        self._slots = threading.Semaphore(PARALLEL_REQUESTS)
        self._begun: dict[int, Future[_R]] = {}
        self._passed = 0
        self._pass(0)

    def take(self, item: _T) -> _R | None:
        """Return the result for an item; None for one that was passed over. Results of earlier items are released.

        Raises:
            Exception: that of the call.
        """
        position = self._positions[item]
        if position < self._passed:
            return None
        self._pass(position)
        return self._begun[position].result()

    def close(self) -> None:
        """Release all results, and begin no further call."""
        self._pass(len(self._items))

    def _pass(self, position: int) -> None:
        """Release the results before a position, and begin the calls that are now near enough."""
        self._passed = position
        near = range(position, min(position + PARALLEL_REQUESTS, len(self._items)))
        self._begun = {each: self._begun.get(each) or self._begin(each) for each in near}

    def _begin(self, position: int) -> Future[_R]:
        future: Future[_R] = Future()
        threading.Thread(target=self._work, args=(position, future), name="supervisor_store", daemon=True).start()
        return future

    def _work(self, position: int, future: Future[_R]) -> None:
        with self._slots:  # what was passed over may still be under way
            if position < self._passed:
                return
            try:
                future.set_result(self._call(self._items[position]))
            except BaseException as error:  # raised where it is taken
                future.set_exception(error)


def remote_source(path: str) -> RemoteSource:
    """Return the source of a path with ``://`` in it.

    Raises:
        EventsError: if no file system for its scheme is installed.
    """
    return RemoteSource(remote_filesystem(path, "read events from"))
