"""`RemoteSource`: what is below a remote directory and in its events files, with a bounded number of requests per look.

A look lists everything below the directory, if that takes no more than `LOOK_LISTINGS` requests. A larger directory is
listed as often as keeps to that on average; each look between asks for the sizes of the files that have grown of late.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Sequence

from supervisor_core.base.clock import Clock
from supervisor_core.storage.filesystem import FIRST_BYTES, MOST_LEVELS, DirectoryEntry, Range, RemoteStatus
from supervisor_core.storage.remote import RemoteFilesystem

NAMES_OF_A_REQUEST = 1000
"""Names that a store lists in one request: the page size of S3 and GCS."""
LOOK_LISTINGS = 20
"""Requests that list names, per look on average: a listing of 20,000 names takes some seconds."""
LOOK_SIZES = 1000
"""Limit of the sizes asked for in a look without a listing."""
LIVE_SECS = 3600.0
"""The size of a file that has not grown for longer is known from listings only."""
TOGETHER = 32
"""Ranges that are fetched at a time."""
RANGE_BYTES = FIRST_BYTES * (1 + 4 + 16 + 64)
"""Limit of the bytes of one file fetched ahead: a reader's first four pieces."""


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
        self._leading = set[str]()
        """The directories on the ways to watched files."""
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
        self._waiting: dict[str, Range] = {}
        """What is to be fetched ahead of each file."""
        self._fetched: dict[str, tuple[int, bytes]] = {}
        """What was, with its offset."""
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
        self._root, self._fault = root.rstrip("/"), None
        self._to_wait -= 1
        self._is_listed = self._to_wait < 0
        try:
            if self._is_listed:
                self._list(is_watched, clock)
                return
            try:
                self._ask_for_sizes(clock.monotonic())
            except OSError:  # a file is gone, or may not be read
                self._is_listed = True
                self._list(is_watched, clock)
        except OSError as error:
            self._fault, self._is_listed = error, False

    def _list(self, is_watched: Callable[[str], bool], clock: Clock) -> None:
        now, wall = clock.monotonic(), clock.wall()
        found = self._filesystem.find(self._root)
        requests = 1 + len(found) // NAMES_OF_A_REQUEST
        self.requests += requests
        self._to_wait = (requests - 1) // LOOK_LISTINGS
        names: dict[str, dict[str, bool]] = {self._root: {}}
        sizes: dict[str, int] = {}
        leading = set[str]()
        for path, status in found:
            below = path.removeprefix(self._root).split("/")[1:]
            if not {"", ".", ".."}.isdisjoint(below):  # a store takes these for names; no path leads there
                continue
            is_directory = stat.S_ISDIR(status.st_mode)
            leads = not is_directory and is_watched(below[-1])
            if len(below) > MOST_LEVELS + 1:  # who walks there says that it goes no deeper
                path, is_directory = "/".join((self._root, *below[: MOST_LEVELS + 1])), True
                leading.add(path)
            if is_directory:
                names.setdefault(path, {})
            elif leads:
                sizes[path] = status.st_size
                if path not in self._sizes and status.st_mtime_ns:
                    idle = max(0.0, wall - status.st_mtime_ns / 1e9)
                    self._grown_at[path] = now - idle
                elif self._sizes.get(path) != status.st_size:
                    self._grown_at[path] = now
            above, _, name = path.rpartition("/")
            while name not in names.setdefault(above, {}) or (leads and above not in leading):
                names[above].setdefault(name, is_directory)
                if leads:
                    leading.add(above)
                if above == self._root:
                    break
                (above, _, name), is_directory = above.rpartition("/"), True
        self._names, self._sizes, self._leading = names, sizes, leading
        self._grown_at = {path: at for path, at in self._grown_at.items() if path in sizes and now - at <= LIVE_SECS}
        self._version += 1

    def _ask_for_sizes(self, now: float) -> None:
        """Ask for the sizes of the files that have grown within the last hour; of many those asked for longest ago."""
        due = list(self._grown_at)[:LOOK_SIZES]
        self.requests += len(due)
        for path, size in zip(due, self._filesystem.sizes(due), strict=True):
            grown_at = self._grown_at.pop(path)
            if size != self._sizes[path]:
                self._sizes[path], grown_at = size, now
            if now - grown_at <= LIVE_SECS:
                self._grown_at[path] = grown_at

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
        self.requests += 1
        found = self._filesystem.stat(path)
        return RemoteStatus(found.st_size, found.st_mode)

    def open(self, path: str) -> RemoteReadFile:
        """See `supervisor_core.storage.filesystem.ReadFilesystem`."""
        return RemoteReadFile(self, path)

    def entries(self, directory: str) -> Iterable[DirectoryEntry]:
        """See `supervisor_core.storage.filesystem.ReadFilesystem`; of the directories only those that lead to watched
        files."""
        if self._is_known(directory):
            own, leading = directory.rstrip("/"), self._leading
            found = self._names.get(own, {}).items()
            return [DirectoryEntry(*each) for each in found if not each[1] or f"{own}/{each[0]}" in leading]
        self.requests += 1
        return self._filesystem.entries(directory)

    def read(self, path: str, offset: int, length: int) -> bytes:
        """Return a range of a file."""
        if path in self._waiting:
            self._fetch_together(path)
        begin, data = self._fetched.get(path, (0, b""))
        if begin <= offset and offset + length <= begin + len(data):
            return data[offset - begin : offset - begin + length]
        self.requests += 1
        return self._filesystem.read_range(path, offset, length)

    def read_ahead(self, ranges: Sequence[Range]) -> None:
        """Fetch the first ranges of the files many at a time, in the order in which they will be read; ends with
        `stop_read_ahead`."""
        self._waiting = {each.path: each._replace(length=min(each.length, RANGE_BYTES)) for each in ranges}

    def stop_read_ahead(self) -> None:
        """Release what was fetched ahead."""
        self._waiting, self._fetched = {}, {}

    def _fetch_together(self, path: str) -> None:
        """Fetch the ranges of a file and of those after it; files that were passed over are left out."""
        paths = list(self._waiting)
        end = paths.index(path) + TOGETHER
        batch = [self._waiting[each] for each in paths[end - TOGETHER : end]]
        for each in paths[:end]:
            del self._waiting[each]
        self.requests += len(batch)
        found = zip(batch, self._filesystem.read_ranges(batch), strict=True)
        self._fetched = {each.path: (each.offset, data) for each, data in found if data is not None}
