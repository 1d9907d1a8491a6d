"""`SessionFacts`: one session by itself, before its neighbours are known, and how its own records become one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from supervisor_core.base.options import HANG_TIMEOUT_SECS
from supervisor_core.events.chunk_builder import host_of
from supervisor_core.events.record_fields import replaced
from supervisor_core.events.telemetry import HeartbeatRecord, NoticeRecord, SessionRecord
from supervisor_core.run.fold.file_fold import Reached
from supervisor_core.run.fold.session_fold import CLOCK_SET_SECS, SessionFold, WorkerReport, clocks_differ, is_hanging
from supervisor_core.run.fold.step_time_curve import StepTimeCurve
from supervisor_core.run.model.checkpoints import Checkpoint
from supervisor_core.run.model.run import (
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFacts:
    """One session by itself. Its outcome is ``running`` without a record of its end."""

    session: Session
    curves: tuple[StepTimeCurve, ...]
    """Productive seconds by step: one from the session's start, and one from the restored step of each recovery."""
    is_start_exact: bool
    """Whether its start time is from its own session record."""
    is_stalled: bool = False
    """Whether its latest record reports a stall."""
    silence_secs: float | None = None
    """How long it may be silent before it counts as lost; None: without limit."""
    alive_silence_secs: float = math.inf
    """The same of another writer's process that is seen to run."""
    likely_unseen_secs: float = 0.0
    """If it died: for how long it probably ran on after its last event."""
    most_unseen_secs: float | None = None
    """If it died: for how long at most it ran on after its last event; None where unknown."""
    most_steps_per_sec: float | None = None
    """Its highest reading; None without one."""
    ended_itself: bool = False
    """Whether another writer's STOP event records its end."""
    is_clock_behind: bool = False
    """Whether this one started before the last sign of life of the session before it: a wall clock was set back."""
    checkpoints: tuple[Checkpoint, ...] = ()
    threads: tuple[ThreadHistory, ...] = ()
    workers: tuple[WorkerReport, ...] = ()
    recoveries: tuple[Recovery, ...] = ()
    stalls: tuple[Stall, ...] = ()
    """Of the session and of its services."""
    silences: tuple[Silence, ...] = ()
    notices: tuple[NoticeRecord, ...] = ()


LEAST_SILENCE_SECS = 30.0
"""No session counts as lost before this time without an event."""

MISSED_BEATS = 3.0
"""A session with a heartbeat interval counts as lost after this number of missing heartbeats."""

LATE_SECS = 1.0
"""A heartbeat may be late by this much: the monitor runs every second."""


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
    times = _times(fold, seen_at)
    first_step = _first_step(fold, start_step)
    last_step, progress_at = _reached(fold, tail)
    phase = "stopped" if fold.stop else fold.beats.last.phase if fold.beats.last else None
    all_stalls = fold.stalls.stalls(times.ended_at if fold.stop else None)
    stalls = [stall for stall in all_stalls if stall.service is None]
    wall_secs, open_stall_secs = times.ended_at - times.started_at, _open_stall_secs(fold, stalls, times.ended_at)
    activity = _activity(fold.activity.secs, wall_secs, phase, open_stall_secs)
    session = replaced(
        _session(fold, times, files),
        first_step=first_step,
        last_step=last_step if last_step is not None else first_step,
        phase=phase,
        last_progress_at=progress_at,
        activity_secs=activity,
    )
    threads = (thread.history(fold.id, times.ended_at) for thread in fold.threads.by_name.values())
    workers = (
        worker.report(fold.id, fold.beats.workers_at, times.ended_at) for worker in fold.workers.by_name.values()
    )
    return SessionFacts(
        session=session,
        curves=_curves(fold, first_step, last_step, activity["productive"]),
        is_start_exact=fold.record is not None,
        is_stalled=fold.stop is None and fold.is_stalled,
        silence_secs=_silence_secs(fold, phase),
        likely_unseen_secs=_until_next_beat(fold, times.ended_at) / 2,
        most_unseen_secs=_unseen_secs(fold, times.ended_at),
        most_steps_per_sec=most_steps_per_sec(
            fold.steps.most_per_sec, first_step, last_step, fold.activity.secs.get("productive", 0.0)
        ),
        is_clock_behind=times.is_clock_behind,
        checkpoints=tuple(fold.saves.checkpoints.items),
        threads=tuple(history for history in threads if history is not None),
        workers=tuple(report for report in workers if report is not None),
        recoveries=tuple(fold.steps.recoveries.items),
        stalls=all_stalls,
        silences=_silences(fold, times.started_at),
        notices=fold.notices.items,
    )


class _Times(NamedTuple):
    """When a session started and ended, or was last seen; see `SessionFacts.is_clock_behind`."""

    started_at: float
    ended_at: float
    is_clock_behind: bool


def _times(fold: SessionFold, seen_at: float | None) -> _Times:
    record, clock = fold.record, fold.clock
    first = clock.first_at if clock.first_at is not None else 0.0
    started_at = record.started_at if record else None
    if started_at is None:
        started_at = fold.beats.begun_at if fold.beats.begun_at is not None else first
    previous_seen_at = record.previous_seen_at if record else None
    is_clock_behind = previous_seen_at is not None and previous_seen_at > started_at + CLOCK_SET_SECS
    if clock.begun_at is not None and clocks_differ(clock.begun_at, started_at):
        started_at = clock.begun_at  # by the present wall clock, as all its other times
    last_seen_at = max(seen_at if seen_at is not None else first, clock.last_at if clock.last_at is not None else first)
    ended_at = fold.stop_at if fold.stop_at is not None else last_seen_at
    return _Times(started_at, max(ended_at, started_at), is_clock_behind)


def _reached(fold: SessionFold, tail: Reached | None) -> tuple[int | None, float | None]:
    """Return the last step of a session, and when it last made progress."""
    last_step, progress_at = fold.steps.last_step, fold.last_progress_at
    if fold.stop is not None:  # a heartbeat may have counted a step ahead
        return last_step if fold.stop.step is None else fold.stop.step, progress_at
    if tail is None or (last_step is not None and tail.step <= last_step):
        return last_step, progress_at
    return tail.step, max(tail.at, progress_at or 0.0) or None


def _session(fold: SessionFold, times: _Times, files: Sequence[str]) -> Session:
    """Return a session as its records have it."""
    record = fold.record
    if record is None:
        record = SessionRecord(session=fold.id, attempt=fold.beats.attempt or 0, host=host_of(files))
    beat, stop, saves = fold.beats.last or HeartbeatRecord(session=fold.id), fold.stop, fold.saves
    outcome: Outcome = (stop.reason or "unknown") if stop else "running"
    return Session.recorded(
        record,
        beat,
        fold.resume_check,
        started_at=times.started_at,
        ended_at=times.ended_at,
        outcome=outcome,
        steps=stop.steps if stop else beat.steps,
        error=stop.error if stop else None,
        signal=stop.signal if stop else None,
        reported_secs=fold.activity.secs,
        saves=saves.count,
        save_failures=saves.failures,
        save_failures_in_a_row=saves.failures_in_a_row,
        save_secs=saves.secs,
        blocked_secs=saves.blocked_secs,
        recoveries=fold.steps.recoveries.total,
        files=tuple(files),
    )


def _first_step(fold: SessionFold, start_step: int | None) -> int | None:
    """Return the step at which a session began: the restored one; of a new model, from START or its first heartbeat."""
    restored = fold.record.restored_step if fold.record else None
    if restored is not None or fold.record is None:
        return restored
    if start_step is not None or fold.steps.first_report is None:
        return start_step
    step, done = fold.steps.first_report
    return max(0, step - done)


def _curves(
    fold: SessionFold, first_step: int | None, last_step: int | None, productive_secs: float
) -> tuple[StepTimeCurve, ...]:
    *earlier, latest = fold.steps.curves
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
    beat, at = fold.beats.last, fold.beats.last_at
    if beat is not None and at is not None and (is_hanging(beat) or at >= until):
        since = max(since, at)
    return max(0.0, until - since)


def _silences(fold: SessionFold, started_at: float) -> tuple[Silence, ...]:
    return tuple(
        Silence(session=fold.id, since=max(started_at, at - secs + before), until=at, secs=secs - before, cause=cause)
        for at, before, secs, cause in fold.activity.silences.items
    )


def _silence_secs(fold: SessionFold, phase: str | None) -> float | None:
    """Return for how long the session may be silent. With a heartbeat interval: `MISSED_BEATS` intervals. With
    heartbeats only at phase changes: the hang timeout, since it would report a stall. Before its session record
    the interval is unknown; two heartbeats of one phase show that there is one."""
    every = _beat_secs(fold)
    if every or phase == "stopped":
        return max(LEAST_SILENCE_SECS, MISSED_BEATS * (every or 0.0))
    if fold.beats.last is not None:
        timeout_secs = fold.beats.last.progress_timeout_secs
    else:
        timeout_secs = HANG_TIMEOUT_SECS["training" if fold.record else "starting"]
    return None if timeout_secs is None else max(LEAST_SILENCE_SECS, timeout_secs)


def _beat_secs(fold: SessionFold) -> float | None:
    """Return how often there is a sign of life: a heartbeat, of the liveness file where that was read."""
    if fold.live_secs is not None:
        return fold.live_secs
    if fold.record is None:
        return fold.beats.longest_secs
    recorded = fold.record.recorded_beat_secs
    return fold.record.heartbeat_secs if recorded is None else recorded


def _until_next_beat(fold: SessionFold, seen_at: float) -> float:
    """Return the seconds from a time to the next heartbeat; 0 where none was due."""
    every = _beat_secs(fold)
    if not every or fold.beats.last_at is None:
        return 0.0
    return max(0.0, fold.beats.last_at + every - seen_at)


def _unseen_secs(fold: SessionFold, seen_at: float) -> float | None:
    """Return for how long at most the session ran on: until its next heartbeat was overdue."""
    left = _until_next_beat(fold, seen_at)
    return left + LATE_SECS if left else None


def most_steps_per_sec(
    reported: float | None, first_step: int | None, last_step: int | None, productive_secs: float
) -> float | None:
    """Return the highest reported rate, or the mean over all steps where that is higher."""
    if first_step is None or last_step is None or productive_secs <= 0:
        return reported
    return max(reported or 0.0, (last_step - first_step) / productive_secs) or None
