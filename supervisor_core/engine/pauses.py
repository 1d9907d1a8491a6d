"""`PauseWitness`: why no Python code of this process ran for a while, found out afterwards.

    interpreter_blocked   native code held the interpreter lock: the process ran, and nothing in Python could
    machine_suspended     the monotonic clock stood still, and the one that counts suspended time did not
    machine_paused        no process of the machine ran: a frozen virtual machine
    stopped               others ran and this process did not: SIGSTOP, or a frozen container

Counters of the system show the difference. A thread that waits for the interpreter lock wakes every 5 ms
(`sys.getswitchinterval`) to ask for it, and the system counts that as a voluntary switch; in a process that is stopped
no thread wakes. A machine that runs switches between its processes all the time.
"""

from __future__ import annotations

import re
import resource
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from supervisor_core.clock import SYSTEM_CLOCK, Clock, main_thread_secs

PauseCause = Literal["stopped", "machine_suspended", "machine_paused", "interpreter_blocked"]

WAITING_SHARE = 0.1
"""A thread that waits for the interpreter lock wakes for at least this share of its 5 ms intervals."""
MACHINE_SWITCHES_PER_SEC = 5.0
"""A machine that runs switches more often; an idle one some hundred times a second."""

_SWITCHES = re.compile(rb"^voluntary_ctxt_switches:\s*([0-9]+)", re.MULTILINE)
_MACHINE_SWITCHES = re.compile(rb"^ctxt ([0-9]+)", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Pause:
    """A time in which no Python code ran."""

    until: float
    """Monotonic time of its end."""
    secs: float
    cause: PauseCause | None
    """None if the system does not say."""
    timeout_secs: float | None = None
    """The hang timeout at its begin; None if the phase could not hang."""

    @property
    def is_hang(self) -> bool:
        """Whether it was longer than that hang timeout."""
        return self.timeout_secs is not None and self.secs > self.timeout_secs

    @property
    def is_silence(self) -> bool:
        """Whether the process did not run; otherwise native code of it did."""
        return self.cause != "interpreter_blocked"


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Counters at one moment; None where the system has none."""

    ran_secs: float
    """CPU seconds of the main thread."""
    switches: int | None
    """Voluntary switches of the thread that samples."""
    machine_switches: int | None


def cause_of(secs: float, before: Evidence, after: Evidence, interval_secs: float) -> PauseCause | None:
    """Return why no Python code ran for a number of seconds.

    Args:
        secs: the length of the pause.
        before: the evidence when Python code ran last.
        after: the evidence now.
        interval_secs: after what time a thread that waits for the interpreter lock wakes.
    """
    if after.ran_secs - before.ran_secs > secs / 2:
        return "interpreter_blocked"
    if before.switches is not None and after.switches is not None:
        if after.switches - before.switches > WAITING_SHARE * secs / interval_secs:
            return "interpreter_blocked"
    elif before.machine_switches is None:
        return None
    if before.machine_switches is None or after.machine_switches is None:
        return None
    paused = after.machine_switches - before.machine_switches < MACHINE_SWITCHES_PER_SEC * secs
    return "machine_paused" if paused else "stopped"


class PauseWitness:
    """Keeps the evidence of one thread that samples once a second. The caller locks.

    Args:
        clock: the clock; of an injected one there is no evidence.
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._thread: int | None = None
        self._before = Evidence(ran_secs=0.0, switches=None, machine_switches=None)

    def sample(self) -> Evidence:
        """Take the evidence, and return it; called by the thread that samples."""
        if self._clock is SYSTEM_CLOCK:
            self._thread = threading.get_native_id()
        self._before = self._evidence()
        return self._before

    def cause(self, secs: float) -> PauseCause | None:
        """Return why no Python code ran for a number of seconds since the last sample; from any thread."""
        before, self._before = self._before, self._evidence()
        return cause_of(secs, before, self._before, sys.getswitchinterval())

    def _evidence(self) -> Evidence:
        if self._clock is not SYSTEM_CLOCK:
            return Evidence(ran_secs=main_thread_secs(self._clock), switches=None, machine_switches=None)
        return Evidence(
            ran_secs=main_thread_secs(self._clock),
            switches=self._switches(),
            machine_switches=_count("/proc/stat", _MACHINE_SWITCHES),
        )

    def _switches(self) -> int | None:
        if self._thread == threading.get_native_id():
            return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw if sys.platform == "linux" else None
        return None if self._thread is None else _count(f"/proc/self/task/{self._thread}/status", _SWITCHES)


def _count(path: str, pattern: re.Pattern[bytes]) -> int | None:
    """Return a number from a file of the system; None where there is none."""
    with suppress(OSError), open(path, "rb") as file:
        found = pattern.search(file.read())
        return None if found is None else int(found[1])
    return None
