"""`SupervisedRun`: one session of a run, from its begin to its end, whatever the framework.

A facade tells it what happens (``begin``, ``ready``, ``enter`` a phase, ``saved``, ``end``); it holds the logdir's
lease, writes the telemetry, keeps the heartbeat and serves the metrics. In a cluster the chief's session also watches
the other processes, each of which has a session of its own that keeps a heartbeat file instead of writing events.
"""

from __future__ import annotations

import os
import socket
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from typing import Any

from supervisor_core.checkpoint.guard import Publisher
from supervisor_core.checkpoint.lease_record import COSTS, ERROR_LETTERS
from supervisor_core.checkpoint.ledger import newest_attempt
from supervisor_core.checkpoint.logdir_lock import LogdirLock
from supervisor_core.checkpoint.session_history import SessionHistory
from supervisor_core.clock import SYSTEM_CLOCK, Clock, boot_secs
from supervisor_core.errors import LogdirInUseError
from supervisor_core.events.events_file import guard_directory
from supervisor_core.events.telemetry import CheckpointRecord, RecoveryRecord, SessionRecord, StopRecord
from supervisor_core.options import Options
from supervisor_core.run.advice import Costs
from supervisor_core.run.status import RunStatus
from supervisor_core.runtime.deadline import NEVER, Deadline
from supervisor_core.runtime.monitor import TICK_SECS, RunMonitor, SessionIdentity
from supervisor_core.runtime.progress import Progress
from supervisor_core.runtime.recorder import Recorder, SummaryWriter, TelemetrySink
from supervisor_core.runtime.registry import ServiceRegistry
from supervisor_core.runtime.save_tally import SaveTally
from supervisor_core.storage.local import local_path
from supervisor_core.supervision.beacon import Beacon
from supervisor_core.supervision.environment import run_name, versions
from supervisor_core.supervision.metrics_endpoint import MetricsEndpoint
from supervisor_core.supervision.outcome import Outcome
from supervisor_core.supervision.roster import Roster

LOOK_SECS = 5.0
"""How often the chief looks at the other processes' heartbeats, unless its own are more frequent."""

REMOTE_LOOK_SECS = 15.0
"""The same where each look is a request to an object store."""


class SupervisedRun:
    """One session of a run; see the module's docstring. Begun once, ended once.

    Args:
        logdir: the run's directory; None when nothing is written.
        facade: what the program called, for the session record.
        options: how the run behaves.
        writer: the run's summary writer; None writes nothing. A worker's is not used where there is a logdir.
        services: the session's service threads.
        checkpoint_interval_secs: configured seconds between checkpoints; None where none are taken.
        is_chief: whether to hold the logdir's lease; workers do not.
        task: what a worker is called among the cluster's processes, as ``worker:1``; None for a chief, and for a
            process that belongs to no cluster.
        gives_way: whether this chief writes no checkpoints: then one that does takes the logdir over from it.
        on_taken_over: called when another chief has taken the logdir over, with the error that says so; in any thread.
        clock: the time.
    """

    def __init__(
        self,
        *,
        logdir: str | None,
        facade: str,
        options: Options,
        writer: SummaryWriter | None,
        services: ServiceRegistry,
        checkpoint_interval_secs: float | None = None,
        is_chief: bool = True,
        task: str | None = None,
        gives_way: bool = False,
        on_taken_over: Callable[[BaseException], None] = lambda error: None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.options = options
        self.progress = Progress(clock, options.stall_timeout)
        self.saves = SaveTally(checkpoint_interval_secs)
        self._facade = facade
        self._interval_secs = checkpoint_interval_secs
        self._clock = clock
        self._writer = writer
        self._recorder: TelemetrySink = Recorder(writer if options.write_telemetry else None, self._check)
        self._gives_way = gives_way
        self._lease: LogdirLock | None = None
        self._roster: Roster | None = None
        self._beacon: Beacon | None = None
        session_id = uuid.uuid4().hex[:16]
        info = {"logdir": str(logdir or ""), "host": socket.gethostname(), "pid": str(os.getpid()), "facade": facade}
        if logdir and is_chief:
            self._lease = LogdirLock(
                logdir,
                timeout_secs=options.lease_timeout_secs,
                exclusive=options.exclusive_logdir,
                gives_way=gives_way,
                clock=clock,
                on_taken_over=on_taken_over,
            )
            self._roster = Roster(
                logdir,
                lost_after_secs=options.lease_timeout_secs,
                interval_secs=_look_secs(logdir, options),
                on_change=self._tell_of_workers,
                clock=clock,
            )
        elif task is not None:
            info["task"] = task
            if logdir:
                self._recorder = self._beacon = Beacon(
                    logdir, task, session_id, interval_secs=options.heartbeat_secs, clock=clock
                )
        self._identity = SessionIdentity(
            session_id=session_id,
            run=run_name(options.run_name, logdir),
            started_at=clock.wall(),
            started_boot_secs=boot_secs(clock),
            info=info,
            versions=versions(),
        )
        self._monitor = RunMonitor(
            self._identity,
            options=options,
            progress=self.progress,
            saves=self.saves,
            recorder=self._recorder,
            threads=services.statuses,
            workers=(lambda: ()) if self._roster is None else self._roster.workers,
            heartbeat_secs=None if self._beacon is None else TICK_SECS,
            on_renewal=self._renew_lease,
            renewal_secs=TICK_SECS if self._lease is None else self._lease.renewal_secs,
            clock=clock,
        )
        self._endpoint: MetricsEndpoint | None = None
        self._end_lock = threading.Lock()
        self._history = SessionHistory(attempt=1, first_started_at=clock.wall(), exclusive=False)
        self._logdir = logdir
        self._publisher: Publisher | None = None
        self._begun = False
        self._ended = False
        self._guarded: list[str] = []

    @property
    def session_id(self) -> str:
        """The session's id, unique; every record of the session bears it."""
        return self._identity.session_id

    @property
    def ended(self) -> bool:
        """Whether `end` was called."""
        return self._ended

    def holds(self, directory: str) -> bool:
        """Say whether this session holds a directory as its logdir, and no other chief can be at work there."""
        return self._history.exclusive and not self._ended and self._is_logdir(directory)

    def saves_in(self, directory: str) -> bool:
        """Say whether this session is the chief that saves checkpoints in a directory."""
        return self._publisher is not None and not self._gives_way and self._is_logdir(directory)

    def _is_logdir(self, directory: str) -> bool:
        own = self._logdir
        if own is None:
            return False
        return directory == own if "://" in own else os.path.realpath(directory) == os.path.realpath(own)

    @property
    def metrics_url(self) -> str | None:
        """Where this process serves its metrics; None where it does not."""
        return None if self._endpoint is None else self._endpoint.url

    def begin(self) -> None:
        """Take the logdir's lease, begin to watch and to serve.

        Raises:
            LogdirInUseError: if another live chief holds the logdir.
            OptionsError: if the metrics address cannot be read.
        """
        if self._lease is not None:
            before = self._lease.acquire(self.session_id, after_attempt=newest_attempt(self._logdir or ""))
            self._publisher = Publisher(session=self.session_id, attempt=before.attempt, check=self._lease.check)
            self._identity = replace(
                self._identity,
                attempt=before.attempt,
                earlier_costs=_costs(before),
                restarts=before.restarts,
                steps_lost=None if before.previous is None and before.attempt > 1 else before.steps_lost,
            )
            self._history = before
            self._monitor.identify(self._identity)
            self.guard(self._logdir or "")
        self._begun = True
        if self._beacon is not None:
            self._beacon.start()
        self._monitor.start()
        if self._roster is not None:
            self._roster.start()
        self._endpoint = MetricsEndpoint(
            self.options, lambda: [self.status()], lambda: self.progress.phase == "training"
        )

    @property
    def publisher(self) -> Publisher | None:
        """Who publishes checkpoints, and the check to pass each time, also after the session's end.

        None before `begin`, and for a session that does not hold the logdir's lease.
        """
        return self._publisher

    def guard(self, directory: str) -> None:
        """Have nothing appended to the events files of a directory once another chief has taken the logdir over.

        By whichever of this process's writers; until the session has released the lease. The logdir itself is guarded.
        What the program adds of its own is not, where this session gives way: only its telemetry ends.
        """
        if self._lease is not None and not self._gives_way:
            self._guarded.append(directory)
            guard_directory(directory, self._check)

    def ready(
        self,
        *,
        restored_checkpoint: str | None = None,
        restored_step: int | None = None,
        adopted: bool = False,
        skipped: Sequence[Mapping[str, str]] = (),
        state_problem: str | None = None,
        services: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """Say that the session is ready to train, and what it came from: writes the session record, durably."""
        activity = self.progress.snapshot().activity_secs
        if self._lease is not None:
            self._lease.record_ready()
        self._count_lost(restored_step, adopted)
        if restored_step is not None:
            self.progress.step_read(restored_step)
        record = SessionRecord(
            session=self.session_id,
            attempt=self._identity.attempt,
            host=self._identity.info["host"],
            pid=int(self._identity.info["pid"]),
            facade=self._facade,
            started_at=self._identity.started_at,
            run=self._identity.run,
            restored_checkpoint=restored_checkpoint,
            restored_step=restored_step,
            adopted=adopted,
            skipped=tuple(skipped),
            state_problem=state_problem,
            **self._history.record_fields(self._identity.started_boot_secs),
            starting_secs=activity["program_startup"],
            restoring_secs=activity["checkpoint_restore"],
            services=tuple(services),
            checkpoint_interval_secs=self._interval_secs,
            heartbeat_secs=self.options.heartbeat_secs,
            versions=self._identity.versions,
        )
        self._recorder.write(record, restored_step, durable=True)

    def goes_on_from(self, session: str) -> bool:
        """Tell whether a model that a session has left alive somewhere is good to go on with: this one's own, or see
        `SessionHistory.may_keep_model_of`."""
        return session == self.session_id or self._history.may_keep_model_of(session)

    def recovered(
        self, *, error: str, losses: int, step: int | None, checkpoint: str | None, at_step: int | None, secs: float
    ) -> None:
        """Count a restart within the session, and write its record, durably.

        Args:
            error: what was raised when the framework's session was lost.
            losses: how often it was lost until this one was ready.
            step: how far training had come.
            checkpoint: what was restored, if anything.
            at_step: the step that training goes on from.
            secs: seconds that it took.
        """
        self._identity = replace(self._identity, recoveries=self._identity.recoveries + 1)
        if step is not None and at_step is not None and step > at_step:
            self._lost(step - at_step)
            if self._lease is not None:
                self._lease.record_rewind(step - at_step, at_step)
        self._monitor.identify(self._identity)
        record = RecoveryRecord(
            session=self.session_id,
            error=error,
            losses=losses,
            step=step,
            restored_checkpoint=checkpoint,
            restored_step=at_step,
            secs=secs,
        )
        self._recorder.write(record, at_step, durable=True)

    def enter(self, phase: str) -> None:
        """Change the phase."""
        self._monitor.enter(phase)

    def waiting_for(self, what: str | None) -> None:
        """Say what a worker waits for, for the chief to show; None when it waits no more. A chief's is not shown."""
        if self._beacon is not None:
            self._beacon.waiting_for(what)

    def phase(self, phase: str) -> AbstractContextManager[None]:
        """Be in a phase for the length of a ``with`` block."""
        return self._monitor.phase(phase)

    def saved(self, record: CheckpointRecord, deadline: Deadline = NEVER) -> None:
        """Count a save, good or bad, and write its record, durably: the disk is waited for until the deadline."""
        if record.error is not None:
            self.saves.failed(record.error)
        elif record.path is not None:
            self.saves.saved(
                path=record.path,
                step=record.step,
                at=self._clock.wall(),
                size_bytes=record.bytes,
                secs=record.secs,
                blocked_secs=record.blocked_secs,
            )
        if record.blocked_secs and self.progress.phase == "training":
            self.progress.held_up(record.blocked_secs)
        self._recorder.write(record, record.step, durable=True, deadline=deadline)

    def status(self) -> RunStatus:
        """Return the session at this moment, as a scrape shows it."""
        return self._monitor.status()

    def end(self, outcome: Outcome, deadline: Deadline = NEVER) -> None:
        """Say that the session has ended and how: the stop record, durably; the lease is released. Once; later calls
        change nothing. The disk is waited for until the deadline. The metrics stay until `close`."""
        with self._end_lock:
            if self._ended or not self._begun:
                return
            self._ended = True
        if self._roster is not None:
            self._roster.stop(deadline)
        self._monitor.stop(deadline)
        self._monitor.ended(outcome.state, outcome.error)
        self._monitor.enter("stopped")
        now = self.progress.snapshot()
        record = StopRecord(
            session=self.session_id,
            reason=outcome.reason,
            error=outcome.error,
            signal=outcome.signal,
            step=now.global_step,
            steps=now.steps,
            final_checkpoint=outcome.final_checkpoint,
            final_checkpoint_step=outcome.final_checkpoint_step,
            elapsed_secs=self._monitor.elapsed_secs,
            activity_secs=now.activity_secs,
        )
        self._recorder.write(record, now.global_step, durable=True, deadline=deadline)
        if self._beacon is not None:
            self._beacon.close()
        if self._lease is not None:
            steps_lost = self._identity.steps_lost
            costs = self._lease_costs()
            if self._lease.release(outcome.reason, last_step=now.global_step, steps_lost=steps_lost, **costs):
                for directory in self._guarded:
                    guard_directory(directory, None)

    def close(self, linger_secs: float | None = None) -> None:
        """Stop serving metrics, after Prometheus has had the chance to see the end.

        Args:
            linger_secs: how long to wait for that at most. Default: `Options.metrics_linger_secs`.
        """
        if self._endpoint is not None:
            self._endpoint.close(self.options.metrics_linger_secs if linger_secs is None else linger_secs)

    def loss_read(self, is_finite: bool) -> None:
        """Record whether the watched loss is finite; a change is written at once."""
        self._monitor.loss_read(is_finite)

    def beat(self) -> None:
        """Write a heartbeat now: something has happened that should be seen."""
        self._monitor.beat()

    def _check(self) -> None:
        if self._lease is not None:
            self._lease.check()

    def _tell_of_workers(self) -> None:
        if not self._ended:
            self.beat()

    def _count_lost(self, restored_step: int | None, adopted: bool) -> None:
        if restored_step is None or self._lease is None:
            return
        if adopted:  # nothing is: the chief before may only have told of a step too many
            self._lease.record_rewind(0, restored_step)
            return
        lost = self._lease.record_restore(restored_step)
        before = self._history
        self._lost(None if before.previous is not None and before.last_step is None else lost)
        self._monitor.identify(self._identity)

    def _lost(self, steps: int | None) -> None:
        """Count steps that are done again; None: nobody knows how many, so the sum is not known either."""
        known = self._identity.steps_lost
        self._identity = replace(self._identity, steps_lost=None if known is None or steps is None else known + steps)

    def _lease_costs(self) -> dict[str, float]:
        costs = self._monitor.run_costs
        if costs is None:
            return {}
        told = (costs.trained_secs, costs.saves, costs.save_secs, costs.blocked_secs)
        return {name: round(value, 3) for name, value in zip(COSTS, told, strict=True)}

    def _renew_lease(self, step: int | None) -> None:
        if self._lease is None or self._ended:
            return
        now, (save_failures, in_a_row), error = self.progress.snapshot(), self.saves.failures, self._recorder.error
        with suppress(LogdirInUseError):  # which `on_taken_over` has heard of
            self._lease.renew(
                last_step=step,
                phase=now.phase,
                progress_at=now.last_progress_at,
                progress_timeout_secs=self.options.stall_timeout(now.phase),
                save_failures=save_failures,
                save_failures_in_a_row=in_a_row,
                events_error=None if error is None else error[:ERROR_LETTERS],
                **self._lease_costs(),
            )


def _costs(before: SessionHistory) -> Costs | None:
    told = before.costs
    known = [float(told[name] or 0.0) for name in COSTS if told[name] is not None]
    if len(known) < len(COSTS):
        return None
    trained_secs, saves, save_secs, blocked_secs = known
    return Costs(trained_secs=trained_secs, saves=int(saves), save_secs=save_secs, blocked_secs=blocked_secs)


def _look_secs(logdir: str, options: Options) -> float:
    if local_path(logdir) is None:
        return REMOTE_LOOK_SECS
    return min(LOOK_SECS, options.heartbeat_secs or LOOK_SECS)
