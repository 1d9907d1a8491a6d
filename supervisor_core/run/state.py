"""`run_state`: what a run is doing at one moment, by its last session and by how long nothing was heard of it."""

from __future__ import annotations

from supervisor_core.run.cadence import LEAST_BUDGET_SECS
from supervisor_core.run.facts import SessionFacts
from supervisor_core.run.model import STATE_OF_OUTCOME, Outcome, RunState


def run_state(last: SessionFacts | None, now: float, last_event_at: float | None) -> RunState:
    """Return the state of a run.

    Args:
        last: its newest session; None where there is none.
        now: the present wall time.
        last_event_at: wall time of the run's last event.
    """
    if last is None:
        return "unknown"
    if last.session.inferred:
        if last.ended_itself:
            return "stopped"
        budget_secs = LEAST_BUDGET_SECS if last.silence_secs is None else last.silence_secs
        is_quiet = last_event_at is None or now - last_event_at > budget_secs
        return "unknown" if is_quiet else "running"
    if last.session.outcome != "running":
        return STATE_OF_OUTCOME[last.session.outcome]
    heard_at = last.session.ended_at
    if heard_at is not None and last.silence_secs is not None and now - heard_at > last.silence_secs:
        return "lost"
    return "stalled" if last.is_stalled else "running"


def outcome_of_last(last: SessionFacts, state: RunState) -> Outcome:
    """Return how the newest session ended, by the state of its run."""
    if last.session.outcome != "running":
        return last.session.outcome
    if state in ("running", "stalled"):
        return "running"
    return "lost" if state == "lost" else "unknown"
