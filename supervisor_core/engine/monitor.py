"""`SessionMonitor`: the thread that reports a session's status even if every other thread hangs.

It uses neither the session nor checkpoints: it reads counters, writes heartbeat and stall records, and answers
`status()` for the metrics. `supervisor_core.engine.session_recorder.SessionRecorder` extends it: what it overrides must
not block.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from statistics import median

from supervisor_core.base.clock import SYSTEM_CLOCK, Clock, boot_secs
from supervisor_core.base.errors import StalledError
from supervisor_core.base.options import Options
from supervisor_core.engine.checkpoint_stats import CheckpointStats
from supervisor_core.engine.deadline import NEVER, Deadline
from supervisor_core.engine.environment import run_name
from supervisor_core.engine.hang_stacks import HangStacks
from supervisor_core.engine.hangs import (
    HangReading,
    HangReport,
    PlaceWatch,
    ServiceHangs,
    Watchdog,
    begun,
    longest_end,
)
from supervisor_core.engine.progress import Pause, Progress, ProgressSnapshot
from supervisor_core.engine.recorder import TelemetryRecorder
from supervisor_core.engine.retry import OWN_RANDOM
from supervisor_core.engine.timeouts import HangTimeouts, stop_timeout
from supervisor_core.events.record_fields import shared
from supervisor_core.events.telemetry import (
    HeartbeatRecord,
    Pace,
    PauseReport,
    Place,
    ResumeRecord,
    SessionRecord,
    ThreadStatus,
    WorkerStatus,
    rounded,
)
from supervisor_core.process.stacks import running_main_stack, waits_in
from supervisor_core.run.fold.advice import FAILURES, Costs
from supervisor_core.run.judge.culprit import Rank, Verdict, name_of_chief, ranks_of, shared_timeout, verdict_of
from supervisor_core.run.model.run import PRODUCTIVE, STATE_OF_OUTCOME, Outcome, Session
from supervisor_core.run.model.words import next_sentence, pause_text
from supervisor_core.run.status import RunStatus

WINDOW_SECS = 60.0
LEAST_LOOKS = 60
"""With fewer the share is too uncertain: of 60 it is right to within 0.13, nineteen times out of twenty."""
LOOK_SECS = (0.25, 0.75)
"""Between two looks, at random: at equal distances they could meet each step at the same place."""
SLOW_FACTOR = 5.0
"""Time without a step for longer than this number of steps take, as an evaluation or a save, does not count."""


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Time between two looks that saw a new step."""

    ended_at: float
    secs: float
    steps: int
    looks: int
    waits: int


class PaceWatch:
    """The pace of one session.

    Args:
        steps: returns the number of steps of the session, None while it does not train. Must not block.
        stack: returns the main thread's stack.

    Example:
        >>> watch = PaceWatch(lambda: 0)
        >>> watch.look(), watch.pace()
        (None, None)
    """

    def __init__(
        self,
        steps: Callable[[], int | None],
        clock: Clock = SYSTEM_CLOCK,
        *,
        stack: Callable[[], tuple[str, ...]] = running_main_stack,
    ) -> None:
        self._steps = steps
        self._clock = clock
        self._stack = stack
        self._stretches: deque[_Stretch] = deque()
        self._began: tuple[float, int] | None = None
        """Time and number of steps at the last look that saw a new step."""
        self._looks = self._waits = 0  # since then
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look_until_stopped, name="supervisor_pace", daemon=True)

    def start(self) -> None:
        """Start the thread. Starting twice changes nothing."""
        if self._thread.ident is None and not self._stop.is_set():
            self._thread.start()

    def stop(self) -> None:
        """Stop it; returns at once."""
        self._stop.set()

    def look(self) -> None:
        """Look once."""
        steps, now = self._steps(), self._clock.monotonic()
        if steps is None:
            self._began = None
            return
        is_waiting = waits_in(self._stack()) is not None
        with self._lock:
            self._add(steps, now, is_waiting=is_waiting)

    def _add(self, steps: int, now: float, *, is_waiting: bool) -> None:
        self._looks += 1
        self._waits += is_waiting
        if self._began is not None and steps == self._began[1]:
            return
        if self._began is not None and steps > self._began[1]:
            secs, done = now - self._began[0], steps - self._began[1]
            usual = self._step_secs()
            if usual is None or secs / done <= SLOW_FACTOR * usual:
                self._stretches.append(_Stretch(now, secs, done, self._looks, self._waits))
        while self._stretches and self._stretches[0].ended_at < now - WINDOW_SECS:
            self._stretches.popleft()
        self._began, self._looks, self._waits = (now, steps), 0, 0

    def pace(self) -> Pace | None:
        """Return the pace of the last minute; None where there were too few looks."""
        with self._lock:
            looks = sum(stretch.looks for stretch in self._stretches)
            step_secs = self._step_secs()
            if looks < LEAST_LOOKS or step_secs is None:
                return None
            share = 1.0 - sum(stretch.waits for stretch in self._stretches) / looks
        return Pace(step_secs=step_secs, own_secs=step_secs * share)

    def _step_secs(self) -> float | None:
        return median(stretch.secs / stretch.steps for stretch in self._stretches) if self._stretches else None

    def _look_until_stopped(self) -> None:
        while not self._stop.wait(OWN_RANDOM.uniform(*LOOK_SECS)):
            self.look()


_LOG = logging.getLogger("supervisor_core")

BEAT_SECS = 10.0
"""The liveness file has a heartbeat at least this often, in seconds."""
TICK_SECS = 1.0
"""The monitor's interval in seconds: the resolution of stalls and of the rate."""


class SessionMonitor:
    """Monitors one session; see the module's docstring.

    Args:
        record: the session's, as far as it is known; what was restored follows once the session is ready.
        options: intervals, and what is done about a hang.
        recorder: takes heartbeats and stalls.
        threads: returns the status of every service thread.
    """

    def __init__(
        self,
        record: SessionRecord,
        *,
        options: Options,
        recorder: TelemetryRecorder,
        threads: Callable[[], Iterable[ThreadStatus]],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        stop_secs = stop_timeout(options)
        self.progress = Progress(clock, HangTimeouts(options), own_end_secs=longest_end(options.hang_action, stop_secs))
        self.saves = CheckpointStats()
        self.session_id = record.session
        """The session's unique id, part of every record of the session."""
        self._record = record
        self._run_name = record.run or run_name(None, record.logdir)
        self._started_boot_secs = boot_secs(clock)
        self._earlier_costs: Costs | None = Costs()
        """Costs of saves and steps in the run's earlier sessions; None if unknown."""
        self._restarts: Mapping[str, int] = {}
        """Ends of the earlier sessions: reason -> count."""
        self._steps_lost: int | None = None
        """Steps recomputed after restarts, up to now; None if unknown."""
        self._recoveries = 0
        self.resume_check: ResumeRecord | None = None
        """What the recomputed steps have shown of the resume so far; None where nothing was compared."""
        self._info: dict[str, str] = {}
        """Facts of the run that are in no record, see `RunStatus.info`."""
        self._recorder = recorder
        self._threads = threads
        self._pace: PaceWatch | None = None  # of a process of several
        self._heartbeat_secs = min(options.heartbeat_secs or BEAT_SECS, BEAT_SECS)
        self._clock = clock
        self._places = PlaceWatch(clock)
        self._watchdog = Watchdog(
            options.hang_action, stop_timeout_secs=stop_secs,
            stop=self._stop_stalled, end=self._end_stalled, record=self.beat,
        )  # fmt: skip
        self._stacks = HangStacks(record.session, clock, dump_blocked=options.dump_blocked_stacks)
        self._report = HangReport(record.session, recorder, clock, on_stacks=self._stacks.add)
        self._service_stalls = ServiceHangs(options)
        self._loss_finite: bool | None = None
        self._pause: Pause | None = None
        self._blocked: Pause | None = None
        """A pause found in this tick that was a stall, in which this thread could not run."""
        self._outcome: Outcome = "running"
        self._error: str | None = None
        self._ended_at: float | None = None
        self._next_beat = clock.monotonic()
        self._beat_lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._tick_until_stopped, name="supervisor_monitor", daemon=True)

    def _workers(self) -> Iterable[WorkerStatus]:
        """Return the status of the cluster's other processes, for a chief."""
        return ()

    def _hurry_workers(self) -> None:
        """Have a newer status of these read."""

    def _note_place(self, place: Place | None, progress: ProgressSnapshot) -> None:
        """Take where the main thread is, None while there is progress; called once a second."""

    def _ticked(self, step: int | None) -> None:
        """Do what else is done once a second."""

    def _stop_stalled(self, error: StalledError) -> None:
        """Request a stop with an error, for ``hang_action="stop"``."""

    def _end_stalled(self, error: StalledError, deadline: Deadline) -> None:
        """Save what can be saved and write the last records, until the deadline."""

    def start_ticks(self) -> None:
        """Start the thread. A hang from here on is seen, also before its first tick."""
        self.progress.watched()
        self._arm()
        self._thread.start()
        if self.progress.is_in_cluster:
            self._watch_pace()

    def _watch_pace(self) -> None:
        progress = self.progress
        if self._pace is None and not self._stop.is_set():
            self._pace = PaceWatch(lambda: progress.steps if progress.phase == "training" else None, self._clock)
            self._pace.start()
            if self._stop.is_set():  # meanwhile
                self._pace.stop()

    def stop_ticks(self, deadline: Deadline = NEVER) -> None:
        """Stop the thread; return when it has ended (at once if called from it), or after half of the time to the
        deadline."""
        self._stop.set()
        if self._pace is not None:
            self._pace.stop()
        self.progress.unwatched()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(deadline.timeout / 2)

    @property
    def elapsed_secs(self) -> float:
        """Seconds since the session started, by a monotonic clock."""
        return boot_secs(self._clock) - self._started_boot_secs

    def note_end(self, outcome: Outcome, error: str | None = None) -> None:
        """Set how the session ended, and with which error: ``supervisor_active`` becomes 0."""
        self._error, self._ended_at, self._outcome = error, self._clock.wall(), outcome

    def loss_read(self, is_finite: bool) -> None:
        """Record whether the watched loss is finite; write a change at once."""
        before, self._loss_finite = self._loss_finite, is_finite
        if before is not is_finite:
            self.beat()

    def enter(self, phase: str) -> None:
        """Change the phase, and write a heartbeat if it has changed."""
        if self.progress.enter(phase) != phase:
            self._arm()
            self.beat()

    @contextmanager
    def phase(self, phase: str) -> Iterator[None]:
        """Be in a phase while the block runs, then in the one before.

        Another phase that was entered meanwhile ends this one: the end of the block then changes nothing."""
        before = self.progress.phase
        self.enter(phase)
        try:
            yield
        finally:
            if self.progress.phase == phase:
                self.enter(before)

    def tick(self) -> None:
        """Sample the rate, detect a stall or a silence, write a heartbeat and renew the lock if due. Every second."""
        self.progress.sample()
        if not self.progress.is_in_cluster and any(True for _ in self._workers()):
            self._watch_pace()
            self.progress.join_cluster()
        was_paused = self._detect_pause()
        verdict, now = self._look_around(), self._clock.monotonic()
        progress = self.progress.snapshot()
        self._detect_stall(progress, now, verdict)
        for stall in self._service_stalls.check(self._threads(), now, progress):
            self._report.service(stall)
        if was_paused or now >= self._next_beat:
            self._next_beat = now + self._heartbeat_secs
            self.beat(is_periodic=True)
        self._ticked(progress.global_step)

    def beat(self, durable_by: Deadline | None = None, *, is_periodic: bool = False) -> None:
        """Write a heartbeat now.

        Args:
            durable_by: wait for the disk until then. Default: do not wait.
            is_periodic: whether nothing is known to have happened.
        """
        now = self.progress.snapshot()
        with self._beat_lock:
            beat = replace(
                self._heartbeat(now),
                threads=tuple(self._threads()),
                workers=tuple(self._workers()) or None,
                pace=None if self._pace is None else self._pace.pace(),
                pause=self._take_pause(),
            )
            self._recorder.write(
                rounded(beat),
                now.global_step,
                durable=durable_by is not None,
                deadline=NEVER if durable_by is None else durable_by,
                is_periodic=is_periodic,
            )

    def _heartbeat(self, now: ProgressSnapshot) -> HeartbeatRecord:
        """Return a heartbeat without its long fields."""
        return HeartbeatRecord(
            **shared(HeartbeatRecord, self._record, now),
            elapsed_secs=self.elapsed_secs,
            step=now.global_step,
            steps_per_sec=now.steps_per_second,
            events_dropped=self._recorder.dropped,
            loss_finite=self._loss_finite,
            watchdog_would_act=self._watchdog.would_act,
            watchdog_acted=self._watchdog.acted,
        )

    def status(self) -> RunStatus:
        """Return the session's status, as in a scrape. Cheap; called from any thread."""
        now = self.progress.snapshot()
        session = self._session(now)
        return RunStatus(
            run=self._run_name,
            active=session.is_open,
            state=STATE_OF_OUTCOME.get(session.outcome) or ("stalled" if self._report.stalled else "running"),
            error=session.error,
            session=session,
            labels=session.labels,
            session_seen_at=session.ended_at,
            restarts=self._restarts,
            **shared(RunStatus, now),
            stalled=self._report.stalled,
            stall=self._report.status,
            checkpoint=self.saves.status(self.run_costs, self._record.checkpoint_interval_secs),
            threads=tuple(self._threads()),
            workers=tuple(self._workers()),
            steps_lost=self._steps_lost,
            events_failing=self._recorder.error is not None,
            loss_finite=self._loss_finite,
            info=self._info,
        )

    def _session(self, now: ProgressSnapshot) -> Session:
        return Session.recorded(
            self._record,
            self._heartbeat(now),
            self.resume_check,
            **self.saves.of_session(),
            ended_at=self._clock.wall() if self._ended_at is None else self._ended_at,
            outcome=self._outcome,
            error=self._error,
            events_error=self._recorder.error,
            first_step=self._record.restored_step,
            last_progress_at=now.last_progress_at,
            reported_secs=now.activity_secs,
            recoveries=self._recoveries,
        )

    @property
    def run_costs(self) -> Costs | None:
        """The run's costs of failures and saves up to now; None if unknown."""
        earlier, saves = self._earlier_costs, self.saves.costs
        if earlier is None:
            return None
        failures = sum(count for reason, count in self._restarts.items() if reason in FAILURES)
        return Costs(
            trained_secs=earlier.trained_secs + self.progress.snapshot().activity_secs[PRODUCTIVE],
            failures=min(failures, earlier.saves),  # no more sessions than that have got the run further, and saved it
            saves=earlier.saves + saves.saves,
            save_secs=earlier.save_secs + saves.save_secs,
            blocked_secs=earlier.blocked_secs + saves.blocked_secs,
        )

    def _detect_pause(self) -> bool:
        """Return whether no Python code ran for a while since the last tick: a heartbeat reports that at once."""
        pauses = self.progress.take_pauses()
        self._blocked = None
        for pause in pauses:
            why = pause_text(pause.cause, "this process", "this machine")
            _LOG.warning("%s for %.0f s.", why[:1].upper() + why[1:], pause.secs)
            self._pause = pause
            if not pause.is_silence and pause.is_hang:
                self._blocked = pause
        return bool(pauses)

    def _take_pause(self) -> PauseReport | None:
        pause, self._pause = self._pause, None
        if pause is None:
            return None
        since = self._clock.wall() - (self._clock.monotonic() - pause.until) - pause.secs
        return PauseReport(**shared(PauseReport, pause), since=since)

    def _look_around(self) -> Verdict | None:
        """Look where the main thread is and, in a cluster, what the other processes do: where none of them makes
        progress either, the learned hang timeout counts. Return which of them keeps the others waiting, if any."""
        progress = self.progress.snapshot()
        place = self._places.look(progress)
        self._note_place(place, progress)
        workers = tuple(self._workers())
        if place is None or not workers:
            self.progress.others(None)
            return None
        self._hurry_workers()
        now, is_training = self._clock.wall(), progress.phase == "training" and not progress.is_held
        own_secs = progress.own_timeout_secs if is_training else None
        least_secs = shared_timeout(workers, now, own_secs=own_secs)
        self.progress.others(least_secs)
        ranks = ranks_of(workers, now, least_secs=least_secs)
        if ranks is None:
            return None
        age, secs = progress.progress_age_secs, least_secs if is_training else progress.own_timeout_secs
        chief = Rank(
            name=name_of_chief(worker.name for worker in workers), place=place, phase=progress.phase,
            step=progress.global_step, is_late=secs is not None and age > secs,
        )  # fmt: skip
        return verdict_of([chief, *ranks])

    def _detect_stall(self, progress: ProgressSnapshot, now: float, verdict: Verdict | None) -> None:
        look = self._stacks.by_timer()
        self._arm()
        blocked = {} if look is None else look.stacks
        stall, pause = self._report.check(now, progress), self._blocked
        if stall is None and pause is not None:  # it is over already: this thread could not run either
            stall = begun(progress, pause.until, pause.secs, pause.timeout_secs)
            self._report.begin(stall, blocked)
            self._report.end(replace(stall, state="end"))
            return
        if blocked and (stall is None or stall.state != "begin"):
            self._report.blocked(blocked)
        if stall is None:
            return
        if stall.state == "begin":
            self._report.begin(stall, blocked, verdict)
            self._watchdog.begin(now)
            self._publish_stall(stall)
            self._beat_with_workers()
        elif stall.state == "lasts":
            if self._report.goes_on(stall, verdict):
                self._publish_stall(stall)
                self._beat_with_workers()
            self._let_watchdog_act(stall, now, progress.act_after_secs)
        else:
            self._report.end(stall)
            self.progress.page.update(stalled_since=None, location="", activity=None)

    def _beat_with_workers(self) -> None:
        """Write where the other processes are, if there are any."""
        if any(True for _ in self._workers()):
            self.beat()

    def _arm(self) -> None:
        """Have the main thread's stack written if this thread cannot run for the hang timeout. A change of the
        phase asks for it, too: native code may hold the interpreter before the next tick."""
        timeout_secs = self.progress.snapshot().own_timeout_secs  # no other process holds this one's interpreter
        self._stacks.arm(None if timeout_secs is None else timeout_secs + TICK_SECS)

    def _publish_stall(self, stall: HangReading) -> None:
        status = self._report.status
        if status is not None:
            at = "" if status.location is None else f"{status.thread} at {status.location}"
            self.progress.page.update(stalled_since=stall.since, location=at, activity=status.activity)

    def _let_watchdog_act(self, stall: HangReading, now: float, act_after_secs: float | None) -> None:
        status = self._report.status
        at = "" if status is None or status.location is None else f" at {status.location}"
        text = f"No progress for {stall.secs:.0f} s in the phase {stall.phase}, step {stall.step}{at}."
        text += next_sentence(None if status is None else status.verdict)
        if self._watchdog.check(now, age_secs=stall.secs, act_after_secs=act_after_secs, text=text):
            self.beat()

    def _tick_until_stopped(self) -> None:
        while not self._stop.wait(TICK_SECS):
            try:
                self.tick()
            except Exception:  # one error must not stop the monitor
                _LOG.exception("The monitor failed once; it continues.")
