"""`session_rows`: the sessions of a run as rows, each with where its time went within a window.

The rows of a run sum to its `Goodput`. A report of a fleet sums rows.

A session that the window cuts is divided by when each thing happened: it starts and restores first; stalls, silences
and saves are where they were recorded; steps that were repeated later are its last ones. What is left is spread evenly.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from supervisor_core.run.judge.counters import unplanned_ends
from supervisor_core.run.model.checkpoints import Checkpoint
from supervisor_core.run.model.run import AT_RISK, PRODUCTIVE, SILENT, STALL, WASTED, Outcome, Run, Session, SessionTime

_STARTING, _RESTORING, _SAVING = "program_startup", "checkpoint_restore", "unproductive_checkpoint_save"

_ROUNDING_SECS = 1e-6
"""What is left of sums that are equal but for rounding."""

_Span = tuple[float, float]
_Content = tuple[Sequence[_Span], Mapping[str, float]]
"""Spans of time, and the seconds by bucket that are spread evenly over them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRow:
    """One session of a run within a window, with the time after it until the next one."""

    run: str
    session: str
    attempt: int
    since: float
    """The begin of the window."""
    host: str | None
    """On which it ran; of several processes the host of the one that wrote its records."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Those of the session, else of the run."""
    world_size: int | None = None
    device_kind: str | None = None
    device_count: int | None = None
    started_at: float | None
    ended_at: float | None
    """When it ended; of an open session, the time of its last event."""
    outcome: Outcome
    """``running`` also of a session that ended after the window."""
    reason: str | None = None
    """Of an unplanned end within the window: ``lost``, ``error``, or what the restarter says, ``oom`` or ``hang``."""
    is_failure: bool = False
    """Whether that end counts: in a row of failures those that did no step do not, but for the first."""
    has_trained: bool = False
    """Whether it did a step. One that did not has failed by its program rather than by its host."""
    alive_secs: float
    """How long it ran within the window."""
    secs: Mapping[str, float]
    """Seconds by `BUCKETS` and ``at_risk`` within the window, the time after it included; empty without telemetry."""
    unknown_secs: float = 0.0
    """The same of a session without telemetry, of which no bucket is known."""

    @property
    def devices(self) -> int:
        """The weight of its time: its devices; where their number is unknown its processes; else 1."""
        return self.device_count or self.world_size or 1

    @property
    def wall_secs(self) -> float:
        """All its seconds within the window."""
        return sum(self.secs.values()) + self.unknown_secs


def session_rows(run: Run, since: float = -math.inf, until: float = math.inf) -> list[SessionRow]:
    """Return the sessions of a run that have time within a window, in order.

    Args:
        run: the run.
        since: wall time of the window's begin. Default: all.
        until: wall time of its end. Default: now.
    """
    parts = _Parts(run)
    found = (parts.row(index, since, until) for index in range(len(run.sessions)))
    return [row for row in found if row is not None]


class _Parts:
    """What the rows of a run are made of."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._contents, self._failures, self._sizes = _contents(run), _failures(run), _sizes(run)

    def row(self, index: int, since: float, until: float) -> SessionRow | None:
        """Return the row of a session within a window; None where it has no time in it."""
        run, session = self._run, self._run.sessions[index]
        own, after = self._contents[index]
        begin, end = session.started_at, session.ended_at
        if begin is None or end is None:
            return None
        alive_secs = max(0.0, min(end, until) - max(begin, since))
        secs = _cut((*own, *after), since, until)
        ended = since <= end < until
        if not secs and not alive_secs and not (ended and session.outcome != "running"):
            return None
        reason, is_failure = self._failures[index] if ended else (None, False)
        world_size, kind, devices = self._sizes[index]
        return SessionRow(
            run=run.name,
            session=session.id,
            attempt=session.attempt,
            since=since,
            host=session.host,
            labels=session.labels or run.labels,
            world_size=world_size,
            device_kind=kind,
            device_count=devices,
            started_at=begin,
            ended_at=end,
            outcome=session.outcome if end < until else "running",
            reason=reason,
            is_failure=is_failure,
            has_trained=_has_trained(session),
            alive_secs=alive_secs,
            secs={} if session.inferred else secs,
            unknown_secs=sum(secs.values()) if session.inferred else 0.0,
        )


def _sizes(run: Run) -> list[tuple[int | None, str | None, int | None]]:
    """Return world size, kind and number of devices of each session; of one that died before it recorded them, those of
    the one before it, else of the next."""
    own = [(each.world_size, each.device_kind, each.device_count) for each in run.sessions]
    for order in (range(1, len(own)), range(len(own) - 2, -1, -1)):
        for index in order:
            neighbour = own[index - order.step]
            if own[index] == (None, None, None):
                own[index] = neighbour
    return own


def _failures(run: Run) -> list[tuple[str | None, bool]]:
    """Return of each session why it ended, if that was not planned, and whether that counts as a failure."""
    found: list[tuple[str | None, bool]] = []
    for session, reason in zip(run.sessions, unplanned_ends(run), strict=True):
        was_failure = bool(found) and found[-1][0] is not None
        found.append((reason, reason is not None and (_has_trained(session) or not was_failure)))
    return found


def _has_trained(session: Session) -> bool:
    return (session.last_step or 0) > (session.first_step or 0)


def _contents(run: Run) -> list[tuple[list[_Content], list[_Content]]]:
    """Return the time of each session, and that after it until the next one.

    The newest session gets what the run's goodput has beyond all that, the time since its last event."""
    goodput = run.goodput
    times = [*goodput.by_session, *[SessionTime()] * len(run.sessions)][: len(run.sessions)]
    is_at_risk = goodput.secs.get(AT_RISK, 0.0) > 0
    rest = defaultdict(float, goodput.secs)
    secs_of: list[dict[str, float]] = []
    for session, time in zip(run.sessions, times, strict=True):
        secs = _own_secs(session, time, time.at_risk_secs if is_at_risk else 0.0)
        secs_of.append(secs)
        for bucket, value in (*secs.items(), *time.after):
            rest[bucket] -= value
    if all(session.inferred for session in run.sessions):  # `Goodput` calls all of it ``other``
        rest = defaultdict(float, {PRODUCTIVE: sum(rest.values())})
    found = []
    for index, (session, time, secs) in enumerate(zip(run.sessions, times, secs_of, strict=True)):
        after = time.after
        if index == len(run.sessions) - 1:
            for bucket, value in rest.items():
                if value < 0:
                    secs[bucket] = max(0.0, secs.get(bucket, 0.0) + value)
            after = (*after, *((bucket, value) for bucket, value in rest.items() if value > _ROUNDING_SECS))
        found.append((_placed(run, session, time.share, secs), _following(session.ended_at or 0.0, after)))
    return found


def _own_secs(session: Session, time: SessionTime, at_risk_secs: float) -> dict[str, float]:
    secs = {bucket: value * time.share for bucket, value in session.activity_secs.items() if value}
    productive = secs.get(PRODUCTIVE, 0.0)
    wasted = min(time.wasted_secs, productive)
    at_risk = min(at_risk_secs, productive - wasted)
    secs[PRODUCTIVE] = productive - wasted - at_risk
    secs[WASTED] = secs.get(WASTED, 0.0) + wasted
    secs[AT_RISK] = at_risk
    return secs


def _following(end: float, after: Iterable[tuple[str, float]]) -> list[_Content]:
    """Return the time after a session: one thing after the other."""
    found: list[_Content] = []
    for bucket, secs in after:
        found.append((((end, end + secs),), {bucket: secs}))
        end += secs
    return found


def _placed(run: Run, session: Session, share: float, secs: Mapping[str, float]) -> list[_Content]:
    """Return where a session's own seconds lie within it."""
    begin, end = session.started_at or 0.0, session.ended_at or 0.0
    begin = end - (end - begin) * share
    startup, restore = (min(secs.get(bucket, 0.0), end - begin) for bucket in (_STARTING, _RESTORING))
    ready = min(end, begin + startup + restore)
    known = [
        ([(begin, begin + startup)], {_STARTING: startup}),
        ([(begin + startup, ready)], {_RESTORING: secs.get(_RESTORING, 0.0)}),
    ]
    recorded = {
        STALL: [(each.since, end if each.until is None else each.until) for each in run.stalls],
        SILENT: [(each.since, each.until) for each in run.silences if each.session == session.id],
        _SAVING: [_blocked(saved) for saved in run.checkpoints if saved.session == session.id],
    }
    taken: list[_Span] = []
    for bucket, spans in recorded.items():
        inside = _without(_union((max(since, ready), min(until, end)) for since, until in spans), taken)
        length = sum(until - since for since, until in inside)
        if secs.get(bucket) and inside:
            inside, _ = _divided(inside, min(1.0, secs[bucket] / length))  # it may have been over before its record
            known.append((inside, {bucket: secs[bucket]}))
            taken = _union((*taken, *inside))
    booked = {bucket for _, content in known for bucket in content}
    free = _without([(ready, end)], taken) or [(begin, end)]
    late = {bucket: secs[bucket] for bucket in (WASTED, AT_RISK) if secs.get(bucket)}
    early = {bucket: value for bucket, value in secs.items() if value and bucket not in booked and bucket not in late}
    stepping = early.get(PRODUCTIVE, 0.0) + sum(late.values())
    part = sum(late.values()) / stepping if stepping else 0.0
    if not part or session.recoveries:  # a recovery repeats steps somewhere before the end
        return [*known, (free, {**early, **late})]
    other = {bucket: value for bucket, value in early.items() if bucket != PRODUCTIVE}
    first, last = _divided(free, 1.0 - part)
    before = {bucket: value * (1.0 - part) for bucket, value in other.items()}
    before[PRODUCTIVE] = early.get(PRODUCTIVE, 0.0)
    late.update((bucket, value * part) for bucket, value in other.items())
    return [*known, (first or free, before), (last or free, late)]


def _blocked(saved: Checkpoint) -> _Span:
    """Return when a save blocked training: from its start on."""
    blocked_secs = saved.blocked_secs or 0.0
    since = (saved.at or 0.0) - max(saved.secs or 0.0, blocked_secs)
    return since, since + blocked_secs


def _union(spans: Iterable[_Span]) -> list[_Span]:
    """Return spans in order, those that overlap as one; without those that have no length."""
    found: list[_Span] = []
    for since, until in sorted(spans):
        if until <= since:
            continue
        if found and since <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], until))
        else:
            found.append((since, until))
    return found


def _without(spans: Iterable[_Span], taken: Sequence[_Span]) -> list[_Span]:
    """Return the parts of spans that lie in none of those that are taken, which are in order."""
    found = []
    for since, until in spans:
        for begin, end in taken:
            if begin < until and end > since:
                found.append((since, begin))
                since = max(since, end)
        found.append((since, until))
    return [span for span in found if span[1] > span[0]]


def _divided(spans: Sequence[_Span], share: float) -> tuple[list[_Span], list[_Span]]:
    """Return the first part of spans, a share of their length, and the rest."""
    left = share * sum(until - since for since, until in spans)
    first, last = [], []
    for since, until in spans:
        middle = min(until, since + max(0.0, left))
        left -= until - since
        first.append((since, middle))
        last.append((middle, until))
    return _union(first), _union(last)


def _cut(contents: Iterable[_Content], since: float, until: float) -> dict[str, float]:
    """Return the seconds by bucket of what lies within a window."""
    found: defaultdict[str, float] = defaultdict(float)
    for spans, secs in contents:
        total = sum(end - begin for begin, end in spans)
        inside = sum(max(0.0, min(end, until) - max(begin, since)) for begin, end in spans)
        is_inside = bool(spans) and since <= spans[0][0] < until
        part = inside / total if total > 0 else float(is_inside)  # without a span, by two clocks: as one moment
        if part:
            for bucket, value in secs.items():
                found[bucket] += value * part
    return {bucket: value for bucket, value in found.items() if value}
