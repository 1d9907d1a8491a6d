"""`StallReport`: writes the records of a session's stalls, with the stacks, and knows the present one for a scrape.

A stall has two looks at its stacks: one when it begins and one `SECOND_LOOK_SECS` later. The same frames in both do not
show that a thread is stuck: it may compute for long, or wait for something that comes. The time for which it ran, or
was ready to run, between the two looks shows which of these it did.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from supervisor_core.clock import SYSTEM_CLOCK, Clock, main_thread_secs
from supervisor_core.engine.recorder import TelemetrySink
from supervisor_core.engine.stalls import StallReading
from supervisor_core.events.telemetry import StallRecord
from supervisor_core.process.stacks import (
    MAIN_THREAD,
    Activity,
    Stacks,
    location,
    python_stacks,
    user_line,
    whereabouts,
)
from supervisor_core.run.culprit import Verdict
from supervisor_core.run.status import StallStatus
from supervisor_core.run.words import next_sentence

_LOG = logging.getLogger("supervisor_core")

SECOND_LOOK_SECS = 10.0
BUSY_SHARE, WAITING_SHARE = 0.5, 0.1
"""A thread that is ready to run for at least the first share of the time is busy; for at most the second it waits."""

_NO_STACKS: Stacks = {}


def main_thread_runnable_secs(clock: Clock, root: str = "/proc") -> float | None:
    """Return for how long the main thread has run, or waited for a processor: on a busy machine a thread that computes
    runs for a small part of the time only. None of an injected clock, and where the system does not say.

    Args:
        clock: the clock.
        root: where the system's files are; another one in tests.
    """
    if clock is not SYSTEM_CLOCK:
        return None
    with suppress(OSError, ValueError):
        with open(f"{root}/self/task/{os.getpid()}/schedstat", encoding="ascii") as file:
            ran, waited, _ = map(int, file.read().split())
        if ran:
            return (ran + waited) / 1e9
    return main_thread_secs(clock) or None


def activity_of(ran_before: float | None, ran: float | None, secs: float) -> Activity | None:
    """Return what a thread did between two looks at it; None where that is unknown, as after more than twice the time
    between them: the monitor did not run then.

    Args:
        ran_before: its runnable seconds at the first look; None where unknown.
        ran: the same at the second.
        secs: seconds between the two.
    """
    if ran is None or ran_before is None or not 0 < secs <= 2 * SECOND_LOOK_SECS:
        return None
    share = (ran - ran_before) / secs
    return "busy" if share >= BUSY_SHARE else "waits" if share <= WAITING_SHARE else None


def _fields_of(verdict: Verdict | None) -> dict[str, Any]:
    """Return a verdict as the fields of a stall record, and of a `StallStatus`."""
    if verdict is None:
        return {"verdict": None, "culprit": None, "culprit_location": None}
    return {"verdict": verdict.text, "culprit": verdict.culprit, "culprit_location": verdict.location}


class StallReport:
    """Reports one session's stalls; not thread-safe but for `status`.

    Args:
        session_id: the session's id.
        recorder: takes the records.
        clock: replaced in tests.
        stacks: returns the stacks of all threads.
        on_stacks: called with a title and the stacks of each look, or with the line that was found after Python could
            not run; must not block.
        runnable_secs: returns for how long the main thread has run, or was ready to run; None where unknown.
    """

    def __init__(
        self,
        session_id: str,
        recorder: TelemetrySink,
        clock: Clock,
        *,
        stacks: Callable[[], Stacks] = python_stacks,
        on_stacks: Callable[[str, Stacks], None] = lambda title, stacks: None,
        runnable_secs: Callable[[Clock], float | None] = main_thread_runnable_secs,
    ) -> None:
        self._session_id = session_id
        self._recorder = recorder
        self._clock = clock
        self._stacks = stacks
        self._on_stacks = on_stacks
        self._runnable_secs = runnable_secs
        self._first_look: tuple[float, float | None] = (0.0, None)
        """Monotonic time of the first look, and the main thread's runnable seconds then."""
        self._first: Stacks = _NO_STACKS
        self._look_again_at: float | None = None
        self._verdict: Verdict | None = None
        self._second: dict[str, Any] = {}
        """What the second look has shown."""
        self._say_again_at = 0.0
        self._status: StallStatus | None = None

    @property
    def status(self) -> StallStatus | None:
        """The present stall; None without one."""
        return self._status

    def begin(self, stall: StallReading, blocked: Stacks = _NO_STACKS, verdict: Verdict | None = None) -> None:
        """Report that a stall has begun.

        Args:
            stall: the stall.
            blocked: stacks of threads from the time in which Python could not run: they show the hang, not what came
                after it.
            verdict: which process keeps the others waiting; None of a training in one, and where unknown.
        """
        self._first = {**self._stacks(), **blocked}
        line = self._line(self._first)
        at = None if line is None else location(line)
        self._status = StallStatus(phase=stall.phase, thread=MAIN_THREAD, location=at)
        self._second = {}
        sentence = self._take(verdict)
        now = self._clock.monotonic()
        self._look_again_at, self._first_look = now + SECOND_LOOK_SECS, (now, self._runnable_secs(self._clock))
        _LOG.warning(
            "No progress for %.0f s in the phase %r (hang timeout %.0f s) at step %s%s; the stacks of all threads are "
            "in the events file.%s",
            stall.secs,
            stall.phase,
            stall.timeout_secs or 0.0,
            stall.step,
            "" if at is None else f": {whereabouts(MAIN_THREAD, at, None)}",
            sentence,
        )
        title = f"no progress for {stall.secs:.0f} s in the phase {stall.phase}, at step {stall.step}"
        self._on_stacks(title, self._first)
        self._write(stall, self._first, line)

    def goes_on(self, stall: StallReading, verdict: Verdict | None = None) -> bool:
        """Take the stacks again, once, if the stall lasts for long enough; return whether it did now. Report another
        verdict, at most every `SECOND_LOOK_SECS`. Call it while a stall lasts."""
        if self._look_again_at is None or self._clock.monotonic() < self._look_again_at:
            self._report_another(stall, verdict)
            return False
        self._look_again_at = None
        activity = self._activity()
        now = self._stacks()
        same = now.get(MAIN_THREAD) == self._first.get(MAIN_THREAD)
        line = self._line(now)
        if same and self._status is not None:  # else it is somewhere else by now
            self._status = replace(self._status, activity=activity)
        self._second = {"same_frames": same, "activity": activity}
        sentence = self._take(verdict)
        frames = "the same frames twice" if same else "other frames than before"
        said = f"{whereabouts(MAIN_THREAD, None if line is None else location(line), activity)}: {frames}"
        _LOG.warning(
            "No progress for %.0f s in the phase %r; %s.%s",
            stall.secs,
            stall.phase,
            said,
            sentence,
        )
        self._on_stacks(f"no progress for {stall.secs:.0f} s in the phase {stall.phase}; {said}", now)
        self._write(stall, now, line)
        return True

    def _report_another(self, stall: StallReading, verdict: Verdict | None) -> None:
        is_same = verdict is None or (self._verdict is not None and verdict.key == self._verdict.key)
        if is_same or self._clock.monotonic() < self._say_again_at:
            return
        sentence = self._take(verdict)
        _LOG.warning("No progress for %.0f s in the phase %r.%s", stall.secs, stall.phase, sentence)
        self._write(stall, _NO_STACKS, self._line(self._first))

    def _take(self, verdict: Verdict | None) -> str:
        """Keep a verdict; return it as a sentence for the log."""
        self._verdict = verdict
        self._say_again_at = self._clock.monotonic() + SECOND_LOOK_SECS
        if self._status is not None:
            self._status = replace(self._status, **_fields_of(verdict))
        return next_sentence(None if verdict is None else verdict.text)

    def blocked(self, stacks: Stacks) -> None:
        """Log where Python could not run for a while that was no stall."""
        line = self._line(stacks)
        if line is not None:
            title = f"Python could not run for a while; {MAIN_THREAD} was at {location(line)}"
            _LOG.warning("%s: native code held the interpreter's lock, or the process was stopped.", title)
            self._on_stacks(title, stacks)

    def end(self, stall: StallReading) -> None:
        """Report that progress was made again."""
        self._write(stall, _NO_STACKS, self._line(self._first))
        self._first, self._look_again_at, self._status = _NO_STACKS, None, None
        self._second, self._verdict = {}, None

    def service(self, stall: StallReading) -> None:
        """Report that a service's tick does not end, or has ended after all."""
        if stall.state == "end":
            self._write(stall, _NO_STACKS, None)
            return
        stacks = self._stacks()
        line = user_line(stacks.get(stall.service or "", ()))
        at = "" if line is None else f" at {location(line)}"
        title = f"the service {stall.service} has been in one tick for {stall.secs:.0f} s"
        _LOG.warning("%s%s (hang timeout %.0f s); training continues.", f"T{title[1:]}", at, stall.timeout_secs)
        self._on_stacks(title, stacks)
        self._write(stall, stacks, line)

    def _activity(self) -> Activity | None:
        """Return what the main thread did since the first look. Not known where the monitor did not run meanwhile."""
        (began_at, ran_before), ran = self._first_look, self._runnable_secs(self._clock)
        secs = self._clock.monotonic() - began_at
        return activity_of(ran_before, ran, secs)

    def _line(self, stacks: Stacks) -> str | None:
        return user_line(stacks.get(MAIN_THREAD, ()))

    def _write(self, stall: StallReading, stacks: Stacks, line: str | None) -> None:
        of_session: dict[str, Any] = {}
        if stall.service is None:
            of_session = {**(self._second if stall.state == "lasts" else {}), **_fields_of(self._verdict)}
        record = StallRecord(
            session=self._session_id,
            state=stall.state,
            phase=stall.phase,
            since=self._clock.wall() - (self._clock.monotonic() - stall.since),
            step=stall.step,
            secs=stall.secs,
            timeout_secs=stall.timeout_secs,
            thread=stall.service or MAIN_THREAD,
            location=line,
            stacks=stacks,
            service=stall.service,
            **of_session,
        )
        self._recorder.write(record, stall.step)
