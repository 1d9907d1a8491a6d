"""`LeaseFile`: the file of a lease, and the lock on it.

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
import fcntl
import os
import uuid
from dataclasses import dataclass
from typing import Literal, Protocol

from supervisor_core.storage.local import LOCAL, Filesystem, filesystem_for, open_own, open_regular

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


class LeaseFile(Protocol):
    """One lease file. Every failure of reading and writing is an `OSError`."""

    path: str
    renewal_secs: float
    """Shortest interval of writes without a noticeable cost."""

    def take(self) -> LockResult:
        """Open the file, create it (not its directory) where it is missing, and try to lock it, without waiting."""

    def read(self) -> bytes:
        """Return its bytes; empty where there is none."""

    def write(self, data: bytes) -> None:
        """Replace its bytes."""

    def look(self) -> tuple[bytes, bool]:
        """Return the bytes of the file that has the name now, and whether it is the file that was taken.

        For `guard`, before each publication; needs no lock; safe from any thread.
        """

    def is_in_place(self) -> bool:
        """Say whether the file that was taken is still the one of that name."""

    def age_secs(self) -> float | None:
        """Return the time since it was written, by the file system's own clock; None where unknown."""

    def unlock(self) -> None:
        """Release the lock; the file stays open for writing."""

    def release(self) -> None:
        """Close it, and so unlock it, unless it is open elsewhere."""


class LocalLeaseFile:
    """A lease file on a local or mounted file system."""

    renewal_secs = 1.0

    def __init__(self, path: str) -> None:
        self.path = path
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
            self.release()  # it was deleted between opening and locking: the lock is on a file without a name
        return LockResult("unlocked", "the lease file is deleted repeatedly")

    def _open(self) -> tuple[int, OSError | None]:
        """Open the file; where it must not be written, for reading only, with the reason."""
        try:
            return open_own(self.path, os.O_RDWR | os.O_CREAT), None
        except OSError as error:
            if error.errno not in _NOT_TO_BE_WRITTEN:
                raise
            try:
                return open_regular(self.path, os.O_RDONLY | os.O_NOFOLLOW), error
            except OSError:
                raise error from None

    def read(self) -> bytes:
        """See `LeaseFile.read`."""
        if self._fd is not None:
            return os.pread(self._fd, _MAX_BYTES, 0)
        try:
            return LOCAL.read(self.path)
        except FileNotFoundError:
            return b""

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

    def look(self) -> tuple[bytes, bool]:
        """See `LeaseFile.look`; opens the file for it, since that makes network file systems ask their server."""
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

    def age_secs(self) -> float | None:
        """See `LeaseFile.age_secs`."""
        return _age_secs(LOCAL, self.path)

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


class RemoteLeaseFile:
    """A lease file in an object store: there are no locks, only renewals show that the holder lives."""

    renewal_secs = 15.0

    def __init__(self, path: str) -> None:
        self._filesystem, self.path = filesystem_for(path)

    def take(self) -> LockResult:
        """See `LeaseFile.take`."""
        return LockResult("lockless")

    def read(self) -> bytes:
        """See `LeaseFile.read`."""
        try:
            return self._filesystem.read(self.path)
        except FileNotFoundError:
            return b""

    def write(self, data: bytes) -> None:
        """See `LeaseFile.write`."""
        self._filesystem.replace(self.path, data)

    def look(self) -> tuple[bytes, bool]:
        """See `LeaseFile.look`; one request. Objects have no identity but their names."""
        return self.read(), True

    def is_in_place(self) -> bool:
        """See `LeaseFile.is_in_place`."""
        return True

    def age_secs(self) -> float | None:
        """See `LeaseFile.age_secs`."""
        return _age_secs(self._filesystem, self.path)

    def unlock(self) -> None:
        """Do nothing: there is no lock."""

    def release(self) -> None:
        """Do nothing: nothing is held open."""


def _is_ours(data: bytes) -> bool:
    """Say whether a file may be overwritten: it is blank, or begins as a lease of any version does."""
    return not data.strip(b"\0 \n") or data.startswith(b'{"v":')


def _age_secs(filesystem: Filesystem, path: str) -> float | None:
    try:
        written = filesystem.modified_at(path)
        now = filesystem.now_in(os.path.dirname(path) or ".")
    except OSError:
        return None
    return None if written is None or now is None else now - written
