"""`DirectoryTree`: the directories below a logdir and their events files, without listing again what is the same."""

from __future__ import annotations

import errno
import stat
from collections import Counter
from collections.abc import Iterator

from supervisor_core.clock import SYSTEM_CLOCK, Clock
from supervisor_core.events.source import ReadFileSystem, source_of
from supervisor_core.storage.local import join

SETTLED_SECS = 2.0
"""A directory whose time of change is younger than this may change again within the same tick of its clock."""
RELIST_SECS = 60.0
"""Listed again after this at the latest: some network file systems keep no time of change for directories."""

MAX_NAMES = 8
"""Under so many names one directory is walked: links that lead to links could else double the runs at every level."""

_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)


def is_events_file(name: str) -> bool:
    """Say whether a file name is an events file's by TensorBoard's rule."""
    return "tfevents" in name


class Directory:
    """What was in one directory when it was last listed.

    Args:
        path: the directory; remote with ``://`` in it.
        filesystem: where to read from; the one that the path says.
        clock: tells when a listing has become old.
    """

    __slots__ = ("_clock", "_key", "_listed_at", "_settled", "_source", "events", "identity", "path", "problem", "subs")

    def __init__(self, path: str, *, filesystem: ReadFileSystem | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
        self.path = path
        self.events: tuple[str, ...] = ()
        """Names of the events files, in TensorBoard's order: sorted."""
        self.subs: tuple[tuple[str, bool], ...] = ()
        """Names of the directories in it, sorted, and whether each is a symbolic link."""
        self.identity: tuple[int, int] | None = None
        """Device and inode; None where it could not be asked or the store has none."""
        self.problem: str | None = None
        """Why it could not be listed; None where it could, or is not there."""
        self._source = source_of(path) if filesystem is None else filesystem
        self._clock = clock
        self._key: tuple[int, int, int] | None = None
        self._settled = False
        self._listed_at = 0.0

    def refresh(self) -> bool:
        """List the directory, unless it cannot have changed; return whether it is there.

        One that cannot be listed keeps what was in it.
        """
        try:
            status = self._source.stat(self.path)
            if not stat.S_ISDIR(status.st_mode):
                raise NotADirectoryError(errno.ENOTDIR, "not a directory", self.path)
            key = status.st_mtime_ns, status.st_ino, status.st_dev
            self.identity = key[1:] if status.st_ino else None
            now = self._clock.monotonic()
            if key == self._key and self._settled and now - self._listed_at < RELIST_SECS:
                return True
            entries = sorted(self._source.list(self.path), key=lambda entry: entry.name)
        except (OSError, ValueError) as error:
            self._key = None
            if isinstance(error, OSError) and error.errno in _GONE:
                self.events, self.subs, self.problem = (), (), None
                return False
            self.problem = f"{self.path} cannot be listed: {error}"
            return True
        self.problem = None
        self.events = tuple(entry.name for entry in entries if not entry.is_directory and is_events_file(entry.name))
        self.subs = tuple((entry.name, entry.is_link) for entry in entries if entry.is_directory)
        self._key, self._listed_at = key, now
        self._settled = 0 < key[0] < (self._clock.wall() - SETTLED_SECS) * 1e9
        return True


class DirectoryTree:
    """All directories below a logdir, symbolic links followed, but not into a directory that is being walked already.

    Args:
        root: the logdir.
        filesystem: where to read from; the one that the path says.
        clock: tells when a listing has become old.
    """

    def __init__(self, root: str, *, filesystem: ReadFileSystem | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
        self.root = root
        self._source = source_of(root) if filesystem is None else filesystem
        self._clock = clock
        self._known: dict[str, Directory] = {}
        self._unfollowed = 0

    def refresh(self) -> None:
        """Walk the tree."""
        known: dict[str, Directory] = {}
        walked: Counter[tuple[int, int]] = Counter()
        self._unfollowed = 0
        pending: list[tuple[str, str, bool, tuple[Directory, ...]]] = [(".", self.root, False, ())]
        linked: list[tuple[str, str, bool, tuple[Directory, ...]]] = []  # last, so that no link takes a name's place
        while pending or linked:
            through_link = not pending
            name, path, is_link, above = linked.pop() if through_link else pending.pop()
            directory = self._known.get(name)
            if directory is None:
                directory = Directory(path, filesystem=self._source, clock=self._clock)
            if not directory.refresh():
                continue
            if is_link and directory.identity is not None and any(up.identity == directory.identity for up in above):
                continue
            if directory.identity is not None:
                walked[directory.identity] += 1
                if through_link and walked[directory.identity] > MAX_NAMES:
                    self._unfollowed += 1
                    continue
            known[name] = directory
            if directory.subs:
                within = (*above, directory)
                prefix = "" if name == "." else name + "/"
                for sub, link in reversed(directory.subs):
                    (linked if link or through_link else pending).append((prefix + sub, join(path, sub), link, within))
        self._known = known

    def runs(self) -> Iterator[tuple[str, Directory]]:
        """Yield each directory that holds events files, by its name relative to the root: ``.`` for the root itself."""
        return ((name, directory) for name, directory in self._known.items() if directory.events)

    @property
    def is_reachable(self) -> bool:
        """Whether the root is there and could be listed at the last `refresh`."""
        root = self._known.get(".")
        return root is not None and root.problem is None

    def problems(self) -> Iterator[str]:
        """Yield what could not be listed, and why."""
        yield from (directory.problem for directory in self._known.values() if directory.problem is not None)
        if self._unfollowed:
            yield (
                f"{self.root} holds directories under more than {MAX_NAMES} names, by symbolic links; "
                f"{self._unfollowed:,} of these names are not followed."
            )
