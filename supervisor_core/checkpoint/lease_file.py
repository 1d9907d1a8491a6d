"""The file of a lease: its content (`LeaseRecord`), and the lock on it (`LeaseFile`).

``<logdir>/.supervisor.lease``, byte by byte:

    0 .. n        one JSON object, ASCII, without line breaks; the fields of `LeaseRecord`, and "v": 1
    n+1 ..        spaces (0x20) up to the byte before the last
    last          a newline (0x0a); the length is a multiple of 1,024, nearly always 1,024 itself

One write replaces all of it in place, so that the lock stays on the file. To a reader that finds anything else the
history is unknown.

On local file systems an exclusive ``flock`` on the lease file decides who holds it: the kernel drops the lock the
instant the holder dies, however it dies. The lock belongs to the open file, which a forked child would share and so
keep alive; the child's copy is closed right after the fork (`logdir_lock`), and no program started by exec gets one.
The file is therefore written in place and never replaced; through no link, and over nothing that is no lease. The
exception is a file with several names, as ``cp -al`` makes: it is locked as it is, and the first write replaces it by a
copy, locked before it has the name. A file that can be read and not written (another user's, a read-only mount) is
locked, too: so its holder keeps all others out.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import sys
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from supervisor_core.base.clock import Clock, boot_secs
from supervisor_core.base.json_records import Attempt, Integer, Secs, encode_object, parse_object, record_of
from supervisor_core.storage.directory import path_now
from supervisor_core.storage.local import filesystem_for, local_path
from supervisor_core.storage.opening import open_own, open_unlinked

if sys.platform != "win32":  # where leases are only read
    import fcntl

LEASE_NAME = ".supervisor.lease"

BLOCK_BYTES = 1024
VERSION = 1

COSTS = ("trained_secs", "timed_saves", "save_secs", "blocked_secs")
"""The fields with the run's cost of steps and saves."""


@dataclass(frozen=True, kw_only=True)
class LeaseRecord:
    """The session that holds, or last held, a logdir. Times are wall-clock seconds since the epoch."""

    session: str
    attempt: Attempt
    """1 for the run's first session, one more for each later one."""
    host: str
    boot: str | None
    """The kernel's boot id: the same for all containers of one machine, another after a reboot. None where the system
    has none."""
    pid: Integer
    started_at: Secs
    first_started_at: Secs
    """When the run's first session started."""
    renewed_at: Secs
    started_boot_secs: Secs | None = None
    """When it was taken, by the clock that counts from the machine's start (see ``boot``) and is never set."""
    renewed_boot_secs: Secs | None = None
    """When it was renewed, by that clock."""
    renewals: Integer = 0
    last_step: Integer | None = None
    ended: str | None = None
    """Why the session ended (``completed``, ``signal``, ``error`` ...); None while it runs, and if it was killed."""
    ended_at: Secs | None = None
    restarts: Mapping[str, Integer] = field(default_factory=dict)
    """How the earlier sessions ended: reason -> count; ``lost`` for those without a stop record."""
    steps_lost: Integer = 0
    """Steps that this and the earlier sessions recomputed after restarts."""
    trained_secs: Secs | None = None
    """Time that this and the earlier sessions spent on steps. None, like the next three, where it is not known of one
    of them."""
    timed_saves: Secs | None = None
    """Number of their good saves."""
    save_secs: Secs | None = None
    """Duration of those saves."""
    blocked_secs: Secs | None = None
    """Time for which those saves blocked training."""
    predecessor: str | None = None
    """The earlier session that was cut off and whose model may be alive in a cluster; None once this one is ready."""
    yields_logdir: bool = False
    """The session writes no checkpoints, and gives way to one that does."""

    def renewed(self, clock: Clock, *, last_step: int | None = None, **changes: Any) -> LeaseRecord:
        """Return the record as of now, with ``last_step`` where known, and other changes."""
        step = self.last_step if last_step is None else last_step
        now = boot_secs(clock)
        return replace(self, renewed_at=clock.wall(), renewed_boot_secs=now, last_step=step, **changes)

    @property
    def elapsed_secs(self) -> float | None:
        """Age of the session at its last renewal; None where unknown."""
        if self.started_boot_secs is None or self.renewed_boot_secs is None:
            return None
        return max(0.0, self.renewed_boot_secs - self.started_boot_secs)

    @property
    def outcome(self) -> str:
        """How a session ended that is known not to run."""
        return "lost" if self.ended is None else self.ended

    @property
    def holder(self) -> str:
        """The last holder, for messages."""
        ended = "" if self.ended is None else f", which has ended ({self.ended})"
        return f"process {self.pid} on {self.host} (session {self.session}){ended}"


def encode(record: LeaseRecord) -> bytes:
    """Return the lease file's bytes."""
    text = encode_object(VERSION, asdict(record))
    length = math.ceil((len(text) + 1) / BLOCK_BYTES) * BLOCK_BYTES
    return text.ljust(length - 1) + b"\n"


def decode(data: bytes) -> LeaseRecord | None:
    """Return the record in a lease file's bytes; None for an empty file.

    Raises:
        ValueError: if they hold no valid record; says why.
    """
    if not data.strip():
        return None
    return record_of(LeaseRecord, parse_object(data, VERSION))


_NOT_TO_BE_WRITTEN = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EMLINK)
"""Errors of opening a file for writing that can still be read and locked."""

_MAX_BYTES = 1 << 16
"""Limit of a read; a lease nearly always has 1,024 bytes."""


@dataclass(frozen=True)
class LockResult:
    """The result of trying to take the lock."""

    verdict: Literal["ours", "theirs", "lockless", "unlocked", "unwritable", "unavailable"]
    """``lockless``: the storage has no locks, only renewals show that a holder lives; ``unlocked``: the file can be
    written, and the lock cannot be taken; ``unwritable``: it is locked, and cannot be written; ``unavailable``:
    neither."""
    reason: str | None = None
    """The cause of the last three."""


class LeaseFile:
    """One lease file; as it stands, in an object store: there are no locks, only renewals show that the holder lives.

    Every failure of reading and writing is an `OSError`.

    Args:
        path: the file.
    """

    renewal_secs = 15.0
    """Shortest interval of writes without a noticeable cost."""

    def __init__(self, path: str) -> None:
        self._filesystem, self.path = filesystem_for(path)

    def take(self) -> LockResult:
        """Open the file, create it (not its directory) where it is missing, and try to lock it, without waiting."""
        return LockResult("lockless")

    def read(self) -> bytes:
        """Return its bytes; empty where there is none."""
        try:
            return self._filesystem.read(self.path)
        except FileNotFoundError:
            return b""

    def write(self, data: bytes) -> None:
        """Replace its bytes."""
        self._filesystem.replace(self.path, data)

    def read_current(self) -> tuple[bytes, bool]:
        """Return the bytes of the file that has the name now, and whether it is the file that was taken: objects have
        no identity but their names.

        For `guard`, before each publication; needs no lock; safe from any thread; one request.
        """
        return self.read(), True

    def is_in_place(self) -> bool:
        """Say whether the file that was taken is still the one of that name."""
        return True

    def path_now(self) -> str | None:
        """Return the path that the file that was taken has by now; an empty one if it was deleted, None where it is
        not known."""
        return self.path

    def age_secs(self) -> float | None:
        """Return the time since it was written, by the file system's own clock; None where unknown."""
        try:
            written = self._filesystem.modified_at(self.path)
            now = self._filesystem.now_in(os.path.dirname(self.path) or ".")
        except OSError:
            return None
        return None if written is None or now is None else now - written

    def unlock(self) -> None:
        """Release the lock; the file stays open for writing."""

    def release(self) -> None:
        """Close it, and so unlock it, unless it is open elsewhere."""


class LocalLeaseFile(LeaseFile):
    """A lease file on a local or mounted file system."""

    renewal_secs = 1.0

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._fd: int | None = None
        self._taken: os.stat_result | None = None
        self._is_shared = False  # it has other names, so it must not be written

    def take(self) -> LockResult:
        """See `LeaseFile.take`."""
        for _ in range(3):
            try:
                fd, flaw = self._open()
            except OSError as error:  # an unavailable directory: the file in it stays locked until it is back
                return LockResult("unavailable", error.strerror or str(error))
            self.release()
            self._fd, self._taken = fd, os.fstat(fd)
            self._is_shared = flaw is not None and flaw.errno == errno.EMLINK
            unwritable = None if flaw is None or self._is_shared else flaw.strerror or str(flaw)
            if not _is_ours(os.pread(fd, _MAX_BYTES, 0)):
                self.release()
                what = "" if flaw is None else f"{flaw.strerror}; "
                return LockResult("unavailable", f"{what}{self.path} is not a lease file; move it away")
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return LockResult("theirs")
            except OSError as error:
                if unwritable is not None:
                    return LockResult("unavailable", unwritable)
                return LockResult("unlocked", error.strerror or str(error))
            if self.is_in_place():
                return LockResult("ours") if unwritable is None else LockResult("unwritable", unwritable)
            # It was deleted between opening and locking: the lock is on a file without a name. It stays open until the
            # next one is, as what tells that the logdir was deleted.
        return LockResult("unlocked", "the lease file is deleted repeatedly")

    def _open(self) -> tuple[int, OSError | None]:
        """Open the file; where it must not be written, for reading only, with the reason."""
        try:
            return open_own(self.path, os.O_RDWR | os.O_CREAT), None
        except OSError as error:
            if error.errno not in _NOT_TO_BE_WRITTEN:
                raise
            try:
                return open_unlinked(self.path), error
            except OSError:
                raise error from None

    def read(self) -> bytes:
        """See `LeaseFile.read`."""
        if self._fd is not None:
            return os.pread(self._fd, _MAX_BYTES, 0)
        return super().read()

    def write(self, data: bytes) -> None:
        """See `LeaseFile.write`."""
        if self._fd is None:
            raise FileNotFoundError(f"{self.path} is not open.")
        if self._is_shared:
            self._write_copy(data)
            return
        os.pwrite(self._fd, data, 0)
        if os.fstat(self._fd).st_size > len(data):
            os.ftruncate(self._fd, len(data))
        # Closing any copy makes network file systems hand what was written to the server, where other hosts look.
        os.close(os.dup(self._fd))

    def _write_copy(self, data: bytes) -> None:
        """Replace a file that has other names by a copy with one."""
        temporary = f"{self.path}.tmp{uuid.uuid4().hex}"
        fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
        try:
            os.pwrite(fd, data, 0)
            with contextlib.suppress(OSError):  # where there are no locks, renewals decide
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.replace(temporary, self.path)
        except BaseException:
            os.close(fd)
            with contextlib.suppress(OSError):  # the first error is raised
                os.unlink(temporary)
            raise
        self.release()
        self._fd, self._taken = fd, os.fstat(fd)

    def read_current(self) -> tuple[bytes, bool]:
        """See `LeaseFile.read_current`; opens the file again, which makes network file systems ask their server."""
        try:
            fd = open_own(self.path, os.O_RDONLY)
            try:
                data, status = os.read(fd, _MAX_BYTES), os.fstat(fd)
            finally:
                os.close(fd)
        except FileNotFoundError:
            return b"", False
        except OSError:
            if not self.is_in_place():
                raise
            return self.read(), True  # on SMB a lock keeps out its holder's other descriptors, too
        return data, self._taken is not None and os.path.samestat(status, self._taken)

    def is_in_place(self) -> bool:
        """See `LeaseFile.is_in_place`."""
        if self._fd is None:
            return False
        try:
            return os.path.samestat(os.lstat(self.path), os.fstat(self._fd))
        except OSError:
            return False

    def path_now(self) -> str | None:
        """See `LeaseFile.path_now`."""
        return None if self._fd is None else path_now(self._fd)

    def unlock(self) -> None:
        """See `LeaseFile.unlock`."""
        if self._fd is not None:
            with contextlib.suppress(OSError):  # the file system has no locks
                fcntl.flock(self._fd, fcntl.LOCK_UN)

    def release(self) -> None:
        """See `LeaseFile.release`."""
        fd, self._fd = self._fd, None
        self._is_shared = False
        if fd is not None:
            with contextlib.suppress(OSError):  # the descriptor is closed in any case
                os.close(fd)

    def __del__(self) -> None:
        self.release()


def lease_file_in(logdir: str | os.PathLike[str]) -> LeaseFile:
    """Return the lease file of a logdir."""
    kind = LeaseFile if local_path(logdir) is None else LocalLeaseFile
    return kind(os.path.join(os.fspath(logdir), LEASE_NAME))


def _is_ours(data: bytes) -> bool:
    """Say whether a file may be overwritten: it is blank, or begins as a lease of any version does."""
    return not data.strip(b"\0 \n") or data.startswith(b'{"v":')


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
    return not os.path.lexists(os.path.join(real, LEASE_NAME))
