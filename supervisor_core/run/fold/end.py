"""How a session ended, and what follows for its run: the only place that decides between the sources.

* its **stop record**, in its events or its liveness file: by its own clock;
* its **death**, recorded by the next session or the restarter, or seen by the reader: last sign of life, step, stall,
  by its age on a monotonic clock;
* the **launch** by a restarter: when all of its processes were over, and why, by the restarter's clock;
* the **next session**, from its liveness file: outcome, step, last heartbeat, by its age, else by the next
  session's clock;
* **nothing**: it is silent, by the reader's clock.

A stop record counts alone. Of the others each may know a later sign of life, or step, than the session's events, which
end with its last heartbeat or summary: `ended` takes the latest. `standing` has the state of the run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, cast, get_args

from supervisor_core.events.telemetry import DeathRecord, OpenStall
from supervisor_core.run.fold.goodput import phase_since, spent
from supervisor_core.run.fold.other_writers import LEAST_HANG_TIMEOUT_SECS
from supervisor_core.run.fold.session_facts import LATE_SECS, SessionFacts, most_steps_per_sec
from supervisor_core.run.fold.session_fold import with_stall
from supervisor_core.run.model.program_launch import SLACK_SECS, ProgramLaunch, final_launch
from supervisor_core.run.model.run import LIVE, STATE_OF_OUTCOME, Outcome, Run, RunState, Session, Stall

CLOCKS_SECS = 86400.0
"""By how much the clock of who records a death may be behind that of the session."""
LIVENESS_SECS = 10.0
"""Seconds between two writes of a chief's liveness file, at most."""
SEEN_EVERY_SECS = 60.0
"""A restarter records at least this often that a program without telemetry runs."""
LOST_SECS = 3 * SEEN_EVERY_SECS
"""On another machine than the restarter's a launch is lost after this long without such a record."""

RECORDED: frozenset[Outcome] = frozenset(get_args(Outcome)) - {"running", "lost", "unknown"}
"""Outcomes that a session records itself."""
_STATES: Mapping[str, RunState] = {"completed": "completed", "stopped": "stopped"}
_OUTCOMES_OF_THE_DEAD: Mapping[RunState, Outcome] = {"completed": "completed", "stopped": "signal"}
"""How a session without a record of its end has ended, by the state of its run; in any other it is lost."""

RestarterRuns = Callable[[ProgramLaunch], "bool | None"]
"""Returns whether the restarter of a launch runs; None where that is unknown: on another machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """How a session without a stop record ended, as one source has it. Times are by the session's clock."""

    seen_at: float
    """Its last sign of life."""
    latest: float
    """It was over then."""
    step: int | None = None
    step_exact: bool = False
    """Whether it reached no step after that."""
    stall: OpenStall | None = None
    """The stall that it ended in."""
    is_dead: bool = True
    """Whether its process is known to be over."""


def end_by_death(session: Session, death: DeathRecord, recorded_at: float = math.inf) -> End:
    """Return the end of a session by what is known of its death.

    Args:
        session: the session.
        death: what is known.
        recorded_at: when that was recorded, by another clock: the last sign of life was not much later, whatever a
            file says.
    """
    seen_at = session.ended_at or 0.0
    if death.elapsed_secs is not None and session.started_at is not None:
        seen_at = min(session.started_at + death.elapsed_secs, max(seen_at, recorded_at + CLOCKS_SECS))
    stall = death.stall
    if stall is not None:
        since = seen_at - stall.secs
        blocked_since = None if stall.blocked_since is None else since + (stall.blocked_since - stall.since)
        stall = replace(stall, since=since, blocked_since=blocked_since)
    return End(seen_at=seen_at, latest=seen_at, step=death.step, step_exact=death.step_exact, stall=stall)


def end_by_next(session: Session, later: Session) -> End | None:
    """Return the end of a session by what the next one found in its liveness file; None if that is of another one."""
    seen_at = later.previous_seen_at
    if later.attempt != session.attempt + 1 or seen_at is None or session.started_at is None:
        return None
    latest = seen_at if later.started_at is None else later.started_at
    if later.previous_elapsed_secs is not None:  # monotonic, so comparable with the session's own
        seen_at = latest = session.started_at + later.previous_elapsed_secs
    step, is_exact = later.previous_step, later.previous_step_exact
    return End(seen_at=seen_at, latest=latest, step=step, step_exact=is_exact, is_dead=session.gone)


def end_by_launch(session: Session, launches: Sequence[ProgramLaunch]) -> End | None:
    """Return the end of a session that one of the launches had started: a launch is over when all of its processes are.
    None where none of them had, or it has not ended.

    Args:
        session: the newest.
        launches: in order.
    """
    began, seen_at = session.started_at, session.ended_at
    for launch in reversed(launches):
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
        at = (seen_at or 0.0) if began is None else max(began, ended_at)
        return End(seen_at=at, latest=at, step=launch.step)
    return None


def ended(facts: SessionFacts, end: End | None) -> SessionFacts:
    """Return a session without a stop record, completed by what one source has of its end."""
    session = facts.session
    if end is None or session.outcome != "running":
        return facts
    session = replace(session, gone=session.gone or end.is_dead)
    stall = end.stall
    if stall is not None:
        facts = replace(facts, is_stalled=True, stalls=with_stall(facts.stalls, session.id, stall))
        session = replace(
            session, phase=stall.phase, last_progress_at=stall.since, progress_timeout_secs=stall.timeout_secs
        )
    if session.inferred or session.started_at is None or session.ended_at is None:
        return replace(facts, session=session)
    ended_at = max(session.ended_at, min(end.seen_at, end.latest))
    likely_unseen_secs, most_unseen_secs = facts.likely_unseen_secs, facts.most_unseen_secs
    is_known = most_unseen_secs == 0.0  # its exact step, by the record of its death
    if not is_known and ended_at - end.seen_at < LIVENESS_SECS:  # else it would have been written once more
        likely_unseen_secs = min(likely_unseen_secs, LIVENESS_SECS / 2)
        most_unseen_secs = max(0.0, end.seen_at + LIVENESS_SECS - ended_at) + LATE_SECS
    stalled_since = stall.since if stall is not None else session.ended_at if facts.is_stalled else None
    last_step = session.last_step
    is_of_recovered = not facts.recoveries or end.seen_at >= facts.recoveries[-1].at  # else the step is from before it
    if is_of_recovered and end.step is not None:
        last_step = end.step if last_step is None else max(last_step, end.step)
    if end.step_exact and end.step is not None:
        last_step, most_unseen_secs = end.step, 0.0
        if facts.most_steps_per_sec:  # it died before its next step, or the next second's sign of life
            likely_unseen_secs = min(likely_unseen_secs, 0.5 / facts.most_steps_per_sec)
    secs = dict(session.activity_secs)
    for bucket, more in spent(session.ended_at, ended_at, phase_since(session, last_step), stalled_since).items():
        secs[bucket] = secs.get(bucket, 0.0) + more
    productive = secs.get("productive", 0.0)
    *curves, latest = facts.curves
    return replace(
        facts,
        session=replace(session, ended_at=ended_at, last_step=last_step, activity_secs=secs),
        curves=(*curves, latest.extended(session.first_step, last_step, productive)),
        likely_unseen_secs=likely_unseen_secs,
        most_unseen_secs=most_unseen_secs,
        most_steps_per_sec=most_steps_per_sec(facts.most_steps_per_sec, session.first_step, last_step, productive),
    )


def outcome_before(facts: SessionFacts, following: SessionFacts) -> Outcome:
    """Return the outcome of a session that has a successor."""
    if facts.session.outcome != "running":
        return facts.session.outcome
    if facts.session.inferred:
        return "unknown"
    found = following.session.previous_outcome  # the liveness file may know what the events file lost
    return cast("Outcome", found) if found in RECORDED or found == "unknown" else "lost"


class Standing(NamedTuple):
    """How a run stands at one moment."""

    state: RunState
    shown: RunState
    """The same, but ``unknown`` while its restarter starts it again."""
    outcome: Outcome | None
    """Of its newest session."""
    restarting: bool
    launches: tuple[ProgramLaunch, ...]


def standing(
    last: SessionFacts | None,
    launches: tuple[ProgramLaunch, ...],
    now: float,
    last_event_at: float | None,
    runs: RestarterRuns,
    writes: bool | None = None,
) -> Standing:
    """Return how a run stands.

    A run that is over is shown as unknown while its restarter starts it again, and the launch has no session yet. One
    that was killed is shown as lost again once that has taken too long; without telemetry its first event may.

    Args:
        last: its newest session; None where there is none.
        launches: in order.
        now: the present wall time.
        last_event_at: wall time of the run's last event.
        runs: returns whether a launch's restarter runs.
        writes: whether a process that writes a run without telemetry is seen to run; None where that is unknown.
    """
    session = None if last is None else last.session
    watched = None if last is None or last.ended_itself else watched_launch(session, launches)
    if watched is None:
        state = _state_by_session(last, now, last_event_at, writes)
    else:
        is_running = runs(watched)
        is_lost = now - (watched.seen_at or 0.0) > LOST_SECS if is_running is None else not is_running
        is_stalled = last is not None and any(stall.until is None for stall in last.stalls)
        state = "lost" if is_lost else "stalled" if is_stalled else "running"
        launches = (*launches[:-1], replace(watched, seen_at=now) if is_running else watched)
    state = _state_by_launch(state, session, launches)
    restarting = _is_starting_again(state, session, launches, now, runs)
    is_over = state in ("failed", "stopped")
    if state == "lost" and session is not None and session.gone:
        waits_since = max(_waits_since(launches) or 0.0, session.ended_at or 0.0)
        is_over = session.inferred or now - waits_since <= LEAST_HANG_TIMEOUT_SECS
    outcome = None if session is None else session.outcome
    if outcome == "running" and session is not None and state not in LIVE:
        outcome = "lost" if state == "lost" else "unknown"
        outcome = _outcome_of_the_dead(state, session, launches) if session.gone else outcome
    return Standing(state, "unknown" if is_over and restarting else state, outcome, restarting, launches)


def _state_by_session(
    last: SessionFacts | None, now: float, last_event_at: float | None, writes: bool | None
) -> RunState:
    if last is None:
        return "unknown"
    if last.session.gone:
        return "lost"
    if last.session.inferred:
        if last.ended_itself:
            return "stopped"
        timeout_secs = LEAST_HANG_TIMEOUT_SECS if last.silence_secs is None else last.silence_secs
        timeout_secs = last.alive_silence_secs if writes else timeout_secs
        is_quiet = last_event_at is None or now - last_event_at > timeout_secs
        return "unknown" if is_quiet or writes is False else "running"
    if last.session.outcome != "running":
        return STATE_OF_OUTCOME[last.session.outcome]
    seen_at = last.session.ended_at
    if seen_at is not None and last.silence_secs is not None and now - seen_at > last.silence_secs:
        return "lost"
    return "stalled" if last.is_stalled else "running"


def _state_by_launch(state: RunState, last: Session | None, launches: Sequence[ProgramLaunch]) -> RunState:
    """Return the state of a run whose program a restarter has ended or given up; any other state is left as it is.

    A program that ended before its first event has no other record of its end. Of a session that hung, its own record
    has only the signal by which it was ended.
    """
    end = final_launch(launches)
    if end is None or not _is_before(last, end):
        return state
    if last is None or last.gone:
        return _STATES.get(end.cause or "", "failed")
    is_given_up = last.outcome in ("error", "signal", "requested") and end.cause not in _STATES
    return "failed" if is_given_up else state


def _waits_since(launches: Sequence[ProgramLaunch]) -> float | None:
    """Return since when the next session of a launch is waited for, by its restarter's clock; None where unknown."""
    newest = launches[-1] if launches else None
    if newest is None or newest.ended_at is not None:
        return None if newest is None or newest.ended_at is None else newest.ended_at + newest.backoff_secs
    return newest.started_at if newest.seen_at is None else newest.seen_at


def _is_starting_again(
    state: RunState, last: Session | None, launches: Sequence[ProgramLaunch], now: float, runs: RestarterRuns
) -> bool:
    """Return whether a run is over, and its restarter starts it again: it waits to, or the launch has no session yet.

    Likewise if the process of the launch's session is gone, and the restarter, which runs, has not recorded that yet.
    Where it is unknown whether the restarter runs, it has as long as another writer may be silent, since its last
    record.
    """
    if state not in ("failed", "stopped", "lost") or not launches:
        return False
    newest, since = launches[-1], _waits_since(launches)
    if newest.ended_at is None:
        is_next = last is None or (last.started_at or 0.0) < (newest.started_at or 0.0)
        if last is not None and last.gone and not is_next:
            return runs(newest) is True
    else:
        is_next = newest.action == "restart" and _is_before(last, newest)
    if not is_next or since is None:
        return False
    is_alive = runs(newest)
    return now - since <= LEAST_HANG_TIMEOUT_SECS if is_alive is None else is_alive


def _is_before(session: Session | None, end: ProgramLaunch) -> bool:
    """Return whether a session began before a launch ended."""
    if session is None or session.started_at is None or end.ended_at is None or end.session == session.id:
        return True
    return session.started_at <= end.ended_at + SLACK_SECS


def _outcome_of_the_dead(state: RunState, session: Session, launches: Sequence[ProgramLaunch]) -> Outcome:
    """Return how the newest session, which has no record of it, has ended: the error of one without telemetry is its
    launch's."""
    newest = launches[-1] if launches else None
    has_error = session.inferred and newest is not None and newest.cause == "error" and state == "failed"
    if has_error and newest is not None and (session.ended_at or 0.0) >= (newest.started_at or 0.0) - SLACK_SECS:
        return "error"
    return _OUTCOMES_OF_THE_DEAD.get(state, "lost")


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
    state = _state_by_launch(run.state, last, launches)
    if last is not None and last.gone:
        last = replace(last, outcome=_outcome_of_the_dead(state, last, launches))
    sessions = sessions if last is None else (*sessions[:-1], last)
    return replace(run, sessions=sessions, launches=launches, state=state, restarting=False)


def watched_launch(session: Session | None, launches: Sequence[ProgramLaunch]) -> ProgramLaunch | None:
    """Return the launch that a session without telemetry is of, while its restarter watches it; None otherwise. Such a
    program has no other witness: it cannot say that it is alive, nor where it is.

    Args:
        session: the newest session; None without one.
        launches: in order.
    """
    newest = launches[-1] if launches else None
    if newest is None or newest.seen_at is None or session is None or not session.inferred or session.gone:
        return None
    began, seen_at = newest.started_at, session.ended_at
    return newest if began is None or seen_at is None or seen_at >= began - SLACK_SECS else None


def with_stalls(sessions: Sequence[SessionFacts], stalls: Iterable[Stall]) -> tuple[SessionFacts, ...]:
    """Return sessions with the hangs that their restarter has seen, but for those that they have recorded themselves.

    Args:
        sessions: in order.
        stalls: by the restarter: each of the session that it names, or of the last that had begun without telemetry.
    """
    found = list(sessions)
    for stall in stalls:
        named = [index for index, facts in enumerate(found) if facts.session.id == stall.session]
        began = (
            index
            for index, facts in enumerate(found)
            if facts.session.inferred and (facts.session.started_at or 0.0) <= stall.since + SLACK_SECS
        )
        index = named[0] if named else max(began, default=None)
        if index is None:
            continue
        facts = found[index]
        if not any(_is_same(stall, own) for own in facts.stalls if own.service is None):
            mine = (*facts.stalls, replace(stall, session=facts.session.id))
            found[index] = replace(facts, stalls=tuple(sorted(mine, key=lambda item: item.since)))
    return tuple(found)


def _is_same(stall: Stall, own: Stall) -> bool:
    """Return whether two reports are of the same time without progress: neither was over before the other began."""
    end, own_end = (math.inf if each.until is None else each.until for each in (stall, own))
    return own.since <= end and stall.since <= own_end
