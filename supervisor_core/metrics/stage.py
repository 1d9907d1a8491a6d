"""`stage_of`: how much an exporter serves of a run; `at_rest`: what is left of its status when that is least.

A fleet's logdir holds nine runs that have ended for each one that is alive. No alert speaks of them: all that is asked
of one is how and when it ended, whose it was, and where.
"""

from __future__ import annotations

from supervisor_core.base.log import printable
from supervisor_core.metrics.metric import Stage
from supervisor_core.run.status import RunStatus

MOMENT_SECS = 3600.0
"""How long everything is served of a run after its end. Rules have half an hour to see the end: a Prometheus that was
down for longer has forgotten the run."""

_ENDED = ("completed", "stopped", "copy")
_ALIVE = ("running", "stalled", "unreachable", "deleted")


def stage_of(status: RunStatus, last_event_at: float | None, now: float, forget_after_secs: float) -> Stage:
    """Return the stage of a run.

    Args:
        status: the run.
        last_event_at: when its newest event was, by the clock of `now`; None where that is not known.
        now: the present wall time.
        forget_after_secs: after how long without events a run that is lost, has failed or is in no known state was
            given up.
    """
    if status.state in _ALIVE or last_event_at is None:
        return Stage.LIVE
    silent_secs = now - last_event_at
    given_up_secs = 0.0 if status.state in _ENDED else forget_after_secs
    if silent_secs > given_up_secs + MOMENT_SECS:
        return Stage.AT_REST
    return Stage.DEAD if status.state in ("lost", "failed") and silent_secs > MOMENT_SECS else Stage.LIVE


def at_rest(status: RunStatus, last_event_at: float | None) -> RunStatus:
    """Return what is known of a run at rest: its state, its end, its findings; its host and labels, and of a copy its
    place and its original. What differs from run to run, as a process's id, is left out."""
    host = None if status.session is None else status.session.host
    known = {} if host is None else {"host": printable(host)}
    return RunStatus(
        run=status.run,
        active=None,
        phase=None,
        state=status.state,
        ended_at=last_event_at if status.ended_at is None else status.ended_at,
        labels=status.labels,
        findings=status.findings,
        info={**status.info, **known} if status.state == "copy" else known,
        recoveries=None,
        steps=None,
        stalled=None,
    )
