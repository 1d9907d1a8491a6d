"""`SessionFold`: one session's own telemetry in one file, record by record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from supervisor_core.events.chunk import TelemetryMark
from supervisor_core.events.telemetry import (
    CheckpointRecord,
    HeartbeatRecord,
    RecoveryRecord,
    SessionRecord,
    StallRecord,
    StopRecord,
)
from supervisor_core.run.bounds import (
    MAX_NAME_CHARS,
    MAX_SKIPPED,
    MAX_THREADS,
    MAX_VERSIONS,
    MAX_WORKERS,
    Allowance,
    DroppedKind,
    Named,
    Newest,
    counted,
)
from supervisor_core.run.fields import MAX_TEXT, mapping, number, text, truth, whole
from supervisor_core.run.model import BUCKETS, Checkpoint, Recovery
from supervisor_core.run.status import SAVE_BOUNDS, Histogram
from supervisor_core.run.step_time_curve import Pace
from supervisor_core.run.thread_fold import ThreadFold
from supervisor_core.run.worker_fold import WorkerFold

Stacks = Mapping[str, tuple[str, ...]]
Silent = tuple[float, float, float]
"""When it was told that the process had not run; for how many seconds altogether, before and by then; all rise."""

NOTHING: Mapping[str, float] = {}

CLOCK_SET_SECS = 2.0
"""A session's wall clock was set if it differs by more from the one that nobody sets."""


class SessionFold:
    """Gathers one session's records; what is finished is only ever added to, so a record costs the same whenever.

    Args:
        id: the session's.
        kept_ticks: see `RunFold`.
        allowance: what its history shares with the other sessions of its run; one of its own where there is none.
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
        "first_at",
        "first_elapsed_secs",
        "first_told",
        "id",
        "is_stalled",
        "kept_ticks",
        "last_at",
        "last_progress_at",
        "last_step",
        "most_steps_per_sec",
        "paces",
        "record",
        "recoveries",
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
        "told_secs",
        "unkept",
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
        """Wall time of its last record; of the records before its clock was set, nothing counts."""
        self.begun_at: float | None = None
        """When it began, reckoned back from its first heartbeat."""
        self.clock_begun_at: float | None = None
        """When it began by the wall clock as it goes now, reckoned back by the clock that nobody sets."""
        self.first_elapsed_secs: float | None = None
        """How long it had lasted at its first heartbeat here, by that clock."""
        self.attempt: int | None = None
        self.first_told: tuple[int, int] | None = None
        """The first step that was told, and how many steps it had done by then."""
        self.last_step: int | None = None
        """How far it has come, since the last recovery that went back."""
        self.beat: HeartbeatRecord | None = None
        self.beat_at: float | None = None
        self.last_progress_at: float | None = None
        self.cadence_secs: float | None = None
        """The longest time between two heartbeats of one phase: those come by the clock."""
        self.told_secs: Mapping[str, float] = {}
        self.most_steps_per_sec: float | None = None
        self.is_stalled = False
        self._going_back = False
        self.paces = [Pace()]
        """See `SessionFacts`."""
        self.unkept: Counter[DroppedKind] | None = None
        """How often a thread or a worker was named beyond the bounds."""
        self.workers_at: float | None = None
        """When it told of them last."""
        self.stall_count = 0
        self._allowance = pools = allowance or Allowance()
        self.threads: Named[ThreadFold] = Named(pools.threads)
        self.workers: Named[WorkerFold] = Named(pools.workers)
        self.checkpoints: Newest[Checkpoint] = Newest(pools.checkpoints, _chars_of_save)
        self.stalls: Newest[tuple[float, int, StallRecord]] = Newest(pools.stalls)
        """Their begins and ends: when, which stall it is, and the record without its stacks."""
        self.stacks: Newest[tuple[int, Stacks]] = Newest(pools.stacks, _chars_of_stacks)
        """Which stall they are of, and the stacks."""
        self.recoveries: Newest[Recovery] = Newest(pools.recoveries, _chars_of_recovery)
        self.silences: Newest[Silent] = Newest(pools.silences)
        self.silent_secs = 0.0
        """For how long the process had not run altogether, as told last."""
        self.saves = self.save_failures = self.save_failures_in_a_row = 0
        self.save_secs: Histogram | None = None
        """Durations of its good saves, as the next one; None before the first."""
        self.blocked_secs: Histogram | None = None

    @property
    def version(self) -> int:
        """Rises with each record, and whenever something of it was let go."""
        dropped = self.stacks.dropped + self.threads.dropped + self.workers.dropped + self.silences.dropped
        return self._records + dropped + self.checkpoints.dropped + self.stalls.dropped + self.recoveries.dropped

    @property
    def dropped(self) -> Counter[DroppedKind]:
        """What was dropped beyond the bounds, by kind."""
        found = counted(
            [
                ("checkpoints", self.checkpoints.dropped),
                ("stalls", -(-self.stalls.dropped // 2)),
                ("stacks", self.stacks.dropped),
                ("recoveries", self.recoveries.dropped),
                ("silences", self.silences.dropped),
                ("old_threads", self.threads.dropped),
                ("old_workers", self.workers.dropped),
            ]
        )
        return found if self.unkept is None else found + self.unkept

    def give_back(self) -> None:
        """Leave to the run's other sessions what this one has taken of the allowance."""
        self._allowance.paces += len(self.paces) - 1
        for share in (self.threads, self.workers):
            share.give_back()
        for history in (self.checkpoints, self.stalls, self.stacks, self.recoveries, self.silences):
            history.give_back()

    def add(self, mark: TelemetryMark) -> bool:
        """Take in one record; return whether it shows that the wall clock was set since the one before."""
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
            self.record = _slim(record)
            self.got_to(whole(record.restored_step))
        elif isinstance(record, StopRecord):
            self.stop, self.stop_at = record, at
            self._secs(at, record.activity_secs, whole(record.step))
            self.got_to(whole(record.step))
        elif isinstance(record, RecoveryRecord):
            self._recovery(at, record)
        else:
            self._stall(at, record)
            self.is_stalled = record.state == "begin"
        return was_set

    def _stall(self, at: float, record: StallRecord) -> None:
        if record.state == "begin":
            self.stall_count += 1
            if stacks := _texts(record.stacks):
                self.stacks.add((self.stall_count, stacks))
        kept = StallRecord(
            session=self.id,
            state=record.state,
            phase=text(record.phase) or "training",
            since=number(record.since),  # type: ignore[arg-type]
            step=whole(record.step),
            secs=number(record.secs),  # type: ignore[arg-type]
            timeout_secs=number(record.timeout_secs),
        )
        self.stalls.add((at, self.stall_count, kept))

    def _look_at_clock(self, at: float, told_secs: Any) -> bool:
        """Compare the two clocks; return whether the wall clock was set since they were last compared."""
        elapsed = number(told_secs)
        if elapsed is None:
            return False
        if self.first_elapsed_secs is None:
            self.first_elapsed_secs = elapsed
        before, self.clock_begun_at = self.clock_begun_at, at - elapsed
        return clocks_differ(before, self.clock_begun_at)

    def _beat(self, at: float, beat: HeartbeatRecord, clock_was_set: bool) -> None:
        self.attempt = whole(beat.attempt) if self.attempt is None else self.attempt
        age = number(beat.progress_age_secs) or 0.0
        # Until training goes on, the trainer may count from where it was.
        self._going_back &= beat.phase == "restoring"
        step = None if self._going_back else whole(beat.step)
        self._secs(at, beat.activity_secs, step)
        if self.beat is None:
            # Seconds after the last progress are in `activity_secs` only once they have turned out to be a stall.
            open_secs = 0.0 if is_over(beat) else age
            self.begun_at = at - open_secs - sum(self.told_secs.values())
        elif beat.phase == self.beat.phase and self.beat_at is not None and not clock_was_set:
            self.cadence_secs = max(self.cadence_secs or 0.0, at - self.beat_at)
        self.went(number(beat.steps_per_sec))
        if step is not None and self.first_told is None:
            self.first_told = (step, whole(beat.steps) or 0)
        self.got_to(step)
        self.moved(at - age)
        self.is_stalled = is_over(beat)
        # The rest of it is taken in here, and may be long.
        self.beat, self.beat_at = replace(beat, session=self.id, threads=(), workers=None, activity_secs=NOTHING), at
        self.threads.heard()
        for told in beat.threads if isinstance(beat.threads, tuple) else ():
            name = text(told.get("name"), MAX_NAME_CHARS) if isinstance(told, Mapping) else None
            if name is not None:
                thread = self.thread(name)
                if thread is not None:
                    thread.beat(at, told)
        if beat.workers is not None:
            self.workers_at = at
            self.workers.heard()
            self._cluster(at, beat.workers)

    def _cluster(self, at: float, workers: Any) -> None:
        told = [item for item in workers if isinstance(item, Mapping)] if isinstance(workers, tuple) else []
        named = {name: item for item in told if (name := text(item.get("name"), MAX_NAME_CHARS)) is not None}
        for name, item in named.items():
            worker = self.worker(name)
            if worker is not None:
                worker.beat(at, item)

    def thread(self, name: str) -> ThreadFold | None:
        """Return the thread of a name; None for one too many, which is counted."""
        known = self.threads.by_name.get(name)
        if known is None:
            if len(self.threads) >= MAX_THREADS:
                self._leave_out("threads")
                return None
            self.threads.add(name, known := ThreadFold(name, self.kept_ticks))
        return known

    def worker(self, name: str) -> WorkerFold | None:
        """Return the worker of a name; None for one too many, which is counted."""
        known = self.workers.by_name.get(name)
        if known is None:
            if len(self.workers) >= MAX_WORKERS:
                self._leave_out("workers")
                return None
            self.workers.add(name, known := WorkerFold(name, self.kept_ticks))
        return known

    def _leave_out(self, kind: DroppedKind) -> None:
        self.unkept = self.unkept or Counter()
        self.unkept[kind] += 1

    def _checkpoint(self, at: float, record: CheckpointRecord) -> None:
        step = whole(record.step)
        good = record.error is None
        self.checkpoints.add(
            Checkpoint(
                session=self.id,
                at=at,
                ok=good,
                step=step,
                path=text(record.path),
                bytes=whole(record.bytes),
                save_secs=number(record.secs),
                blocked_secs=number(record.blocked_secs),
                trigger=text(record.trigger),
                consistent=truth(record.consistent),
                verified=truth(record.verified),
                error=text(record.error),
            )
        )
        self.got_to(step)
        if not good:
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
            self.save_secs.add(number(record.secs) or 0.0)
            self.blocked_secs.add(number(record.blocked_secs) or 0.0)
            self.moved(at)

    def _recovery(self, at: float, record: RecoveryRecord) -> None:
        from_step, to_step = whole(record.step), whole(record.restored_step)
        rewind = None if from_step is None or to_step is None else max(0, from_step - to_step)
        self.recoveries.add(
            Recovery(
                session=self.id,
                at=at,
                secs=max(0.0, number(record.secs) or 0.0),
                error=text(record.error) or "",
                losses=max(1, whole(record.losses) or 1),
                from_step=from_step,
                to_step=to_step,
                rewind_steps=rewind,
                restored_checkpoint=text(record.restored_checkpoint),
            )
        )
        pace = self.paces[-1]
        if from_step is not None:
            pace.reached(from_step, pace.end_secs)
        if to_step is not None and self._allowance.paces:
            self._allowance.paces -= 1
            self.paces.append(Pace(to_step, pace.end_secs))
        self.last_step = to_step  # None: the next heartbeat tells
        self._going_back = True

    def _secs(self, at: float, activity: Any, step: int | None) -> None:
        if not isinstance(activity, Mapping):
            return
        told = {bucket: max(0.0, number(activity.get(bucket)) or 0.0) for bucket in BUCKETS if bucket in activity}
        self.told_secs = told
        self.was_silent(at, told.get("silent", 0.0))
        productive = told.get("productive", 0.0)
        if step is not None:
            self.paces[-1].reached(step, productive)
        self.paces[-1].end_secs = max(self.paces[-1].end_secs, productive)

    def was_silent(self, at: float, secs: float) -> None:
        """Take in for how many seconds altogether its process had not run."""
        if secs > self.silent_secs:
            self.silences.add((at, self.silent_secs, secs))
            self.silent_secs = secs

    def went(self, steps_per_sec: float | None) -> None:
        """Take in a rate."""
        if steps_per_sec is not None:
            self.most_steps_per_sec = max(self.most_steps_per_sec or 0.0, steps_per_sec)

    def got_to(self, step: int | None) -> None:
        """Take in a step that it has come to."""
        if step is not None and (self.last_step is None or step > self.last_step):
            self.last_step = step

    def moved(self, at: float) -> None:
        """Take in a time at which it made progress."""
        if self.last_progress_at is None or at > self.last_progress_at:
            self.last_progress_at = at


def save_histogram() -> Histogram:
    """Return what counts durations of saves."""
    return Histogram(SAVE_BOUNDS)


def _chars_of_save(item: Checkpoint) -> int:
    return len(item.path or "") + len(item.error or "") + len(item.trigger or "")


def _chars_of_recovery(item: Recovery) -> int:
    return len(item.error) + len(item.restored_checkpoint or "")


def _chars_of_stacks(item: tuple[int, Stacks]) -> int:
    return sum(len(line) + 1 for lines in item[1].values() for line in lines)


def _slim(record: SessionRecord) -> SessionRecord:
    """Return a record with no more of its lists than is kept."""
    skipped = record.skipped[:MAX_SKIPPED] if isinstance(record.skipped, tuple) else ()
    versions = list(mapping(record.versions).items())[:MAX_VERSIONS]
    kept = {str(name)[:MAX_NAME_CHARS]: str(version)[:MAX_NAME_CHARS] for name, version in versions}
    return replace(record, services=(), skipped=skipped, versions=kept)


def _texts(stacks: Any) -> dict[str, tuple[str, ...]]:
    return {
        str(thread)[:MAX_NAME_CHARS]: tuple(str(line)[:MAX_TEXT] for line in lines)
        for thread, lines in mapping(stacks).items()
        if isinstance(lines, tuple)
    }


def is_over(beat: HeartbeatRecord) -> bool:
    """Say whether a heartbeat tells that nothing has moved for longer than the phase's budget."""
    timeout = number(beat.progress_timeout_secs)
    return timeout is not None and (number(beat.progress_age_secs) or 0.0) > timeout


def clocks_differ(one: float | None, other: float | None) -> bool:
    """Say whether two readings of when a session began cannot be of the same wall clock."""
    return one is not None and other is not None and abs(one - other) > CLOCK_SET_SECS
