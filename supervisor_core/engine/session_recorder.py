"""`SessionRecorder`: records one session of a run, whatever the framework.

A facade calls it at each event (``begin``, ``ready``, ``enter`` a phase, ``saved``, ``end``). It holds the logdir's
lock, writes telemetry and its liveness file, and serves metrics. In a cluster the chief's recorder also observes the
other processes; each of these has its own recorder, which writes a liveness file and no events.

`ResumeCheck`: compares what a resumed session logs with what the sessions before it logged for the same steps.

It reads the logdir's events files in a thread of its own, and costs the training's thread nothing. Files are read
because they hold what a killed process has logged, up to a fraction of a second before its end, whoever wrote it.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

from supervisor_core.base.clock import SYSTEM_CLOCK, Clock
from supervisor_core.base.errors import StalledError
from supervisor_core.base.log import visible_level
from supervisor_core.base.options import Options
from supervisor_core.checkpoint.guard import Publisher, is_covered, is_same
from supervisor_core.checkpoint.ledger import newest_attempt
from supervisor_core.engine.checkpoint_stats import log_save
from supervisor_core.engine.deadline import NEVER, Deadline
from supervisor_core.engine.environment import (
    LAST_PUSH_SECS,
    MetricsEndpoint,
    dead_before,
    deaths,
    new_page,
    new_record,
    page_directory,
)
from supervisor_core.engine.hangs import RECORD_SECS
from supervisor_core.engine.liveness_writer import LivenessWriter
from supervisor_core.engine.logdir_hold import LogdirHold
from supervisor_core.engine.monitor import SessionMonitor
from supervisor_core.engine.notices import Notices
from supervisor_core.engine.placement import placement
from supervisor_core.engine.progress import Progress, ProgressSnapshot
from supervisor_core.engine.recorder import StopInfo, SummaryWriter, TelemetryRecorder
from supervisor_core.engine.retry import SaveTrials
from supervisor_core.engine.service import ServiceRegistry
from supervisor_core.engine.session_history import SessionHistory, history_after
from supervisor_core.engine.worker_registry import WorkerRegistry, read_interval_secs
from supervisor_core.events.chunk import Points
from supervisor_core.events.directory import Directory
from supervisor_core.events.events_file import guard_directory
from supervisor_core.events.reader import EventsFileReader
from supervisor_core.events.record_fields import shared
from supervisor_core.events.telemetry import (
    CheckpointRecord,
    DeathRecord,
    Place,
    RecoveryRecord,
    ResumeRecord,
    StopRecord,
    WorkerStatus,
)
from supervisor_core.process.outside import allow_tracer
from supervisor_core.process.progress_page import PageReading, page_in, remove_page
from supervisor_core.run.fold.recomputed import Recomputed, states_of
from supervisor_core.run.status import RunStatus
from supervisor_core.storage.local import join, local_path, source_of

_LOG = logging.getLogger("supervisor_core")

LOOK_SECS, REMOTE_LOOK_SECS = 1.0, 60.0
"""Seconds between two looks at the session's own file: local, and in an object store, where each look costs money."""
EXTRA_LOOKS = 3
"""Looks after the last step to compare, for values that are logged late."""
MAX_FILES = 8
"""Newest events files that are read of what was there before."""
MAX_FILE_BYTES = 4 << 30
PIECE_BYTES = 8 << 20
FINISH_SECS = 2.0
"""How long the session's end waits for the last look, at most."""


class ResumeCheck:
    """The check of one session. Made before the session writes events: what is in the logdir then came before it.

    Args:
        progress: the session's.
        on_result: called in the check's thread with what was found; what it is called with last counts.
    """

    def __init__(
        self,
        logdir: str,
        session: str,
        progress: Progress,
        on_result: Callable[[ResumeRecord], object],
    ) -> None:
        self._logdir, self._session = logdir, session
        self._progress, self._on_result = progress, on_result
        self._directory = Directory(logdir)
        self._source = source_of(logdir)
        self._sizes: dict[str, int] = {}
        self._readers: dict[str, EventsFileReader] = {}
        self._is_ending = threading.Event()
        self._thread: threading.Thread | None = None
        self._found: ResumeRecord | None = None
        self._list_sizes()

    def _list_sizes(self) -> None:
        self._directory.refresh()
        for name in self._directory.events[-MAX_FILES:]:
            self._sizes[name] = self._size(name)

    def _size(self, name: str) -> int:
        with suppress(OSError, ValueError):
            return self._source.stat(join(self._directory.path, name)).st_size
        return 0

    def start(self, restored_step: int) -> None:
        """Begin to compare, with the step of the restored checkpoint."""
        if not any(self._sizes.values()):
            return
        self._thread = threading.Thread(
            target=self._work, args=(restored_step,), name="supervisor-resume-check", daemon=True
        )
        with suppress(RuntimeError):  # no more threads
            self._thread.start()

    def finish(self, recorder: TelemetryRecorder, deadline: Deadline) -> None:
        """Have what was logged written, look at it once more, and end."""
        if self._thread is None or not self._thread.is_alive():
            return
        recorder.flush(deadline)
        self._is_ending.set()
        self._thread.join(deadline.remaining(FINISH_SECS))

    def _work(self, restored_step: int) -> None:
        try:
            self._check(Recomputed(self._session, restored_step))
        except Exception:  # telemetry must not end a training
            _LOG.warning("What is recomputed after this resume is not compared.", exc_info=True)

    def _check(self, recomputed: Recomputed) -> None:
        late: list[Mapping[str, Points]] = []
        for name, size in self._sizes.items():
            if size > MAX_FILE_BYTES:
                continue
            for scalars in self._read(name):
                recomputed.before(name, _cut(scalars, None, size))
                late.append(_cut(scalars, size, None))
        last_step = recomputed.begin()
        if last_step is None:
            return
        for scalars in late:
            recomputed.now(scalars)
        late.clear()
        secs = REMOTE_LOOK_SECS if local_path(self._logdir) is None else LOOK_SECS
        looks = 0
        while looks < EXTRA_LOOKS and not recomputed.is_over:
            is_last = self._is_ending.wait(secs)
            self._look(recomputed)
            self._say(recomputed.result(), is_last=False)
            if is_last:
                break
            looks += (self._progress.snapshot().global_step or 0) > last_step + 1
        self._say(recomputed.result(), is_last=True)

    def _look(self, recomputed: Recomputed) -> None:
        self._directory.refresh()
        for name in self._directory.events[-MAX_FILES:]:
            for scalars in self._read(name):
                recomputed.now(scalars)

    def _read(self, name: str) -> Iterator[Mapping[str, Points]]:
        """Yield the new scalars and states of a file."""
        reader = self._readers.get(name)
        if reader is None:
            reader = EventsFileReader(join(self._directory.path, name), filesystem=self._source)
            self._readers[name] = reader
        is_reading = True
        while is_reading:
            chunk = reader.read(PIECE_BYTES)
            if chunk is not None:
                yield {**chunk.scalars, **states_of(chunk.marks)}
            is_reading = reader.has_more and chunk is not None

    def _say(self, found: ResumeRecord | None, *, is_last: bool) -> None:
        """Hand on what was found: a difference at once, else when there is twice as much as before, and at the end."""
        if found is None:
            return
        known = self._found
        if known is None or found.compared >= 2 * known.compared or (found != known and (is_last or found.tag)):
            self._found = found
            self._on_result(found)
        if not is_last:
            return
        if found.is_equal:
            _LOG.log(visible_level(_LOG), "The resume is observed exact (%s).", found.text)
        else:
            _LOG.warning("The resume is not exact: %s.", found.text)


def _cut(scalars: Mapping[str, Points], start: int | None, end: int | None) -> Mapping[str, Points]:
    """Return the points whose records are in a part of the file: offsets from ``start`` on, and below ``end``."""
    cut = {}
    for tag, points in scalars.items():
        chosen = slice(
            0 if start is None else int(points.offsets.searchsorted(start)),
            None if end is None else int(points.offsets.searchsorted(end)),
        )
        cut[tag] = points.taken(chosen)
    return cut


class SessionRecorder(SessionMonitor):
    """The recorder of one session; see the module's docstring. Begins once, ends once.

    Args:
        logdir: the run's directory; None if nothing is written.
        facade: the public class or function that the program called.
        writer: the run's summary writer; None writes nothing. Not used for a worker with a logdir.
        services: the session's service threads.
        checkpoint_interval_secs: configured seconds between checkpoints; None if none are saved.
        is_chief: whether to hold the logdir's lock; workers do not.
        task: a worker's name, ``worker:1``; None for a chief, and for a process of no cluster.
        yields_logdir: whether this chief saves no checkpoints, so that one that does may take the logdir over.
        on_taken_over: called with the error when another chief has taken the logdir over; in any thread.
        on_stalled: requests a stop with an error, for ``hang_action="stop"``; in any thread.
        save_stalled: saves a checkpoint for ``hang_action="abort"``, if that is possible, until the deadline; returns
            path and step of the newest one, as far as they are known.
        save_soon: tries to save a checkpoint as soon as that is possible; called in a thread of its own.
        after_attempt: the newest session's number in a checkpoint; this session's is higher.
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
        yields_logdir: bool = False,
        on_taken_over: Callable[[BaseException], None] = lambda error: None,
        on_stalled: Callable[[StalledError], object] = lambda error: None,
        save_stalled: Callable[[Deadline], tuple[str | None, int | None]] = lambda deadline: (None, None),
        save_soon: Callable[[], object] = lambda: None,
        after_attempt: int = 0,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.options = options
        events = writer if options.write_telemetry else None
        recorder = TelemetryRecorder(events, self._check, options.heartbeat_secs)
        self._hold: LogdirHold | None = None
        self._worker_registry: WorkerRegistry | None = None
        self._liveness: LivenessWriter | None = None
        record = new_record(
            uuid.uuid4().hex[:16],
            facade=facade,
            options=options,
            logdir=logdir,
            checkpoint_interval_secs=checkpoint_interval_secs,
            started_at=clock.wall(),
        )
        if task is not None and logdir and not is_chief:
            recorder = TelemetryRecorder(None)
            recorder.live = self._liveness = LivenessWriter(
                logdir, task, record.session, interval_secs=options.heartbeat_secs, clock=clock
            )
        super().__init__(record, options=options, recorder=recorder, threads=services.statuses, clock=clock)
        self._info["logdir"] = str(logdir or "")
        self._on_stalled, self._save_stalled = on_stalled, save_stalled
        self._trials = SaveTrials(save_soon, clock)
        self._yields_logdir = yields_logdir
        self._after_attempt = after_attempt
        self.notices = Notices(self.session_id, lambda *said: recorder.write(*said), self.progress.snapshot, clock)
        """What the program says of its run."""
        if logdir and is_chief:
            self._hold = LogdirHold(
                logdir,
                timeout_secs=options.lease_timeout_secs,
                exclusive=options.exclusive_logdir,
                yields_logdir=yields_logdir,
                clock=clock,
                on_taken_over=on_taken_over,
            )
            self._worker_registry = WorkerRegistry(
                logdir,
                lost_after_secs=options.lease_timeout_secs,
                interval_secs=read_interval_secs(logdir, options),
                on_change=self._workers_changed,
                on_notice=self.notices.heard,
                clock=clock,
            )
        elif task is not None:
            self._info["task"] = task
            self.progress.join_cluster()
        self._endpoint: MetricsEndpoint | None = None
        self._end_lock = threading.Lock()
        self.history = SessionHistory(run=history_after(None, clock.wall()), exclusive=False)
        """The earlier sessions of the run, once it has begun."""
        self._logdir = logdir
        self.publisher: Publisher | None = None
        """The identity under which checkpoints are published, with the lock check; valid after the session's end. None
        before `begin`, and without the logdir's lock."""
        self._begun = False
        self.ended = False
        """Whether `end` was called."""
        self._guarded: list[str] = []
        self._resume_check: ResumeCheck | None = None
        self._deaths: list[tuple[DeathRecord, PageReading | None]] = []
        """Of killed sessions of this run, with their pages: what no record says yet."""

    def holds(self, directory: str) -> bool:
        """Return whether a directory is this session's logdir, or below it and not a logdir itself, and no other chief
        can be active there."""
        may = self.history.exclusive and not self.ended
        return may and (is_same(directory, self._logdir or "") or is_covered(directory, self._logdir or ""))

    def saves_in(self, directory: str) -> bool:
        """Return whether this session is the chief that saves checkpoints in a directory."""
        return self.publisher is not None and not self._yields_logdir and is_same(directory, self._logdir or "")

    @property
    def metrics_url(self) -> str | None:
        """The URL of this process's metrics; None if it serves none."""
        return None if self._endpoint is None else self._endpoint.url

    def begin(self) -> None:
        """Take the logdir's lock, start the monitor and the metrics server.

        Raises:
            LogdirInUseError: if another live chief holds the logdir.
            OptionsError: if the metrics address, or that of the receiver of pushes, is malformed.
        """
        directory = page_directory()
        if self._hold is not None:
            hold, logdir = self._hold, self._logdir or ""
            before = hold.acquire(
                self.session_id,
                after_attempt=max(newest_attempt(logdir), self._after_attempt),
                page=None if directory is None else str(page_in(directory, self.session_id)),
                beat_secs=self.options.heartbeat_secs,
            )
            self.publisher = Publisher(
                session=self.session_id, attempt=before.run.attempt, check=hold.check, bring_back=hold.bring_back,
                logdir=local_path(logdir),
            )  # fmt: skip
            self._record = replace(self._record, attempt=before.run.attempt)
            self._earlier_costs, self._restarts = before.run.costs, before.run.restarts
            self._steps_lost = before.steps_lost
            self.history = before
            self._liveness = self._recorder.live = hold.liveness
            self.guard(logdir)
            if self.options.write_telemetry and not self._yields_logdir:
                self._resume_check = ResumeCheck(logdir, self.session_id, self.progress, self.resume_checked)
            if before.exclusive:
                pages = [] if directory is None else dead_before(directory, logdir)
                self._deaths = list(deaths(pages, before.previous, self._clock))
        self._begun = True
        if directory is not None:
            page = new_page(
                directory, self._record, self._started_boot_secs, self._logdir, is_chief=self._hold is not None
            )
            self.progress.publish(page)
        self._stacks.open(directory)
        allow_tracer()
        if self._liveness is not None:
            self._liveness.start()
        self.start_ticks()
        if self._worker_registry is not None:
            self._worker_registry.start()
        self._endpoint = MetricsEndpoint(
            self.options, lambda: [self.status()], lambda: self.progress.phase == "training", self.session_id
        )
        self._record_deaths()

    def write_to(self, writer: SummaryWriter) -> None:
        """Write telemetry through this writer from now on: for a program that opens it once it holds the logdir."""
        if self.options.write_telemetry:
            self._recorder.write_to(writer)
            self._record_deaths()

    def guard(self, directory: str) -> None:
        """Block all writers of a directory's events files once another chief has taken the logdir over.

        Holds until the session has released the lock. The logdir itself is always guarded. Summaries of the program are
        not blocked if this session gives way: only its telemetry ends.
        """
        if self._hold is not None and not self._yields_logdir:
            self._guarded.append(directory)
            guard_directory(directory, self._check)

    def ready(self, **restored: Any) -> None:
        """Record that the session is ready to train: writes the session record, durably.

        Args:
            restored: the fields of `SessionRecord` that say what was restored, and its services.
        """
        activity = self.progress.snapshot().activity_secs
        self._note_history(predecessor=None)
        record = replace(
            self._record,
            **self.history.record_fields(self._started_boot_secs),
            **asdict(placement()),
            starting_secs=activity["program_startup"],
            restoring_secs=activity["checkpoint_restore"],
            metrics_address=None if self._endpoint is None else self._endpoint.address,
            **restored,
        )
        self._count_lost(record.restored_step, record.adopted)
        if record.restored_step is not None:
            self.progress.step_read(record.restored_step)
        self._record = record
        self._record_deaths()
        self._recorder.write(record, record.restored_step, durable=True)
        if record.restored_step is None or record.adopted:
            self._resume_check = None
        elif self._resume_check is not None:
            self._resume_check.start(record.restored_step)

    def resume_checked(self, found: ResumeRecord) -> None:
        """Record what the recomputed steps show of the resume."""
        self.resume_check = found
        self._recorder.write(found, found.step)

    def _record_deaths(self) -> None:
        """Take what killed sessions of this run have left into the events file, as soon as there is one; pages of what
        cannot be written stay in memory."""
        unwritten = []
        for death, page in self._deaths:
            if not self._recorder.write(death, durable=True):
                unwritten.append((death, page))
            elif page is not None:
                remove_page(page)
        self._deaths = unwritten

    def can_adopt_model_of(self, session: str) -> bool:
        """Return whether the model that a session left alive can be adopted: its own, or see
        `SessionHistory.may_keep_model_of`."""
        return session == self.session_id or self.history.may_keep_model_of(session)

    def recovered(self, record: RecoveryRecord) -> None:
        """Count a recovery within the session, and write its record, durably."""
        self._recoveries += 1
        step, at_step = record.step, record.restored_step
        if step is not None and at_step is not None and step > at_step:
            self._lost(step - at_step)
        self._recorder.write(record, at_step, durable=True)

    def waiting_for(self, what: str | None) -> None:
        """Record what a worker waits for, for the chief to show; None at the end of the wait."""
        if self._liveness is not None:
            self._liveness.note(waiting_for=what)

    def saved(self, record: CheckpointRecord, deadline: Deadline = NEVER) -> None:
        """Count a save, successful or failed, write its record, and log it; waits for the disk until the deadline."""
        self.saves.saved(record, self._clock.wall())
        self._show_failures()
        if record.blocked_secs and self.progress.phase == "training":
            self.progress.blocked(record.blocked_secs)
        self._recorder.write(record, record.step, durable=True, deadline=deadline)
        log_save(record)

    def status(self) -> RunStatus:
        """Return the session's present status, as in a scrape."""
        return replace(super().status(), notices=self.notices.newest())

    def end(self, stop: StopInfo, deadline: Deadline = NEVER) -> None:
        """End the session: write the stop record, release the lock. Later calls change nothing.

        Waits for the disk until the deadline. Metrics are served until `close`."""
        with self._end_lock:
            if self.ended or not self._begun:
                return
            self.ended = True
        if self._worker_registry is not None:
            self._worker_registry.stop(deadline)
        if self._resume_check is not None:
            self._resume_check.finish(self._recorder, deadline)
        if not self.notices.is_empty:
            self.notices.end()
        self.stop_ticks(deadline)
        self.note_end(stop.reason, stop.error)
        self.enter("stopped")
        now = self.progress.snapshot()
        record = StopRecord(
            **shared(StopRecord, stop, now),
            session=self.session_id,
            step=now.global_step,
            elapsed_secs=self.elapsed_secs,
        )
        if (costs := self.run_costs) is not None:
            self._note_history(costs=costs)
        self._recorder.write(record, now.global_step, durable=True, deadline=deadline)
        if self._liveness is not None:
            self._liveness.close()
        if self._hold is not None and self._hold.release():
            for directory in self._guarded:
                guard_directory(directory, None)
        self._stacks.close()
        self.progress.page.close(remove=not self._recorder.is_behind)  # what no record says is read from it

    def _stop_stalled(self, error: StalledError) -> None:
        self._on_stalled(error)

    def _end_stalled(self, error: StalledError, deadline: Deadline) -> None:
        """End the session of a process that the watchdog is about to end."""
        path, step = None, None
        try:
            path, step = self._save_stalled(deadline.earlier(RECORD_SECS))
        finally:
            text = f"{type(error).__name__}: {error}"
            stop = StopInfo(reason="error", error=text, final_checkpoint=path, final_checkpoint_step=step)
            self.end(stop, deadline)

    def close(self, linger_secs: float | None = None, push_secs: float = LAST_PUSH_SECS) -> None:
        """Push metrics a last time, and stop serving them after Prometheus has had time for a last scrape.

        Args:
            linger_secs: how long to wait for the scrape at most. Default: `Options.metrics_linger_secs`.
            push_secs: how long to wait for the push at most.
        """
        if self._endpoint is not None:
            self._endpoint.close(self.options.metrics_linger_secs if linger_secs is None else linger_secs, push_secs)

    def _workers(self) -> Iterable[WorkerStatus]:
        return () if self._worker_registry is None else self._worker_registry.workers()

    def _hurry_workers(self) -> None:
        if self._worker_registry is not None:
            self._worker_registry.hurry()

    def _note_place(self, place: Place | None, progress: ProgressSnapshot) -> None:
        if self._liveness is not None:
            self._liveness.note_place(place, progress)

    def _check(self) -> None:
        if self._hold is not None:
            self._hold.check()

    def _workers_changed(self) -> None:
        if not self.ended:
            self.beat()

    def _count_lost(self, restored_step: int | None, adopted: bool) -> None:
        if restored_step is None or self._hold is None or adopted:  # of an adopted model nothing is lost
            return
        before, last_step = self.history.previous, self.history.last_step
        is_unknown = before is not None and last_step is None
        self._lost(None if is_unknown else max(0, (last_step or 0) - restored_step))

    def _lost(self, steps: int | None) -> None:
        """Count recomputed steps; None if unknown, which makes the sum unknown."""
        known = self._steps_lost
        self._steps_lost = total = None if known is None or steps is None else known + steps
        if total is not None:
            self._note_history(steps_lost=total)

    def _note_history(self, **changes: Any) -> None:
        if self._liveness is not None:
            self._liveness.note_history(**changes)

    def _show_failures(self) -> int:
        """Show on the page, and in the liveness file, what cannot be written; return the failed saves in a row."""
        (failures, in_a_row, why), error = self.saves.failures, self._recorder.error
        counts: dict[str, Any] = {"save_failures": failures, "save_failures_in_a_row": in_a_row}
        if self._liveness is not None:
            self._liveness.note(**counts, save_error=why, events_error=error)
        self.progress.page.update(
            **counts, save_error=why or "", events_fail=error is not None, events_error=error or ""
        )
        return in_a_row

    def _ticked(self, step: int | None) -> None:
        if self.ended:
            return
        in_a_row = self._show_failures()
        if self._hold is not None and self._liveness is not None:
            self._liveness.chief_lives(step, self.run_costs)
            self._trials.renewed(in_a_row, is_moved=self._hold.is_moved)
