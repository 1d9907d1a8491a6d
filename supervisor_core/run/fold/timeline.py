"""`Timeline`: a run's sessions in order, and what follows from the order: outcomes, restarts, lost steps, goodput.

The events of a killed session end with its last heartbeat or summary, up to ten seconds before its death. The logdir's
lease was renewed up to a second before it. The next session records what the lease said: the step and the time.
`crashed_session` adds that to the killed one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import cast, get_args

from supervisor_core.events.record_fields import replaced
from supervisor_core.events.telemetry import DeathRecord
from supervisor_core.run.fold.goodput import COMPLETED, GoodputWalk, phase_since, spent
from supervisor_core.run.fold.heartbeat_folds import WorkerReport, merged_history, natural_order
from supervisor_core.run.fold.session_facts import LATE_SECS, SessionFacts
from supervisor_core.run.fold.session_parts import CLOCK_SET_SECS, with_stall
from supervisor_core.run.model.checkpoints import Checkpoint, passed_over
from supervisor_core.run.model.run import (
    PRODUCTIVE,
    Outcome,
    Recovery,
    Restart,
    RunHistory,
    Session,
    ThreadHistory,
    rewound,
)

RATE_MARGIN = 2.0
"""An unseen session may have been faster than its highest reported rate by this factor."""

_OUTCOMES = frozenset(get_args(Outcome)) - {"running", "lost"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionsHistory(RunHistory):
    """A `RunHistory` by itself, without a run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """What the order of sessions determines, whatever the present time."""

    facts: tuple[SessionFacts, ...]
    history: RunHistory
    """Attempts and outcomes of the sessions are set, except the outcome of the last."""
    walk: GoodputWalk


def timeline_of(
    facts: Iterable[SessionFacts], death_of: Callable[[Session], DeathRecord | None], kept_spans: int | None = None
) -> Timeline:
    """Return the timeline of sessions given in any order.

    Args:
        facts: each session by itself.
        death_of: returns what a restarter knows of the death of the newest one, if no record says how it ended.
        kept_spans: how many of each worker's newest spans are kept; None: all.
    """
    ordered = in_order(facts)
    if ordered and not ordered[-1].ended_itself and ordered[-1].session.is_open and not ordered[-1].session.gone:
        death = death_of(ordered[-1].session)
        if death is not None:
            ordered[-1] = dead_session(ordered[-1], death)
    builder = _TimelineBuilder(kept_spans)
    for each, following in zip_longest(ordered, ordered[1:]):
        builder.add(each, following)
    return builder.timeline()


class _TimelineBuilder:
    """A timeline to which sessions are added in order."""

    def __init__(self, kept_spans: int | None) -> None:
        self._kept_spans = kept_spans
        self._facts: list[SessionFacts] = []
        self._sessions: list[Session] = []
        self._restarts: list[Restart] = []
        self._recoveries: list[Recovery] = []
        self._workers: dict[str, list[WorkerReport]] = {}
        self._checkpoints: list[Checkpoint] = []
        self._threads: list[ThreadHistory] = []
        self._walk = GoodputWalk()
        self._attempt = 0
        self._step: int | None = None
        self._steps_lost = 0
        self._steps_lost_most: int | None = 0

    def add(self, facts: SessionFacts, following: SessionFacts | None) -> None:
        if following is not None:
            facts = crashed_session(facts, following)
        self._attempt = max(self._attempt + 1, facts.session.attempt)
        outcome = facts.session.outcome if following is None else _outcome(facts, following)
        session = facts.session
        if (session.attempt, session.outcome) != (self._attempt, outcome):
            session = replaced(session, attempt=self._attempt, outcome=outcome)
        clock_set_by: float | None = 0.0
        if self._sessions:
            before = self._sessions[-1]
            clock_set_by = _clock_set_by(before, facts)
            restart = _restart(before, session, self._step, clock_set_by, self._facts[-1])
            self._restarts.append(restart)
            self._lose(restart.rewind_steps or 0, restart.rewind_steps_most)
        if clock_set_by is None:  # the gap is unknown: it counts as 0
            clock_set_by = (session.started_at or 0.0) - (self._sessions[-1].ended_at or 0.0)
        self._walk.add(facts, has_ended=outcome != "running", clock_set_by=clock_set_by)
        self._facts.append(facts)
        self._sessions.append(session)
        self._recoveries.extend(facts.recoveries)
        for recovery in facts.recoveries:
            self._lose(recovery.rewind_steps or 0, recovery.rewind_steps)
        for worker in facts.workers:
            self._workers.setdefault(worker.history.name, []).append(worker)
        for index, reason in passed_over(self._checkpoints, session.skipped):
            self._checkpoints[index] = replace(self._checkpoints[index], damage=reason)
        self._checkpoints.extend(facts.checkpoints)
        self._threads.extend(facts.threads)
        if session.last_step is not None:
            self._step = session.last_step

    def _lose(self, least: int, most: int | None) -> None:
        self._steps_lost += least
        self._steps_lost_most = None if most is None or self._steps_lost_most is None else self._steps_lost_most + most

    def timeline(self) -> Timeline:
        history = SessionsHistory(
            sessions=tuple(self._sessions),
            restarts=tuple(self._restarts),
            recoveries=tuple(sorted(self._recoveries, key=lambda recovery: recovery.at)),
            workers=tuple(
                merged_history(self._workers[name], self._kept_spans)
                for name in sorted(self._workers, key=natural_order)
            ),
            checkpoints=tuple(self._checkpoints),
            threads=tuple(self._threads),
            step=self._step,
            steps_lost=self._steps_lost,
            steps_lost_most=self._steps_lost_most,
        )
        return Timeline(facts=tuple(self._facts), history=history, walk=self._walk)


def in_order(facts: Iterable[SessionFacts]) -> list[SessionFacts]:
    """Return sessions in order: by attempt, since a wall clock may be set, then by time.

    Attempts are compared within one count, which restarts where the lease was deleted. Sessions without an attempt are
    inserted by time.
    """
    counted: dict[float | None, list[SessionFacts]] = {}
    others = []
    for each in sorted(facts, key=_by_time):
        if each.session.attempt > 0 and not each.session.inferred:
            counted.setdefault(each.session.run_started_at, []).append(each)
        else:
            others.append(each)
    unnamed = counted.pop(None, [])
    if len({each.session.attempt for each in unnamed}) < len(unnamed):
        others += unnamed
        others.sort(key=_by_time)
    elif unnamed:
        known = next(iter(counted)) if len(counted) == 1 else None
        taken = {each.session.attempt for each in counted.get(known, ())}
        if known is not None and not taken & {each.session.attempt for each in unnamed}:
            counted[known] += unnamed
        else:
            counted[None] = unnamed
    for group in counted.values():
        group.sort(key=lambda each: (each.session.attempt, *_by_time(each)))
    ordered = [each for group in sorted(counted.values(), key=lambda group: _by_time(group[0])) for each in group]
    if not ordered:
        return others
    for other in others:
        position = next((index for index, each in enumerate(ordered) if _by_time(each) > _by_time(other)), len(ordered))
        ordered.insert(position, other)
    return ordered


def _by_time(facts: SessionFacts) -> tuple[float, int, str]:
    session = facts.session
    return (session.started_at if session.started_at is not None else 0.0, session.attempt, session.id)


def _clock_set_by(before: Session, after: SessionFacts) -> float | None:
    """Return by how much a session's wall clock is ahead of that of the session before it; None where it was set
    by an unknown amount."""
    started_at = after.session.started_at
    if started_at is None or after.session.attempt != before.attempt + 1:
        return 0.0
    known = (before.started_at, after.session.previous_elapsed_secs, after.session.previous_seen_secs)
    if None not in known:
        ahead = started_at - sum(secs for secs in known if secs is not None)
        return ahead if abs(ahead) > CLOCK_SET_SECS else 0.0
    return None if after.is_clock_behind else 0.0


def _outcome(facts: SessionFacts, following: SessionFacts) -> Outcome:
    """Return the outcome of a session that has a successor."""
    if facts.session.outcome != "running":
        return facts.session.outcome
    if facts.session.inferred:
        return "unknown"
    found = following.session.previous_outcome  # the lease may know what the events file lost
    return cast(Outcome, found) if found in _OUTCOMES else "lost"


def _restart(
    before: Session, after: Session, step: int | None, clock_set_by: float | None, facts: SessionFacts
) -> Restart:
    from_step, to_step = step, after.first_step
    rewind = 0 if after.adopted else rewound(from_step, to_step)
    downtime = None
    if before.ended_at is not None and after.started_at is not None and clock_set_by is not None:
        downtime = 0.0 if before.outcome in COMPLETED else max(0.0, after.started_at - clock_set_by - before.ended_at)
    return Restart(
        at=after.started_at,
        from_session=before.id,
        to_session=after.id,
        reason=before.outcome,
        from_step=from_step,
        to_step=to_step,
        rewind_steps=rewind,
        rewind_steps_most=rewind if after.adopted else _most_rewind(before, facts, from_step, to_step, downtime),
        downtime_secs=downtime,
        inferred=before.inferred or after.inferred,
    )


def _most_rewind(
    before: Session, facts: SessionFacts, from_step: int | None, to_step: int | None, downtime: float | None
) -> int | None:
    """Return the most steps that may be repeated, by how long the earlier session may have run on unseen."""
    if from_step is None or to_step is None:
        return None
    if before.outcome in _OUTCOMES - {"unknown"}:
        return max(0, from_step - to_step)
    if facts.most_unseen_secs is None or facts.most_steps_per_sec is None:
        return None
    most_unseen_secs = facts.most_unseen_secs if downtime is None else min(facts.most_unseen_secs, downtime)
    return max(0, from_step + math.ceil(RATE_MARGIN * facts.most_steps_per_sec * most_unseen_secs) - to_step)


RENEWAL_SECS, REMOTE_RENEWAL_SECS = 1.0, 15.0
"""Seconds between renewals of a lease: in a local logdir, in an object store."""


def crashed_session(facts: SessionFacts, following: SessionFacts) -> SessionFacts:
    """Return a session without a stop record, completed by what its successor found in the lease."""
    session, later = facts.session, following.session
    seen_at = later.previous_seen_at
    if later.attempt != session.attempt + 1 or seen_at is None or session.started_at is None:
        return facts
    if later.previous_elapsed_secs is not None:  # monotonic, so comparable with the session's own
        seen_at = latest = session.started_at + later.previous_elapsed_secs
    else:
        latest = later.started_at if later.started_at is not None else seen_at
    return _completed(facts, seen_at, latest, later.previous_step, is_exact=later.previous_step_exact)


CLOCKS_SECS = 86400.0
"""By how much the clock of who records a death may be behind that of the session."""


def dead_session(facts: SessionFacts, death: DeathRecord, recorded_at: float = math.inf) -> SessionFacts:
    """Return a session without a stop record whose process is over, completed by what is known of its death.

    Args:
        facts: the session.
        death: what is known.
        recorded_at: when that was recorded, by another clock: the last sign of life was not much later, whatever a
            file says.
    """
    session = facts.session
    seen_at = session.ended_at or 0.0
    if death.elapsed_secs is not None and session.started_at is not None:
        seen_at = min(session.started_at + death.elapsed_secs, max(seen_at, recorded_at + CLOCKS_SECS))
    stall = death.stall
    if stall is not None:  # its times, by the session's own clocks
        since = seen_at - stall.secs
        blocked_since = None if stall.blocked_since is None else since + (stall.blocked_since - stall.since)
        stall = replace(stall, since=since, blocked_since=blocked_since)
        facts = replace(facts, is_stalled=True, stalls=with_stall(facts.stalls, session.id, stall))
        session = replace(session, phase=stall.phase, last_progress_at=since, progress_timeout_secs=stall.timeout_secs)
    stalled_since = None if stall is None else stall.since
    facts = replace(facts, session=replace(session, gone=True))
    return _completed(facts, seen_at, seen_at, death.step, is_exact=death.step_exact, stalled_since=stalled_since)


def _completed(
    facts: SessionFacts,
    seen_at: float,
    latest: float,
    step: int | None,
    *,
    is_exact: bool,
    stalled_since: float | None = None,
) -> SessionFacts:
    """Return a session without a stop record that was last seen at a time, and a step, that its events do not have."""
    session = facts.session
    if session.inferred or session.outcome != "running" or session.started_at is None or session.ended_at is None:
        return facts
    ended_at = max(session.ended_at, min(seen_at, latest))
    likely_unseen_secs = facts.likely_unseen_secs
    most_unseen_secs = facts.most_unseen_secs
    renewal_secs = REMOTE_RENEWAL_SECS if any("://" in path for path in session.files) else RENEWAL_SECS
    is_known = most_unseen_secs == 0.0  # its exact step, by the record of its death
    if not is_known and ended_at - seen_at < renewal_secs:  # else the lease would have been renewed once more
        likely_unseen_secs = min(likely_unseen_secs, renewal_secs / 2)
        most_unseen_secs = max(0.0, seen_at + renewal_secs - ended_at) + LATE_SECS
    if stalled_since is None and facts.is_stalled:
        stalled_since = session.ended_at
    steps = [session.last_step]
    if not facts.recoveries or seen_at >= facts.recoveries[-1].at:  # else the step is from before the recovery
        steps.append(step)
    last_step = max((found for found in steps if found is not None), default=None)
    if is_exact and step is not None:
        last_step, most_unseen_secs = step, 0.0
        if facts.most_steps_per_sec:  # it died before its next step, or the next second's sign of life
            likely_unseen_secs = min(likely_unseen_secs, 0.5 / facts.most_steps_per_sec)
    activity = dict(session.activity_secs)
    phase = phase_since(session, last_step)
    for bucket, secs in spent(session.ended_at, ended_at, phase, stalled_since).items():
        activity[bucket] = activity.get(bucket, 0.0) + secs
    return replace(
        facts,
        session=replace(session, ended_at=ended_at, last_step=last_step, activity_secs=activity),
        curves=(
            *facts.curves[:-1],
            facts.curves[-1].extended(session.first_step, last_step, activity.get("productive", 0.0)),
        ),
        likely_unseen_secs=likely_unseen_secs,
        most_unseen_secs=most_unseen_secs,
        most_steps_per_sec=_most(facts.most_steps_per_sec, session.first_step, last_step, activity),
    )


def _most(
    reported: float | None, first_step: int | None, last_step: int | None, secs: Mapping[str, float]
) -> float | None:
    productive = secs.get(PRODUCTIVE, 0.0)
    if first_step is None or last_step is None or productive <= 0:
        return reported
    return max(reported or 0.0, (last_step - first_step) / productive) or None
