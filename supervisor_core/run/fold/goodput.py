"""`GoodputWalk`: where a run's wall time went, session by session.

Each second from the run's first start to its end is booked to one bucket: a session's seconds as it reported them, the
time between two sessions, and, taken out of the productive seconds, those of steps that were repeated after a restart
or a recovery. A session without a stop record died between two heartbeats: half of that time counts as its own and as
lost work, unless the next one found the model alive. The time after a completed session is no part of the run's wall
time: there was nothing to train.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from supervisor_core.run.fold.session_facts import SessionFacts
from supervisor_core.run.fold.step_time_curve import StepTimeCurve
from supervisor_core.run.model.run import (
    AT_RISK,
    BUCKET_OF_PHASE,
    BUCKETS,
    DOWNTIME,
    PRODUCTIVE,
    STALL,
    STATE_OF_OUTCOME,
    WASTED,
    Goodput,
    RunState,
    Session,
    SessionTime,
)

COMPLETED = frozenset(outcome for outcome, state in STATE_OF_OUTCOME.items() if state == "completed")
"""Outcomes of sessions that had nothing more to train."""


GIVEN_UP_SECS = 86400.0
"""After how long a run that is lost or has failed, and was not started again, counts as given up. Then its wall time
ends with its death. Its alert ends then, too."""


CERTAIN_SECS = 2.0
"""By how much the start of a session may be later than its first heartbeat says."""


def is_down(state: RunState, last: Session, now: float) -> bool:
    """Return whether the time since the end of a run's newest session is downtime: it should be started again.

    Args:
        state: of the run.
        last: its newest session.
        now: the present wall time.
    """
    if state not in ("lost", "failed") or last.inferred or last.ended_at is None:
        return False
    return 0 < now - last.ended_at <= GIVEN_UP_SECS


class _Kept(NamedTuple):
    """Steps of a session, up to its end or to a recovery, that were not repeated later."""

    step: int
    """The last of them."""
    secs: float
    """The session's productive seconds at the end of that step."""
    curve: StepTimeCurve
    share: float
    """The part of the session's time that counts; in the rest another session ran at the same time."""
    is_lost: bool
    order: int
    """The session's, among those that were added."""


class _Later(NamedTuple):
    """What `_kept` has after a step."""

    secs: tuple[tuple[int, float], ...]
    """Productive seconds by the order of their session."""
    first: int
    """The number of items that lie before the step, in full or in part."""
    part: _Kept | None
    """The part of the next item before it."""

    @property
    def total_secs(self) -> float:
        return sum(secs for _, secs in self.secs)


class GoodputWalk:
    """Books a run's sessions, each once and in order; see the module's docstring."""

    def __init__(self) -> None:
        self._secs = dict.fromkeys(BUCKETS, 0.0)
        self._booked = dict.fromkeys(BUCKETS, 0.0)
        self._lost = {bucket: 0.0 for bucket in BUCKETS if bucket != PRODUCTIVE}
        self._weights: list[int] = []
        self._gross = self._most = 0.0
        self._until: float | None = None
        self._kept: list[_Kept] = []
        self._times: list[SessionTime] = []
        self._inferred = self._has_telemetry = False
        self._unseen = (0.0, DOWNTIME)
        self._most_unseen = 0.0
        self._is_completed = False

    def add(self, facts: SessionFacts, *, has_ended: bool, clock_set_by: float = 0.0) -> None:
        """Book the next session.

        Args:
            facts: the session.
            has_ended: whether it has ended, so that all its seconds are final.
            clock_set_by: by how much its wall clock is ahead of that of the session before it.
        """
        session = facts.session
        if self._until is not None:
            self._until += clock_set_by
        self._inferred |= session.inferred
        self._has_telemetry |= not session.inferred
        weight = self._weights[-1] if self._weights else 1
        self._weights.append(session.weight or weight)
        first_step = facts.curves[0].first_step
        if first_step is not None and not session.adopted:
            self._redo_from(first_step)
        is_weight_final = has_ended or session.weight is not None  # else it may still record a smaller one
        productive = self._book(facts, has_ended, self._weights[-1] if is_weight_final else 1)
        if session.started_at is None or session.ended_at is None:
            self._times.append(SessionTime())
            self._book_productive(productive)
            return
        begin = session.started_at
        if self._until is not None:
            if session.adopted and self._unseen[1] == WASTED:
                self._unseen = (self._unseen[0], PRODUCTIVE)
            if not self._is_completed:
                is_final = facts.is_start_exact or has_ended
                self._add_gap(session.started_at - self._until, weight, is_final=is_final)
            begin = max(begin, self._until)
        own = session.ended_at - session.started_at
        share = max(0.0, session.ended_at - begin) / own if own > 0 else 0.0
        for bucket, secs in session.activity_secs.items():
            self._secs[bucket] += secs * share
        self._times.append(SessionTime(share=share))
        self._keep(facts, productive, share)
        self._until = max(session.ended_at, begin)
        self._unseen, self._most_unseen = (0.0, DOWNTIME), 0.0
        self._is_completed = session.outcome in COMPLETED
        if session.outcome == "running":
            phase = WASTED if session.phase == "training" else BUCKET_OF_PHASE.get(session.phase or "", "other")
            self._unseen = (facts.likely_unseen_secs, STALL if facts.is_stalled else phase)
            self._most_unseen = facts.most_unseen_secs or 0.0

    def value(
        self, now: float | None, bucket: str, at_risk_after: int | None = None, wasted_after: int | None = None
    ) -> Goodput:
        """Return the goodput of all sessions so far.

        Args:
            now: the present time of a run that is live or down; None of one that has ended.
            bucket: the bucket of the time since the last event.
            at_risk_after: the last step that is not at risk; None where none are.
            wasted_after: the last step before the loss was not finite; None while it is.
        """
        secs = {PRODUCTIVE: self._secs[PRODUCTIVE], AT_RISK: 0.0, **self._secs}
        times = list(self._times)
        wasted = _Later((), 0, None) if wasted_after is None else self._after(wasted_after)
        for order, lost in wasted.secs:
            times[order] = times[order]._replace(wasted_secs=times[order].wasted_secs + lost)
        lost = max(0.0, min(wasted.total_secs, secs[PRODUCTIVE]))
        secs[WASTED] += lost
        secs[PRODUCTIVE] -= lost
        if at_risk_after is not None:
            later, useless = self._after(at_risk_after), Counter(dict(wasted.secs))
            risks = [(order, max(0.0, at_risk - useless[order])) for order, at_risk in later.secs]
            for order, at_risk in risks:
                times[order] = times[order]._replace(at_risk_secs=times[order].at_risk_secs + at_risk)
            secs[AT_RISK] = max(0.0, min(sum(at_risk for _, at_risk in risks), secs[PRODUCTIVE]))
            secs[PRODUCTIVE] -= secs[AT_RISK]
        unseen = 0.0
        if now is not None and self._until is not None and now > self._until:
            unseen = now - self._until
            is_useless = bucket == PRODUCTIVE and wasted_after is not None
            is_at_risk = bucket == PRODUCTIVE and at_risk_after is not None
            secs[WASTED if is_useless else AT_RISK if is_at_risk else bucket] += unseen
        secs = {name: max(0.0, value) for name, value in secs.items()}
        if not self._has_telemetry:  # without telemetry the use of time is unknown
            secs["other"], secs[PRODUCTIVE] = secs["other"] + secs[PRODUCTIVE], 0.0
        wall = sum(secs.values())
        lived = wall - (unseen if bucket == DOWNTIME else 0.0)
        return Goodput(
            wall_secs=wall,
            secs=secs,
            booked_secs=dict(self._booked),
            lost_process_secs=dict(self._lost),
            weight=self._weights[-1] if self._weights else 1,
            ratio=secs[PRODUCTIVE] / lived if lived > 0 and not self._inferred else None,
            inferred=self._inferred,
            by_session=tuple(times),
        )

    def _add_gap(self, gap: float, weight: int, *, is_final: bool) -> None:
        """Book the time between two sessions: first the time that the earlier one probably ran on, then downtime.

        Args:
            gap: seconds between the two.
            weight: of the earlier one.
            is_final: whether the start of the later one is exact; else what is downtime for certain is booked.
        """
        if gap <= 0:
            return
        unseen, bucket = self._unseen
        ran_on = min(gap, unseen)
        self._secs[bucket] += ran_on
        self._secs[DOWNTIME] += gap - ran_on
        after = tuple(each for each in ((bucket, ran_on), (DOWNTIME, gap - ran_on)) if each[1])
        self._times[-1] = self._times[-1]._replace(after=after)
        if not is_final:
            self._book_lost(DOWNTIME, max(0.0, gap - self._most_unseen - CERTAIN_SECS), weight)
            return
        if bucket == PRODUCTIVE:
            self._book_productive(ran_on)
        else:
            self._book_lost(bucket, ran_on, weight)
        self._book_lost(DOWNTIME, gap - ran_on, weight)

    def _keep(self, facts: SessionFacts, productive: float, share: float) -> None:
        """Book the session's productive seconds, without those of steps that it repeated itself."""
        counted = 0.0
        for index, curve in enumerate(facts.curves):
            is_last = index == len(facts.curves) - 1
            if index and curve.first_step is not None:
                self._redo_from(curve.first_step)
            until = productive if is_last else min(curve.end_secs, productive)
            self._book_productive(until - counted)
            counted = until
            if curve.last_step is not None and curve.first_step is not None:
                is_lost = not is_last or facts.session.outcome == "running"
                kept = _Kept(curve.last_step, curve.end_secs, curve, share, is_lost, len(self._times) - 1)
                self._kept.append(kept)

    def _redo_from(self, step: int) -> None:
        """Move the productive seconds of all steps after ``step`` to the wasted bucket."""
        later = self._after(step)
        wasted = later.total_secs
        del self._kept[later.first :]
        if later.part is not None:
            self._kept.append(later.part)
        for order, secs in later.secs:
            self._times[order] = self._times[order]._replace(wasted_secs=self._times[order].wasted_secs + secs)
        self._gross -= wasted
        for order, secs in later.secs:  # in full: `_secs` may lack a rounding error of it
            self._book_lost(WASTED, secs, self._weights[order])
        wasted = min(wasted, self._secs[PRODUCTIVE])
        self._secs[PRODUCTIVE] -= wasted
        self._secs[WASTED] += wasted

    def _after(self, step: int) -> _Later:
        """Return the productive seconds of all steps after ``step``."""
        found: list[tuple[int, float]] = []
        index = len(self._kept)
        while index and self._kept[index - 1].step >= step:
            index -= 1
            kept = self._kept[index]
            first = kept.curve.first_step or 0
            secs = kept.secs
            if step < kept.step or kept.is_lost:  # a lost session had begun its next step
                secs = min(secs, kept.curve.secs_at(max(step, first)))
            found.append((kept.order, (kept.secs - secs) * kept.share))
            if step > first:
                return _Later(tuple(found), index, kept._replace(step=step, secs=secs))
        return _Later(tuple(found), index, None)

    def _book(self, facts: SessionFacts, has_ended: bool, weight: int) -> float:
        """Book the final seconds of the session, except the productive ones; return those."""
        booked: Mapping[str, float] = facts.session.reported_secs
        if has_ended:
            full = facts.session.activity_secs
            booked = {bucket: max(secs, booked.get(bucket, 0.0)) for bucket, secs in full.items()}
        for bucket, secs in booked.items():
            if bucket != PRODUCTIVE:
                self._book_lost(bucket, secs, weight)
        return booked.get(PRODUCTIVE, 0.0)

    def _book_lost(self, bucket: str, secs: float, weight: int) -> None:
        self._booked[bucket] += secs
        self._lost[bucket] += secs * weight

    def _book_productive(self, secs: float) -> None:
        """Book productive seconds; the counter keeps their maximum."""
        self._gross += secs
        self._most = max(self._most, self._gross)
        self._booked[PRODUCTIVE] = self._most


def phase_since(session: Session, step: int | None) -> str | None:
    """Return the phase of a session after its last event: that of its last record, but training where it did steps
    since. On a full disk the last phase that could be recorded is often a save's.

    Args:
        session: as its events have it.
        step: the last step that it is known to have reached; None where that is unknown.
    """
    reached = session.first_step if session.last_step is None else session.last_step
    has_trained = step is not None and reached is not None and step > reached
    return "training" if has_trained else session.phase


def spent(since: float, until: float, phase: str | None, stalled_since: float | None) -> dict[str, float]:
    """Return the seconds from one wall time to a later one by `BUCKETS`: those of the phase, then those of the stall.

    Args:
        since: the begin.
        until: the end.
        phase: of the session.
        stalled_since: the last progress before the stall; None without one.
    """
    turn = until if stalled_since is None else min(max(since, stalled_since), until)
    found = {BUCKET_OF_PHASE.get(phase or "", "other"): max(0.0, turn - since), STALL: max(0.0, until - turn)}
    return {bucket: secs for bucket, secs in found.items() if secs}
