"""The hangs of a session: which there are, what is recorded of them, and what is done about them.

`ServiceHangs`: the stalls of services. A service's tick that does not end, as a save to a mount that does not answer,
stalls no phase: training goes on. Its hang timeout is that of the phase ``checkpointing``, and once three ticks have
ended 5 x the longest of them, 60 s at least, if none is given for that phase.

`HangReport`: finds the stalls of the session, writes their records with the stacks, and knows the current stall.

A stall has two looks at its stacks: one when it begins and one `SECOND_LOOK_SECS` later. The same frames in both do not
show that a thread is stuck: it may compute for long, or wait for something that comes. The time for which it ran, or
was ready to run, between the two looks shows which of these it did.

`PlaceWatch`: where the main thread is while the session makes no progress, for the other processes of a training.

It says nothing of whether that is a hang: a process that waits for another one is in order as long as that one may take
its time. Who sees all processes decides (`supervisor_core.run.judge.culprit`).

`Watchdog`: takes `Options.hang_action` when a hang has lasted for too long.

    observe   counts what it would have done
    stop      asks the training to stop, with a `StalledError`: a loop that moves again ends, and raises it
    abort     saves a checkpoint if no step is under way, writes the stop record, and ends the process by SIGABRT
    kill      ends the process by SIGKILL

A wrong action is worse than none. So it acts once per hang, never on a learned hang timeout that is below the default,
and only after the stacks were taken twice.
"""

from __future__ import annotations

import logging
import math
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

from supervisor_core.base.clock import SYSTEM_CLOCK, Clock, main_thread_secs
from supervisor_core.base.errors import StalledError
from supervisor_core.base.options import HangAction, Options
from supervisor_core.engine.blocking_call import BlockingCall
from supervisor_core.engine.deadline import Deadline
from supervisor_core.engine.progress import ProgressSnapshot
from supervisor_core.engine.recorder import TelemetryRecorder
from supervisor_core.engine.timeouts import FLOOR_SECS, TIMES_LONGEST, first_hang_timeouts, given_hang_timeouts
from supervisor_core.events.record_fields import shared
from supervisor_core.events.telemetry import Acted, Place, StallRecord, ThreadStatus, place_of
from supervisor_core.process.outside import loader_workers
from supervisor_core.process.stacks import (
    MAIN_THREAD,
    Activity,
    Stacks,
    digest,
    location,
    main_stack,
    place_of_hang,
    python_stacks,
    user_line,
    whereabouts,
)
from supervisor_core.run.judge.culprit import Verdict
from supervisor_core.run.model.words import next_sentence
from supervisor_core.run.status import StallStatus

TICK_FLOOR_SECS = 60.0
"""No learned hang timeout of a tick is shorter."""
TICKS_TO_LEARN = 3
"""Number of ticks until the learned one counts."""
_PHASE = "checkpointing"
"""The phase whose hang timeout a tick has: most long ticks are saves."""


@dataclass(frozen=True, kw_only=True)
class HangReading:
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


def begun(
    progress: ProgressSnapshot, until: float, secs: float, timeout_secs: float | None, service: str | None = None
) -> HangReading:
    """Return the begin of a hang.

    Args:
        progress: the session's.
        until: monotonic time of the reading.
        secs: seconds without progress until then.
        service: the service whose tick does not end; None of the session itself.
    """
    return HangReading(
        state="begin", since=until - secs, secs=secs, timeout_secs=timeout_secs, phase=progress.phase,
        step=progress.global_step, service=service,
    )  # fmt: skip


class ServiceHangs:
    """Follows the services of one session. Not thread-safe; it has no clock.

    Args:
        options: give the hang timeout.
    """

    def __init__(self, options: Options) -> None:
        self._first_secs = first_hang_timeouts(options)[_PHASE]
        self._is_fixed = _PHASE in given_hang_timeouts(options)
        self._longest: dict[str, float] = {}
        self._stalled: dict[str, HangReading] = {}
        """Service -> its hanging tick at the last check."""

    def check(self, services: Iterable[ThreadStatus], now: float, progress: ProgressSnapshot) -> Iterator[HangReading]:
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
                yield replace(begun(progress, now, secs, before.timeout_secs, name), state="end")
            timeout_secs = self._timeout_secs(status)
            if ticking > timeout_secs:
                self._stalled[name] = stall = begun(progress, now, ticking, timeout_secs, name)
                yield stall

    def _timeout_secs(self, status: ThreadStatus) -> float:
        ended = status.ticks - (status.ticking_secs is not None)
        if self._is_fixed or ended < TICKS_TO_LEARN:
            return self._first_secs
        return max(TICK_FLOOR_SECS, TIMES_LONGEST * self._longest[status.name])


_LOG = logging.getLogger("supervisor_core")

SECOND_LOOK_SECS = 10.0
BUSY_SHARE, WAITING_SHARE = 0.5, 0.1
"""A thread that is ready to run for at least the first share of the time is busy; for at most the second it waits."""

_NO_STACKS: Stacks = {}


def main_thread_runnable_secs(clock: Clock, root: str = "/proc") -> float | None:
    """Return for how long the main thread has run, or waited for a processor: on a busy machine a thread that computes
    runs for a small part of the time only. None of an injected clock, and where the system does not say.

    Args:
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


def _own_stacks() -> Stacks:
    """Return the stacks of this process, and of the workers of a loader that its main thread waits for."""
    stacks = python_stacks()
    return {**stacks, **loader_workers(os.getpid(), stacks)}


class HangReport:
    """Reports one session's stalls; not thread-safe but for `status`.

    Args:
        recorder: takes the records.
        stacks: returns the stacks of all threads.
        on_stacks: called with a title and the stacks of each look, or with the line that was found after Python could
            not run; must not block.
        runnable_secs: returns for how long the main thread has run, or was ready to run; None where unknown.
    """

    def __init__(
        self,
        session_id: str,
        recorder: TelemetryRecorder,
        clock: Clock,
        *,
        stacks: Callable[[], Stacks] = _own_stacks,
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
        self._begun: HangReading | None = None
        self.status: StallStatus | None = None
        """The present stall; None without one."""

    @property
    def stalled(self) -> bool:
        """Whether the session is stalled now."""
        return self._begun is not None

    def check(self, now: float, progress: ProgressSnapshot) -> HangReading | None:
        """Take one reading at a monotonic time; return the stall that begins, lasts or ends with it, or None."""
        before, secs, timeout_secs = self._begun, progress.progress_age_secs, progress.progress_timeout_secs
        stall = begun(progress, now, secs, timeout_secs)
        if timeout_secs is not None and secs > timeout_secs:
            self._begun = before or stall
            return stall if before is None else replace(stall, state="lasts")
        self._begun = None
        if before is None:
            return None
        return replace(
            stall, state="end", since=before.since, secs=max(0.0, stall.since - before.since), phase=before.phase
        )

    def begin(self, stall: HangReading, blocked: Stacks = _NO_STACKS, verdict: Verdict | None = None) -> None:
        """Report that a stall has begun.

        Args:
            blocked: stacks of threads from the time in which Python could not run: they show the hang, not what came
                after it.
            verdict: which process keeps the others waiting; None of a training in one, and where unknown.
        """
        self._first = {**self._stacks(), **blocked}
        thread, line = place_of_hang(self._first)
        at = None if line is None else location(line)
        self.status = StallStatus(phase=stall.phase, thread=thread, location=at)
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
            "" if at is None else f": {whereabouts(thread, at, None)}",
            sentence,
        )
        title = f"no progress for {stall.secs:.0f} s in the phase {stall.phase}, at step {stall.step}"
        self._on_stacks(title, self._first)
        self._write(stall, self._first)

    def goes_on(self, stall: HangReading, verdict: Verdict | None = None) -> bool:
        """Take the stacks again, once, if the stall lasts for long enough; return whether it did now. Report another
        verdict, at most every `SECOND_LOOK_SECS`. Call it while a stall lasts."""
        if self._look_again_at is None or self._clock.monotonic() < self._look_again_at:
            self._report_another(stall, verdict)
            return False
        self._look_again_at = None
        activity = self._activity()
        now = self._stacks()
        same = now.get(MAIN_THREAD) == self._first.get(MAIN_THREAD)
        thread, line = place_of_hang(now)
        if same and self.status is not None:  # else it is somewhere else by now
            self.status = replace(self.status, activity=activity)
        self._second = {"same_frames": same, "activity": activity}
        sentence = self._take(verdict)
        frames = "the same frames twice" if same else "other frames than before"
        said = f"{whereabouts(thread, None if line is None else location(line), activity)}: {frames}"
        _LOG.warning(
            "No progress for %.0f s in the phase %r; %s.%s",
            stall.secs,
            stall.phase,
            said,
            sentence,
        )
        self._on_stacks(f"no progress for {stall.secs:.0f} s in the phase {stall.phase}; {said}", now)
        self._write(stall, now)
        return True

    def _report_another(self, stall: HangReading, verdict: Verdict | None) -> None:
        is_same = verdict is None or (self._verdict is not None and verdict.key == self._verdict.key)
        if is_same or self._clock.monotonic() < self._say_again_at:
            return
        sentence = self._take(verdict)
        _LOG.warning("No progress for %.0f s in the phase %r.%s", stall.secs, stall.phase, sentence)
        self._write(stall, self._first, shows=False)

    def _take(self, verdict: Verdict | None) -> str:
        """Keep a verdict; return it as a sentence for the log."""
        self._verdict = verdict
        self._say_again_at = self._clock.monotonic() + SECOND_LOOK_SECS
        if self.status is not None:
            self.status = replace(self.status, **_fields_of(verdict))
        return next_sentence(None if verdict is None else verdict.text)

    def blocked(self, stacks: Stacks) -> None:
        """Log where Python could not run for a while that was no stall."""
        line = user_line(stacks.get(MAIN_THREAD, ()))
        if line is not None:
            title = f"Python could not run for a while; {MAIN_THREAD} was at {location(line)}"
            _LOG.warning("%s: native code held the interpreter's lock, or the process was stopped.", title)
            self._on_stacks(title, stacks)

    def end(self, stall: HangReading) -> None:
        """Report that progress was made again."""
        self._write(stall, self._first, shows=False)
        self._first, self._look_again_at, self.status = _NO_STACKS, None, None
        self._second, self._verdict = {}, None

    def service(self, stall: HangReading) -> None:
        """Report that a service's tick does not end, or has ended after all."""
        if stall.state == "end":
            self._write(stall, _NO_STACKS)
            return
        stacks = self._stacks()
        line = user_line(stacks.get(stall.service or "", ()))
        at = "" if line is None else f" at {location(line)}"
        title = f"the service {stall.service} has been in one tick for {stall.secs:.0f} s"
        _LOG.warning("%s%s (hang timeout %.0f s); training continues.", f"T{title[1:]}", at, stall.timeout_secs)
        self._on_stacks(title, stacks)
        self._write(stall, stacks)

    def _activity(self) -> Activity | None:
        """Return what the main thread did since the first look. Not known where the monitor did not run meanwhile."""
        (began_at, ran_before), ran = self._first_look, self._runnable_secs(self._clock)
        secs = self._clock.monotonic() - began_at
        return activity_of(ran_before, ran, secs)

    def _write(self, stall: HangReading, stacks: Stacks, *, shows: bool = True) -> None:
        thread, line = place_of_hang(stacks)
        if stall.service is not None:
            thread, line = stall.service, user_line(stacks.get(stall.service, ()))
        of_session: dict[str, Any] = {}
        if stall.service is None:
            of_session = {**(self._second if stall.state == "lasts" else {}), **_fields_of(self._verdict)}
        record = StallRecord(
            **{**shared(StallRecord, stall), "since": self._clock.wall() - (self._clock.monotonic() - stall.since)},
            session=self._session_id,
            thread=thread,
            location=line,
            stacks=stacks if shows else _NO_STACKS,
            **of_session,
        )
        self._recorder.write(record, stall.step)


CHANGE_SECS = 5.0
"""A thread that is somewhere else each time has another place after this time only."""


class PlaceWatch:
    """The place of one session. Not thread-safe.

    Args:
        stack: returns the main thread's stack.
        runnable_secs: returns for how long the main thread has run, or was ready to run; None where unknown.
    """

    def __init__(
        self,
        clock: Clock = SYSTEM_CLOCK,
        *,
        stack: Callable[[], tuple[str, ...]] = main_stack,
        runnable_secs: Callable[[Clock], float | None] = main_thread_runnable_secs,
    ) -> None:
        self._clock = clock
        self._stack = stack
        self._runnable_secs = runnable_secs
        self._place: Place | None = None
        self._since = 0.0
        """Since when it is there, in monotonic seconds."""
        self._ran: float | None = None
        """The main thread's runnable seconds then."""

    def look(self, progress: ProgressSnapshot) -> Place | None:
        """Return where the main thread is; None while the session makes progress, or cannot hang. Called once a
        second."""
        secs = progress.own_timeout_secs
        if secs is None or progress.progress_age_secs <= min(secs, FLOOR_SECS):
            self._place = None
            return None
        now, stack = self._clock.monotonic(), self._stack()
        found = digest(stack)
        if self._place is None or (found != self._place.digest and now - self._since >= CHANGE_SECS):
            self._since, self._ran = now, self._runnable_secs(self._clock)
            self._place = place_of(stack)
        elif found == self._place.digest and self._place.activity is None and now - self._since >= SECOND_LOOK_SECS:
            activity = activity_of(self._ran, self._runnable_secs(self._clock), now - self._since)
            if activity is not None:
                self._place = replace(self._place, activity=activity)
        return self._place


RECORD_SECS = 2.0
"""How long ``kill`` waits for the disk that holds the records, in seconds."""


def longest_end(action: HangAction, stop_timeout_secs: float) -> float:
    """Return for how many seconds, from the time to act on, the session may be busy ending itself: for so long nothing
    outside has to."""
    return 0.0 if action == "observe" else SECOND_LOOK_SECS + RECORD_SECS + stop_timeout_secs


def die(signum: int) -> None:
    """End the process by a signal, from any thread, whatever handler it has.

    SIGABRT goes through C's ``abort()``: the system writes a core file if it is configured to, and ``faulthandler``,
    where it is enabled, prints the stacks."""
    if signum == signal.SIGABRT:
        os.abort()
    os.kill(os.getpid(), signum)


class Watchdog:
    """The watchdog of one session; called by its monitor's thread.

    Args:
        action: see `Options.hang_action`.
        stop_timeout_secs: how long ``abort`` may take, in seconds.
        stop: requests a stop with an error; must not block.
        end: saves what can be saved and writes the last records, until the deadline.
        record: writes a heartbeat, durably, until the deadline.
        die: ends the process by a signal. Default: `die`.
    """

    def __init__(
        self,
        action: HangAction,
        *,
        stop_timeout_secs: float,
        stop: Callable[[StalledError], object],
        end: Callable[[StalledError, Deadline], object],
        record: Callable[[Deadline], object],
        die: Callable[[int], object] = die,
    ) -> None:
        self._action = action
        self._stop_timeout_secs = stop_timeout_secs
        self._stop, self._end, self._record = stop, end, record
        self._die = die
        self._began_at = math.inf
        self._has_acted = False
        self.would_act = 0
        """How many stalls it would have ended, under ``observe``."""
        self.acted: Mapping[Acted, int] = {} if action == "observe" else {action: 0}
        """How many stalls it has acted upon, by action; nothing under ``observe``."""

    def begin(self, now: float) -> None:
        """A stall has begun.

        Args:
            now: monotonic seconds.
        """
        self._began_at, self._has_acted = now, False

    def check(self, now: float, *, age_secs: float, act_after_secs: float | None, text: str) -> bool:
        """Act if the stall has lasted for long enough; return whether it did. Call it while a stall lasts.

        Args:
            now: monotonic seconds.
            age_secs: seconds since the last progress.
            act_after_secs: see `HangTimeouts.act_after`.
        """
        if self._has_acted or act_after_secs is None:
            return False
        if now - self._began_at < SECOND_LOOK_SECS or age_secs <= act_after_secs:
            return False
        self._has_acted = True
        if self._action == "observe":
            self.would_act += 1
            _LOG.warning("%s Options.hang_action is 'observe': nothing is done about it.", text)
            return True
        self.acted = {self._action: self.acted[self._action] + 1}
        error = StalledError(text)
        if self._action == "stop":
            _LOG.error("%s The training is asked to stop.", text)
            self._stop(error)
            return True
        signum = signal.SIGABRT if self._action == "abort" else signal.SIGKILL
        _LOG.error("%s The process is ended by %s.", text, signum.name)
        thread = threading.Thread(target=self._end_process, args=(error, signum), name="supervisor_watchdog")
        thread.daemon = True
        thread.start()
        return True

    def _end_process(self, error: StalledError, signum: signal.Signals) -> None:
        try:
            self._within(RECORD_SECS, self._record)
            if signum == signal.SIGABRT:
                self._within(self._stop_timeout_secs, lambda deadline: self._end(error, deadline))
        finally:
            self._die(signum)

    def _within(self, secs: float, call: Callable[[Deadline], Any]) -> None:
        """Make a call that may fail, or hang; return when it has ended, or after the given time."""
        deadline = Deadline.after(secs)
        made = BlockingCall(lambda: call(deadline), name="supervisor_watchdog-end")
        if not made.wait(secs):
            _LOG.error("The last records could not be written within %.0f s.", secs)
            return
        try:
            made.result()
        except Exception as error:  # the process ends all the same
            _LOG.error("The last records could not be written: %s", error)
