"""`SessionFold`: one session's own telemetry in one file, record by record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
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
    MAX_HISTORY,
    MAX_NAME_CHARS,
    MAX_RECOVERIES,
    MAX_SILENCES,
    MAX_SKIPPED,
    MAX_STACK_CHARS,
    MAX_STALLS,
    MAX_THREADS,
    MAX_VERSIONS,
    MAX_WORKERS,
    DroppedKind,
    Newest,
    counted,
)
from supervisor_core.run.histogram import SAVE_BOUNDS, Histogram
from supervisor_core.run.model import BUCKETS, Checkpoint, Recovery
from supervisor_core.run.numbers import MAX_TEXT, mapping, number, text, truth, whole
from supervisor_core.run.pace import Pace
from supervisor_core.run.thread_fold import ThreadFold
from supervisor_core.run.worker_fold import WorkerFold

CLOCK_SET_SECS = 2.0
"""A session's wall clock was set if it differs by more from the one that nobody sets."""


class SessionFold:
    """Gathers one session's records; what is finished is only ever added to, so a record costs the same whenever.

    Args:
        id: the session's.
        kept_ticks: see `RunFold`.
    """

    def __init__(self, id: str, kept_ticks: int | None = None) -> None:
        self.id = id
        self.kept_ticks = kept_ticks
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
        self.silent_told: Newest[tuple[float, float]] = Newest(MAX_SILENCES)
        """When it was told that the process had not run, and for how many seconds altogether; both rise."""
        self.most_steps_per_sec: float | None = None
        self.is_stalled = False
        self._is_going_back = False
        self.paces = [Pace()]
        """See `SessionFacts`."""
        self.threads: dict[str, ThreadFold] = {}
        self.workers: dict[str, WorkerFold] = {}
        self.unkept: Counter[DroppedKind] = Counter()
        """How often a thread or a worker was named beyond the bounds."""
        self.workers_at: float | None = None
        """When it told of them last."""
        self.checkpoints: Newest[Checkpoint] = Newest(MAX_HISTORY)
        self.stalls: Newest[tuple[float, StallRecord]] = Newest(2 * MAX_STALLS)
        """Their begins and ends."""
        self._stack_chars = 0
        self.recoveries: Newest[Recovery] = Newest(MAX_RECOVERIES)
        self.saves = self.save_failures = self.save_failures_in_a_row = 0
        self.save_secs = Histogram(SAVE_BOUNDS)
        self.blocked_secs = Histogram(SAVE_BOUNDS)

    @property
    def dropped(self) -> Counter[DroppedKind]:
        """What was dropped beyond the bounds, by kind."""
        return self.unkept + counted(
            [
                ("checkpoints", self.checkpoints.dropped),
                ("stalls", -(-self.stalls.dropped // 2)),
                ("recoveries", self.recoveries.dropped),
                ("silences", self.silent_told.dropped),
            ]
        )

    def add(self, mark: TelemetryMark) -> bool:
        """Take in one record; return whether it shows that the wall clock was set since the one before."""
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
            self._got_to(whole(record.restored_step))
        elif isinstance(record, StopRecord):
            self.stop, self.stop_at = record, at
            self._secs(at, record.activity_secs, whole(record.step))
            self._got_to(whole(record.step))
        elif isinstance(record, RecoveryRecord):
            self._recovery(at, record)
        else:
            self._stall(at, record)
            self.is_stalled = record.state == "begin"
        return was_set

    def _stall(self, at: float, record: StallRecord) -> None:
        stacks = _texts(record.stacks)
        chars = sum(len(line) + 1 for lines in stacks.values() for line in lines)
        if self._stack_chars + chars > MAX_STACK_CHARS:
            kept = [(begun, replace(each, stacks={})) for begun, each in self.stalls.items]
            self.unkept["stacks"] += sum(bool(each.stacks) for _, each in self.stalls.items)
            self.stalls.items.clear()
            self.stalls.items.extend(kept)
            self._stack_chars = 0
        self._stack_chars += chars
        self.stalls.add((at, replace(record, stacks=stacks)))

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
        self._is_going_back &= beat.phase == "restoring"
        step = None if self._is_going_back else whole(beat.step)
        self._secs(at, beat.activity_secs, step)
        if self.beat is None:
            # Seconds after the last progress are in `activity_secs` only once they have turned out to be a stall.
            open_secs = 0.0 if is_over(beat) else age
            self.begun_at = at - open_secs - sum(self.told_secs.values())
        elif beat.phase == self.beat.phase and self.beat_at is not None and not clock_was_set:
            self.cadence_secs = max(self.cadence_secs or 0.0, at - self.beat_at)
        self._went(number(beat.steps_per_sec))
        if step is not None and self.first_told is None:
            self.first_told = (step, whole(beat.steps) or 0)
        self._got_to(step)
        self._moved(at - age)
        self.is_stalled = is_over(beat)
        # The rest of it is taken in here, and may be long.
        self.beat, self.beat_at = replace(beat, threads=(), workers=None, activity_secs={}), at
        for told in beat.threads if isinstance(beat.threads, tuple) else ():
            name = text(told.get("name"), MAX_NAME_CHARS) if isinstance(told, Mapping) else None
            if name is not None:
                thread = self._thread(name)
                if thread is not None:
                    thread.beat(at, told)
        if beat.workers is not None:
            self.workers_at = at
            self._cluster(at, beat.workers)

    def _cluster(self, at: float, workers: Any) -> None:
        told = [item for item in workers if isinstance(item, Mapping)] if isinstance(workers, tuple) else []
        named = {name: item for item in told if (name := text(item.get("name"), MAX_NAME_CHARS)) is not None}
        for name, item in named.items():
            worker = self._worker(name)
            if worker is not None:
                worker.beat(at, item)

    def _thread(self, name: str) -> ThreadFold | None:
        """Return the thread of a name; None for one too many, which is counted."""
        if name not in self.threads:
            if len(self.threads) >= MAX_THREADS:
                self.unkept["threads"] += 1
                return None
            self.threads[name] = ThreadFold(name, self.kept_ticks)
        return self.threads[name]

    def _worker(self, name: str) -> WorkerFold | None:
        """Return the worker of a name; None for one too many, which is counted."""
        if name not in self.workers:
            if len(self.workers) >= MAX_WORKERS:
                self.unkept["workers"] += 1
                return None
            self.workers[name] = WorkerFold(name, self.kept_ticks)
        return self.workers[name]

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
        self._got_to(step)
        if not good:
            self.saves += 1
            self.save_failures += 1
            self.save_failures_in_a_row += 1
        elif record.path is not None:
            self.saves += 1
            self.save_failures_in_a_row = 0
            self.save_secs.add(number(record.secs) or 0.0)
            self.blocked_secs.add(number(record.blocked_secs) or 0.0)
            self._moved(at)

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
        if to_step is not None and len(self.paces) <= MAX_RECOVERIES:
            self.paces.append(Pace(to_step, pace.end_secs))
        self.last_step = to_step  # None: the next heartbeat tells
        self._is_going_back = True

    def _secs(self, at: float, activity: Any, step: int | None) -> None:
        if not isinstance(activity, Mapping):
            return
        told = {bucket: max(0.0, number(activity.get(bucket)) or 0.0) for bucket in BUCKETS if bucket in activity}
        self.told_secs = told
        self._was_silent(at, told.get("silent", 0.0))
        productive = told.get("productive", 0.0)
        if step is not None:
            self.paces[-1].reached(step, productive)
        self.paces[-1].end_secs = max(self.paces[-1].end_secs, productive)

    def _was_silent(self, at: float, secs: float) -> None:
        told = self.silent_told.items
        if secs > (told[-1][1] if told else 0.0):
            self.silent_told.add((at, secs))

    def _went(self, steps_per_sec: float | None) -> None:
        if steps_per_sec is not None:
            self.most_steps_per_sec = max(self.most_steps_per_sec or 0.0, steps_per_sec)

    def _got_to(self, step: int | None) -> None:
        if step is not None and (self.last_step is None or step > self.last_step):
            self.last_step = step

    def _moved(self, at: float) -> None:
        if self.last_progress_at is None or at > self.last_progress_at:
            self.last_progress_at = at


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


def joined(parts: Iterable[SessionFold]) -> SessionFold:
    """Return one session from what its files tell, in their order; a single part is returned as it is."""
    first, *later = parts
    if not later:
        return first
    whole_session = SessionFold(first.id, first.kept_ticks)
    for part in (first, *later):
        _absorb(whole_session, part)
    return whole_session


def _absorb(into: SessionFold, part: SessionFold) -> None:
    if part.last_at is None:
        return
    into.first_at = part.first_at if into.first_at is None else into.first_at
    was_set = clocks_differ(into.clock_begun_at, part.clock_begun_at)
    into.last_at = part.last_at if into.last_at is None or was_set else max(part.last_at, into.last_at)
    if was_set:
        into.last_progress_at = None
    into.clock_begun_at = into.clock_begun_at if part.clock_begun_at is None else part.clock_begun_at
    into.attempt = part.attempt if into.attempt is None else into.attempt
    into.record = into.record or part.record
    into.stop, into.stop_at = (part.stop, part.stop_at) if part.stop else (into.stop, into.stop_at)
    into.begun_at = part.begun_at if into.begun_at is None else into.begun_at
    into.first_told = into.first_told or part.first_told
    into.beat, into.beat_at = (part.beat, part.beat_at) if part.beat else (into.beat, into.beat_at)
    if part.cadence_secs is not None:
        into.cadence_secs = max(into.cadence_secs or 0.0, part.cadence_secs)
    into.told_secs = part.told_secs or into.told_secs
    into._went(part.most_steps_per_sec)
    for at, secs in part.silent_told.items:
        into._was_silent(at, secs)
    into.silent_told.dropped += part.silent_told.dropped
    into.is_stalled = part.is_stalled
    into.paces[-1].absorb(part.paces[0])
    for pace in part.paces[1:]:
        into.paces.append(Pace(pace.first_step, max(pace.begin_secs, into.paces[-1].end_secs)))
        into.paces[-1].absorb(pace)
    if part.recoveries.total:
        into.last_step = part.last_step
    else:
        into._got_to(part.last_step)
    if part.last_progress_at is not None:
        into._moved(part.last_progress_at)
    for name, thread in part.threads.items():
        if (whole_thread := into._thread(name)) is not None:
            whole_thread.absorb(thread)
    into.workers_at = part.workers_at if part.workers_at is not None else into.workers_at
    for name, worker in part.workers.items():
        if (whole_worker := into._worker(name)) is not None:
            whole_worker.absorb(worker)
    into.recoveries.extend(part.recoveries)
    into.checkpoints.extend(part.checkpoints)
    into.stalls.extend(part.stalls)
    into.saves += part.saves
    into.save_failures += part.save_failures
    good = part.saves > part.save_failures
    into.save_failures_in_a_row = part.save_failures_in_a_row + (0 if good else into.save_failures_in_a_row)
    into.save_secs.merge(part.save_secs)
    into.blocked_secs.merge(part.blocked_secs)
