"""`SessionMonitor`: the thread that says how the session is, though every other thread may hang.

It touches neither the session nor the disk's checkpoints: it reads counters, writes heartbeat and stall records through
the recorder, and answers `status()` for the metrics. What it calls out to (the lease's renewal) must not block.
"""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from supervisor_core.clock import SYSTEM_CLOCK, Clock, boot_secs
from supervisor_core.events.telemetry import HeartbeatRecord, StallRecord
from supervisor_core.options import Options
from supervisor_core.run.advice import FAILURES, Costs
from supervisor_core.run.model import PRODUCTIVE, SILENT
from supervisor_core.run.status import RunStatus, ServedState, ThreadStatus, WorkerStatus
from supervisor_core.runtime.checkpoint_stats import CheckpointStats
from supervisor_core.runtime.deadline import NEVER, Deadline
from supervisor_core.runtime.progress import Progress
from supervisor_core.runtime.recorder import TelemetrySink

_LOG = logging.getLogger("supervisor_core")

TICK_SECS = 1.0
"""How often the monitor looks: the resolution of stalls and of the rate."""


@dataclass(frozen=True, kw_only=True)
class SessionIdentity:
    """Who this session is, and what came before it."""

    session_id: str
    run: str
    started_at: float
    """Wall time."""
    started_boot_secs: float | None = None
    """The same moment by `supervisor_core.clock.boot_secs`; None when not known."""
    attempt: int = 1
    earlier_costs: Costs | None = field(default_factory=Costs)
    """What saves and steps have cost the run's earlier sessions; None when not known."""
    restarts: Mapping[str, int] = field(default_factory=dict)
    """How the earlier sessions ended: reason -> count."""
    steps_lost: int | None = None
    """Steps done again after restarts, up to now; None when not known."""
    recoveries: int = 0
    """Restarts within the session."""
    info: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)


class SessionMonitor:
    """Watches one session; see the module's docstring.

    Args:
        identity: who the session is.
        options: budgets and intervals.
        progress: the session's progress.
        saves: the session's saves.
        recorder: where heartbeats and stalls are written.
        threads: returns the state of every service thread.
        workers: returns the cluster's other processes, as far as this one sees them.
        heartbeat_secs: seconds between heartbeats; 0 for those at changes of phase only. Default: the options'.
        on_renewal: called with the step, every so often; must not block.
        renewal_secs: how often.
        clock: the time.
    """

    def __init__(
        self,
        identity: SessionIdentity,
        *,
        options: Options,
        progress: Progress,
        saves: CheckpointStats,
        recorder: TelemetrySink,
        threads: Callable[[], Iterable[ThreadStatus]],
        workers: Callable[[], Iterable[WorkerStatus]] = lambda: (),
        heartbeat_secs: float | None = None,
        on_renewal: Callable[[int | None], None] = lambda step: None,
        renewal_secs: float = TICK_SECS,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._identity = identity
        self._options = options
        self._progress = progress
        self._saves = saves
        self._recorder = recorder
        self._threads = threads
        self._workers = workers
        self._news = WorkerChanges(workers, EVERY_BEATS * options.heartbeat_secs, clock.monotonic)
        self._heartbeat_secs = options.heartbeat_secs if heartbeat_secs is None else heartbeat_secs
        self._on_renewal = on_renewal
        self._clock = clock
        self._stalls = StallDetector()
        self._loss_finite: bool | None = None
        self._silent_secs = 0.0
        self._ended: ServedState | None = None
        self._error: str | None = None
        self._ended_at: float | None = None
        self._next_beat = self._next_renewal = clock.monotonic()
        self._renewal_secs = renewal_secs
        self._beat_lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="supervisor_monitor", daemon=True)

    def start(self) -> None:
        """Start watching."""
        self._thread.start()

    def stop(self, deadline: Deadline = NEVER) -> None:
        """Stop watching; returns when the thread has ended (or at once when called from it), or when half
        of the time to the deadline is over."""
        self._stop.set()
        self._progress.unwatched()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(deadline.timeout / 2)

    def identify(self, identity: SessionIdentity) -> None:
        """Correct who the session is, once more is known of what came before it."""
        self._identity = identity

    @property
    def elapsed_secs(self) -> float | None:
        """Seconds since the session started, by a monotonic clock; None when not known."""
        started = self._identity.started_boot_secs
        return None if started is None else boot_secs(self._clock) - started

    def ended(self, state: ServedState, error: str | None = None) -> None:
        """Set the state in which the session has ended: ``supervisor_active`` becomes 0.

        Args:
            state: ``completed``, ``stopped`` or ``failed``.
            error: what ended it, where it has failed.
        """
        self._error, self._ended_at, self._ended = error, self._clock.wall(), state

    def loss_read(self, is_finite: bool) -> None:
        """Record whether the watched loss is finite; a change is written at once."""
        before, self._loss_finite = self._loss_finite, is_finite
        if before is not is_finite:
            self.beat()

    def enter(self, phase: str) -> None:
        """Change the phase, and say so in the events file."""
        if self._progress.enter(phase) != phase:
            self.beat()

    @contextmanager
    def phase(self, phase: str) -> Iterator[None]:
        """Be in a phase for the length of a block, and in the one before afterwards."""
        before = self._progress.phase
        self.enter(phase)
        try:
            yield
        finally:
            self.enter(before)

    def tick(self) -> None:
        """Look once: sample the rate, notice a stall or a silence, beat and renew the lease when it is time. Every
        second."""
        self._progress.sample()
        was_silent = self._look_for_silence()
        self._look_for_stall()
        now = self._clock.monotonic()
        if was_silent or (self._heartbeat_secs and now >= self._next_beat):
            self._next_beat = now + self._heartbeat_secs
            self.beat()
        if now >= self._next_renewal:
            self._next_renewal = now + self._renewal_secs
            self._on_renewal(self._progress.snapshot().global_step)

    def beat(self) -> None:
        """Write a heartbeat record now."""
        now = self._progress.snapshot()
        with self._beat_lock:
            record = HeartbeatRecord(
                session=self._identity.session_id,
                phase=now.phase,
                attempt=self._identity.attempt,
                elapsed_secs=self.elapsed_secs,
                step=now.global_step,
                steps=now.steps,
                steps_per_sec=now.steps_per_second,
                progress_age_secs=now.progress_age_secs,
                progress_timeout_secs=self._options.stall_timeout(now.phase),
                activity_secs=now.activity_secs,
                threads=tuple(asdict(thread) for thread in self._threads()),
                workers=self._news.take(),
                events_dropped=self._recorder.dropped,
                loss_finite=self._loss_finite,
            )
            self._recorder.write(record, now.global_step)

    def status(self) -> RunStatus:
        """Return the session as a scrape shows it. Cheap; called from any thread."""
        now = self._progress.snapshot()
        who = self._identity
        return RunStatus(
            run=who.run,
            active=self._ended is None,
            phase=now.phase,
            state=self._ended or ("stalled" if self._stalls.stalled else "running"),
            error=self._error,
            session_id=who.session_id,
            session_started_at=who.started_at,
            session_seen_at=self._clock.wall() if self._ended_at is None else self._ended_at,
            sessions=who.attempt,
            restarts=who.restarts,
            recoveries=who.recoveries,
            global_step=now.global_step,
            steps=now.steps,
            steps_per_second=now.steps_per_second if self._ended is None else None,
            last_step_at=now.last_step_at,
            last_progress_at=now.last_progress_at,
            progress_timeout_secs=self._options.stall_timeout(now.phase),
            stalled=self._stalls.stalled,
            step_secs=now.step_secs,
            checkpoint=self._saves.status(self.run_costs),
            threads=tuple(self._threads()),
            workers=tuple(self._workers()),
            steps_lost=who.steps_lost,
            activity_secs=now.activity_secs,
            events_dropped=self._recorder.dropped,
            events_failing=self._recorder.error is not None,
            loss_finite=self._loss_finite,
            versions=who.versions,
            info=who.info,
        )

    @property
    def run_costs(self) -> Costs | None:
        """What failures and saves have cost the run up to now; None when that is not known."""
        earlier, saves = self._identity.earlier_costs, self._saves.costs
        if earlier is None:
            return None
        return Costs(
            trained_secs=earlier.trained_secs + self._progress.snapshot().activity_secs[PRODUCTIVE],
            failures=sum(count for reason, count in self._identity.restarts.items() if reason in FAILURES),
            saves=earlier.saves + saves.saves,
            save_secs=earlier.save_secs + saves.save_secs,
            blocked_secs=earlier.blocked_secs + saves.blocked_secs,
        )

    def _look_for_silence(self) -> bool:
        """Return whether the process did not run for a while since the last look: a heartbeat says so at once."""
        before, self._silent_secs = self._silent_secs, self._progress.snapshot().activity_secs[SILENT]
        if self._silent_secs <= before:
            return False
        _LOG.warning(
            "This process did not run for %.0f s: it was stopped (SIGSTOP), or its machine was frozen or suspended.",
            self._silent_secs - before,
        )
        return True

    def _look_for_stall(self) -> None:
        now = self._progress.snapshot()
        monotonic, wall = self._clock.monotonic(), self._clock.wall()
        timeout = self._options.stall_timeout(now.phase)
        change = self._stalls.look(monotonic, now.progress_age_secs, timeout)
        if change is None:
            return
        begins = change.state == "begin"
        if begins:
            _LOG.warning(
                "No progress for %.0f s in the phase %r (budget %.0f s) at step %s; the stacks of all threads are in "
                "the events file.",
                change.secs,
                now.phase,
                timeout or 0.0,
                now.global_step,
            )
        record = StallRecord(
            session=self._identity.session_id,
            state=change.state,
            phase=now.phase,
            since=wall - (monotonic - change.since),
            step=now.global_step,
            secs=change.secs,
            timeout_secs=timeout,
            stacks=python_stacks() if begins else {},
        )
        self._recorder.write(record, now.global_step)

    def _watch(self) -> None:
        while not self._stop.wait(TICK_SECS):
            try:
                self.tick()
            except Exception:  # a broken record must not blind the monitor
                _LOG.exception("The monitor failed once; it continues.")


MAX_FRAMES = 40
"""How many frames of a stack are kept, the innermost."""


def is_stalled(progress_age_secs: float, timeout_secs: float | None) -> bool:
    """Return whether nothing has moved for longer than the phase's budget.

    Args:
        progress_age_secs: seconds since anything moved.
        timeout_secs: the budget; None where the phase cannot stall.
    """
    return timeout_secs is not None and progress_age_secs > timeout_secs


def python_stacks() -> dict[str, tuple[str, ...]]:
    """Return the Python stack of every thread: thread name -> ``"file:line function"``, outermost first."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    stacks: dict[str, tuple[str, ...]] = {}
    for ident, frame in sys._current_frames().items():
        lines = [f"{entry.filename}:{entry.lineno} {entry.name}" for entry in traceback.extract_stack(frame)]
        name = names.get(ident, f"thread {ident}")
        stacks[name if name not in stacks else f"{name} ({ident})"] = tuple(lines[-MAX_FRAMES:])
    return stacks


@dataclass(frozen=True, kw_only=True)
class StallChange:
    """A stall has begun, or ended."""

    state: Literal["begin", "end"]
    since: float
    """Monotonic time of the last progress before the stall."""
    secs: float
    """Seconds without progress: so far when it begins, altogether when it ends."""


class StallDetector:
    """Turns readings of the progress into the moments at which a stall begins and ends. For one thread's use."""

    def __init__(self) -> None:
        self._since: float | None = None

    @property
    def stalled(self) -> bool:
        """Whether a stall is under way."""
        return self._since is not None

    def look(self, now: float, progress_age_secs: float, timeout_secs: float | None) -> StallChange | None:
        """Take one reading; return what it changes, or None.

        Args:
            now: monotonic seconds.
            progress_age_secs: seconds since anything moved.
            timeout_secs: the budget of the present phase; None where it cannot stall.
        """
        last_progress = now - progress_age_secs
        if self._since is None:
            if not is_stalled(progress_age_secs, timeout_secs):
                return None
            self._since = last_progress
            return StallChange(state="begin", since=last_progress, secs=progress_age_secs)
        if is_stalled(progress_age_secs, timeout_secs):
            return None
        since, self._since = self._since, None
        return StallChange(state="end", since=since, secs=max(0.0, last_progress - since))


EVERY_BEATS = 6
"""Where nothing has changed but steps, every so many heartbeats tell of the others."""


class WorkerChanges:
    """Says what the next heartbeat tells of the cluster's other processes.

    Args:
        workers: returns them as they are.
        every_secs: seconds after which they are told of though nothing has changed.
        monotonic: the time.
    """

    def __init__(
        self, workers: Callable[[], Iterable[WorkerStatus]], every_secs: float, monotonic: Callable[[], float]
    ) -> None:
        self._workers = workers
        self._every_secs = every_secs
        self._monotonic = monotonic
        self._told: list[tuple[Any, ...]] = []
        self._told_at: float | None = None

    def take(self) -> tuple[Mapping[str, Any], ...] | None:
        """Return what to tell now; None where there is nothing new."""
        workers = tuple(self._workers())
        now = self._monotonic()
        states = [(each.name, each.state, each.started_at, each.waiting_for, each.error) for each in workers]
        is_due = bool(workers) and (self._told_at is None or now - self._told_at >= self._every_secs)
        if not is_due and states == self._told:
            return None
        self._told, self._told_at = states, now
        return tuple(asdict(each) for each in workers)
