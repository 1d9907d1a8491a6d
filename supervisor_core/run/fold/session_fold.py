"""`SessionFold`: the telemetry of one session in one file, record by record; `merged_session`: in all its files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from supervisor_core.events.chunk import TelemetryMark
from supervisor_core.events.record_fields import replaced
from supervisor_core.events.telemetry import (
    CheckpointRecord,
    DeathRecord,
    HeartbeatRecord,
    NoticeRecord,
    Record,
    RecoveryRecord,
    ResumeRecord,
    SessionRecord,
    StallRecord,
    StopRecord,
)
from supervisor_core.run.fold.bounds import MAX_THREADS, MAX_WORKERS, Allowance, Named
from supervisor_core.run.fold.heartbeat_folds import ThreadFold, WorkerFold
from supervisor_core.run.fold.notices import NoticeFold
from supervisor_core.run.fold.session_parts import (
    CLOCK_SET_SECS,
    NOTHING,
    ActivityFold,
    SaveFold,
    SessionClock,
    StallFold,
    StepFold,
)
from supervisor_core.run.model.liveness_record import LivenessRecord
from supervisor_core.run.model.run import BUCKET_OF_PHASE, STALL


class SessionFold:
    """Collects one session's records. History is only appended to, so the cost of a record does not grow with it.

    Args:
        id: the session's.
        kept_ticks: see `RunFold`.
        allowance: bounds its history together with that of the other sessions of its run. Default: its own.
    """

    __slots__ = (
        "_records", "activity", "beats", "clock", "id", "is_stalled", "kept_ticks", "last_progress_at", "live_secs",
        "notices", "record", "resume_check", "saves", "stalls", "steps", "stop", "stop_at", "threads", "workers",
    )  # fmt: skip

    def __init__(self, id: str, kept_ticks: int | None = None, allowance: Allowance | None = None) -> None:
        allowance = allowance or Allowance()
        self.id = id
        self.kept_ticks = kept_ticks
        self.record: SessionRecord | None = None
        self.resume_check: ResumeRecord | None = None
        self.stop: StopRecord | None = None
        self.stop_at: float | None = None
        self.beats = BeatFold()
        self.clock = SessionClock()
        self.last_progress_at: float | None = None
        self.is_stalled = False
        self.live_secs: float | None = None
        """How often its liveness file is written, if that was read."""
        self.steps = StepFold(allowance)
        self.activity = ActivityFold(allowance)
        self.saves = SaveFold(allowance)
        self.stalls = StallFold(allowance)
        self.notices = NoticeFold(allowance)
        self.threads: Named[ThreadFold] = Named(allowance, "threads", MAX_THREADS, ThreadFold, kept_ticks)
        self.workers: Named[WorkerFold] = Named(allowance, "workers", MAX_WORKERS, WorkerFold, kept_ticks)
        self._records = 0

    @property
    def version(self) -> int:
        """Increases with each record, and whenever a bound dropped something."""
        return self._records + self.dropped_history

    @property
    def dropped_history(self) -> int:
        """Number of entries dropped beyond the bounds."""
        saves, silences = self.saves.checkpoints.dropped, self.activity.silences.dropped
        stalls = self.stalls.records.dropped + self.stalls.stacks.dropped
        named = self.threads.dropped + self.workers.dropped
        return saves + silences + stalls + named + self.steps.recoveries.dropped + self.notices.dropped

    @property
    def dropped_reports(self) -> int:
        """Number of reports of threads and workers beyond the bounds."""
        return self.threads.refused + self.workers.refused

    def add(self, mark: TelemetryMark) -> bool:
        """Add one record; return whether it shows that the wall clock was set since the one before."""
        self._records += 1
        at, record = mark.at, mark.record
        elapsed_secs = record.elapsed_secs if isinstance(record, (HeartbeatRecord, StopRecord)) else None
        was_set = self.clock.add(at, elapsed_secs)
        if was_set:
            self.last_progress_at = None
        if isinstance(record, HeartbeatRecord):
            self._beat(at, record, was_set)
        elif isinstance(record, CheckpointRecord):
            self.steps.reached(record.step)
            if self.saves.add(at, record, self.id):
                self._progressed(at)
        elif isinstance(record, SessionRecord):
            self.record = replaced(record, services=(), versions=_shared(tuple(record.versions.items())))
            self.steps.reached(record.restored_step)
        elif isinstance(record, StopRecord):
            self.stop, self.stop_at = replaced(record, activity_secs=NOTHING), at
            self._spent(at, record, record.step)
            self.steps.reached(record.step)
        elif isinstance(record, RecoveryRecord):
            self.steps.recovered(at, record)
        elif isinstance(record, ResumeRecord):
            self.resume_check = record
        elif isinstance(record, NoticeRecord):
            self.notices.add(at, record)
        elif isinstance(record, StallRecord):
            self.stalls.add(at, record)
            if record.service is None:
                self.is_stalled = record.state in ("begin", "lasts")
        return was_set

    def _beat(self, at: float, beat: HeartbeatRecord, clock_was_set: bool) -> None:
        step = self.steps.since_recovery(beat.step, beat.phase)
        self._spent(at, beat, step)
        self.beats.add(at, beat, self.activity.secs, clock_was_set=clock_was_set)
        self.steps.rate(beat.steps_per_sec)
        if step is not None and self.steps.first_report is None:
            self.steps.first_report = (step, beat.steps or 0)
        self.steps.reached(step)
        self._progressed(at - beat.progress_age_secs)
        self.is_stalled = is_hanging(beat)
        self.threads.touch()
        for status in beat.threads:
            if (thread := self.threads.get(status.name)) is not None:
                thread.beat(at, status)
        if beat.workers is not None:
            self.workers.touch()
            for name, each in {worker.name: worker for worker in beat.workers}.items():
                if (worker := self.workers.get(name)) is not None:
                    worker.beat(at, each)

    def _spent(self, at: float, record: HeartbeatRecord | StopRecord, step: int | None) -> None:
        if record.activity_secs:  # else it does not tell it in a way that can be read
            self.activity.add(at, record.activity_secs, record.pause if isinstance(record, HeartbeatRecord) else None)
            self.steps.productive(self.activity.secs.get("productive", 0.0), step)

    def _progressed(self, at: float | None) -> None:
        if at is not None and (self.last_progress_at is None or at > self.last_progress_at):
            self.last_progress_at = at

    def absorb(self, later: SessionFold) -> None:
        """Add what a later file of the same session holds."""
        if later.clock.last_at is None:
            return
        if self.clock.absorb(later.clock):
            self.last_progress_at = None
        self.record = self.record or later.record
        self.resume_check = later.resume_check or self.resume_check
        self.stop, self.stop_at = (later.stop, later.stop_at) if later.stop else (self.stop, self.stop_at)
        self.is_stalled = later.is_stalled
        self._progressed(later.last_progress_at)
        self.beats.absorb(later.beats)
        self.activity.absorb(later.activity)
        self.steps.absorb(later.steps)
        self.saves.absorb(later.saves)
        self.stalls.absorb(later.stalls)
        self.notices.absorb(later.notices)
        for name, thread in later.threads.by_name.items():
            if (whole_thread := self.threads.get(name)) is not None:
                whole_thread.absorb(thread)
        for name, worker in later.workers.by_name.items():
            if (whole_worker := self.workers.get(name)) is not None:
                whole_worker.absorb(worker)


@lru_cache(maxsize=256)
def _shared(versions: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    """Return the same object for equal versions: those of a fleet's runs hardly differ."""
    return dict(versions)


@dataclass(slots=True)
class BeatFold:
    """A session's heartbeats: the first, the last, and how often they come."""

    attempt: int | None = None
    begun_at: float | None = None
    """The session's start, calculated from its first heartbeat."""
    newest: HeartbeatRecord | None = None
    """With its long fields, until `last` is asked for."""
    last_at: float | None = None
    longest_secs: float | None = None
    """The longest time between two heartbeats of one phase."""
    workers_at: float | None = None
    """When the other processes of the cluster were last reported."""
    _is_short: bool = False

    @property
    def last(self) -> HeartbeatRecord | None:
        """The newest, without its long fields."""
        if self.newest is not None and not self._is_short:
            self.newest = replaced(self.newest, threads=(), workers=None, activity_secs=NOTHING, pause=None)
            self._is_short = True
        return self.newest

    def add(self, at: float, beat: HeartbeatRecord, spent_secs: Mapping[str, float], *, clock_was_set: bool) -> None:
        """Add a heartbeat.

        Args:
            at: its wall time.
            beat: the record.
            spent_secs: the seconds that the session has reported so far, by bucket.
            clock_was_set: whether the wall clock was set since the last one.
        """
        self.attempt = beat.attempt if self.attempt is None else self.attempt
        if self.newest is None or self.last_at is None:
            # Seconds after the last progress are reported only after they have become a stall.
            open_secs = 0.0 if is_hanging(beat) else beat.progress_age_secs
            self.begun_at = at - open_secs - sum(spent_secs.values())
        elif beat.phase == self.newest.phase and not clock_was_set:
            self.longest_secs = max(self.longest_secs or 0.0, at - self.last_at)
        self.newest, self.last_at, self._is_short = beat, at, False
        if beat.workers is not None:
            self.workers_at = at

    def absorb(self, later: BeatFold) -> None:
        """Add those of a later file."""
        self.attempt = later.attempt if self.attempt is None else self.attempt
        self.begun_at = later.begun_at if self.begun_at is None else self.begun_at
        if later.newest is not None:
            self.newest, self.last_at, self._is_short = later.newest, later.last_at, later._is_short
        if later.longest_secs is not None:
            self.longest_secs = max(self.longest_secs or 0.0, later.longest_secs)
        self.workers_at = self.workers_at if later.workers_at is None else later.workers_at


def is_hanging(beat: HeartbeatRecord) -> bool:
    """Return whether a heartbeat reports no progress for longer than the hang timeout."""
    return beat.progress_timeout_secs is not None and beat.progress_age_secs > beat.progress_timeout_secs


def merged_session(parts: Iterable[SessionFold]) -> SessionFold:
    """Return one session from its parts in several files, given in order; a single part is returned as it is."""
    first, *later = parts
    if not later:
        return first
    merged = SessionFold(first.id, first.kept_ticks)
    for part in (first, *later):
        merged.absorb(part)
    return merged


def with_liveness(fold: SessionFold, live: LivenessRecord) -> SessionFold:
    """Return a session with what its liveness file has beyond its records: later ones, and what could not be recorded.

    Args:
        fold: the session; it stays as it is.
        live: the file. Its end counts unless the session has written records since then.
    """
    goes_on = (fold.clock.last_at or 0.0) > (live.ended_at or live.written_at) + CLOCK_SET_SECS
    records = [
        (at, _with_activity(fold, at, record) if isinstance(record, HeartbeatRecord) else record)
        for at, record in live.records
        if not (goes_on and isinstance(record, StopRecord))
    ]
    found = with_records(fold, records)
    found.live_secs = live.interval_secs
    if found.stop is None:
        found.clock.add(live.written_at, None)
    if live.save_failures >= found.saves.failures:
        found.saves.count += live.save_failures - found.saves.failures
        found.saves.failures, found.saves.failures_in_a_row = live.save_failures, live.save_failures_in_a_row
    return found


def _with_activity(fold: SessionFold, at: float, beat: HeartbeatRecord) -> HeartbeatRecord:
    """Return a heartbeat that does not say where its time went, as that of a progress page, with its seconds since the
    session's last report: until its last progress spent on steps, if it has done some; since then in its phase, or its
    stall."""
    began = fold.clock.begun_at or (fold.record.started_at if fold.record else None) or fold.beats.begun_at
    secs = dict(fold.activity.secs)
    rest = 0.0 if began is None else at - began - sum(secs.values())
    if beat.activity_secs or rest <= 0:
        return beat
    idle, before = min(rest, beat.progress_age_secs), fold.beats.last
    reached = fold.steps.last_step
    has_trained = beat.step is not None and reached is not None and beat.step > reached
    earlier = "training" if has_trained else beat.phase if before is None else before.phase
    now_in = STALL if is_hanging(beat) else BUCKET_OF_PHASE.get(beat.phase or "", "other")
    for bucket, more in ((BUCKET_OF_PHASE.get(earlier or "", "other"), rest - idle), (now_in, idle)):
        secs[bucket] = secs.get(bucket, 0.0) + more
    return replaced(beat, activity_secs=secs)


def with_last_beat(fold: SessionFold, death: DeathRecord) -> SessionFold:
    """Return a dead session with its last heartbeat; it stays as it is."""
    began = fold.clock.begun_at or (fold.record.started_at if fold.record else None) or fold.beats.begun_at
    if death.beat is None or death.beat.elapsed_secs is None or began is None:
        return fold
    return with_records(fold, [(began + death.beat.elapsed_secs, death.beat)])


def with_records(fold: SessionFold, records: Iterable[tuple[float, Record]]) -> SessionFold:
    """Return a session with later records, given with their times, as far as they are news; it stays as it is."""
    found = merged_session((fold, SessionFold(fold.id)))
    for at, record in records:
        if found.stop is None and _is_newer(record, at, found):
            found.add(TelemetryMark(offset=0, at=at, step=0, record=record))
    return found


def _is_newer(record: Record, at: float, fold: SessionFold) -> bool:
    last = fold.beats.last
    if isinstance(record, HeartbeatRecord) and last is not None:
        if record.elapsed_secs is not None and last.elapsed_secs is not None:
            return record.elapsed_secs > last.elapsed_secs
        return at > (fold.clock.last_at or 0.0)
    return True
