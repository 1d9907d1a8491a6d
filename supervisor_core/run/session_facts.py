"""`SessionFacts`: one session by itself, before its neighbours are known, and how its own records become one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from supervisor_core.events.record_fields import values_of
from supervisor_core.events.telemetry import SessionRecord, StallRecord
from supervisor_core.options import STALL_TIMEOUT_SECS
from supervisor_core.run.checkpoints import Checkpoint
from supervisor_core.run.file_fold import Reached
from supervisor_core.run.heartbeat_folds import WorkerReport
from supervisor_core.run.model import (
    BUCKET_OF_PHASE,
    BUCKETS,
    STALL,
    Outcome,
    Recovery,
    Session,
    Silence,
    Stall,
    ThreadHistory,
)
from supervisor_core.run.session_fold import CLOCK_SET_SECS, SessionFold, clocks_differ, is_over_budget, save_histogram
from supervisor_core.run.status import SAVE_BOUNDS, Histogram
from supervisor_core.run.step_time_curve import StepTimeCurve


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFacts:
    """One session by itself. Its outcome is ``running`` without a record of its end."""

    session: Session
    curves: tuple[StepTimeCurve, ...]
    """Productive seconds by step: one from the session's start, and one from the restored step of each recovery."""
    reported_secs: Mapping[str, float]
    """Its seconds by bucket, as far as they are final: no later event changes them."""
    is_start_exact: bool
    """Whether its start time is from its own session record."""
    is_stalled: bool = False
    """Whether its latest record reports a stall."""
    silence_secs: float | None = None
    """How long it may be silent before it counts as lost; None: without limit."""
    likely_unseen_secs: float = 0.0
    """If it died: for how long it probably ran on after its last event."""
    most_unseen_secs: float | None = None
    """If it died: for how long at most it ran on after its last event; None where unknown."""
    most_steps_per_sec: float | None = None
    """Its highest reading; None without one."""
    ended_itself: bool = False
    """Whether another writer's STOP event records its end."""
    is_clock_behind: bool = False
    """Whether this one started before the last renewal of the session before it: a wall clock was set back."""
    checkpoints: tuple[Checkpoint, ...] = ()
    threads: tuple[ThreadHistory, ...] = ()
    workers: tuple[WorkerReport, ...] = ()
    recoveries: tuple[Recovery, ...] = ()
    stalls: tuple[Stall, ...] = field(default=())
    service_stalls: tuple[Stall, ...] = ()
    silences: tuple[Silence, ...] = ()


LEAST_SILENCE_SECS = 30.0
"""No session counts as lost before this time without an event."""

MISSED_BEATS = 3.0
"""A session with a heartbeat interval counts as lost after this number of missing heartbeats."""

LATE_SECS = 1.0
"""A heartbeat, or a renewal of the lease, may be late by this much: the monitor runs every second."""

_NO_SAVES = Histogram(SAVE_BOUNDS).snapshot()


def telemetry_facts(
    fold: SessionFold, *, files: Sequence[str], seen_at: float | None, start_step: int | None, tail: Reached | None
) -> SessionFacts:
    """Return the facts of a session from its own records.

    Args:
        fold: its records.
        files: paths of the events files it wrote, in order.
        seen_at: the latest wall time in them, if no other session wrote there later.
        start_step: the step of the START event in the first of them.
        tail: the highest step of the scalars after its last heartbeat.
    """
    record, stop, beat = fold.record, fold.stop, fold.beat
    first = fold.first_at if fold.first_at is not None else 0.0
    started_at = record.started_at if record else None
    if started_at is None:
        started_at = fold.begun_at if fold.begun_at is not None else first
    previous_seen_at = record.previous_seen_at if record else None
    is_clock_behind = previous_seen_at is not None and previous_seen_at > started_at + CLOCK_SET_SECS
    if fold.clock_begun_at is not None and clocks_differ(fold.clock_begun_at, started_at):
        started_at = fold.clock_begun_at  # by the present wall clock, as all its other times
    last_seen_at = max(seen_at if seen_at is not None else first, fold.last_at if fold.last_at is not None else first)
    ended_at = max(fold.stop_at if fold.stop_at is not None else last_seen_at, started_at)
    first_step = _first_step(fold, start_step)
    last_step, progress_at = fold.last_step, fold.last_progress_at
    if stop is not None:  # a heartbeat may have counted a step ahead
        last_step = last_step if stop.step is None else stop.step
    elif tail is not None and (last_step is None or tail.step > last_step):
        last_step = tail.step
        if tail.at > (progress_at or 0.0):
            progress_at = tail.at
    phase = "stopped" if stop else beat.phase if beat else None
    all_stalls = _stalls(fold, ended_at if stop else None)
    stalls = tuple(stall for stall in all_stalls if stall.service is None)
    activity = _activity(fold.reported_secs, ended_at - started_at, phase, _open_stall_secs(fold, stalls, ended_at))
    outcome: Outcome = (stop.reason or "unknown") if stop else "running"
    begun = record or SessionRecord(session=fold.id, attempt=fold.attempt or 0)
    return SessionFacts(
        session=Session(
            **values_of(replace(begun, started_at=started_at)),
            ended_at=ended_at,
            outcome=outcome,
            inferred=False,
            first_step=first_step,
            last_step=last_step if last_step is not None else first_step,
            steps=stop.steps if stop else beat.steps if beat else None,
            steps_per_sec=beat.steps_per_sec if beat else None,
            phase=phase,
            last_progress_at=progress_at,
            progress_timeout_secs=beat.progress_timeout_secs if beat else None,
            error=stop.error if stop else None,
            signal=stop.signal if stop else None,
            events_dropped=beat.events_dropped if beat else 0,
            watchdog_would_act=beat.watchdog_would_act if beat else 0,
            watchdog_acted=beat.watchdog_acted if beat else {},
            activity_secs=activity,
            reported_secs=fold.reported_secs,
            saves=fold.saves,
            save_failures=fold.save_failures,
            save_failures_in_a_row=fold.save_failures_in_a_row,
            loss_finite=beat.loss_finite if beat else None,
            save_secs=_NO_SAVES if fold.save_secs is None else fold.save_secs.snapshot(),
            blocked_secs=_NO_SAVES if fold.blocked_secs is None else fold.blocked_secs.snapshot(),
            recoveries=fold.recoveries.total,
            files=tuple(files),
        ),
        curves=_curves(fold, first_step, last_step, activity["productive"]),
        reported_secs=fold.reported_secs,
        is_start_exact=record is not None,
        is_stalled=stop is None and fold.is_stalled,
        silence_secs=_silence_secs(fold, phase),
        likely_unseen_secs=_until_next_beat(fold, ended_at) / 2,
        most_unseen_secs=_unseen_secs(fold, ended_at),
        most_steps_per_sec=_most_steps_per_sec(fold, first_step, last_step),
        is_clock_behind=is_clock_behind,
        checkpoints=tuple(fold.checkpoints.items),
        threads=tuple(
            history
            for thread in fold.threads.by_name.values()
            if (history := thread.history(fold.id, ended_at)) is not None
        ),
        workers=tuple(
            report
            for worker in fold.workers.by_name.values()
            if (report := worker.report(fold.id, fold.workers_at, ended_at)) is not None
        ),
        recoveries=tuple(fold.recoveries.items),
        stalls=stalls,
        service_stalls=tuple(stall for stall in all_stalls if stall.service is not None),
        silences=_silences(fold, started_at),
    )


def _first_step(fold: SessionFold, start_step: int | None) -> int | None:
    """Return the step at which a session began: the restored one; of a new model, from START or its first heartbeat."""
    restored = fold.record.restored_step if fold.record else None
    if restored is not None or fold.record is None:
        return restored
    if start_step is not None or fold.first_report is None:
        return start_step
    step, done = fold.first_report
    return max(0, step - done)


def _curves(
    fold: SessionFold, first_step: int | None, last_step: int | None, productive_secs: float
) -> tuple[StepTimeCurve, ...]:
    *earlier, latest = fold.curves
    ended = [curve.extended(first_step, None, curve.end_secs) for curve in earlier]
    return (*ended, latest.extended(first_step, last_step, productive_secs))


def _activity(
    reported: Mapping[str, float], wall_secs: float, phase: str | None, open_stall_secs: float
) -> dict[str, float]:
    """Fit a session's seconds to its wall time. Seconds that no record books go to an open stall first, then to the
    bucket of the phase; where two clocks disagree, all buckets shrink in proportion."""
    secs = {bucket: max(0.0, reported.get(bucket, 0.0)) for bucket in BUCKETS}
    total = sum(secs.values())
    if total > wall_secs:
        return {bucket: value * wall_secs / total for bucket, value in secs.items()}
    stalled = min(open_stall_secs, wall_secs - total)
    secs[STALL] += stalled
    secs[BUCKET_OF_PHASE.get(phase or "", "other")] += wall_secs - total - stalled
    return secs


def _open_stall_secs(fold: SessionFold, stalls: Sequence[Stall], ended_at: float) -> float:
    """Return how much of the latest stall came after the last heartbeat, which booked the seconds before it."""
    if not stalls or fold.stop is not None or (stalls[-1].until is None and not fold.is_stalled):
        return 0.0
    since, until = stalls[-1].since, ended_at if stalls[-1].until is None else stalls[-1].until
    if fold.beat is not None and fold.beat_at is not None and (is_over_budget(fold.beat) or fold.beat_at >= until):
        since = max(since, fold.beat_at)
    return max(0.0, until - since)


def _silences(fold: SessionFold, started_at: float) -> tuple[Silence, ...]:
    return tuple(
        Silence(session=fold.id, since=max(started_at, at - secs + before), until=at, secs=secs - before, cause=cause)
        for at, before, secs, cause in fold.silences.items
    )


def _silence_secs(fold: SessionFold, phase: str | None) -> float | None:
    """Return for how long the session may be silent. With a heartbeat interval: `MISSED_BEATS` intervals. With
    heartbeats only at phase changes: the budget of its phase, since it would report a stall. Before its session record
    the interval is unknown; two heartbeats of one phase show that there is one."""
    every = fold.record.heartbeat_secs if fold.record else fold.cadence_secs
    if every or phase == "stopped":
        return max(LEAST_SILENCE_SECS, MISSED_BEATS * (every or 0.0))
    if fold.beat is not None:
        budget = fold.beat.progress_timeout_secs
    else:
        budget = STALL_TIMEOUT_SECS["training" if fold.record else "starting"]
    return None if budget is None else max(LEAST_SILENCE_SECS, budget)


def _until_next_beat(fold: SessionFold, seen_at: float) -> float:
    """Return the seconds from a time to the next heartbeat; 0 where none was due."""
    every = fold.record.heartbeat_secs if fold.record else fold.cadence_secs
    if not every or fold.beat_at is None:
        return 0.0
    return max(0.0, fold.beat_at + every - seen_at)


def _unseen_secs(fold: SessionFold, seen_at: float) -> float | None:
    """Return for how long at most the session ran on: until its next heartbeat was overdue."""
    left = _until_next_beat(fold, seen_at)
    return left + LATE_SECS if left else None


def _most_steps_per_sec(fold: SessionFold, first_step: int | None, last_step: int | None) -> float | None:
    """Return the highest reported rate, or the mean over all steps where that is higher."""
    found = fold.most_steps_per_sec or 0.0
    secs = fold.reported_secs.get("productive", 0.0)
    if first_step is not None and last_step is not None and secs > 0:
        found = max(found, (last_step - first_step) / secs)
    return found or None


def _stalls(fold: SessionFold, ended_at: float | None) -> tuple[Stall, ...]:
    """Return the stalls of the session and of its services, each by its begin and end."""
    found: list[Stall] = []
    stacks = dict(fold.stacks.items)
    begun: dict[str | None, tuple[float, int, StallRecord]] = {}
    second_looks: dict[str | None, StallRecord] = {}

    def close(service: str | None, until: float | None, secs: float | None) -> None:
        at, index, record = begun.pop(service)
        second = second_looks.pop(service, None)
        since = at if record.since is None else record.since
        whole = replace(
            record,
            since=since,
            secs=secs if secs is not None else max(0.0, (until if until is not None else at) - since),
            same_frames=None if second is None else second.same_frames,
            activity=None if second is None else second.activity,
            stacks=stacks.get(index, {}),
        )
        found.append(Stall(**values_of(whole), until=until))

    for at, index, record in fold.stalls.items:
        service = record.service
        if record.state == "begin":
            if service in begun:  # its end was dropped
                close(service, at, None)
            begun[service] = (at, index, record)
            second_looks.pop(service, None)
        elif record.state == "lasts":
            second_looks[service] = record
        elif service in begun:
            close(service, at, record.secs)
    for service in list(begun):
        close(service, ended_at, None)
    return tuple(found)


def merged_session(parts: Iterable[SessionFold]) -> SessionFold:
    """Return one session from its parts in several files, given in order; a single part is returned as it is."""
    first, *later = parts
    if not later:
        return first
    merged = SessionFold(first.id, first.kept_ticks)
    for part in (first, *later):
        _absorb(merged, part)
    return merged


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
    into.first_report = into.first_report or part.first_report
    into.beat, into.beat_at = (part.beat, part.beat_at) if part.beat else (into.beat, into.beat_at)
    if part.cadence_secs is not None:
        into.cadence_secs = max(into.cadence_secs or 0.0, part.cadence_secs)
    into.reported_secs = part.reported_secs or into.reported_secs
    into.update_rate(part.most_steps_per_sec)
    for at, before, secs, cause in part.silences.items:
        into.silent_secs = max(into.silent_secs, before)
        into.update_silence(at, secs, cause)
    into.silences.dropped += part.silences.dropped
    into.is_stalled = part.is_stalled
    into.curves[-1].absorb(part.curves[0])
    for curve in part.curves[1:]:
        into.curves.append(StepTimeCurve(curve.first_step, max(curve.begin_secs, into.curves[-1].end_secs)))
        into.curves[-1].absorb(curve)
    if part.recoveries.total:
        into.last_step = part.last_step
    else:
        into.update_step(part.last_step)
    if part.last_progress_at is not None:
        into.update_progress(part.last_progress_at)
    for name, thread in part.threads.by_name.items():
        if (whole_thread := into.thread(name)) is not None:
            whole_thread.absorb(thread)
    into.workers_at = part.workers_at if part.workers_at is not None else into.workers_at
    for name, worker in part.workers.by_name.items():
        if (whole_worker := into.worker(name)) is not None:
            whole_worker.absorb(worker)
    into.recoveries.extend(part.recoveries)
    into.checkpoints.extend(part.checkpoints)
    for at, index, stall in part.stalls.items:
        into.stalls.add((at, into.stall_count + index, stall))
    for index, stacks in part.stacks.items:
        into.stacks.add((into.stall_count + index, stacks))
    into.stalls.dropped, into.stacks.dropped = part.stalls.dropped, part.stacks.dropped
    into.stall_count += part.stall_count
    into.saves += part.saves
    into.save_failures += part.save_failures
    good = part.saves > part.save_failures
    into.save_failures_in_a_row = part.save_failures_in_a_row + (0 if good else into.save_failures_in_a_row)
    if part.save_secs is not None and part.blocked_secs is not None:
        into.save_secs, into.blocked_secs = into.save_secs or save_histogram(), into.blocked_secs or save_histogram()
        into.save_secs.merge(part.save_secs)
        into.blocked_secs.merge(part.blocked_secs)
