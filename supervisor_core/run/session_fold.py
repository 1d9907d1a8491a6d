"""`SessionFold`: the telemetry of one session in one file, record by record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from supervisor_core.events.chunk import TelemetryMark
from supervisor_core.events.record_fields import values_of
from supervisor_core.events.telemetry import (
    CheckpointRecord,
    HeartbeatRecord,
    PauseReport,
    RecoveryRecord,
    SessionRecord,
    StallRecord,
    StopRecord,
)
from supervisor_core.run.bounds import MAX_THREADS, MAX_WORKERS, Allowance, Named, Newest
from supervisor_core.run.checkpoints import Checkpoint
from supervisor_core.run.heartbeat_folds import ThreadFold, WorkerFold
from supervisor_core.run.model import BUCKETS, Recovery
from supervisor_core.run.status import SAVE_BOUNDS, Histogram
from supervisor_core.run.step_time_curve import StepTimeCurve

Stacks = Mapping[str, tuple[str, ...]]
Silent = tuple[float, float, float, str | None]
"""Wall time of the report; total seconds in which the process did not run, before the report and by then; why."""

NOTHING: Mapping[str, Any] = {}

_CAUSES = ("stopped", "machine_suspended", "machine_paused")
"""Why a process did not run."""

CLOCK_SET_SECS = 2.0
"""The wall clock was set if it moved by more than this against the monotonic clock."""


class SessionFold:
    """Collects one session's records. History is only appended to, so the cost of a record does not grow with it.

    Args:
        id: the session's.
        kept_ticks: see `RunFold`.
        allowance: bounds its history together with that of the other sessions of its run. Default: its own.
    """

    __slots__ = (
        "_allowance",
        "_going_back",
        "_records",
        "attempt",
        "beat",
        "beat_at",
        "begun_at",
        "blocked_secs",
        "cadence_secs",
        "checkpoints",
        "clock_begun_at",
        "curves",
        "dropped_reports",
        "first_at",
        "first_elapsed_secs",
        "first_report",
        "id",
        "is_stalled",
        "kept_ticks",
        "last_at",
        "last_progress_at",
        "last_step",
        "most_steps_per_sec",
        "record",
        "recoveries",
        "reported_secs",
        "save_failures",
        "save_failures_in_a_row",
        "save_secs",
        "saves",
        "silences",
        "silent_secs",
        "stacks",
        "stall_count",
        "stalls",
        "stop",
        "stop_at",
        "threads",
        "workers",
        "workers_at",
    )

    def __init__(self, id: str, kept_ticks: int | None = None, allowance: Allowance | None = None) -> None:
        self.id = id
        self.kept_ticks = kept_ticks
        self._records = 0
        self.record: SessionRecord | None = None
        self.stop: StopRecord | None = None
        self.stop_at: float | None = None
        self.first_at: float | None = None
        """Wall time of its first record."""
        self.last_at: float | None = None
        """Wall time of its last record; records from before its clock was set do not count."""
        self.begun_at: float | None = None
        """Its start, calculated from its first heartbeat."""
        self.clock_begun_at: float | None = None
        """Its start by the present wall clock, calculated with the monotonic clock."""
        self.first_elapsed_secs: float | None = None
        """Its age at its first heartbeat in this file, by the monotonic clock."""
        self.attempt: int | None = None
        self.first_report: tuple[int, int] | None = None
        """The first reported step, and the number of steps done by then."""
        self.last_step: int | None = None
        """Its highest step since its last recovery."""
        self.beat: HeartbeatRecord | None = None
        self.beat_at: float | None = None
        self.last_progress_at: float | None = None
        self.cadence_secs: float | None = None
        """The longest time between two heartbeats of one phase."""
        self.reported_secs: Mapping[str, float] = {}
        self.most_steps_per_sec: float | None = None
        self.is_stalled = False
        self._going_back = False
        self.curves = [StepTimeCurve()]
        """See `SessionFacts`."""
        self.dropped_reports = 0
        """Of threads and workers beyond the bounds."""
        self.workers_at: float | None = None
        """When they were last reported."""
        self.stall_count = 0
        self._allowance = pools = allowance or Allowance()
        self.threads: Named[ThreadFold] = Named(pools.threads)
        self.workers: Named[WorkerFold] = Named(pools.workers)
        self.checkpoints: Newest[Checkpoint] = Newest(pools.checkpoints, _chars_of_save)
        self.stalls: Newest[tuple[float, int, StallRecord]] = Newest(pools.stalls)
        """Its records: wall time, number of the stall, the record without its stacks."""
        self.stacks: Newest[tuple[int, Stacks]] = Newest(pools.stacks, _chars_of_stacks)
        """Number of the stall, and its stacks."""
        self.recoveries: Newest[Recovery] = Newest(pools.recoveries, _chars_of_recovery)
        self.silences: Newest[Silent] = Newest(pools.silences)
        self.silent_secs = 0.0
        """Total seconds in which the process did not run, by the latest report."""
        self.saves = self.save_failures = self.save_failures_in_a_row = 0
        self.save_secs: Histogram | None = None
        """Durations of its successful saves; None before the first, likewise `blocked_secs`."""
        self.blocked_secs: Histogram | None = None

    @property
    def version(self) -> int:
        """Increases with each record, and whenever a bound dropped something."""
        return self._records + self.dropped_history

    @property
    def dropped_history(self) -> int:
        """Number of entries dropped beyond the bounds."""
        kept = (self.checkpoints, self.stalls, self.stacks, self.recoveries, self.silences, self.threads, self.workers)
        return sum(each.dropped for each in kept)

    def give_back(self) -> None:
        """Return this session's share of the allowance to the run."""
        self._allowance.curves += len(self.curves) - 1
        for share in (self.threads, self.workers):
            share.give_back()
        for history in (self.checkpoints, self.stalls, self.stacks, self.recoveries, self.silences):
            history.give_back()

    def add(self, mark: TelemetryMark) -> bool:
        """Add one record; return whether it shows that the wall clock was set since the one before."""
        self._records += 1
        at, record = mark.at, mark.record
        was_set = isinstance(record, (HeartbeatRecord, StopRecord)) and self._look_at_clock(at, record.elapsed_secs)
        self.first_at = at if self.first_at is None else self.first_at
        self.last_at = at if self.last_at is None or was_set else max(at, self.last_at)
        if was_set:
            self.last_progress_at = None
        if isinstance(record, HeartbeatRecord):
            self._beat(at, record, was_set)
        elif isinstance(record, CheckpointRecord):
            self._checkpoint(at, record)
        elif isinstance(record, SessionRecord):
            skipped = tuple({key: item[key] for key in ("path", "reason") if key in item} for item in record.skipped)
            self.record = replace(record, services=(), skipped=skipped)
            self.update_step(record.restored_step)
        elif isinstance(record, StopRecord):
            self.stop, self.stop_at = replace(record, activity_secs=NOTHING), at
            self._secs(at, record.activity_secs, record.step)
            self.update_step(record.step)
        elif isinstance(record, RecoveryRecord):
            self._recovery(at, record)
        elif isinstance(record, StallRecord):
            self._stall(at, record)
            if record.service is None:
                self.is_stalled = record.state in ("begin", "lasts")
        return was_set

    def _stall(self, at: float, record: StallRecord) -> None:
        if record.state == "begin":
            self.stall_count += 1
            if record.stacks:
                self.stacks.add((self.stall_count, record.stacks))
        self.stalls.add((at, self.stall_count, replace(record, stacks=NOTHING)))

    def _look_at_clock(self, at: float, elapsed: float | None) -> bool:
        """Compare the two clocks; return whether the wall clock was set since they were last compared."""
        if elapsed is None:
            return False
        if self.first_elapsed_secs is None:
            self.first_elapsed_secs = elapsed
        before, self.clock_begun_at = self.clock_begun_at, at - elapsed
        return clocks_differ(before, self.clock_begun_at)

    def _beat(self, at: float, beat: HeartbeatRecord, clock_was_set: bool) -> None:
        self.attempt = beat.attempt if self.attempt is None else self.attempt
        age = beat.progress_age_secs
        # Until training resumes, the trainer may still report the step from before the recovery.
        self._going_back &= beat.phase == "restoring"
        step = None if self._going_back else beat.step
        self._secs(at, beat.activity_secs, step, beat.pause)
        if self.beat is None:
            # Seconds after the last progress are in `activity_secs` only after they have become a stall.
            open_secs = 0.0 if is_over_budget(beat) else age
            self.begun_at = at - open_secs - sum(self.reported_secs.values())
        elif beat.phase == self.beat.phase and self.beat_at is not None and not clock_was_set:
            self.cadence_secs = max(self.cadence_secs or 0.0, at - self.beat_at)
        self.update_rate(beat.steps_per_sec)
        if step is not None and self.first_report is None:
            self.first_report = (step, beat.steps or 0)
        self.update_step(step)
        self.update_progress(at - age)
        self.is_stalled = is_over_budget(beat)
        # The long fields are folded below; only the short ones are kept.
        self.beat = replace(beat, threads=(), workers=None, activity_secs=NOTHING, pause=None)
        self.beat_at = at
        self.threads.touch()
        for status in beat.threads:
            if (thread := self.thread(status.name)) is not None:
                thread.beat(at, status)
        if beat.workers is not None:
            self.workers_at = at
            self.workers.touch()
            for name, each in {worker.name: worker for worker in beat.workers}.items():
                if (known := self.worker(name)) is not None:
                    known.beat(at, each)

    def thread(self, name: str) -> ThreadFold | None:
        """Return the thread of a name; None beyond the bound, which is counted."""
        known = self.threads.by_name.get(name)
        if known is None:
            if len(self.threads) >= MAX_THREADS:
                self.dropped_reports += 1
                return None
            self.threads.add(name, known := ThreadFold(name, self.kept_ticks))
        return known

    def worker(self, name: str) -> WorkerFold | None:
        """Return the worker of a name; None beyond the bound, which is counted."""
        known = self.workers.by_name.get(name)
        if known is None:
            if len(self.workers) >= MAX_WORKERS:
                self.dropped_reports += 1
                return None
            self.workers.add(name, known := WorkerFold(name, self.kept_ticks))
        return known

    def _checkpoint(self, at: float, record: CheckpointRecord) -> None:
        self.checkpoints.add(Checkpoint(**values_of(record), at=at))
        self.update_step(record.step)
        if record.error is not None:
            self.saves += 1
            self.save_failures += 1
            self.save_failures_in_a_row += 1
        elif record.path is not None:
            self.saves += 1
            self.save_failures_in_a_row = 0
            self.save_secs, self.blocked_secs = (
                self.save_secs or save_histogram(),
                self.blocked_secs or save_histogram(),
            )
            self.save_secs.add(record.secs or 0.0)
            self.blocked_secs.add(record.blocked_secs or 0.0)
            self.update_progress(at)

    def _recovery(self, at: float, record: RecoveryRecord) -> None:
        from_step, to_step = record.step, record.restored_step
        self.recoveries.add(Recovery(**values_of(replace(record, losses=max(1, record.losses))), at=at))
        curve = self.curves[-1]
        if from_step is not None:
            curve.reached(from_step, curve.end_secs)
        if to_step is not None and self._allowance.curves:
            self._allowance.curves -= 1
            self.curves.append(StepTimeCurve(to_step, curve.end_secs))
        self.last_step = to_step  # None: until the next heartbeat
        self._going_back = True

    def _secs(
        self, at: float, activity: Mapping[str, float], step: int | None, pause: PauseReport | None = None
    ) -> None:
        if not activity:  # as in a record that does not tell it in a way that can be read
            return
        reported = {bucket: activity[bucket] for bucket in BUCKETS if bucket in activity}
        self.reported_secs = reported
        cause = None if pause is None else pause.cause
        self.update_silence(at, reported.get("silent", 0.0), cause if cause in _CAUSES else None)
        productive = reported.get("productive", 0.0)
        if step is not None:
            self.curves[-1].reached(step, productive)
        self.curves[-1].end_secs = max(self.curves[-1].end_secs, productive)

    def update_silence(self, at: float, secs: float, cause: str | None = None) -> None:
        """Add a report of the total seconds in which the process did not run, and why."""
        if secs > self.silent_secs:
            self.silences.add((at, self.silent_secs, secs, cause))
            self.silent_secs = secs

    def update_rate(self, steps_per_sec: float | None) -> None:
        """Add a reading of steps per second."""
        if steps_per_sec is not None:
            self.most_steps_per_sec = max(self.most_steps_per_sec or 0.0, steps_per_sec)

    def update_step(self, step: int | None) -> None:
        """Add a step that was reached."""
        if step is not None and (self.last_step is None or step > self.last_step):
            self.last_step = step

    def update_progress(self, at: float) -> None:
        """Add a time at which it made progress."""
        if self.last_progress_at is None or at > self.last_progress_at:
            self.last_progress_at = at


def save_histogram() -> Histogram:
    """Return an empty histogram of durations of saves."""
    return Histogram(SAVE_BOUNDS)


def _chars_of_save(item: Checkpoint) -> int:
    return len(item.path or "") + len(item.error or "") + len(item.doubt or "")


def _chars_of_recovery(item: Recovery) -> int:
    return len(item.error) + len(item.restored_checkpoint or "")


def _chars_of_stacks(item: tuple[int, Stacks]) -> int:
    return sum(len(name) + 1 + sum(len(line) + 1 for line in lines) for name, lines in item[1].items())


def is_over_budget(beat: HeartbeatRecord) -> bool:
    """Return whether a heartbeat reports no progress for longer than the phase's budget."""
    return beat.progress_timeout_secs is not None and beat.progress_age_secs > beat.progress_timeout_secs


def clocks_differ(one: float | None, other: float | None) -> bool:
    """Return whether two calculated start times of a session differ by more than one wall clock explains."""
    return one is not None and other is not None and abs(one - other) > CLOCK_SET_SECS
