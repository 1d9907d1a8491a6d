"""`thread_states`: what the kernel says of each thread of a process. Needs no permission to trace it."""

from __future__ import annotations

import os
from dataclasses import dataclass

from supervisor_core.process.identity import read_kernel

_STATES = {
    "R": "running",
    "S": "sleeping",
    "D": "waiting for I/O, cannot be interrupted",
    "T": "stopped",
    "t": "stopped by a debugger",
    "Z": "ended",
    "X": "ended",
    "I": "idle",
}
MAX_THREADS = 1000


@dataclass(frozen=True, kw_only=True)
class ThreadState:
    """One thread, as the kernel sees it."""

    id: int
    """The kernel's id of the thread; of the first thread, that of the process."""
    name: str
    """At most 15 letters; threads have their process's name until they set one."""
    state: str
    """One letter, as in ``/proc/PID/stat``: R running, S sleeping, D waiting for I/O, T stopped."""
    waits_in: str | None
    """The kernel's function in which it sleeps; None if it runs, and where the system does not say."""

    @property
    def text(self) -> str:
        """State and place, for people."""
        place = "" if self.waits_in is None else f", in the kernel's {self.waits_in}"
        return f"{_STATES.get(self.state, self.state)}{place}"


def thread_states(pid: int, root: str = "/proc") -> tuple[ThreadState, ...]:
    """Return the threads of a process, its first one first; none of a process that is gone, or without ``/proc``."""
    try:
        ids = sorted(int(name) for name in os.listdir(f"{root}/{pid}/task") if name.isdecimal())
    except OSError:
        return ()
    found = (_thread(f"{root}/{pid}/task/{each}", each) for each in ids[:MAX_THREADS])
    return tuple(sorted((each for each in found if each is not None), key=lambda each: each.id != pid))


def _thread(path: str, id: int) -> ThreadState | None:
    before, found, after = read_kernel(f"{path}/stat").decode("utf-8", "replace").rpartition(")")
    state = after.split()[:1]
    if not found or not state:
        return None
    name = before.partition("(")[2]
    wchan = read_kernel(f"{path}/wchan").decode("utf-8", "replace").strip()
    return ThreadState(id=id, name=name, state=state[0], waits_in=None if wchan in ("", "0") else wchan)
