"""`HangReport`: the two looks at a hang, and its end, as records of a stall."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Literal

from supervisor_core.engine.stall_report import BUSY_SHARE, WAITING_SHARE
from supervisor_core.events.telemetry import StallRecord
from supervisor_core.process.stacks import MAIN_THREAD, Activity, Stacks
from supervisor_core.restarter.hang import TRAINS, Hang
from supervisor_core.restarter.hang_stacks import KeptStacks


def runnable_secs(pid: int, root: str = "/proc") -> float | None:
    """Return for how long a process's main thread has run, or waited for a processor; None where unknown.

    Args:
        pid: the process.
        root: where the system's files are; another one in tests.
    """
    with suppress(OSError, ValueError):
        with open(f"{root}/{pid}/task/{pid}/schedstat", encoding="ascii") as file:
            ran, waited, _ = map(int, file.read().split())
        return (ran + waited) / 1e9 if ran else None
    return None


class HangReport:
    """One hang after the other of a launch.

    Args:
        ran: see `runnable_secs`; replaced in tests.
    """

    def __init__(self, ran: Callable[[int], float | None] = runnable_secs) -> None:
        self._ran = ran
        self._first: StallRecord | None = None
        self._looked: tuple[int, float, float | None] | None = None
        """Of the first look: process, monotonic time, `runnable_secs`."""

    def begins(self, hang: Hang, kept: KeptStacks | None) -> StallRecord:
        """Return the record of a hang that begins.

        Args:
            hang: the hang.
            kept: its stacks; None without any.
        """
        pid = None if kept is None else kept.pid
        self._looked = None if pid is None else (pid, time.monotonic(), self._ran(pid))
        self._first = self._record(hang, kept, "begin")
        return self._first

    def lasts(self, hang: Hang, kept: KeptStacks | None) -> StallRecord:
        """Return the record of the second look at a hang, with what its main thread did since the first."""
        first: Stacks = {} if self._first is None else self._first.stacks
        record = self._record(hang, kept, "lasts")
        if MAIN_THREAD not in first or MAIN_THREAD not in record.stacks:
            return record
        same = first[MAIN_THREAD] == record.stacks[MAIN_THREAD]
        return replace(record, same_frames=same, activity=self._activity(kept))

    def ends(self) -> StallRecord | None:
        """Return the record of the end of the hang; None if none has begun."""
        first, self._first = self._first, None
        return None if first is None else replace(first, state="end", stacks={})

    def _activity(self, kept: KeptStacks | None) -> Activity | None:
        if self._looked is None or kept is None or kept.pid != self._looked[0]:
            return None
        pid, looked_at, before = self._looked
        now, secs = self._ran(pid), time.monotonic() - looked_at
        if before is None or now is None or secs <= 0:
            return None
        share = (now - before) / secs
        return "busy" if share >= BUSY_SHARE else "waits" if share <= WAITING_SHARE else None

    def _record(self, hang: Hang, kept: KeptStacks | None, state: Literal["begin", "lasts"]) -> StallRecord:
        return StallRecord(
            session=hang.session or "",
            state=state,
            phase=hang.phase or TRAINS,
            since=time.time() - hang.secs,
            step=hang.step,
            secs=hang.secs,
            timeout_secs=hang.hang_timeout_secs,
            thread=MAIN_THREAD,
            location=None if kept is None else kept.line,
            stacks={} if kept is None else kept.stacks,
        )
