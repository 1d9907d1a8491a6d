"""`CheckpointPresence`: which of a run's recorded checkpoints are still on disk.

Paths are as their writer knew them: relative to wherever it ran, of another machine, with backslashes. So a checkpoint
is looked for by its name in the run's directory, and then in the one that its path names, if that is below the logdir:
whoever can write an events file must not learn by it which files there are elsewhere.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence

from supervisor_core.checkpoint.names import last_part, without_shards
from supervisor_core.storage.filesystem import Filesystem
from supervisor_core.storage.local import filesystem_for, join, local_path

MAX_DIRECTORIES = 16
"""In how many directories other than its own a run's checkpoints are looked for; what is beyond is not known."""

_SHARD = re.compile(r"-\d{5}-of-\d{5}$")


class CheckpointPresence:
    """Lists each directory at most once between one `clear` and the next.

    Args:
        root: the logdir; other directories below it are looked at, too. None: only the run's own.
        filesystem_of: returns the file system of a path, and the path by the name to be used with it.
        listed: returns the names in a directory that has been listed already; None where it has not.
    """

    def __init__(
        self,
        root: str | None = None,
        filesystem_of: Callable[[str], tuple[Filesystem, str]] = filesystem_for,
        listed: Callable[[str], Sequence[str] | None] = lambda directory: None,
    ) -> None:
        self._root = root
        self._roots: tuple[str, ...] | None = None
        self._filesystem_of = filesystem_of
        self._listed = listed
        self._listings: dict[str, frozenset[str] | None] = {}

    def clear(self) -> None:
        """Look again from now on."""
        self._listings.clear()
        self._roots = None

    def stamp(self, directory: str) -> int | None:
        """Return what changes when a file comes to a local directory or goes; None where that is not known."""
        local = local_path(directory)
        try:
            return None if local is None else os.stat(local).st_mtime_ns
        except OSError:
            return None

    def within(self, directory: str) -> Callable[[str], bool | None]:
        """Return a function that says whether the checkpoint of a recorded path is there; None where unknown.

        To be asked for newer checkpoints first: where one whose path names a directory elsewhere is in the run's own,
        that is the run's own by another name (of a container, of another machine), and what is not here is gone.

        Args:
            directory: the run's.
        """
        own = {directory}
        others: set[str] = set()

        def present(path: str) -> bool | None:
            name = without_shards(last_part(path))
            here = self._names(directory)
            elsewhere = path.rpartition("/")[0] if _store(path) else os.path.dirname(path)
            if here is not None and name in here:
                own.add(elsewhere)
                return True
            below = last_part(elsewhere)  # of a run whose directory was renamed, what is below it has still its name
            if here is not None and below in here and name in (self._names(join(directory, below)) or ()):
                return True
            unknown = None if here is None else False
            if elsewhere in own or not (_store(path) or os.path.isabs(path)):
                return unknown
            if not self._is_below_root(elsewhere):
                return None
            if not _store(elsewhere):
                elsewhere = os.path.realpath(elsewhere)  # it may be spelled in many ways
            others.add(elsewhere)
            if len(others) > MAX_DIRECTORIES:
                return None
            there = self._names(elsewhere)
            return unknown if there is None else name in there

        return present

    def _is_below_root(self, directory: str) -> bool:
        """Say whether a directory is the logdir or below it; asks no file system about one that cannot be."""
        if self._root is None:
            return False
        if _store(directory) or _store(self._root):
            return ".." not in directory.split("/") and _is_below(directory, self._root.rstrip("/"))
        if self._roots is None:
            self._roots = os.path.abspath(self._root), os.path.realpath(self._root)
        if "\0" in directory or not any(_is_below(os.path.normpath(directory), root) for root in self._roots):
            return False
        return _is_below(os.path.realpath(directory), self._roots[-1])

    def _names(self, directory: str) -> frozenset[str] | None:
        """Return the names of the checkpoints in a directory; None where it cannot be listed."""
        if directory not in self._listings:
            try:
                listing = self._listed(directory)
                if listing is None:
                    filesystem, name = self._filesystem_of(directory)
                    listing = filesystem.list_names(name)
            except (FileNotFoundError, NotADirectoryError):
                self._listings[directory] = frozenset()
            except (OSError, ImportError, ValueError):  # a store whose package is missing, or that is out of reach
                self._listings[directory] = None
            else:
                self._listings[directory] = frozenset(_SHARD.sub("", item.removesuffix(".index")) for item in listing)
        return self._listings[directory]


def _is_below(directory: str, root: str) -> bool:
    return directory == root or directory.startswith(root.rstrip("/") + "/")


def _store(path: str) -> str | None:
    return path.partition("://")[0] if "://" in path else None
