"""`guard_directory`: who is asked before this process appends to the events files of a directory.

A chief whose logdir was taken over appends nothing any more, through whichever of its writers: the run's own, those of
hooks, and those that the program has made by itself. So the check belongs to the directory, and not to one writer.
"""

from __future__ import annotations

import os
from collections.abc import Callable

Check = Callable[[], None]
"""Returns, or raises `LogdirInUseError`: then nothing is appended any more. An `OSError` counts as a failed append."""


class DirectoryGuard:
    """The check of one directory, shared by all that append there."""

    def __init__(self) -> None:
        self.check: Check | None = None

    def ask(self) -> None:
        """Call the check, if there is one."""
        check = self.check
        if check is not None:
            check()


_guards: dict[str, DirectoryGuard] = {}


def guard_of(directory: str) -> DirectoryGuard:
    """Return the guard of a directory."""
    key = directory.rstrip("/") if "://" in directory else os.path.realpath(directory)
    return _guards.setdefault(key, DirectoryGuard())


def guard_directory(directory: str, check: Check | None) -> None:
    """Have a check asked immediately before each append to a directory, by every writer of this process.

    Args:
        directory: the directory that the writers were given.
        check: see `Check`; None asks no more.
    """
    guard_of(directory).check = check


def _forget_in_child() -> None:
    for guard in _guards.values():
        guard.check = None


os.register_at_fork(after_in_child=_forget_in_child)
