"""The guard: the one check that everything passes which a chief publishes, immediately before it takes effect.

A chief that was suspended (SIGSTOP, a virtual machine that was paused, a network that was cut) for longer than its
lease lasts is taken over, and does not know it when it wakes up. So whatever other processes could read afterwards
(moving a staged checkpoint into its place, replacing the state file, deleting, appending events, renewing or releasing
the lease itself) asks here first, and synchronously: the lease file is opened by its name and read, which makes network
file systems ask their server. It begins with the owner's token:

    {"v":1,"session":"<session id>","attempt":<number>,

Those bytes: go on. The record of another session: taken over, unless it is in the same file and of an earlier attempt
(then this session's own record has not got through, or an earlier chief's last renewal came after it, and the next
renewal puts it right). No record: nobody has taken over; a file that is missing is put back.

What remains is the time between this read and the system call after it: a process that is suspended right there
publishes that one thing when it wakes up, and nothing after it. `docs/storage.md` says what happens to it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from supervisor_core.checkpoint.filesystem import Check, Filesystem, Reader, unguarded
from supervisor_core.checkpoint.lease_record import VERSION, LeaseRecord, decode

READINGS = 5
"""How often a lease that makes no sense is read: a holder without a lock may be writing it at that very moment."""


@dataclass(frozen=True, kw_only=True)
class Publisher:
    """Who publishes in a logdir, and the check that it has to pass each time."""

    session: str
    attempt: int
    """The session's number among those of the run."""
    check: Check = unguarded


class LookedAt(Protocol):
    """What the check needs of a lease file."""

    def look(self) -> tuple[bytes, bool]:
        """Return the bytes of the file of that name, and whether it is the file that was taken; none if it is gone."""


class Token:
    """What a lease file begins with while a session holds it.

    Args:
        session: the session that has taken the lease.
        attempt: its number among the run's sessions.
    """

    def __init__(self, session: str, attempt: int) -> None:
        self.session = session
        self._attempt = attempt
        text = json.dumps({"v": VERSION, "session": session, "attempt": attempt}, separators=(",", ":"))
        self._bytes = text.removesuffix("}").encode("ascii") + b","

    def find_successor(self, file: LookedAt, retake: Callable[[LeaseRecord | None], str | None]) -> str | None:
        """Return who else has taken the lease; None while nobody has.

        Args:
            file: the lease file.
            retake: called with what is found in a file that is not the one which was taken (None: it is missing, or
                blank; this session's own record: a copy, or mounted again); takes that one too and returns None, or
                returns who else has it.

        Raises:
            OSError: if the file cannot be read.
        """
        data, is_taken_file = file.look()
        if data.startswith(self._bytes) and is_taken_file:
            return None
        found: LeaseRecord | None = None
        for _ in range(READINGS):
            try:
                found = decode(data)
                break
            except ValueError:
                data, is_taken_file = file.look()
        if not is_taken_file:
            return retake(found)
        if found is not None and found.session == self.session:
            return None
        return found.holder if found is not None and found.attempt >= self._attempt else None


class GuardedFilesystem:
    """A file system that asks before each change; reads, and files that are not there yet, are as they were.

    Args:
        inner: does the work.
        check: asked immediately before each change takes effect.
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

    def move(self, path: str, target: str) -> None:
        """See `Filesystem.move`."""
        self._check()
        self._inner.move(path, target)

    def remove(self, path: str) -> None:
        """See `Filesystem.remove`."""
        self._check()
        self._inner.remove(path)

    def remove_tree(self, path: str) -> None:
        """See `Filesystem.remove_tree`."""
        self._check()
        self._inner.remove_tree(path)

    def make_directory(self, path: str) -> None:
        """See `Filesystem.make_directory`."""
        self._check()
        self._inner.make_directory(path)

    def now_in(self, directory: str) -> float | None:
        """See `Filesystem.now_in`."""
        return self._inner.now_in(directory)

    def list_names(self, directory: str) -> list[str]:
        """See `Filesystem.list_names`."""
        return self._inner.list_names(directory)

    def walk(self, top: str, on_error: Callable[[OSError], None]) -> Iterator[tuple[str, list[str]]]:
        """See `Filesystem.walk`."""
        return self._inner.walk(top, on_error)

    def is_file(self, path: str) -> bool:
        """See `Filesystem.is_file`."""
        return self._inner.is_file(path)

    def open(self, path: str) -> Reader:
        """See `Filesystem.open`."""
        return self._inner.open(path)

    def read(self, path: str) -> bytes:
        """See `Filesystem.read`."""
        return self._inner.read(path)

    def sync(self, paths: Iterable[str], directory: str) -> None:
        """See `Filesystem.sync`."""
        self._inner.sync(paths, directory)

    def modified_at(self, path: str) -> float | None:
        """See `Filesystem.modified_at`."""
        return self._inner.modified_at(path)

    def contains(self, directory: str, path: str) -> bool:
        """See `Filesystem.contains`."""
        return self._inner.contains(directory, path)
