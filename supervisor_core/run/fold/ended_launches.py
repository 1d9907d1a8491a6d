"""What the end of a launch says of the run: that a session is over, and whether the run has failed, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from supervisor_core.events.telemetry import DeathRecord
from supervisor_core.run.fold.other_writers import LEAST_HANG_TIMEOUT_SECS
from supervisor_core.run.fold.restarter_launches import SLACK_SECS
from supervisor_core.run.model.program_launch import ProgramLaunch, final_launch
from supervisor_core.run.model.run import Outcome, Run, RunState, Session

_STATES: Mapping[str, RunState] = {"completed": "completed", "stopped": "stopped"}


OUTCOMES_OF_THE_DEAD: Mapping[RunState, Outcome] = {"completed": "completed", "stopped": "signal"}
"""How a session without a record of its end has ended, by the state of its run; in any other it is lost."""


def ended_state(state: RunState, last: Session | None, launches: Sequence[ProgramLaunch]) -> RunState:
    """Return the state of a run whose program a restarter has ended or given up; any other state is left as it is.

    A program that ended before its first event has no other record of its end. Of a session that hung, its own record
    has only the signal by which it was ended.

    Args:
        state: by the sessions.
        last: the newest session; None without one.
        launches: in order.
    """
    end = final_launch(launches)
    if end is None or not _is_before(last, end):
        return state
    if last is None or last.gone:
        return _STATES.get(end.cause or "", "failed")
    is_given_up = last.outcome in ("error", "signal", "requested") and end.cause not in _STATES
    return "failed" if is_given_up else state


def with_end(run: Run, end: ProgramLaunch) -> Run:
    """Return a run with the end of its last launch, which its restarter could not record.

    Args:
        run: as its records have it.
        end: the launch, with its end.
    """
    sessions, launches = run.sessions, (*(item for item in run.launches if item.launch != end.launch), end)
    last = sessions[-1] if sessions else None
    if last is not None and last.outcome in ("running", "lost", "unknown"):
        last = replace(last, gone=True)
    state = ended_state(run.state, last, launches)
    if last is not None and last.gone:
        last = replace(last, outcome=OUTCOMES_OF_THE_DEAD.get(state, "lost"))
    sessions = sessions if last is None else (*sessions[:-1], last)
    return replace(run, sessions=sessions, launches=launches, state=state, restarting=False)


RestarterRuns = Callable[[ProgramLaunch], "bool | None"]
"""Returns whether the restarter of a launch runs; None where that is unknown: on another machine."""


def shown_state(
    state: RunState, last: Session | None, launches: Sequence[ProgramLaunch], now: float, runs: RestarterRuns
) -> RunState:
    """Return the state of a run: ``unknown`` instead of failed or stopped while its restarter starts it again, and the
    launch has no session yet. Likewise instead of lost, if it has no telemetry: its first event may take long.

    Where it is unknown whether the restarter runs, it has as long as another writer may be silent, since its last
    record.

    Args:
        state: as of `ended_state`.
        last: the newest session; None without one.
        launches: in order.
        now: the present wall time.
        runs: returns whether a launch's restarter runs.
    """
    is_over = state in ("failed", "stopped") or (state == "lost" and last is not None and last.inferred and last.gone)
    return "unknown" if is_over and is_starting_again(state, last, launches, now, runs) else state


def is_starting_again(
    state: RunState, last: Session | None, launches: Sequence[ProgramLaunch], now: float, runs: RestarterRuns
) -> bool:
    """Return whether a run is over, and its restarter starts it again: it waits to, or the launch has no session yet.

    Likewise if the process of the launch's session is gone, and the restarter, which runs, has not recorded that yet.

    Args:
        state: as of `ended_state`.
        last: the newest session; None without one.
        launches: in order.
        now: the present wall time.
        runs: returns whether a launch's restarter runs.
    """
    if state not in ("failed", "stopped", "lost"):
        return False
    newest = launches[-1] if launches else None
    if newest is None:
        return False
    if newest.ended_at is None:
        since = newest.started_at if newest.seen_at is None else newest.seen_at
        is_next = last is None or (last.started_at or 0.0) < (newest.started_at or 0.0)
        if last is not None and last.gone and not is_next:
            return runs(newest) is True
    else:
        since, is_next = newest.ended_at + newest.backoff_secs, newest.action == "restart" and _is_before(last, newest)
    if not is_next or since is None:
        return False
    is_alive = runs(newest)
    return now - since <= LEAST_HANG_TIMEOUT_SECS if is_alive is None else is_alive


def death_by_launch(session: Session, launches: Iterable[ProgramLaunch]) -> DeathRecord | None:
    """Return what is known of the death of a session that one of the launches had started: a launch is over when all
    of its processes are. None where none of them had, or it has not ended.

    Args:
        session: the session.
        launches: the newest first.
    """
    began, seen_at = session.started_at, session.ended_at
    for launch in launches:
        ended_at = launch.ended_at
        if ended_at is None and None not in (began, launch.started_at) and (began or 0.0) >= (launch.started_at or 0.0):
            return None  # it is of this launch, however soon that has followed the one before
        if ended_at is None or launch.cause == "in_use":
            continue
        if launch.session != session.id:
            if began is None or seen_at is None or launch.started_at is None or seen_at > ended_at + SLACK_SECS:
                continue
            if not launch.started_at - SLACK_SECS <= began <= ended_at + SLACK_SECS:
                continue
        elapsed_secs = None if began is None else max(0.0, ended_at - began)
        return DeathRecord(session=session.id, step=launch.step, elapsed_secs=elapsed_secs)
    return None


def _is_before(session: Session | None, end: ProgramLaunch) -> bool:
    """Return whether a session began before a launch ended."""
    if session is None or session.started_at is None or end.ended_at is None or end.session == session.id:
        return True
    return session.started_at <= end.ended_at + SLACK_SECS
