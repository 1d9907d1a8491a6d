"""`GoodputWalk`: where a run's wall time went, session by session.

Each second between the run's first start and its end goes into one bucket: a session's own seconds as it told them, the
time between two sessions, and, out of the productive seconds, those of the steps that a later session did again, or
the same one after a recovery. A session that left no word died somewhere between two heartbeats: half of that time
counts as its own, work that is lost, unless the next one found the model alive.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from supervisor_core.run.model import AT_RISK, BUCKET_OF_PHASE, BUCKETS, DOWNTIME, PRODUCTIVE, STALL, WASTED, Goodput
from supervisor_core.run.session_facts import SessionFacts
from supervisor_core.run.step_time_curve import Pace


class _Kept(NamedTuple):
    """Steps of a session, up to its end or to a recovery, that were not done again later."""

    step: int
    """The last of them."""
    secs: float
    """The session's productive seconds when it was through with them."""
    pace: Pace
    share: float
    """How much of the session's time counts; the rest was another's, who worked at the same time."""
    is_lost: bool


class GoodputWalk:
    """Walks over a run's sessions in their order, each once; see the module's docstring."""

    def __init__(self) -> None:
        self._secs = dict.fromkeys(BUCKETS, 0.0)
        self._booked = dict.fromkeys(BUCKETS, 0.0)
        self._gross = self._most = 0.0
        self._until: float | None = None
        self._kept: list[_Kept] = []
        self._inferred = self._told = False
        self._unheard = (0.0, DOWNTIME)

    def copy(self) -> GoodputWalk:
        """Return a walk that goes on by itself."""
        other = GoodputWalk()
        other._secs, other._booked, other._kept = dict(self._secs), dict(self._booked), list(self._kept)
        other._gross, other._most, other._until = self._gross, self._most, self._until
        other._inferred, other._told, other._unheard = self._inferred, self._told, self._unheard
        return other

    def add(self, facts: SessionFacts, *, is_over: bool, clock_set_by: float = 0.0) -> None:
        """Go on with the next session.

        Args:
            facts: what is known of it.
            is_over: whether it has ended, so that nothing of it is still to be decided.
            clock_set_by: by how much its wall clock is ahead of that of the session before it.
        """
        session = facts.session
        if self._until is not None:
            self._until += clock_set_by
        self._inferred |= session.inferred
        self._told |= not session.inferred
        first_step = facts.paces[0].first_step
        if first_step is not None and not session.adopted:
            self._redo_from(first_step)
        productive = self._book(facts, is_over)
        if session.started_at is None or session.ended_at is None:
            self._gain(productive)
            return
        begin = session.started_at
        if self._until is not None:
            if session.adopted and self._unheard[1] == WASTED:
                self._unheard = (self._unheard[0], PRODUCTIVE)
            self._add_gap(session.started_at - self._until, is_decided=facts.is_start_exact or is_over)
            begin = max(begin, self._until)
        own = session.ended_at - session.started_at
        share = max(0.0, session.ended_at - begin) / own if own > 0 else 0.0
        for bucket, secs in session.activity_secs.items():
            self._secs[bucket] += secs * share
        self._keep(facts, productive, share)
        self._until = max(session.ended_at, begin)
        self._unheard = (0.0, DOWNTIME)
        if session.outcome == "running":
            phase = WASTED if session.phase == "training" else BUCKET_OF_PHASE.get(session.phase or "", "other")
            self._unheard = (facts.unheard_secs, STALL if facts.is_stalled else phase)

    def value(self, now: float | None, bucket: str, at_risk_after: int | None = None) -> Goodput:
        """Return the whole.

        Args:
            now: until when the run goes on; None where it has ended.
            bucket: where the time since the last session was heard of goes.
            at_risk_after: the step after which steps are at risk; None where none are.
        """
        secs = {PRODUCTIVE: self._secs[PRODUCTIVE], AT_RISK: 0.0, **self._secs}
        if at_risk_after is not None:
            secs[AT_RISK] = max(0.0, min(self._after(at_risk_after)[0], secs[PRODUCTIVE]))
            secs[PRODUCTIVE] -= secs[AT_RISK]
        if now is not None and self._until is not None and now > self._until:
            secs[bucket] += now - self._until
        secs = {name: max(0.0, value) for name, value in secs.items()}
        if not self._told:  # nothing tells what its time went into
            secs["other"], secs[PRODUCTIVE] = secs["other"] + secs[PRODUCTIVE], 0.0
        wall = sum(secs.values())
        return Goodput(
            wall_secs=wall,
            secs=secs,
            booked_secs=dict(self._booked),
            ratio=secs[PRODUCTIVE] / wall if wall > 0 and not self._inferred else None,
            inferred=self._inferred,
        )

    def _add_gap(self, gap: float, *, is_decided: bool) -> None:
        """Count the time from one session to the next: what the earlier one probably lived on, and then downtime."""
        if gap <= 0:
            return
        unheard, bucket = self._unheard
        lived = min(gap, unheard)
        self._secs[bucket] += lived
        self._secs[DOWNTIME] += gap - lived
        if is_decided:
            if bucket == PRODUCTIVE:
                self._gain(lived)
            else:
                self._booked[bucket] += lived
            self._booked[DOWNTIME] += gap - lived

    def _keep(self, facts: SessionFacts, productive: float, share: float) -> None:
        """Count the session's productive seconds, and take back those of the steps that it did again itself."""
        counted = 0.0
        for index, pace in enumerate(facts.paces):
            is_last = index == len(facts.paces) - 1
            if index and pace.first_step is not None:
                self._redo_from(pace.first_step)
            until = productive if is_last else min(pace.end_secs, productive)
            self._gain(until - counted)
            counted = until
            if pace.last_step is not None and pace.first_step is not None:
                is_lost = not is_last or facts.session.outcome == "running"
                self._kept.append(_Kept(pace.last_step, pace.end_secs, pace, share, is_lost))

    def _redo_from(self, step: int) -> None:
        """Move the productive seconds of all steps after ``step`` to the wasted ones."""
        wasted, whole, part = self._after(step)
        del self._kept[whole:]
        if part is not None:
            self._kept.append(part)
        self._gross -= wasted
        self._booked[WASTED] += wasted  # as told: what is left of a session's seconds may still be rounded otherwise
        wasted = min(wasted, self._secs[PRODUCTIVE])
        self._secs[PRODUCTIVE] -= wasted
        self._secs[WASTED] += wasted

    def _after(self, step: int) -> tuple[float, int, _Kept | None]:
        """Return the productive seconds of all steps after ``step``; how many of `_kept` are before it as a whole; and
        what there is before it of the next one."""
        secs_after, index = 0.0, len(self._kept)
        while index and self._kept[index - 1].step >= step:
            index -= 1
            kept = self._kept[index]
            first = kept.pace.first_step or 0
            secs = kept.secs
            if step < kept.step or kept.is_lost:  # what was lost had begun to do more than its last known step
                secs = min(secs, kept.pace.secs_at(max(step, first)))
            secs_after += (kept.secs - secs) * kept.share
            if step > first:
                return secs_after, index, kept._replace(step=step, secs=secs)
        return secs_after, index, None

    def _book(self, facts: SessionFacts, is_over: bool) -> float:
        """Count what is decided of the session; return how many productive seconds are."""
        told: Mapping[str, float] = facts.told_secs
        if is_over:
            full = facts.session.activity_secs
            told = {bucket: max(secs, told.get(bucket, 0.0)) for bucket, secs in full.items()}
        for bucket, secs in told.items():
            if bucket != PRODUCTIVE:
                self._booked[bucket] += secs
        return told.get(PRODUCTIVE, 0.0)

    def _gain(self, secs: float) -> None:
        """Count productive seconds: as the most they ever were."""
        self._gross += secs
        self._most = max(self._most, self._gross)
        self._booked[PRODUCTIVE] = self._most


def without_risk(goodput: Goodput) -> Goodput:
    """Return the same account of a run that turns out to be alive: no step of it is at risk."""
    secs = {**goodput.secs, PRODUCTIVE: goodput.secs[PRODUCTIVE] + goodput.secs[AT_RISK], AT_RISK: 0.0}
    is_known = goodput.ratio is not None
    return replace(goodput, secs=secs, ratio=secs[PRODUCTIVE] / goodput.wall_secs if is_known else None)
