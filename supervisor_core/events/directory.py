"""`DirectoryTree`: the directories below a logdir and their events files; unchanged ones are not listed again."""

from __future__ import annotations

import errno
import heapq
import stat
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from supervisor_core.base.clock import SYSTEM_CLOCK, Clock
from supervisor_core.base.fair_share import fair_order
from supervisor_core.events.chunk_builder import created_at
from supervisor_core.storage.filesystem import MOST_LEVELS, DirectoryEntry, FileStatus, ReadFilesystem
from supervisor_core.storage.local import join, source_of

CLOCK_TICK_SECS = 2.0
"""A directory whose time of change is younger than this may change again within the same tick of its clock."""
RELIST_SECS = 60.0
"""Longest age of a listing: some network file systems keep no time of change for directories."""

MAX_NAMES = 100
"""Limit of the names under which one directory is walked through the links of one owner: without it, links that lead
to links could double the runs at every level."""
MAX_NESTED_NAMES = 8
"""The same limit for a name that leads through more than one link."""

MAX_LINKED = 50_000
"""Limit of the names that are walked through the links of one owner, of all directories."""

MAX_DIRECTORIES = 500_000
"""Limit of the directories of one owner; a store without owners has none."""

MAX_PROBLEMS = 100
"""Directories that cannot be listed and are named, by turns of their owners; of more their number is said."""

MAX_FILES = 5_000
"""Limit of the events files read of one directory: the newest, by the seconds in their names."""

_NO_LINKS: frozenset[str] = frozenset()
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)


def is_events_file(name: str) -> bool:
    """Say whether a file name is an events file's by TensorBoard's rule."""
    return "tfevents" in name


class Directory:
    """The listing of one directory.

    Args:
        path: the directory; remote with ``://`` in it.
        filesystem: lists it. Default: by the path's scheme.
        clock: times the age of the listing.
    """

    def __init__(self, path: str, *, filesystem: ReadFilesystem | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
        self.path = path
        self.events: tuple[str, ...] = ()
        """Names of the events files that are read, in TensorBoard's order: sorted."""
        self.links = _NO_LINKS
        """Those of them that are symbolic links."""
        self.left_out = 0
        """Number of events files beyond `MAX_FILES`, which are not read."""
        self.first_event_file: str | None = None
        """Name of the first of all events files, by the seconds in their names; hidden ones, which are still being
        copied, come last. None without any."""
        self.subs: tuple[DirectoryEntry, ...] = ()
        """The directories in it, sorted by name."""
        self.identity: tuple[int, int] | None = None
        """Inode and device; None where unknown, or the store has none."""
        self.owner: int | None = None
        """Whose its events are: its `user`'s; where anybody may write, its last events file's user's, -1 of a link."""
        self.user: int | None = None
        """Whose it is, or the first link on the way to it; None where the store has no owners."""
        self.problem: str | None = None
        """Why it could not be listed; None where it could, or does not exist."""
        self._source = source_of(path) if filesystem is None else filesystem
        self._clock = clock
        self._changed_at: int | None = None
        self._is_trusted = False
        self._listed_at = 0.0

    def refresh(self) -> bool:
        """List the directory, unless it cannot have changed; return whether it exists.

        One that cannot be listed keeps its last listing.
        """
        try:
            status = self._source.stat(self.path)
            if not stat.S_ISDIR(status.st_mode):
                raise NotADirectoryError(errno.ENOTDIR, "not a directory", self.path)
            self.user = getattr(status, "st_uid", None)
            self.owner = self._owner(status)
            identity, changed_at, now = _identity(status), status.st_mtime_ns, self._clock.monotonic()
            is_same = (changed_at, identity) == (self._changed_at, self.identity)
            if is_same and self._is_trusted and now - self._listed_at < RELIST_SECS:
                return True
            self.identity = identity
            events, links, found, subs, first = self._list()
        except (OSError, ValueError) as error:
            self._changed_at = None
            if isinstance(error, OSError) and error.errno in _GONE:
                self.events, self.links, self.subs, self.left_out, self.problem = (), _NO_LINKS, (), 0, None
                self.first_event_file = None
                return False
            self.problem = f"{self.path} cannot be listed: {error}"
            return True
        self.problem, self.first_event_file = None, first
        self.events, self.subs, self.left_out = tuple(sorted(events)), tuple(subs), found - len(events)
        self.links = frozenset(links.intersection(events)) if links else _NO_LINKS
        self.owner = self._owner(status)
        self._changed_at, self._listed_at = changed_at, now
        self._is_trusted = 0 < changed_at < (self._clock.wall() - CLOCK_TICK_SECS) * 1e9
        return True

    def _owner(self, status: FileStatus) -> int | None:
        if self.user is None or not self.events or not status.st_mode & stat.S_IWOTH:
            return self.user
        if self.events[-1] in self.links:
            return -1
        try:
            return getattr(self._source.stat(join(self.path, self.events[-1])), "st_uid", None)
        except (OSError, ValueError):
            return self.user

    def _list(self) -> tuple[list[str], set[str], int, list[DirectoryEntry], str | None]:
        """Return the newest events files, which of them are links, the number of all, the directories, and the first
        events file, without holding all names."""
        events: list[str] = []
        links: set[str] = set()
        subs: list[DirectoryEntry] = []
        found = 0
        first: str | None = None
        for entry in self._source.entries(self.path):
            if entry.is_directory:
                subs.append(entry)
            elif is_events_file(entry.name):
                found += 1
                events.append(entry.name)
                first = entry.name if first is None else min(first, entry.name, key=_age_rank)
                if entry.is_link:
                    links.add(entry.name)
                if len(events) >= 2 * MAX_FILES:
                    events = _newest(events)
                    links.intersection_update(events)
        return _newest(events), links, found, sorted(subs, key=lambda entry: entry.name), first


def _age_rank(name: str) -> tuple[bool, float, str]:
    """Return what orders the names of events files, the oldest first."""
    return name.startswith("."), created_at(name) or 0.0, name


def _newest(events: list[str]) -> list[str]:
    if len(events) <= MAX_FILES:
        return events
    return heapq.nlargest(MAX_FILES, events, key=lambda name: (created_at(name) or 0.0, name))


def _identity(status: FileStatus) -> tuple[int, int] | None:
    return (status.st_ino, status.st_dev) if status.st_ino else None


@dataclass(frozen=True, slots=True)
class _Step:
    """A directory to be walked."""

    name: str
    path: str
    is_link: bool = False
    above: tuple[Directory, ...] = ()
    links: int = 0
    """Number of links on the path."""
    owner: int | None = None
    """Owner of the first of these links."""

    @property
    def rank(self) -> tuple[int, str]:
        """The shallowest comes first, then the first by name."""
        return self.name.count("/"), self.name

    def into(self, directory: Directory) -> Iterator[_Step]:
        prefix = "" if self.name == "." else self.name + "/"
        above = (*self.above, directory)
        for sub in directory.subs:
            owner = self.owner if self.links else sub.owner
            yield _Step(
                prefix + sub.name, join(self.path, sub.name), sub.is_link, above, self.links + sub.is_link, owner
            )


class DirectoryTree:
    """All directories below a logdir, symbolic links followed, but not into a directory that is being walked already.

    Of many names of one directory through links the shallowest count first, then the first by name. Their number is
    bounded for each owner of links, so that one user's links cannot displace another's. So is the depth.

    Args:
        root: the logdir.
        filesystem: lists the directories. Default: by the path's scheme.
        clock: times the age of listings.
    """

    def __init__(self, root: str, *, filesystem: ReadFilesystem | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
        self.root = root
        self._source = source_of(root) if filesystem is None else filesystem
        self._clock = clock
        self._known: dict[str, Directory] = {}
        self._unfollowed = self._too_deep = self._too_many = 0

    def refresh(self) -> None:
        """Walk the tree."""
        known: dict[str, Directory] = {}
        names: Counter[tuple[tuple[int, int] | None, int | None]] = Counter()
        owned = Counter[int | None]()
        self._unfollowed = self._too_deep = self._too_many = 0
        pending = [_Step(".", self.root)]
        linked: list[tuple[tuple[int, str], _Step]] = []
        while pending or linked:
            step = pending.pop() if pending else heapq.heappop(linked)[1]
            above = step.above[-1].user if step.above else None
            if above is not None and owned[above] >= MAX_DIRECTORIES:
                self._too_many += 1
                continue
            directory = self._walk(step, names)
            if directory is None:
                continue
            owned[directory.user] += 1
            known[step.name] = directory
            subs = list(step.into(directory))
            pending += [sub for sub in reversed(subs) if not sub.links]
            for sub in subs:
                if sub.links:
                    heapq.heappush(linked, (sub.rank, sub))
        self._known = known

    def _walk(self, step: _Step, names: Counter[tuple[tuple[int, int] | None, int | None]]) -> Directory | None:
        """List a directory; None where it does not exist, or is not walked under this name.

        Args:
            names: how many names each directory has through the links of each owner so far; None: all directories.
        """
        if step.name.count("/") >= MOST_LEVELS:
            self._too_deep += 1
            return None
        if step.links:
            names[None, step.owner] += 1
            if names[None, step.owner] > MAX_LINKED:
                self._unfollowed += 1
                return None
            try:
                identity = _identity(self._source.stat(step.path))
            except (OSError, ValueError):
                identity = None  # the listing has the reason
            if identity is not None:
                if step.is_link and any(up.identity == identity for up in step.above):
                    return None
                names[identity, step.owner] += 1
                if names[identity, step.owner] > (MAX_NAMES if step.links == 1 else MAX_NESTED_NAMES):
                    self._unfollowed += 1
                    return None
        directory = self._known.get(step.name)
        if directory is None:
            directory = Directory(step.path, filesystem=self._source, clock=self._clock)
        is_there = directory.refresh()
        if step.links:
            directory.owner = directory.user = step.owner
        return directory if is_there else None

    def runs(self) -> Iterator[tuple[str, Directory]]:
        """Yield each directory that holds events files, by its name relative to the root: ``.`` for the root itself."""
        return ((name, directory) for name, directory in self._known.items() if directory.events)

    @property
    def is_reachable(self) -> bool:
        """Whether the root existed and could be listed at the last `refresh`."""
        root = self._known.get(".")
        return root is not None and root.problem is None

    def problems(self) -> Iterator[str]:
        """Yield the reasons why directories could not be listed."""
        unlisted = [directory for directory in self._known.values() if directory.problem is not None]
        in_turns = fair_order(unlisted, lambda directory: directory.user)
        yield from (str(directory.problem) for directory in in_turns[:MAX_PROBLEMS])
        if len(unlisted) > MAX_PROBLEMS:
            yield f"{self.root} holds {len(unlisted) - MAX_PROBLEMS:,} more directories that cannot be listed."
        if self._too_many:
            yield f"{self.root} holds more than {MAX_DIRECTORIES:,} directories of one owner: not all are looked into."
        if self._too_deep:
            yield (
                f"{self.root} holds {self._too_deep:,} directories more than {MOST_LEVELS} deep, which are not looked "
                "into."
            )
        if self._unfollowed:
            yield (
                f"{self.root} holds directories under more than {MAX_NAMES} names, or {MAX_LINKED:,} names of such, by "
                f"symbolic links; "
                f"{self._unfollowed:,} of these names are not followed."
            )
