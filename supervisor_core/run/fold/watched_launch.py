"""What a restarter sees of a launch that runs: whether it does, and where it hangs.

A program without telemetry has no other witness than its restarter: it cannot say that it is alive, nor where it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from supervisor_core.run.fold.restarter_launches import SLACK_SECS
from supervisor_core.run.fold.session_facts import SessionFacts
from supervisor_core.run.model.program_launch import ProgramLaunch
from supervisor_core.run.model.run import RunState, Session, Stall

SEEN_EVERY_SECS = 60.0
"""A restarter records at least this often that a program without telemetry runs."""
LOST_SECS = 3 * SEEN_EVERY_SECS
"""On another machine than the restarter's a launch is lost after this long without such a record."""


def watched_launch(session: Session | None, launches: Sequence[ProgramLaunch]) -> ProgramLaunch | None:
    """Return the launch that a session without telemetry is of, while its restarter watches it; None otherwise.

    Args:
        session: the newest session; None without one.
        launches: in order.
    """
    newest = launches[-1] if launches else None
    if newest is None or newest.seen_at is None or session is None or not session.inferred or session.gone:
        return None
    began, seen_at = newest.started_at, session.ended_at
    return newest if began is None or seen_at is None or seen_at >= began - SLACK_SECS else None


def watched_state(launch: ProgramLaunch, last: SessionFacts, now: float, *, runs: bool | None) -> RunState:
    """Return the state of a run whose newest session is watched.

    Args:
        launch: its launch.
        last: the session.
        now: the present wall time.
        runs: whether the launch's restarter runs; None on another machine.
    """
    is_lost = now - (launch.seen_at or 0.0) > LOST_SECS if runs is None else not runs
    if is_lost:
        return "lost"
    return "stalled" if any(stall.until is None for stall in last.stalls) else "running"


def with_stalls(sessions: Sequence[SessionFacts], stalls: Iterable[Stall]) -> tuple[SessionFacts, ...]:
    """Return sessions with the hangs that their restarter has seen, but for those that they have recorded themselves.

    Args:
        sessions: in order.
        stalls: by the restarter.
    """
    found = list(sessions)
    for stall in stalls:
        index = _session_of(found, stall)
        if index is None:
            continue
        facts = found[index]
        if not any(_is_same(stall, own) for own in facts.stalls if own.service is None):
            mine = (*facts.stalls, replace(stall, session=facts.session.id))
            found[index] = replace(facts, stalls=tuple(sorted(mine, key=lambda item: item.since)))
    return tuple(found)


def _session_of(sessions: Sequence[SessionFacts], stall: Stall) -> int | None:
    """Return the place of the session that a hang is of: the one it names, or the last that had begun without
    telemetry."""
    by_name = {facts.session.id: index for index, facts in enumerate(sessions)}
    if stall.session in by_name:
        return by_name[stall.session]
    began = (
        index
        for index, facts in enumerate(sessions)
        if facts.session.inferred and (facts.session.started_at or 0.0) <= stall.since + SLACK_SECS
    )
    return max(began, default=None)


def _is_same(stall: Stall, own: Stall) -> bool:
    """Return whether two reports are of the same time without progress: neither was over before the other began."""
    end, own_end = (math.inf if each.until is None else each.until for each in (stall, own))
    return own.since <= end and stall.since <= own_end
