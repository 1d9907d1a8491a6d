"""`EventsFile`: appends to events files, keeps them readable when the disk fails, and names them.

The name is one that no other file has or can get:

    events.out.tfevents.<seconds>.<host>.<pid>.<counter><suffix>

``<seconds>`` are whole seconds since the Unix epoch, at least ten digits; ``<counter>`` counts the files of the
process, at least four digits. TensorBoard reads the files of a run in the order of their names, and never returns to an
earlier one: hence the padding, without which file 10 of one second would come before its file 9. The counter separates
the files of one process, the pid those of a forked child and of other processes of the host, the host the rest. The
remaining case (two containers of one name and pid in one second) is decided by exclusive creation.

Each append is checked first (`guard_directory`). A chief whose logdir was taken over appends nothing any more, through
any of its writers: the run's own, those of hooks, and those that the program made itself. So the check belongs to the
directory, not to a writer.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import logging
import os
import socket
from collections.abc import Callable

from supervisor_core.base.clock import Clock
from supervisor_core.base.systems import after_fork_in_child
from supervisor_core.events import event_format
from supervisor_core.events.event_format import Batch
from supervisor_core.storage.filesystem import AppendFile, Filesystem
from supervisor_core.storage.local import join

_LOG = logging.getLogger("supervisor_core")

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


def counted(events: int) -> str:
    """Return "1 event", "2 events"."""
    return f"{events} event{'s' if events != 1 else ''}"


class SyncError(Exception):
    """Events were appended, and then could not be made durable."""

    def __init__(self, events: int, path: str, reason: Exception) -> None:
        super().__init__(f"{counted(events)} in {path} may not survive a power cut, syncing failed: {reason}")
        self.events = events
        self.reason = reason


class EventsFile:
    """Appends batches of records to one file at a time, so that each file stays readable after any failure.

    After a failed append, the records that were written completely count as written and the torn one is cut off. A full
    disk leaves the file in use. After any other failure, and where cutting off is impossible, the file is left as it is
    (a reader stops at its torn end) and the next append begins a new one, as it does when the file was deleted or
    renamed. While its directory is elsewhere nothing is appended.

    Not thread-safe.
    """

    def __init__(self, logdir: str, filesystem: Filesystem, clock: Clock, suffix: str) -> None:
        self.logdir = logdir
        self.path: str | None = None
        """The newest file; None before the first was opened."""
        self.opened = 0
        """Number of files begun."""
        self.written = 0
        """Events appended, without version records."""
        self._filesystem = filesystem
        self._clock = clock
        self._suffix = suffix
        self._file: AppendFile | None = None
        self._size = 0
        self._in_file = 0
        self._unsynced = 0
        self._doubtful: SyncError | None = None
        self._guard_key = _guard_key(logdir)

    def open(self) -> None:
        """Begin a new file, with its version record."""
        self._filesystem.make_directory(self.logdir)
        now = self._clock.wall()
        record = event_format.frame(event_format.version_event(now))
        while True:
            path = join(self.logdir, events_filename(now, self._suffix))
            with contextlib.suppress(FileExistsError):  # taken: the next counter
                self._file = self._filesystem.create(path, record)
                break
        self.path = path
        self.opened += 1
        self._size = len(record)
        self._in_file = 0

    def ensure_open(self) -> AppendFile:
        """Begin a new file unless there is one that can be appended to."""
        is_gone = self._file is not None and self._file.is_gone()
        if self._file is None or is_gone:
            self._ask_guard()
            if is_gone:
                _LOG.warning("%s was deleted or renamed while in use; a new events file is begun.", self.path)
                self.close()
            self.open()
        assert self._file is not None
        return self._file

    def append(self, batch: Batch) -> None:
        """Append a batch. When it raises, the written records have been removed from the batch: append the rest later.

        Raises:
            LogdirInUseError: if another process has taken the logdir over.
        """
        file = self.ensure_open()
        self._ask_guard()
        try:
            file.append(batch.chunks)
        except Exception as error:
            if not self._repair(file, batch, error):
                self._sync(file)
                self.close()
            raise
        self._count(batch.events, batch.size)

    def sync(self) -> None:
        """Return when everything appended since the last call is durable. After a failure the file is not appended to
        any more: the kernel drops data that it could not write, so a later success would prove nothing.

        Raises:
            SyncError: when it is not; raised once, with the number of events in doubt.
        """
        if self._file is not None and not self._sync(self._file) and self._in_file:
            self.close()
        doubtful, self._doubtful = self._doubtful, None
        if doubtful is not None:
            raise doubtful

    def close(self) -> None:
        """Close the file, if one is open; syncs nothing."""
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(Exception):  # a failed write has been reported; close adds nothing
                file.close()

    def _ask_guard(self) -> None:
        check = _checks.get(self._guard_key)
        if check is not None:
            check()

    def _repair(self, file: AppendFile, batch: Batch, error: Exception) -> bool:
        """Cut the file after its last whole record, drop the written records from the batch; return whether to keep
        the file."""
        try:
            landed = min(max(file.size() - self._size, 0), batch.size)
            events, size = batch.discard(landed)
            self._count(events, size)
            if landed > size:
                file.truncate(self._size)
        except Exception:
            # If the size is unknown, the new file gets the whole batch, some of it perhaps a second time.
            # If the torn record could not be cut off, it ends a file that is not appended to any more.
            return False
        # A fresh file is kept after any failure, or each retry would leave one more behind.
        return not self._in_file or getattr(error, "errno", None) in _NO_SPACE

    def _count(self, events: int, size: int) -> None:
        self.written += events
        self._size += size
        self._in_file += events
        self._unsynced += events

    def _sync(self, file: AppendFile) -> bool:
        """Make durable what was appended; return whether that went well, else the events are in doubt."""
        unsynced, self._unsynced = self._unsynced, 0
        try:
            if unsynced:
                file.sync()
        except Exception as error:
            count = unsynced + (self._doubtful.events if self._doubtful else 0)
            self._doubtful = SyncError(count, self.path or self.logdir, error)
            return False
        return True


_counter = itertools.count()


def events_filename(now: float, suffix: str = "") -> str:
    """Return the next file name of this process, for a file begun at ``now`` (seconds since the epoch)."""
    host = socket.gethostname().replace(os.sep, "_") or "localhost"
    return f"events.out.tfevents.{max(0, int(now)):010d}.{host}.{os.getpid()}.{next(_counter):04d}{suffix}"


Check = Callable[[], None]
"""Returns, or raises `LogdirInUseError`: then nothing is appended any more. An `OSError` counts as a failed append."""


_checks: dict[str, Check] = {}
"""By directory: shared by all writers that append there."""


def _guard_key(directory: str) -> str:
    return directory.rstrip("/") if "://" in directory else os.path.realpath(directory)


def guard_directory(directory: str, check: Check | None) -> None:
    """Set the check that runs immediately before each append to a directory, by every writer of this process.

    Args:
        directory: the directory that the writers were given.
        check: see `Check`; None removes it.
    """
    key = _guard_key(directory)
    if check is None:
        _checks.pop(key, None)
    else:
        _checks[key] = check


after_fork_in_child(_checks.clear)
