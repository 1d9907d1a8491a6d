"""`StallReport`: writes the records of a session's stalls, with the stacks, and knows the present one for a scrape.

A stall has two looks at its stacks: one when it begins and one `SECOND_LOOK_SECS` later. The same frames in both mean
that the thread is stuck, other frames that it is slow.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Literal

from supervisor_core.clock import Clock
from supervisor_core.events.telemetry import StallRecord
from supervisor_core.process.stacks import MAIN_THREAD, Stacks, location, python_stacks, user_line
from supervisor_core.run.status import StallStatus
from supervisor_core.runtime.recorder import TelemetrySink
from supervisor_core.runtime.service_stalls import ServiceStall

_LOG = logging.getLogger("supervisor_core")

SECOND_LOOK_SECS = 10.0

_NO_STACKS: Stacks = {}


class StallReport:
    """Reports one session's stalls; not thread-safe but for `status`.

    Args:
        session_id: the session's id.
        recorder: takes the records.
        clock: replaced in tests.
        stacks: returns the stacks of all threads.
        on_stacks: called with a title and the stacks of each look, or with the line that was found after Python could
            not run; must not block.
    """

    def __init__(
        self,
        session_id: str,
        recorder: TelemetrySink,
        clock: Clock,
        *,
        stacks: Callable[[], Stacks] = python_stacks,
        on_stacks: Callable[[str, Stacks], None] = lambda title, stacks: None,
    ) -> None:
        self._session_id = session_id
        self._recorder = recorder
        self._clock = clock
        self._stacks = stacks
        self._on_stacks = on_stacks
        self._first: Stacks = _NO_STACKS
        self._phase = ""
        self._look_again_at: float | None = None
        self._status: StallStatus | None = None

    @property
    def status(self) -> StallStatus | None:
        """The present stall; None without one."""
        return self._status

    def begin(
        self,
        *,
        phase: str,
        since: float,
        step: int | None,
        secs: float,
        timeout_secs: float | None,
        blocked: Stacks = _NO_STACKS,
    ) -> None:
        """Report that a stall has begun.

        Args:
            phase: the phase without progress.
            since: monotonic time of the last progress.
            step: the global step.
            secs: seconds without progress so far.
            timeout_secs: the budget.
            blocked: stacks of threads from the time in which Python could not run: they show the hang, not what came
                after it.
        """
        self._phase, self._first = phase, {**self._stacks(), **blocked}
        line = self._line(self._first)
        self._status = StallStatus(phase=phase, thread=MAIN_THREAD, location=None if line is None else location(line))
        self._look_again_at = self._clock.monotonic() + SECOND_LOOK_SECS
        _LOG.warning(
            "No progress for %.0f s in the phase %r (budget %.0f s) at step %s%s; the stacks of all threads are in the "
            "events file.",
            secs,
            phase,
            timeout_secs or 0.0,
            step,
            "" if line is None else f": {MAIN_THREAD} at {location(line)}",
        )
        self._on_stacks(f"no progress for {secs:.0f} s in the phase {phase}, at step {step}", self._first)
        self._write("begin", since, step, secs, timeout_secs, self._first)

    def goes_on(self, *, since: float, step: int | None, secs: float, timeout_secs: float | None) -> None:
        """Look at the stacks again, once, if the stall lasts for long enough; call it while a stall lasts."""
        if self._look_again_at is None or self._clock.monotonic() < self._look_again_at:
            return
        self._look_again_at = None
        now = self._stacks()
        same = now.get(MAIN_THREAD) == self._first.get(MAIN_THREAD)
        said = "stuck: the same frames as before" if same else "slow: other frames than before"
        _LOG.warning("No progress for %.0f s in the phase %r; %s is %s.", secs, self._phase, MAIN_THREAD, said)
        self._on_stacks(f"no progress for {secs:.0f} s in the phase {self._phase}; {said}", now)
        self._write("lasts", since, step, secs, timeout_secs, now, same_frames=same)

    def blocked(self, stacks: Stacks) -> None:
        """Log where Python could not run for a while that was no stall."""
        line = self._line(stacks)
        if line is not None:
            title = f"Python could not run for a while; {MAIN_THREAD} was at {location(line)}"
            _LOG.warning("%s: native code held the interpreter's lock, or the process was stopped.", title)
            self._on_stacks(title, stacks)

    def end(self, *, since: float, step: int | None, secs: float, timeout_secs: float | None) -> None:
        """Report that progress was made again."""
        self._write("end", since, step, secs, timeout_secs, _NO_STACKS)
        self._first, self._look_again_at, self._status = _NO_STACKS, None, None

    def service(self, stall: ServiceStall, *, phase: str, step: int | None) -> None:
        """Report that a service's tick does not end, or has ended after all.

        Args:
            stall: which one.
            phase: the session's phase.
            step: the global step.
        """
        stacks: Stacks = _NO_STACKS
        if stall.state == "begin":
            stacks = self._stacks()
            line = user_line(stacks.get(stall.service, ()))
            at = "" if line is None else f" at {location(line)}"
            title = f"the service {stall.service} has been in one tick for {stall.secs:.0f} s"
            _LOG.warning("%s%s (budget %.0f s); training continues.", f"T{title[1:]}", at, stall.timeout_secs)
            self._on_stacks(title, stacks)
        line = user_line(stacks.get(stall.service, ()))
        record = StallRecord(
            session=self._session_id,
            state=stall.state,
            phase=phase,
            since=self._clock.wall() - stall.secs,
            step=step,
            secs=stall.secs,
            timeout_secs=stall.timeout_secs,
            thread=stall.service,
            location=line,
            stacks=stacks,
            service=stall.service,
        )
        self._recorder.write(record, step)

    def _line(self, stacks: Stacks) -> str | None:
        return user_line(stacks.get(MAIN_THREAD, ()))

    def _write(
        self,
        state: Literal["begin", "lasts", "end"],
        since: float,
        step: int | None,
        secs: float,
        timeout_secs: float | None,
        stacks: Stacks,
        *,
        same_frames: bool | None = None,
    ) -> None:
        record = StallRecord(
            session=self._session_id,
            state=state,
            phase=self._phase,
            since=self._clock.wall() - (self._clock.monotonic() - since),
            step=step,
            secs=secs,
            timeout_secs=timeout_secs,
            thread=MAIN_THREAD,
            location=self._line(stacks or self._first),
            same_frames=same_frames,
            stacks=stacks,
        )
        self._recorder.write(record, step)
