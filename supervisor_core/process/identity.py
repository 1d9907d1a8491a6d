"""Which machine a process runs on (`Machine`), whether one of this machine still runs (`is_running`), since when."""

from __future__ import annotations

import os
import re
import socket
import time
from dataclasses import dataclass

from supervisor_core.base.systems import IS_WINDOWS


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The scope of a process id: one host, one boot, one namespace of processes."""

    host: str
    boot: str | None = None
    """The kernel's boot id: the same for all containers of one machine, another after a reboot. None where the system
    has none."""
    pids: str | None = None
    """The namespace of process ids: containers of one machine may share the host name, not the processes."""


def this_machine() -> Machine:
    """Return the machine of this process."""
    return Machine(host=socket.gethostname(), boot=boot_id(), pids=pid_namespace())


def boot_id() -> str | None:
    """Return the kernel's boot id; None where the system has none."""
    return read_kernel("/proc/sys/kernel/random/boot_id").decode("ascii", "replace").strip() or None


def is_running(pid: int) -> bool:
    """Say whether a process of this machine may be running; a zombie is not."""
    if IS_WINDOWS:  # where os.kill sends a Ctrl-C
        return True
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return not _is_zombie(pid)


def may_be_of(pid: int, owner: int | None) -> bool:
    """Say whether a process may be the one that a file of this owner names: only root's may name another user's."""
    try:
        return owner in (None, 0, os.stat(f"/proc/{pid}").st_uid)
    except OSError:  # it is gone, or the system has no such directory
        return True


def started_ticks(pid: int) -> int | None:
    """Return when a process started, in clock ticks since the machine's start: a second process of the same id has
    another one. None where there is no such process, or the system does not say."""
    try:
        return int(stat_fields(pid)[19])
    except (IndexError, ValueError):
        return None


def started_at(pid: int) -> float | None:
    """Return the wall time at which a process started, as the present clock has it; None where `started_ticks` is."""
    ticks = started_ticks(pid)
    if ticks is None:
        return None
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK")


def is_stopped(pid: int) -> bool:
    """Say whether a process is known to be stopped (SIGSTOP, a debugger), or frozen (``docker pause``)."""
    if stat_fields(pid)[:1] in ([b"T"], [b"t"]):
        return True
    return read_kernel(f"/proc/{pid}/wchan") in (b"do_freezer_trap", b"__refrigerator")


def pid_namespace() -> str | None:
    """Return the namespace of this process's id, as ``pid:[4026531836]``; None where the system has none."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return None


def _is_zombie(pid: int) -> bool:
    try:
        # A first thread that has ended looks the same while the others go on.
        return stat_fields(pid)[:1] == [b"Z"] and len(os.listdir(f"/proc/{pid}/task")) <= 1
    except OSError:
        return False


def stat_fields(pid: int) -> list[bytes]:
    """Return the fields of ``/proc/PID/stat`` from the third, the state, on: names of programs may hold anything."""
    return read_kernel(f"/proc/{pid}/stat").rpartition(b")")[2].split()


def read_kernel(path: str) -> bytes:
    """Return what a file of the kernel says, at most 4,096 bytes; nothing where it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(4096)
    except OSError:
        return b""


def signal_masks() -> dict[str, int]:
    """Return the signals that this process handles in some way, as bits: ``SigBlk`` -> those blocked, ``SigIgn`` ->
    ignored, ``SigCgt`` -> caught, by C code too. 0 where ``/proc`` lists none; empty without it."""
    try:
        with open("/proc/self/status", "rb") as file:
            found = re.findall(rb"^(Sig\w+):\s*([0-9a-f]+)$", file.read(), re.MULTILINE)
    except OSError:
        return {}
    return {"SigBlk": 0, "SigIgn": 0, "SigCgt": 0, **{name.decode(): int(mask, 16) for name, mask in found}}
