"""`LockFile`: a lock between the processes of a machine, on a file that only its owner can open.

Who may read a file can lock it. So a lock's file has the mode 0600, under any umask. A file of a wider mode, or with
several names as ``cp -al`` makes, is replaced as soon as it is locked, or while somebody holds it who may only read it.

The kernel drops the lock the instant its holder dies. The lock belongs to the open file, which a forked child would
share and keep alive: the child's copy is closed right after the fork, and no program started by exec gets one.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import uuid
import weakref

from supervisor_core.base.log import printable
from supervisor_core.base.systems import after_fork_in_child, user_id, user_name
from supervisor_core.storage.directory import path_now
from supervisor_core.storage.opening import open_unlinked

if sys.platform != "win32":  # which has no flock
    import fcntl

_MODE = 0o600
_TRIES = 5
_ONLY_READABLE = (errno.EACCES, errno.EPERM, errno.EROFS)
_HELD: weakref.WeakSet[LockFile] = weakref.WeakSet()


class LockedError(BlockingIOError):
    """Another process holds a lock; the text says which one."""

    def __init__(self, path: str, pid: int | None) -> None:
        super().__init__(errno.EWOULDBLOCK, _describe(pid), path)
        self.pid = pid
        """The holder by the kernel's list of locks; None if it is not in there, as one of another machine."""


class LockFile:
    """One lock. Not thread-safe.

    Args:
        path: its file, in a directory that exists.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd: int | None = None

    @property
    def descriptor(self) -> int:
        """Of the open file, once it was taken; belongs to the lock."""
        assert self._fd is not None
        return self._fd

    def take(self) -> OSError | None:
        """Take the lock without waiting. Return None, or why the open file is not locked: there are no locks here.

        Raises:
            LockedError: if another process holds it; its ``strerror`` names that.
            OSError: if the file cannot be created or opened.
        """
        _HELD.add(self)
        for _ in range(_TRIES):
            fd = _open(self.path)
            self.release()
            self._fd = fd
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                pid = _holder(os.fstat(fd))
                if self._is_held_by_reader(pid) and self._replace() and self.is_in_place():
                    return None
                self.release()
                raise LockedError(self.path, pid) from None
            except OSError as error:
                return error
            if self.is_in_place():  # else it was deleted meanwhile: nobody else would see the lock
                self._make_own()
                return None
        raise OSError(errno.EBUSY, "the lock is deleted repeatedly", self.path)

    def _make_own(self) -> None:
        """Replace a file that others may open, or that has several names."""
        status = os.fstat(self.descriptor)
        if status.st_nlink > 1 or status.st_mode & 0o777 != _MODE:
            self._replace()

    def _is_held_by_reader(self, pid: int | None) -> bool:
        """Say whether the holder may only read the file, as after ``chmod -R a+r`` of a logdir: it is no training."""
        status = os.fstat(self.descriptor)
        try:
            holder = None if pid is None or pid <= 0 else os.stat(f"/proc/{pid}").st_uid
        except OSError:
            return False
        return holder not in (None, 0, status.st_uid, user_id()) and not status.st_mode & 0o022

    def _replace(self) -> bool:
        """Put another file in place that is locked before it is there; False in a directory that cannot be written."""
        temporary = f"{self.path}.tmp{uuid.uuid4().hex}"
        try:
            fd = open_unlinked(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, _MODE)
            try:
                os.fchmod(fd, _MODE)
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if not self.is_in_place():
                    raise OSError(errno.ESTALE, "another process was faster", self.path)
                os.replace(temporary, self.path)
            except BaseException:
                os.close(fd)
                os.unlink(temporary)
                raise
        except OSError:
            return False
        os.close(self.descriptor)
        self._fd = fd
        return True

    def is_in_place(self) -> bool:
        """Say whether the file that was taken still has its name."""
        try:
            return self._fd is not None and os.path.samestat(os.lstat(self.path), os.fstat(self._fd))
        except OSError:
            return False

    def path_now(self) -> str | None:
        """Return the path that the file has by now; an empty one if it was deleted, None where unknown."""
        return None if self._fd is None else path_now(self._fd)

    def unlock(self) -> None:
        """Release the lock, and keep the file open."""
        if self._fd is not None:
            with contextlib.suppress(OSError):  # the file system has no locks
                fcntl.flock(self._fd, fcntl.LOCK_UN)

    def release(self) -> None:
        """Close the file, which releases the lock unless the file is open elsewhere."""
        fd, self._fd = self._fd, None
        if fd is not None:
            with contextlib.suppress(OSError):  # the descriptor is closed in any case
                os.close(fd)

    def __del__(self) -> None:
        self.release()


def _open(path: str) -> int:
    """Open a lock's file, for reading only where it cannot be written, as on a read-only mount."""
    try:
        return open_unlinked(path, os.O_RDWR | os.O_CREAT, _MODE)
    except OSError as error:
        if error.errno not in _ONLY_READABLE:
            raise
        try:
            return open_unlinked(path)
        except OSError:
            raise error from None


def _holder(status: os.stat_result) -> int | None:
    """Return the process that holds the lock of a file, by the kernel's list; None where it is not in there."""
    try:
        with open("/proc/locks", encoding="ascii", errors="replace") as file:
            rows = [line.split() for line in file]
    except OSError:
        return None
    device, found = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}", {}
    for row in rows:
        where, _, inode = row[5].rpartition(":") if len(row) > 5 and row[1] == "FLOCK" else ("", "", "")
        if inode == str(status.st_ino):
            found[where] = int(row[4])
    # Layered file systems show another device there.
    return found.get(device, next(iter(found.values()), None))


def _describe(pid: int | None) -> str:
    """Return who a process is, for people."""
    if pid is None or pid <= 0:
        return "a process that this machine does not list"
    try:
        owner = os.stat(f"/proc/{pid}").st_uid
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            name = file.read().strip()
    except OSError:
        return f"a child of process {pid}, which has ended"
    return f"process {pid} ({printable(name)}) of user {user_name(owner) or owner}"


def _after_fork() -> None:
    for lock in list(_HELD):
        lock.release()
    _HELD.clear()


after_fork_in_child(_after_fork)
