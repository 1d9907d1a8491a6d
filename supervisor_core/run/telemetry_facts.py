"""`telemetry_facts`: the facts of a session that told of itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import get_args

from supervisor_core.events.telemetry import SessionRecord, StallRecord, StopReason, StopRecord
from supervisor_core.options import STALL_TIMEOUT_SECS
from supervisor_core.run.facts import SessionFacts
from supervisor_core.run.file_fold import Reached
from supervisor_core.run.model import BUCKET_OF_PHASE, BUCKETS, STALL, Outcome, Session, Silence, Stall
from supervisor_core.run.numbers import mapping, number, text, truth, whole
from supervisor_core.run.pace import Pace
from supervisor_core.run.session_fold import CLOCK_SET_SECS, SessionFold, clocks_differ, is_over
from supervisor_core.run.status import SAVE_BOUNDS, Histogram

LEAST_SILENCE_SECS = 30.0
"""No session counts as lost before it has been silent for so long."""

MISSED_BEATS = 3.0
"""A session that beats by the clock counts as lost once so many heartbeats are missing."""

LATE_SECS = 1.0
"""By how much a heartbeat, or a renewal of the lease, may be late: the monitor looks every second."""

_NO_SAVES = Histogram(SAVE_BOUNDS).snapshot()
_REASONS = frozenset(get_args(StopReason))


def telemetry_facts(
    fold: SessionFold, *, files: Sequence[str], heard_at: float | None, start_step: int | None, tail: Reached | None
) -> SessionFacts:
    """Return what a session's own records say.

    Args:
        fold: its records.
        files: the events files it wrote, in order.
        heard_at: the latest wall time of anything in them, where it is the last that wrote there.
        start_step: the step of the START in the first of them.
        tail: the highest step of the scalars after its last heartbeat.
    """
    record, stop, beat = fold.record, fold.stop, fold.beat
    first = fold.first_at if fold.first_at is not None else 0.0
    started_at = number(record.started_at) if record else None
    if started_at is None:
        started_at = fold.begun_at if fold.begun_at is not None else first
    previous_seen_at = number(record.previous_seen_at) if record else None
    is_clock_behind = previous_seen_at is not None and previous_seen_at > started_at + CLOCK_SET_SECS
    if fold.clock_begun_at is not None and clocks_differ(fold.clock_begun_at, started_at):
        started_at = fold.clock_begun_at  # by the clock as it goes now, so that its times fit together
    last_heard = max(heard_at if heard_at is not None else first, fold.last_at if fold.last_at is not None else first)
    ended_at = max(fold.stop_at if fold.stop_at is not None else last_heard, started_at)
    first_step = _first_step(fold, start_step)
    last_step, progress_at = fold.last_step, fold.last_progress_at
    if stop is not None:  # a heartbeat may have counted a step ahead
        last_step = whole(stop.step) if whole(stop.step) is not None else last_step
    elif tail is not None and (last_step is None or tail.step > last_step):
        last_step = tail.step
        if tail.at > (progress_at or 0.0):
            progress_at = tail.at
    phase = "stopped" if stop else text(beat.phase) if beat else None
    stalls = _stalls(fold, ended_at if stop else None)
    activity = _activity(fold.told_secs, ended_at - started_at, phase, _open_stall_secs(fold, stalls, ended_at))
    outcome: Outcome = _reason(stop) if stop else "running"
    restored = record.restored_checkpoint if record else None
    return SessionFacts(
        session=Session(
            id=fold.id,
            attempt=(whole(record.attempt) if record else fold.attempt) or 0,
            started_at=started_at,
            ended_at=ended_at,
            outcome=outcome,
            inferred=False,
            first_step=first_step,
            last_step=last_step if last_step is not None else first_step,
            steps=_steps(fold),
            steps_per_sec=number(beat.steps_per_sec) if beat else None,
            phase=phase,
            last_progress_at=progress_at,
            progress_timeout_secs=number(beat.progress_timeout_secs) if beat else None,
            error=text(stop.error) if stop else None,
            signal=text(stop.signal) if stop else None,
            restored_checkpoint=text(restored),
            restored_step=whole(record.restored_step) if record else None,
            adopted=record is not None and truth(record.adopted) is True,
            skipped=_skipped(record) if record else (),
            state_problem=text(record.state_problem) if record else None,
            starting_secs=number(record.starting_secs) if record else None,
            restoring_secs=number(record.restoring_secs) if record else None,
            checkpoint_interval_secs=number(record.checkpoint_interval_secs) if record else None,
            heartbeat_secs=number(record.heartbeat_secs) if record else None,
            events_dropped=(whole(beat.events_dropped) if beat else None) or 0,
            host=text(record.host) if record else None,
            pid=whole(record.pid) if record else None,
            facade=text(record.facade) if record else None,
            run_name=text(record.run) if record else None,
            versions=record.versions if record else {},
            activity_secs=activity,
            told_secs=fold.told_secs,
            saves=fold.saves,
            save_failures=fold.save_failures,
            save_failures_in_a_row=fold.save_failures_in_a_row,
            loss_finite=truth(beat.loss_finite) if beat else None,
            save_secs=_NO_SAVES if fold.save_secs is None else fold.save_secs.snapshot(),
            blocked_secs=_NO_SAVES if fold.blocked_secs is None else fold.blocked_secs.snapshot(),
            recoveries=fold.recoveries.total,
            files=tuple(files),
        ),
        paces=_paces(fold, first_step, last_step, activity["productive"]),
        told_secs=fold.told_secs,
        is_start_exact=record is not None,
        is_stalled=stop is None and fold.is_stalled,
        silence_secs=_silence_secs(fold, phase),
        unheard_secs=_until_next_beat(fold, ended_at) / 2,
        unseen_secs=_unseen_secs(fold, ended_at),
        most_steps_per_sec=_most_steps_per_sec(fold, first_step, last_step),
        previous_outcome=text(record.previous_outcome) if record else None,
        previous_step=whole(record.previous_step) if record else None,
        previous_seen_at=previous_seen_at,
        run_started_at=number(record.run_started_at) if record else None,
        previous_elapsed_secs=number(record.previous_elapsed_secs) if record else None,
        previous_seen_secs=number(record.previous_seen_secs) if record else None,
        is_clock_behind=is_clock_behind,
        checkpoints=tuple(fold.checkpoints.items),
        threads=tuple(
            history
            for thread in fold.threads.by_name.values()
            if (history := thread.history(fold.id, ended_at)) is not None
        ),
        workers=tuple(
            told
            for worker in fold.workers.by_name.values()
            if (told := worker.told(fold.id, fold.workers_at, ended_at)) is not None
        ),
        recoveries=tuple(fold.recoveries.items),
        stalls=stalls,
        silences=_silences(fold, started_at),
    )


def _reason(stop: StopRecord) -> Outcome:
    """Return how a session says that it ended; a reason that nobody knows (a newer writer's) is ``unknown``."""
    return stop.reason if text(stop.reason) in _REASONS else "unknown"


def _skipped(record: SessionRecord) -> tuple[Mapping[str, str], ...]:
    return tuple(
        {name: text(str(mapping(item)[name])) or "" for name in ("path", "reason") if name in mapping(item)}
        for item in record.skipped
    )


def _first_step(fold: SessionFold, start_step: int | None) -> int | None:
    """Return the step that a session went on from: the restored one; of a new model, what START or its first heartbeat
    tells."""
    restored = whole(fold.record.restored_step) if fold.record else None
    if restored is not None or fold.record is None:
        return restored
    if start_step is not None or fold.first_told is None:
        return start_step
    step, done = fold.first_told
    return max(0, step - done)


def _paces(
    fold: SessionFold, first_step: int | None, last_step: int | None, productive_secs: float
) -> tuple[Pace, ...]:
    *earlier, latest = fold.paces
    ended = [pace.extended(first_step, None, pace.end_secs) for pace in earlier]
    return (*ended, latest.extended(first_step, last_step, productive_secs))


def _steps(fold: SessionFold) -> int | None:
    told = fold.stop if fold.stop else fold.beat
    return whole(told.steps) if told else None


def _activity(
    told: Mapping[str, float], wall_secs: float, phase: str | None, open_stall_secs: float
) -> dict[str, float]:
    """Fit a session's seconds to its wall time: what is not decided was a stall where one was told, and goes to its
    phase else; where two clocks disagree, each bucket gives its share."""
    secs = {bucket: max(0.0, told.get(bucket, 0.0)) for bucket in BUCKETS}
    total = sum(secs.values())
    if total > wall_secs:
        return {bucket: value * wall_secs / total for bucket, value in secs.items()}
    stalled = min(open_stall_secs, wall_secs - total)
    secs[STALL] += stalled
    secs[BUCKET_OF_PHASE.get(phase or "", "other")] += wall_secs - total - stalled
    return secs


def _open_stall_secs(fold: SessionFold, stalls: Sequence[Stall], ended_at: float) -> float:
    """Return how much of the latest stall came after the last heartbeat, which told the seconds before it."""
    if not stalls or fold.stop is not None or (stalls[-1].until is None and not fold.is_stalled):
        return 0.0
    since, until = stalls[-1].since, ended_at if stalls[-1].until is None else stalls[-1].until
    if fold.beat is not None and fold.beat_at is not None and (is_over(fold.beat) or fold.beat_at >= until):
        since = max(since, fold.beat_at)
    return max(0.0, until - since)


def _silences(fold: SessionFold, started_at: float) -> tuple[Silence, ...]:
    return tuple(
        Silence(session=fold.id, since=max(started_at, at - secs + before), until=at, secs=secs - before)
        for at, before, secs in fold.silences.items
    )


def _silence_secs(fold: SessionFold, phase: str | None) -> float | None:
    """Say for how long the session may be silent. One that beats by the clock: `MISSED_BEATS` beats. One that beats
    only when its phase changes: its phase's budget, since a stall, at least, would be told. Before its session record
    the interval is not known, and two heartbeats of one phase show that there is one."""
    every = number(fold.record.heartbeat_secs) if fold.record else fold.cadence_secs
    if every or phase == "stopped":
        return max(LEAST_SILENCE_SECS, MISSED_BEATS * (every or 0.0))
    if fold.beat is not None:
        budget = number(fold.beat.progress_timeout_secs)
    else:
        budget = STALL_TIMEOUT_SECS["training" if fold.record else "starting"]
    return None if budget is None else max(LEAST_SILENCE_SECS, budget)


def _until_next_beat(fold: SessionFold, seen_at: float) -> float:
    """Return what was left until the next heartbeat; 0 where none was due."""
    every = number(fold.record.heartbeat_secs) if fold.record else fold.cadence_secs
    if not every or fold.beat_at is None:
        return 0.0
    return max(0.0, fold.beat_at + every - seen_at)


def _unseen_secs(fold: SessionFold, seen_at: float) -> float | None:
    """Return how long the session may have lived on at most: until its next heartbeat was overdue."""
    left = _until_next_beat(fold, seen_at)
    return left + LATE_SECS if left else None


def _most_steps_per_sec(fold: SessionFold, first_step: int | None, last_step: int | None) -> float | None:
    """Return the highest rate of steps that was told, or that all its steps together had."""
    found = fold.most_steps_per_sec or 0.0
    secs = fold.told_secs.get("productive", 0.0)
    if first_step is not None and last_step is not None and secs > 0:
        found = max(found, (last_step - first_step) / secs)
    return found or None


def _stalls(fold: SessionFold, ended_at: float | None) -> tuple[Stall, ...]:
    found: list[Stall] = []
    stacks = dict(fold.stacks.items)
    begun: tuple[float, int, StallRecord] | None = None

    def close(until: float | None, secs: float | None) -> None:
        assert begun is not None
        at, index, record = begun
        since: float | None = record.since
        since = at if since is None else since
        found.append(
            Stall(
                session=fold.id,
                phase=record.phase,
                since=since,
                until=until,
                step=record.step,
                secs=secs if secs is not None else max(0.0, (until if until is not None else at) - since),
                timeout_secs=record.timeout_secs,
                stacks=stacks.get(index, {}),
            )
        )

    for at, index, record in fold.stalls.items:
        if record.state == "begin":
            if begun is not None:  # its end was let go of
                close(at, None)
            begun = (at, index, record)
        elif begun is not None:
            close(at, record.secs)
            begun = None
    if begun is not None:
        close(ended_at, None)
    return tuple(found)
