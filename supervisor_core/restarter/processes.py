"""Processes below this one, as ``/proc`` shows them: found, told apart, signalled.

Needs the standard library only, and imports nothing that takes long to start: the keeper is started with each launch.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Collection, Sequence

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _PR_SET_PTRACER = 1, 36, 0x59616D61
_SHELLS = frozenset((b"sh", b"ash", b"bash", b"dash", b"ksh", b"mksh", b"zsh"))


class Process:
    """One process that has not ended, at one moment."""

    __slots__ = ("group", "parent", "pid", "start")

    def __init__(self, pid: int, parent: int, group: int, start: int) -> None:
        self.pid, self.parent, self.group, self.start = pid, parent, group, start

    @property
    def key(self) -> tuple[int, int]:
        """What no other process has: its id and its start, in clock ticks."""
        return self.pid, self.start

    @property
    def command(self) -> str:
        """Its command line, for people."""
        words = _read(f"/proc/{self.pid}/cmdline").split(b"\0")
        return command_text([word.decode(errors="replace") for word in words if word])

    @property
    def is_shell(self) -> bool:
        """Whether it was called as a POSIX shell, as scripts are."""
        name = _read(f"/proc/{self.pid}/cmdline").partition(b"\0")[0]
        return os.path.basename(name).lstrip(b"-") in _SHELLS

    def ignores(self, signum: int) -> bool:
        """Say whether it ignores a signal."""
        return self._has(b"SigIgn:", signum)

    def catches(self, signum: int) -> bool:
        """Say whether it has a handler for a signal."""
        return self._has(b"SigCgt:", signum)

    def pipe(self, descriptor: int) -> str | None:
        """Return the identity of the pipe that a descriptor is; None if it is something else."""
        with contextlib.suppress(OSError):  # ended, or of another user
            target = os.readlink(f"/proc/{self.pid}/fd/{descriptor}")
            return target if target.startswith("pipe:") else None
        return None

    def _has(self, mask: bytes, signum: int) -> bool:
        for line in _read(f"/proc/{self.pid}/status").splitlines():
            if line.startswith(mask):
                return bool(int(line.split()[1], 16) >> (signum - 1) & 1)
        return False


def command_text(command: Sequence[str]) -> str:
    """Return a command as a shell takes it, cut to 200 characters."""
    from supervisor_core.base.log import command_line

    text = command_line(*command)
    return text if len(text) <= 200 else text[:197] + "..."


def process(pid: int) -> Process | None:
    """Return a process that has not ended; None of any other."""
    fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    try:
        return None if fields[0] in (b"Z", b"X") else Process(pid, int(fields[1]), int(fields[2]), int(fields[19]))
    except (IndexError, ValueError):
        return None


def descendants(of: int | None = None) -> list[Process]:
    """Return each descendant of a process that has not ended, parents before their children.

    The children of a subreaper are its own, however they were orphaned, so none is missed.

    Args:
        of: the process. Default: this one.
    """
    children: dict[int, list[Process]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (found := process(int(name))) is not None:
            children.setdefault(found.parent, []).append(found)
    mine = children.pop(os.getpid() if of is None else of, [])
    for each in mine:  # which grows
        mine += children.pop(each.pid, [])
    return mine


def signal_descendants(signum: int, besides: Collection[int] = ()) -> int:
    """Send a signal to every descendant, but for some; return their number."""
    found = [each for each in descendants() if each.pid not in besides]
    for each in found:
        send_signal(each, signum)
    return len(found)


def send_signal(target: Process, signum: int) -> None:
    """Send a signal to a process, unless it has ended, or belongs to another user and so is not ours to end."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        try:
            handle = os.pidfd_open(target.pid)
        except ProcessLookupError:
            raise
        except OSError:  # a kernel, or a sandbox, without it: the number could be another process's for an instant
            os.kill(target.pid, signum)
            return
        try:
            now = process(target.pid)
            if now is not None and now.start == target.start:  # else the number is another process's by now
                signal.pidfd_send_signal(handle, signum)
        finally:
            os.close(handle)


def become_subreaper() -> None:
    """Become the parent of every orphan among one's descendants. Raises OSError where the system has no such thing."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def allow_tracer(pid: int) -> None:
    """Allow a process, and those that it starts, to read this one's memory, also once it has become another program,
    where Yama would refuse it (scope 1)."""
    with contextlib.suppress(OSError):  # a kernel without Yama
        _prctl(_PR_SET_PTRACER, pid)


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}) failed: {os.strerror(number)}")


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(1 << 16)
    except OSError:
        return b""
