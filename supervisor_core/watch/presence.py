"""`CheckpointPresence`: which of the checkpoints that a run tells of are still on disk.

Paths are as their writer knew them: relative to wherever it ran, of another machine, with backslashes. So a checkpoint
is looked for by its name in the run's directory, and then in the one that its path names, if that can be one here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence

from supervisor_core.checkpoint.filesystem import Filesystem, filesystem_for, local_path
from supervisor_core.checkpoint.naming import last_part, without_shards

_SHARD = re.compile(r"-\d{5}-of-\d{5}$")


class CheckpointPresence:
    """Lists each directory at most once between one `forget` and the next.

    Args:
        filesystem_of: returns the file system of a path, and the path by the name to be used with it.
        listed: returns the names in a directory where somebody has listed it already; None where not.
    """

    def __init__(
        self,
        filesystem_of: Callable[[str], tuple[Filesystem, str]] = filesystem_for,
        listed: Callable[[str], Sequence[str] | None] = lambda directory: None,
    ) -> None:
        self._filesystem_of = filesystem_of
        self._listed = listed
        self._listings: dict[str, frozenset[str] | None] = {}

    def forget(self) -> None:
        """Look anew from now on."""
        self._listings.clear()

    def stamp(self, directory: str) -> int | None:
        """Return what changes when a file comes to a local directory or goes; None where nothing tells that."""
        local = local_path(directory)
        try:
            return None if local is None else os.stat(local).st_mtime_ns
        except OSError:
            return None

    def within(self, directory: str) -> Callable[[str], bool | None]:
        """Return what says of a recorded path whether that checkpoint's files are there; None where it cannot be told.

        Args:
            directory: the run's.
        """

        def present(path: str) -> bool | None:
            name = without_shards(last_part(path))
            here = self._names(directory)
            if here is not None and name in here:
                return True
            unknown = None if here is None else False
            if _store(path) != _store(directory):
                return unknown if _store(path) is None else None  # another store is not asked for the sake of this
            elsewhere = path.rpartition("/")[0] if _store(path) else os.path.dirname(path)
            if elsewhere == directory or not (_store(path) or os.path.isabs(path)):
                return unknown
            there = self._names(elsewhere)
            return unknown if there is None else name in there

        return present

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


def _store(path: str) -> str | None:
    return path.partition("://")[0] if "://" in path else None
