"""Strikes a process at a system call: the k-th change of a file below a directory fails, hangs, or is its last.

The process installs a seccomp filter that reports such calls (`SECCOMP_RET_USER_NOTIF`, Linux 5.5) to a helper, which
lets each go on or answers in the kernel's place. So a fault meets whatever writes (Python, TensorFlow, torch, the C
library), at an exact instant, and the program under test is not altered. Not covered: stores to a mapped file, and the
errors that `close` can report on a network file system.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import platform
import re
import select
import signal
import socket
import struct
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

# Numbers by machine: of the call, then which argument is a descriptor, or a (directory, path) pair.
_X86 = {
    "write": 1, "pwrite64": 18, "writev": 20, "pwritev": 296, "pwritev2": 328, "fsync": 74, "fdatasync": 75,
    "ftruncate": 77, "fallocate": 285, "copy_file_range": 326, "sendfile": 40, "open": 2, "creat": 85, "openat": 257,
    "rename": 82, "renameat": 264, "renameat2": 316, "unlink": 87, "unlinkat": 263, "rmdir": 84, "mkdir": 83,
    "mkdirat": 258, "link": 86, "linkat": 265, "truncate": 76, "read": 0, "pread64": 17,
}  # fmt: skip
_ARM = {
    "write": 64, "pwrite64": 68, "writev": 66, "pwritev": 70, "pwritev2": 287, "fsync": 82, "fdatasync": 83,
    "ftruncate": 46, "fallocate": 47, "copy_file_range": 285, "sendfile": 71, "openat": 56, "renameat": 38,
    "renameat2": 276, "unlinkat": 35, "mkdirat": 34, "linkat": 37, "truncate": 45, "read": 63, "pread64": 67,
}  # fmt: skip
_MACHINES = {"x86_64": (_X86, 0xC000003E, 317), "aarch64": (_ARM, 0xC00000B7, 277)}
_PATHS: dict[str, tuple[int | None, int]] = {
    "open": (None, 0), "creat": (None, 0), "openat": (0, 1), "rename": (None, 1), "renameat": (2, 3),
    "renameat2": (2, 3), "unlink": (None, 0), "unlinkat": (0, 1), "rmdir": (None, 0), "mkdir": (None, 0),
    "mkdirat": (0, 1), "link": (None, 1), "linkat": (2, 3), "truncate": (None, 0),
}  # fmt: skip
_DESCRIPTOR = {"copy_file_range": 2}  # of all others it is the first argument
_READS = ("read", "pread64")
_SET_FILTER, _NEW_LISTENER = 1, 8
_NOTIFY, _ALLOW = 0x7FC00000, 0x7FFF0000
_RECEIVE, _SEND, _CONTINUE = 0xC0502100, 0xC0182101, 1
_PR_SET_NO_NEW_PRIVS, _PR_SET_PTRACER = 38, 0x59616D61


@dataclass(frozen=True, kw_only=True)
class Strike:
    """Which call is struck, and how."""

    below: str
    """The directory; what is elsewhere goes on untouched and uncounted."""
    names: str = ""
    """A pattern that the path below it contains."""
    calls: tuple[str, ...] = ()
    """The system calls that count; none given: each that changes files."""
    reads: bool = False
    """Calls that read count, and no others."""
    at: int = 0
    """The first that is struck, counted from 1; 0: none, they are counted."""
    act: str = "fail"
    """``fail``; ``kill``: SIGKILL just before it; ``stop``: SIGSTOP just before it; ``hang``: it does not return."""
    error: int = errno.EIO
    secs: float | None = None
    """For how long the calls after it are struck, too; None: it alone."""
    armed_by: str | None = None
    """Counts only once there is such a file."""
    count_file: str | None = None
    """Where the helper keeps how many it has counted."""


def may_strike() -> bool:
    """Say whether a process can be struck here. Forks: call it before there are other threads."""
    pid = os.fork()
    if pid == 0:
        with suppress(BaseException):
            os._exit(0 if _install(["fsync"]) >= 0 else 1)
        os._exit(1)
    return os.waitpid(pid, 0)[1] == 0


def strike(plan: Strike) -> None:
    """Have this process struck, and those that it forks. Says ``struck COUNT CALL NAME`` on standard output.

    Call it while there is one thread: threads that run already are not seen.
    """
    table = _MACHINES[platform.machine()][0]
    opens = {"open", "creat", "openat"}
    names = [name for name in table if (name in _READS or name in opens if plan.reads else name not in _READS)]
    if plan.calls:
        names = [name for name in names if name in plan.calls]
    mine, theirs = socket.socketpair()
    target = os.getpid()
    helper = os.fork()
    if helper == 0:
        try:
            mine.close()
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            _, descriptors, _, _ = socket.recv_fds(theirs, 1, 1)
            theirs.close()
            _serve(descriptors[0], target, plan, {table[name]: name for name in names})
        finally:
            os._exit(0)
    theirs.close()
    ctypes.CDLL(None).prctl(_PR_SET_PTRACER, helper, 0, 0, 0)
    listener = _install(names)
    if listener < 0:
        raise OSError(-listener, "this system does not let a process be struck (seccomp)")
    socket.send_fds(mine, [b"."], [listener])
    os.close(listener)
    mine.close()


def _install(names: list[str]) -> int:
    """Install a filter that reports some calls; return the descriptor to listen at, or a negative error number."""
    if platform.machine() not in _MACHINES:
        return -errno.ENOSYS
    table, architecture, seccomp = _MACHINES[platform.machine()]
    program = [(0x20, 0, 0, 4), (0x15, 1, 0, architecture), (0x06, 0, 0, _ALLOW), (0x20, 0, 0, 0)]
    numbers = [table[name] for name in names]
    program += [(0x15, len(numbers) - at, 0, number) for at, number in enumerate(numbers)]
    program += [(0x06, 0, 0, _ALLOW), (0x06, 0, 0, _NOTIFY)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in program))
    header = ctypes.create_string_buffer(struct.pack("@HP", len(program), ctypes.addressof(code)))
    library = ctypes.CDLL(None, use_errno=True)
    library.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    listener = int(library.syscall(seccomp, _SET_FILTER, _NEW_LISTENER, header))
    return listener if listener >= 0 else -ctypes.get_errno()


def _serve(listener: int, target: int, plan: Strike, names: dict[int, str]) -> None:
    """Answer each reported call until no process is left that has the filter."""
    helper = _Helper(target, plan)
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    while True:
        events = poll.poll()[0][1]
        if not events & select.POLLIN:
            return
        request = bytearray(80)
        try:
            fcntl.ioctl(listener, _RECEIVE, request)
        except OSError:  # it was interrupted by a signal, or killed, in the meantime
            continue
        number, thread, _, call, _, _, *arguments = struct.unpack("=QIIiIQ6Q", request)
        error = helper.decide(thread, names[call], arguments)
        if error is None:
            continue
        answer = struct.pack("=QqiI", number, 0, -error, 0 if error else _CONTINUE)
        with suppress(OSError):
            fcntl.ioctl(listener, _SEND, bytearray(answer))


class _Helper:
    def __init__(self, target: int, plan: Strike) -> None:
        self._target = target
        self._plan = plan
        self._below = os.path.realpath(plan.below) + "/"
        self._names = re.compile(plan.names)
        self._is_armed = plan.armed_by is None
        self._count = 0
        self._until: float | None = None
        self._is_stopped = False
        self._page: mmap.mmap | None = None
        if plan.count_file is not None:
            descriptor = os.open(plan.count_file, os.O_RDWR | os.O_CREAT, 0o600)
            os.ftruncate(descriptor, 8)
            self._page = mmap.mmap(descriptor, 8)

    def decide(self, thread: int, call: str, arguments: list[int]) -> int | None:
        """Return the error to answer with, 0 to let the call go on, None to leave it without an answer."""
        if not self._is_armed:
            self._is_armed = os.path.exists(self._plan.armed_by or "")
            if not self._is_armed:
                return 0
        path = self._path(thread, call, arguments)
        if path is None or not path.startswith(self._below) or not self._names.search(path[len(self._below) :]):
            return 0
        if self._is_stopped:  # the same call once more, after SIGCONT
            self._is_stopped = False
            return 0
        self._count += 1
        if self._page is not None:
            self._page[:] = struct.pack("=Q", self._count)
        plan, now = self._plan, time.monotonic()
        if plan.at == 0 or self._count < plan.at:
            return 0
        if self._until is None:
            self._until = now + (plan.secs or 0.0)
            os.write(1, f"struck {self._count} {call} {path[len(self._below) :].replace(' ', '_')}\n".encode())
        elif now > self._until:
            return 0
        if plan.act == "kill":
            os.kill(self._target, signal.SIGKILL)
            return None
        if plan.act == "stop":
            self._is_stopped = True
            os.kill(self._target, signal.SIGSTOP)
            return None
        return None if plan.act == "hang" else plan.error

    def _path(self, thread: int, call: str, arguments: list[int]) -> str | None:
        """Return what a call changes; None where that cannot be said, or nothing is changed."""
        with suppress(OSError):
            if call not in _PATHS:
                return os.readlink(f"/proc/{thread}/fd/{_int(arguments[_DESCRIPTOR.get(call, 0)])}")
            if call in ("open", "openat"):
                writes = arguments[1 if call == "open" else 2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)
                if bool(writes) == self._plan.reads:
                    return None
            at, argument = _PATHS[call]
            with open(f"/proc/{thread}/mem", "rb", buffering=0) as memory:
                memory.seek(arguments[argument])
                path = os.fsdecode(memory.read(4096).partition(b"\0")[0])
            if not path.startswith("/"):
                directory = None if at is None else _int(arguments[at])
                base = f"/proc/{thread}/cwd" if directory in (None, -100) else f"/proc/{thread}/fd/{directory}"
                path = os.path.join(os.readlink(base), path)
            return os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
        return None


def _int(argument: int) -> int:
    """Return an argument as the C ``int`` that it is."""
    return struct.unpack("=i", struct.pack("=I", argument & 0xFFFFFFFF))[0]  # type: ignore[no-any-return]


def counted(path: Path) -> int:
    """Return how many calls a helper has counted, from its count file."""
    data = path.read_bytes() if path.exists() else b""
    return int.from_bytes(data, "little")
