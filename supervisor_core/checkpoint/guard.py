"""The guard: the check that runs immediately before each publication of a chief takes effect.

A chief that was suspended (SIGSTOP, a paused virtual machine, a network that was cut) for longer than its lease lasts
is taken over, and does not know it when it resumes. So each change that other processes can read (moving a staged
checkpoint into place, replacing the state file, deleting, appending events, renewing or releasing the lease itself)
checks first, synchronously: the lease file is opened by its name and read, which makes network file systems ask their
server. It begins with the owner's token:

    {"v":1,"session":"<session id>","attempt":<number>,

Those bytes: the session may publish. The record of another session: taken over, unless it is in the same file and of an
earlier attempt (then this session's own record was not written yet, or was overwritten by an earlier chief's last
renewal, and the next renewal repairs it). No record: not taken over; a missing file is recreated.

Not covered is the time between this read and the system call after it: a process that is suspended right there
publishes that one thing when it resumes, and nothing after it. `docs/storage.md` describes the consequence.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from supervisor_core.checkpoint.lease_file import VERSION, LeaseFile, LeaseRecord, decode
from supervisor_core.storage.filesystem import Check, Filesystem, unguarded

READINGS = 5
"""Attempts at reading an invalid lease: a holder without a lock may be writing it at that moment."""


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


class Token:
    """The first bytes of a lease file while a session holds it.

    Args:
        session: the session that has taken the lease.
        attempt: its number among the run's sessions.
    """

    def __init__(self, session: str, attempt: int) -> None:
        self.session = session
        self._attempt = attempt
        text = json.dumps({"v": VERSION, "session": session, "attempt": attempt}, separators=(",", ":"))
        self._bytes = text.removesuffix("}").encode("ascii") + b","

    def begins(self, data: bytes) -> bool:
        """Return whether the bytes of a lease file are this session's record."""
        return data.startswith(self._bytes)

    def find_successor(self, file: LeaseFile, retake: Callable[[LeaseRecord | None], str | None]) -> str | None:
        """Return the holder that has taken the lease over; None where there is none.

        Args:
            file: the lease file.
            retake: called with the record of a file that is not the one which was taken (None: missing or blank; this
                session's own record: a copy, or mounted again); takes that file too and returns None, or returns its
                holder.

        Raises:
            OSError: if the file cannot be read.
        """
        data, is_taken_file = file.read_current()
        if is_taken_file and self.begins(data):
            return None
        found: LeaseRecord | None = None
        for _ in range(READINGS):
            try:
                found = decode(data)
                break
            except ValueError:
                data, is_taken_file = file.read_current()
        if not is_taken_file:
            return retake(found)
        if found is not None and found.session == self.session:
            return None
        return found.holder if found is not None and found.attempt >= self._attempt else None


def taken_over_text(logdir: str, successor: str, timeout_secs: float) -> str:
    """Return the error of a chief whose logdir another one has taken over."""
    return (
        f"The logdir {logdir} was taken over by {successor}: this process had not renewed its lease for longer than "
        f"lease_timeout_secs ({timeout_secs:g} s), as when it is suspended or cut off from the storage. It publishes "
        "nothing any more and stops; the run goes on from the other chief's newest checkpoint."
    )


def yielded_text(logdir: str, successor: str) -> str:
    """Return the error of a session that gave way."""
    return (
        f"The logdir {logdir} now belongs to {successor}, which writes checkpoints there: this process writes no "
        "telemetry any more."
    )


class GuardedFilesystem:
    """A file system that runs a check before each change; reads pass unchecked.

    Args:
        inner: does the work.
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
