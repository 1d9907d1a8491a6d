"""`session_rows`: the sessions of a run as rows, each with where its time went within a window.

The rows of a run sum to its `Goodput`. A report of a fleet sums rows.

A session that the window cuts is divided by when each thing happened: it starts and restores first; stalls, silences
and saves are where they were recorded; steps that were repeated later are its last ones. What is left is spread evenly.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from supervisor_core.run.judge.counters import unplanned_ends
from supervisor_core.run.model.run import AT_RISK, PRODUCTIVE, SILENT, STALL, WASTED, Run, Session, SessionTime

_STARTING, _RESTORING, _SAVING = "program_startup", "checkpoint_restore", "unproductive_checkpoint_save"

_ROUNDING_SECS = 1e-6
"""What is left of sums that are equal but for rounding."""

_Span = tuple[float, float]
_Part = tuple[float, float, Mapping[str, float]]
"""From when to when, and the seconds by bucket that are spread evenly over that time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRow:
    """One session of a run within a window, with the time after it until the next one."""

    run: str
    session: Session
    labels: Mapping[str, str] = field(default_factory=dict)
    """Those of the session, else of the run."""
    world_size: int | None = None
    device_kind: str | None = None
    device_count: int | None = None
    """Of a session that died before it recorded the three, those of its neighbour."""
    reason: str | None = None
    """Of an unplanned end within the window: ``lost``, ``error``, or what the restarter says, ``oom`` or ``hang``."""
    is_failure: bool = False
    """Whether that end counts: in a row of failures those that did no step do not, but for the first."""
    alive_secs: float
    """How long it ran within the window."""
    secs: Mapping[str, float]
    """Seconds by `BUCKETS` and ``at_risk`` within the window, the time after it included; empty without telemetry."""
    unknown_secs: float = 0.0
    """The same of a session without telemetry, of which no bucket is known."""

    @property
    def host(self) -> str | None:
        """Where it ran; of several processes the host of the one that wrote its records."""
        return self.session.host

    @property
    def devices(self) -> int:
        """The weight of its time: its devices; where their number is unknown its processes; else 1."""
        return self.device_count or self.world_size or 1

    @property
    def wall_secs(self) -> float:
        """All its seconds within the window."""
        return sum(self.secs.values()) + self.unknown_secs

    @property
    def has_trained(self) -> bool:
        """Whether it did a step. One that did not has failed by its program rather than by its host."""
        return _has_trained(self.session)


def session_rows(run: Run, since: float = -math.inf, until: float = math.inf) -> list[SessionRow]:
    """Return the sessions of a run that have time within a window, in order.

    Args:
        run: the run.
        since: wall time of the window's begin. Default: all.
        until: wall time of its end. Default: now.
    """
    rows = []
    for session, parts, failure, size in zip(run.sessions, _parts(run), _failures(run), _sizes(run), strict=True):
        begin, end = session.started_at, session.ended_at
        if begin is None or end is None:
            continue
        alive_secs = max(0.0, min(end, until) - max(begin, since))
        secs = _cut(parts, since, until)
        has_ended = since <= end < until
        if not secs and not alive_secs and not (has_ended and not session.is_open):
            continue
        reason, is_failure = failure if has_ended else (None, False)
        world_size, kind, devices = size
        row = SessionRow(
            run=run.name,
            session=session,
            labels=session.labels or run.labels,
            world_size=world_size,
            device_kind=kind,
            device_count=devices,
            reason=reason,
            is_failure=is_failure,
            alive_secs=alive_secs,
            secs={} if session.inferred else secs,
            unknown_secs=sum(secs.values()) if session.inferred else 0.0,
        )
        rows.append(row)
    return rows


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


def _parts(run: Run) -> list[list[_Part]]:
    """Return the time of each session, with that after it until the next one.

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
    recorded: defaultdict[str, dict[str, list[_Span]]] = defaultdict(lambda: {STALL: [], SILENT: [], _SAVING: []})
    for stall in run.stalls:
        recorded[stall.session][STALL].append((stall.since, math.inf if stall.until is None else stall.until))
    for silence in run.silences:
        recorded[silence.session][SILENT].append((silence.since, silence.until))
    for saved in run.checkpoints:
        blocked_secs = saved.blocked_secs or 0.0  # from its start on
        since = (saved.at or 0.0) - max(saved.secs or 0.0, blocked_secs)
        recorded[saved.session or ""][_SAVING].append((since, since + blocked_secs))
    found = []
    for session, time, secs in zip(run.sessions, times, secs_of, strict=True):
        after = time.after
        if session is run.sessions[-1]:
            for bucket, value in rest.items():
                if value < 0:
                    secs[bucket] = max(0.0, secs.get(bucket, 0.0) + value)
            after = (*after, *((bucket, value) for bucket, value in rest.items() if value > _ROUNDING_SECS))
        end, following = session.ended_at or 0.0, list[_Part]()
        for bucket, value in after:
            following.append((end, end + value, {bucket: value}))
            end += value
        found.append([*_placed(session, time.share, secs, recorded[session.id]), *following])
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


def _placed(
    session: Session, share: float, secs: Mapping[str, float], recorded: Mapping[str, Sequence[_Span]]
) -> Iterator[_Part]:
    """Yield where a session's own seconds lie within it.

    Args:
        session: the session.
        share: the last part of it, in which no other session ran.
        secs: by bucket.
        recorded: when it stalled, was silent, and was blocked by saves.
    """
    begin, end = session.started_at or 0.0, session.ended_at or 0.0
    begin = end - (end - begin) * share
    started = min(end, begin + secs.get(_STARTING, 0.0))
    ready = min(end, started + secs.get(_RESTORING, 0.0))
    spans = {_STARTING: [(begin, started)], _RESTORING: [(started, ready)]}
    for bucket, of_bucket in recorded.items():
        spans[bucket] = list(_booked(of_bucket, ready, end, secs.get(bucket, 0.0)))
    edges = {at for of_bucket in spans.values() for span in of_bucket for at in span}
    cells = [
        (since, until, next((bucket for bucket, of_bucket in spans.items() if _is_in(of_bucket, since)), ""))
        for since, until in pairwise(sorted({begin, end, *edges}))
    ]
    lengths: defaultdict[str, float] = defaultdict(float)
    for since, until, bucket in cells:
        lengths[bucket] += until - since
    if not lengths[""]:  # the times are by two clocks: what is in none of the spans happened in one moment
        cells.append((end, end, ""))
    late = {bucket: secs[bucket] for bucket in (WASTED, AT_RISK) if secs.get(bucket)}
    even = {bucket: value for bucket, value in secs.items() if bucket not in late and not lengths.get(bucket)}
    stepping = even.get(PRODUCTIVE, 0.0) + sum(late.values())
    part = sum(late.values()) / stepping if stepping and not session.recoveries else 0.0
    if not part:  # a recovery repeats steps somewhere before the end
        even, late = {**even, **late}, {}
    first = {bucket: value * (1.0 if bucket == PRODUCTIVE else 1.0 - part) for bucket, value in even.items()}
    last = {**late, **{bucket: value * part for bucket, value in even.items() if bucket != PRODUCTIVE}}
    left = turn = (1.0 - part) * lengths[""]
    for since, until, bucket in cells:
        if bucket:
            yield since, until, {bucket: secs[bucket] * (until - since) / lengths[bucket]}
        elif since == until:
            yield since, until, {**first, **last}
        else:
            middle = min(until, since + max(0.0, left)) if part else until
            left -= until - since
            for low, high, of, whole in ((since, middle, first, turn), (middle, until, last, lengths[""] - turn)):
                if high > low:
                    yield low, high, {bucket: value * (high - low) / whole for bucket, value in of.items()}


def _booked(spans: Iterable[_Span], begin: float, end: float, secs: float) -> Iterator[_Span]:
    """Yield the first of spans until their length is what was booked: one may have been over before its record."""
    for since, until in sorted(spans):
        since, until = max(since, begin), min(until, end, max(since, begin) + secs)
        if until > since:
            yield since, until
            begin, secs = until, secs - (until - since)


def _is_in(spans: Sequence[_Span], at: float) -> bool:
    index = bisect_right(spans, (at, math.inf)) - 1
    return index >= 0 and at < spans[index][1]


def _cut(parts: Iterable[_Part], since: float, until: float) -> dict[str, float]:
    """Return the seconds by bucket of what lies within a window."""
    found: defaultdict[str, float] = defaultdict(float)
    for begin, end, secs in parts:
        inside = max(0.0, min(end, until) - max(begin, since))
        part = inside / (end - begin) if end > begin else float(since <= begin < until)
        if part:
            for bucket, value in secs.items():
                found[bucket] += value * part
    return {bucket: value for bucket, value in found.items() if value}
