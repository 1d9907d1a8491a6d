"""Who publishes in a logdir (`Publisher`), and a file system that runs a check before each change (`guarded`).

The check is `supervisor_core.engine.logdir_hold.LogdirHold.check`: synchronously, immediately before each change that
other processes can read takes effect.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, cast

from supervisor_core.storage.filesystem import Check, Filesystem, unguarded
from supervisor_core.storage.local import local_path

LOCK_NAME = ".supervisor.lock"
"""Of the lock in a logdir."""
_READS = ("list_names", "walk", "is_file", "open", "read", "sync", "modified_at", "now_in", "contains")
"""The methods of a `Filesystem` that change nothing which other processes can read; all others are checked."""


@dataclass(frozen=True, kw_only=True)
class Publisher:
    """The session that publishes in a logdir, and the check before each publication."""

    session: str
    attempt: int
    """The session's number within its run."""
    check: Check = unguarded
    bring_back: Check = unguarded
    """Called before a checkpoint is saved: checks, and makes the session's directory again if it was deleted."""
    logdir: str | None = None
    """That directory, which is in its place when both return; None where it is not local."""


class GuardedFilesystem:
    """A file system that runs a check before each change; reads pass unchecked.

    Args:
        check: called immediately before each change takes effect.
    """

    def __init__(self, inner: Filesystem, check: Check) -> None:
        self._inner = inner
        self._check = check

    def replace(self, path: str, data: bytes, check: Check = unguarded) -> None:
        """See `Filesystem.replace`."""

        def both() -> None:
            check()
            self._check()

        self._inner.replace(path, data, both)

    def __getattr__(self, name: str) -> Any:
        """Return a method of the file system; one that may change something runs the check first."""
        method = getattr(self._inner, name)
        if name in _READS:
            return method

        def checked(*arguments: Any, **named: Any) -> Any:
            self._check()
            return method(*arguments, **named)

        return checked


def guarded(inner: Filesystem, check: Check) -> Filesystem:
    """Return a file system that runs a check immediately before each change takes effect."""
    return cast("Filesystem", GuardedFilesystem(inner, check))


def is_same(directory: str, other: str) -> bool:
    """Return whether two names are of one directory; one that is empty is of none."""
    if not directory or not other or "://" in other:
        return directory == other != ""
    return os.path.realpath(directory) == os.path.realpath(other)


def is_covered(directory: str, logdir: str) -> bool:
    """Return whether a directory is below a local logdir, and no logdir itself: then the logdir's lock is its, too."""
    own, real = local_path(logdir), os.path.realpath(directory)
    if own is None or "://" in directory or not real.startswith(os.path.join(os.path.realpath(own), "")):
        return False
    return not os.path.lexists(os.path.join(real, LOCK_NAME))
