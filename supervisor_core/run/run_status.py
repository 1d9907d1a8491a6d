"""`run_status`: a run from its events files, as the metrics show it."""

from __future__ import annotations

from collections import Counter
from typing import get_args

from supervisor_core.run.model import Checkpoint, Run, RunState, Session, ThreadHistory, WorkerHistory
from supervisor_core.run.status import CheckpointStatus, RunStatus, ThreadStatus, WorkerState, WorkerStatus

_ACTIVE: dict[RunState, bool | None] = {
    "running": True,
    "stalled": True,
    "lost": True,
    "stopped": False,
    "completed": False,
    "failed": False,
    "unknown": None,
}

_NOTHING_SAVED = CheckpointStatus(saves=None, failures=None, failures_in_a_row=None)

FORGET_AFTER_SECS = 7 * 86400.0
"""How long nothing may be heard of a lost run until it is given up: it is not active then."""

_ALL: frozenset[WorkerState] = frozenset(get_args(WorkerState))
_DOWN: frozenset[WorkerState] = frozenset(("lost", "failed"))
_STILL_SO: dict[RunState, frozenset[WorkerState]] = {"running": _ALL, "stalled": _ALL, "lost": _DOWN, "failed": _DOWN}
"""What a chief's last word on a worker is still worth, by what has become of the chief."""


def run_status(
    run: Run, now: float, *, label: str | None = None, forget_after_secs: float = FORGET_AFTER_SECS
) -> RunStatus:
    """Return what an exporter serves of a run: the trainer's own metrics, though the trainer may be dead.

    A run that is stalled or lost is active, until a lost one is given up; one that has ended, by an error too, is not.
    Of a run without telemetry only that is served which its events show: its step, its speed, its checkpoints, when it
    last wrote, and for how long it may be silent (`Cadence`). Neither a phase, nor whether it is active, nor goodput,
    counts of saves or steps done again.

    Of the cluster's other processes is told what is still so. While their chief has heartbeats, its word counts. Once
    it is lost or has failed, those that it had called lost or failed remain so, since they are as likely why; of the
    others nothing is known any more, and nothing is told. After a planned end they are over with their run.

    Args:
        run: the run.
        now: the present wall time; a session that tells of a later time than this has another clock, and is believed
            only up to now.
        label: the ``run`` label. Default: the run's name.
        forget_after_secs: how long nothing may be heard of a lost run until it is not active any more.
    """
    name = run.name if label is None else label
    if not run.sessions:
        return RunStatus(
            run=name,
            active=None,
            phase=None,
            state=run.state,
            sessions=0,
            recoveries=None,
            global_step=run.step,
            steps=None,
            stalled=None,
            checkpoint=_NOTHING_SAVED,
            steps_lost=None,
            events_dropped=None,
        )
    last = run.sessions[-1]
    told = not last.inferred
    active = _ACTIVE[run.state] and not (run.state == "lost" and _is_silent_for(forget_after_secs, run, now))
    return RunStatus(
        run=name,
        active=active if told or active is False else None,
        phase=last.phase,
        state=run.state,
        error=last.error if run.state == "failed" else None,
        session_id=last.id if told else None,
        session_started_at=last.started_at,
        session_seen_at=min(last.ended_at, now) if told and last.ended_at is not None else None,
        sessions=last.attempt,
        restarts=dict(Counter(restart.reason for restart in run.restarts)),
        recoveries=last.recoveries if told else None,
        global_step=run.step,
        steps=last.steps,
        steps_per_second=last.steps_per_sec if run.state in ("running", "stalled") else None,
        last_progress_at=_moved_at(run, last, now),
        progress_timeout_secs=last.progress_timeout_secs,
        stalled=run.state == "stalled" if told else None,
        checkpoint=_checkpoint(run, last),
        threads=tuple(_thread(history) for history in run.threads if history.session == last.id),
        workers=_workers(run, last, now),
        steps_lost=None if run.inferred else run.steps_lost,
        run_activity_secs={} if run.inferred else run.goodput.booked_secs,
        activity_secs=last.told_secs if told else {},
        goodput=None if run.inferred else run.goodput.ratio,
        events_dropped=last.events_dropped if told else None,
        loss_finite=run.loss_finite,
        events_failing=last.events_error is not None if told and run.state in ("running", "stalled") else None,
        versions=last.versions,
        info=_info(last),
    )


def _moved_at(run: Run, last: Session, now: float) -> float | None:
    """Return when the run last made progress; of another writer's, when its last event was, whatever it is of."""
    at = run.last_event_at if last.inferred else last.last_progress_at
    return None if at is None else min(at, now)


def _is_silent_for(secs: float, run: Run, now: float) -> bool:
    return run.last_event_at is not None and now - run.last_event_at > secs


def _checkpoint(run: Run, last: Session) -> CheckpointStatus:
    newest = next((saved for saved in reversed(run.checkpoints) if _is_whole(saved)), None)
    latest = next((saved for saved in reversed(run.checkpoints) if saved.session == last.id), None)
    return CheckpointStatus(
        interval_secs=last.checkpoint_interval_secs,
        recommended_interval_secs=run.advice.recommended_interval_secs,
        last_success_at=newest.at if newest else None,
        last_success_step=newest.step if newest else None,
        last_success_path=newest.path if newest else None,
        last_size_bytes=newest.bytes if newest else None,
        saves=None if last.inferred else last.saves,
        failures=None if last.inferred else last.save_failures,
        failures_in_a_row=None if last.inferred else last.save_failures_in_a_row,
        last_error=latest.error if latest else None,
        save_secs=last.save_secs,
        blocked_secs=last.blocked_secs,
    )


def _is_whole(saved: Checkpoint) -> bool:
    return saved.ok and saved.path is not None


def _thread(history: ThreadHistory) -> ThreadStatus:
    return ThreadStatus(
        name=history.name,
        state=history.state,
        interval_secs=history.interval_secs,
        ticks=history.ticks,
        failures=history.failures,
        last_tick_at=history.last_tick_at,
        last_tick_secs=history.last_tick_secs,
        overdue_secs=history.overdue_secs,
        last_error=history.last_error,
        last_failure_at=history.last_failure_at,
    )


def _workers(run: Run, last: Session, now: float) -> tuple[WorkerStatus, ...]:
    worth = _STILL_SO.get(run.state, frozenset())
    return tuple(
        _worker(history, now)
        for history in run.workers
        if history.state in worth and history.session == last.id and _is_named(history, last)
    )


def _is_named(history: WorkerHistory, last: Session) -> bool:
    """Whether the session's latest heartbeat names the worker: its history goes on to the session's end then."""
    return last.ended_at is None or history.spans[-1].until >= last.ended_at


def _worker(history: WorkerHistory, now: float) -> WorkerStatus:
    return WorkerStatus(
        name=history.name,
        state=history.state,
        phase=history.phase,
        waiting_for=history.waiting_for,
        step=history.step,
        steps=history.steps,
        last_seen_at=None if history.last_seen_at is None else min(history.last_seen_at, now),
        started_at=history.spans[-1].started_at,
        host=history.host,
        pid=history.pid,
        error=history.error,
    )


def _info(last: Session) -> dict[str, str]:
    known = {"host": last.host, "pid": last.pid, "facade": last.facade}
    return {name: str(value) for name, value in known.items() if value is not None}
