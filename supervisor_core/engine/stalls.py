"""Which stalls there are: `StallDetector` finds those of the session, `ServiceStalls` those of one service.

A service's tick that does not end, as a save to a mount that does not answer, stalls no phase: training goes on. It has
a hang timeout of its own: that of the phase ``checkpointing``, and once three ticks have ended 5 x the longest of them,
60 s at least, if none is given for that phase.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from supervisor_core.engine.hang_timeouts import TIMES_LONGEST
from supervisor_core.engine.progress import ProgressSnapshot
from supervisor_core.engine.timeouts import first_hang_timeouts, given_hang_timeouts
from supervisor_core.events.telemetry import ThreadStatus
from supervisor_core.options import Options

FLOOR_SECS = 60.0
"""No learned hang timeout of a tick is shorter."""
TICKS_TO_LEARN = 3
"""Number of ticks until the learned one counts."""
_PHASE = "checkpointing"
"""The phase whose hang timeout a tick has: most long ticks are saves."""


@dataclass(frozen=True, kw_only=True)
class StallReading:
    """A time without progress, of the session or of one service, at one reading."""

    state: Literal["begin", "lasts", "end"]
    since: float
    """Monotonic time of the last progress before it."""
    secs: float
    """Seconds without progress: so far, or in total at the end."""
    timeout_secs: float | None
    """The hang timeout."""
    phase: str
    """The session's phase at the begin."""
    step: int | None
    """The global step."""
    service: str | None = None
    """The service whose tick does not end; None of the session itself."""


class StallDetector:
    """Detects the stalls of one session from readings of its progress. Not thread-safe."""

    def __init__(self) -> None:
        self._begun: StallReading | None = None

    @property
    def stalled(self) -> bool:
        """Whether the session is stalled now."""
        return self._begun is not None

    def check(self, now: float, progress: ProgressSnapshot) -> StallReading | None:
        """Take one reading at a monotonic time; return the stall that begins, lasts or ends with it, or None."""
        begun, since, secs = self._begun, now - progress.progress_age_secs, progress.progress_age_secs
        timeout_secs, step = progress.progress_timeout_secs, progress.global_step
        if timeout_secs is not None and secs > timeout_secs:
            stall = StallReading(
                state="begin" if begun is None else "lasts", since=since, secs=secs, timeout_secs=timeout_secs,
                phase=progress.phase, step=step,
            )  # fmt: skip
            self._begun = begun or stall
            return stall
        self._begun = None
        if begun is None:
            return None
        return replace(begun, state="end", secs=max(0.0, since - begun.since), timeout_secs=timeout_secs, step=step)


class ServiceStalls:
    """Follows the services of one session. Not thread-safe; it has no clock.

    Args:
        options: give the hang timeout.
    """

    def __init__(self, options: Options) -> None:
        self._first_secs = first_hang_timeouts(options)[_PHASE]
        self._is_fixed = _PHASE in given_hang_timeouts(options)
        self._longest: dict[str, float] = {}
        self._stalled: dict[str, StallReading] = {}
        """Service -> its hanging tick at the last check."""

    def check(self, services: Iterable[ThreadStatus], now: float, progress: ProgressSnapshot) -> Iterator[StallReading]:
        """Take the present health of all services at a monotonic time; yield each stall that begins or ends."""
        for status in services:
            name, ticking, last = status.name, status.ticking_secs or 0.0, status.last_tick_secs or 0.0
            self._longest[name] = max(self._longest.get(name, 0.0), last)
            before = self._stalled.get(name)
            if before is not None:
                if ticking >= before.secs:  # the same tick
                    self._stalled[name] = replace(before, secs=ticking)
                    continue
                del self._stalled[name]
                secs = max(before.secs, last)
                yield replace(
                    before, state="end", since=now - secs, secs=secs, phase=progress.phase, step=progress.global_step
                )
            timeout_secs = self._timeout_secs(status)
            if ticking > timeout_secs:
                self._stalled[name] = stall = StallReading(
                    state="begin", since=now - ticking, secs=ticking, timeout_secs=timeout_secs, phase=progress.phase,
                    step=progress.global_step, service=name,
                )  # fmt: skip
                yield stall

    def _timeout_secs(self, status: ThreadStatus) -> float:
        ended = status.ticks - (status.ticking_secs is not None)
        if self._is_fixed or ended < TICKS_TO_LEARN:
            return self._first_secs
        return max(FLOOR_SECS, TIMES_LONGEST * self._longest[status.name])
