"""`Timeline`: a run's sessions in order, and what follows from the order: outcomes, restarts, lost steps, goodput."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from supervisor_core.events.record_fields import replaced
from supervisor_core.run.fold.end import RECORDED, end_by_launch, end_by_next, ended, outcome_before
from supervisor_core.run.fold.goodput import COMPLETED, GoodputWalk
from supervisor_core.run.fold.session_facts import SessionFacts
from supervisor_core.run.fold.session_fold import CLOCK_SET_SECS, NOTHING, WorkerReport, merged_history, natural_order
from supervisor_core.run.model.checkpoints import Checkpoint, passed_over
from supervisor_core.run.model.program_launch import ProgramLaunch
from supervisor_core.run.model.run import (
    Recovery,
    Restart,
    RunHistory,
    Session,
    ThreadHistory,
    rewound,
)

OUTLIVES_SECS = 120.0
"""A session outlives a newer one without a record of its end if it writes this long after it."""
RATE_MARGIN = 2.0
"""An unseen session may have been faster than its highest reported rate by this factor."""


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
    facts: Iterable[SessionFacts],
    launches: Sequence[ProgramLaunch],
    kept_spans: int | None = None,
    written: Mapping[str, float] = NOTHING,
) -> Timeline:
    """Return the timeline of sessions given in any order.

    Args:
        facts: each session by itself.
        launches: of its program, in order.
        kept_spans: how many of each worker's newest spans are kept; None: all.
        written: when each events file was last written, by path and by one clock.
    """
    ordered = _with_living_last(in_order(facts), written)
    if ordered and not ordered[-1].ended_itself and not ordered[-1].session.gone:
        ordered[-1] = ended(ordered[-1], end_by_launch(ordered[-1].session, launches))
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
            facts = ended(facts, end_by_next(facts.session, following.session))
        self._attempt = max(self._attempt + 1, facts.session.attempt)
        outcome = facts.session.outcome if following is None else outcome_before(facts, following)
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

    Attempts are compared within one count, which restarts where the liveness file was deleted. Sessions without an
    attempt are inserted by time.
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


def _with_living_last(ordered: list[SessionFacts], written: Mapping[str, float]) -> list[SessionFacts]:
    """Return sessions in order, but last the one that outlives the newest: two chiefs may write in one logdir
    (``exclusive_logdir=False``). It resumed nothing after the other. In a copy, files are later than their events."""
    if len(ordered) < 2 or ordered[-1].session.inferred:
        return ordered

    def written_at(facts: SessionFacts) -> float:
        return max((written.get(path, -math.inf) for path in facts.session.files), default=-math.inf)

    newest = ordered[-1]
    silent_secs = OUTLIVES_SECS if newest.session.is_open else 0.0
    for index in reversed(range(len(ordered) - 1)):
        session, at = ordered[index].session, written_at(ordered[index])
        is_own = not (session.inferred or session.gone) and at <= (session.ended_at or 0.0) + OUTLIVES_SECS
        if is_own and at > written_at(newest) + silent_secs:
            living = replace(ordered[index], session=replaced(session, adopted=True))
            return [*ordered[:index], *ordered[index + 1 :], living]
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
    if before.outcome in RECORDED:
        return max(0, from_step - to_step)
    if facts.most_unseen_secs is None or facts.most_steps_per_sec is None:
        return None
    most_unseen_secs = facts.most_unseen_secs if downtime is None else min(facts.most_unseen_secs, downtime)
    return max(0, from_step + math.ceil(RATE_MARGIN * facts.most_steps_per_sec * most_unseen_secs) - to_step)
