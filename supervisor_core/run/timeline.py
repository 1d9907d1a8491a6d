"""`Timeline`: a run's sessions in their order, and what comes of it: outcomes, restarts, lost steps, goodput."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast, get_args

from supervisor_core.run.facts import SessionFacts
from supervisor_core.run.goodput import GoodputWalk
from supervisor_core.run.model import Checkpoint, Outcome, Restart, Session, ThreadHistory

_OUTCOMES = frozenset(get_args(Outcome)) - {"running", "lost"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Everything about the order of sessions that does not depend on the present time."""

    facts: tuple[SessionFacts, ...]
    sessions: tuple[Session, ...]
    """With their attempts and, but for the last, their outcomes."""
    restarts: tuple[Restart, ...]
    checkpoints: tuple[Checkpoint, ...]
    threads: tuple[ThreadHistory, ...]
    walk: GoodputWalk
    step: int | None
    """The step the run is at."""
    steps_lost: int


def timeline(facts: Sequence[SessionFacts]) -> Timeline:
    """Set sessions in their order, and draw the boundaries between them."""
    ordered = sorted(facts, key=_order)
    walk = GoodputWalk()
    sessions: list[Session] = []
    restarts: list[Restart] = []
    attempt, step = 0, None
    for index, told in enumerate(ordered):
        following = ordered[index + 1] if index + 1 < len(ordered) else None
        attempt = max(attempt + 1, told.session.attempt)
        outcome = told.session.outcome if following is None else _outcome(told, following)
        session = told.session
        if (session.attempt, session.outcome) != (attempt, outcome):
            session = replace(session, attempt=attempt, outcome=outcome)
        if sessions:
            restarts.append(_restart(sessions[-1], session, step))
        walk.add(told, is_over=outcome != "running")
        sessions.append(session)
        if session.last_step is not None:
            step = session.last_step
    return Timeline(
        facts=tuple(ordered),
        sessions=tuple(sessions),
        restarts=tuple(restarts),
        checkpoints=tuple(saved for told in ordered for saved in told.checkpoints),
        threads=tuple(history for told in ordered for history in told.threads),
        walk=walk,
        step=step,
        steps_lost=sum(restart.rewind_steps or 0 for restart in restarts),
    )


def _order(facts: SessionFacts) -> tuple[float, int, str]:
    session = facts.session
    return (session.started_at if session.started_at is not None else 0.0, session.attempt, session.id)


def _outcome(told: SessionFacts, following: SessionFacts) -> Outcome:
    """How a session ended that is followed by another."""
    if told.session.outcome != "running":
        return told.session.outcome
    if told.session.inferred:
        return "unknown"
    found = following.previous_outcome  # the lease may know what the events file lost
    return cast(Outcome, found) if found in _OUTCOMES else "lost"


def _restart(before: Session, after: Session, step: int | None) -> Restart:
    from_step, to_step = step, after.first_step
    known = from_step is not None and to_step is not None
    return Restart(
        at=after.started_at,
        from_session=before.id,
        to_session=after.id,
        reason=before.outcome,
        from_step=from_step,
        to_step=to_step,
        rewind_steps=max(0, from_step - to_step) if known else None,  # type: ignore[operator]
        downtime_secs=None
        if before.ended_at is None or after.started_at is None
        else max(0.0, after.started_at - before.ended_at),
        inferred=before.inferred or after.inferred,
    )
