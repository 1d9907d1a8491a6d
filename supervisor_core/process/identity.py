"""Which machine a process runs on (`Machine`), and whether a process of this machine still runs (`is_running`)."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass


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
    return Machine(host=socket.gethostname(), boot=boot_id(), pids=_pid_namespace())


def boot_id() -> str | None:
    """Return the kernel's boot id; None where the system has none."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip() or None
    except OSError:
        return None


def is_running(pid: int) -> bool:
    """Say whether a process of this machine may be running; a zombie is not."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return not _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            state = file.read().rpartition(b")")[2].split()[:1]
        # A first thread that has ended looks the same while the others go on.
        return state == [b"Z"] and len(os.listdir(f"/proc/{pid}/task")) <= 1
    except OSError:
        return False


def _pid_namespace() -> str | None:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return None
