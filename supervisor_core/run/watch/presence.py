"""`CheckpointPresence`: which of a run's recorded checkpoints are still on disk.

Paths are as their writer knew them: relative to wherever it ran, of another machine, with backslashes. So a checkpoint
is looked for by its name in the run's directory, and then in the one that its path names, if that is below the logdir:
whoever can write an events file must not learn by it which files there are elsewhere.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence

from supervisor_core.base.errors import DamagedCheckpointError, UnreadableCheckpointError
from supervisor_core.checkpoint import bundle
from supervisor_core.checkpoint.manifest import read_manifest
from supervisor_core.checkpoint.names import last_part
from supervisor_core.checkpoint.sealed_files import SealedFiles
from supervisor_core.checkpoint.set_aside import find_set_aside
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
        listed: returns the names in a directory that has been listed already, and whether they are those of this
            moment: if not, what is missing there may have come since. None where it has not been listed; raises
            `OSError` where the names cannot be known.
    """

    def __init__(
        self,
        root: str | None = None,
        filesystem_of: Callable[[str], tuple[Filesystem, str]] = filesystem_for,
        listed: Callable[[str], tuple[Sequence[str], bool] | None] = lambda directory: None,
    ) -> None:
        self._root = root
        self._roots: tuple[str, ...] | None = None
        self._filesystem_of = filesystem_of
        self._listed = listed
        self._listings: dict[str, frozenset[str] | None] = {}
        self._earlier: set[str] = set()
        """Directories whose listings are of an earlier moment."""

    def clear(self) -> None:
        """Look again from now on."""
        self._listings.clear()
        self._earlier.clear()
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
            name = last_part(path)
            here = self._names(directory)
            elsewhere = _parent(path)
            place = self.place(directory, path)
            if place is not None:
                own.add(elsewhere)
                return True
            unknown = None if here is None or directory in self._earlier else False
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
            if there is None:
                return unknown
            return True if name in there else None if elsewhere in self._earlier else False

        return present

    def damage(self, directory: str, path: str) -> str | None:
        """Return what is wrong with a checkpoint by its manifest, or its index, and the sizes of its files; None if
        nothing is, or it is not known. Their content is not read.

        Args:
            directory: the run's.
            path: as the checkpoint's writer knew it.
        """
        place = self.place(directory, path)
        local = None if place is None else local_path(place)
        if local is None:
            return None
        try:
            if os.path.isdir(local):
                SealedFiles(local, read_manifest(local)).verify(read_data=False)
            elif os.path.isfile(f"{local}.index"):
                bundle.verify(local, data=False)
        except UnreadableCheckpointError:  # it may be whole
            return None
        except DamagedCheckpointError as error:
            return str(error)
        return None

    def moved_at(self, directory: str) -> Callable[[str], float | None]:
        """Return a function that says when what is at a path was set aside there; None where unknown.

        Args:
            directory: the run's.
        """

        def moved_at(path: str) -> float | None:
            place = self.place(directory, path)
            if place is None:
                return None
            filesystem, name = self._filesystem_of(_parent(place))
            found = find_set_aside(filesystem, name, [last_part(place)])
            return found[0].at or None if found else None

        return moved_at

    def place(self, directory: str, path: str) -> str | None:
        """Return where the checkpoint of a recorded path is, in a run's directory or one below it that its path names;
        None where it is in neither.

        Args:
            directory: the run's.
            path: as the checkpoint's writer knew it.
        """
        name, here = last_part(path), self._names(directory) or frozenset()
        if name in here:
            return join(directory, name)
        below = last_part(_parent(path))  # of a run whose directory was renamed, what is below it has still its name
        inner = join(directory, below)
        return join(inner, name) if below in here and name in (self._names(inner) or ()) else None

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
                known = self._listed(directory)
                if known is None:
                    filesystem, name = self._filesystem_of(directory)
                    known = filesystem.list_names(name), True
                listing, is_new = known
                if not is_new:
                    self._earlier.add(directory)
            except (FileNotFoundError, NotADirectoryError):
                self._listings[directory] = frozenset()
            except (OSError, ImportError, ValueError):  # a store whose package is missing, or that is out of reach
                self._listings[directory] = None
            else:
                self._listings[directory] = frozenset(_SHARD.sub("", item.removesuffix(".index")) for item in listing)
        return self._listings[directory]


def _is_below(directory: str, root: str) -> bool:
    return directory == root or directory.startswith(root.rstrip("/") + "/")


def _parent(path: str) -> str:
    return path.rpartition("/")[0] if _store(path) else os.path.dirname(path)


def _store(path: str) -> str | None:
    return path.partition("://")[0] if "://" in path else None
