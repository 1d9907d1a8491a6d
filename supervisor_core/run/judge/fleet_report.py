"""`fleet_report`: what the runs of a fleet did with their time in a window, what failed, and what that cost.

Goodput is the effective training time ratio, ETTR, of Kokolis et al., "Revisiting Reliability in Large-Scale Machine
Learning Research Clusters" (arXiv 2410.21680), and of Wan et al., "Robust LLM Training Infrastructure at ByteDance"
(arXiv 2509.16293): productive time divided by wall time, here summed over runs, each weighted by its devices. Time in a
scheduler's queue counts as far as it lies between two sessions of a run. MTTF is that of the first paper: time in which
runs ran, divided by their failures.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from supervisor_core.run.judge.counters import unplanned_ends
from supervisor_core.run.model.run import AT_RISK, PRODUCTIVE, SILENT, STALL, WASTED, Run, Session, SessionTime
from supervisor_core.run.model.words import DAY_SECS

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


SUSPECT_RUNS = 3
"""A host is suspect only if at least this number of runs failed there: one run may fail by its own program."""
SUSPECT_FACTOR = 5.0
"""And if it has at least as many times the failures to expect from the time of runs of each size on all hosts."""
GROUPS = ("host", "run", "device_kind")
"""What a report can group by, besides labels."""
_MOST_SECS = 1e10
"""Of one session: three hundred years."""
LISTED = 20
"""Runs that are listed by cost."""


@dataclass(slots=True, kw_only=True)
class Usage:
    """Where the time of some sessions went. A device second is a second of wall time of a run, times its devices."""

    key: str | None = None
    """What they have in common; None of all, and of those of which it is unknown."""
    runs: int = 0
    sessions: int = 0
    wall_secs: float = 0.0
    unknown_device_secs: float = 0.0
    """Of sessions without telemetry, which no other figure counts."""
    secs: dict[str, float] = field(default_factory=dict)
    """Device seconds by `BUCKETS` and ``at_risk``."""
    by_reason: Counter[str] = field(default_factory=Counter)
    """Unplanned ends: ``lost``, ``error``, ``oom`` or ``hang``."""
    alive_secs: float = 0.0
    """The time in which sessions with telemetry ran, each session once, whatever its size."""
    alive_device_secs: float = 0.0

    @property
    def device_secs(self) -> float:
        """With telemetry."""
        return sum(self.secs.values())

    @property
    def lost_device_secs(self) -> float:
        """All but the productive ones."""
        return sum(secs for bucket, secs in self.secs.items() if bucket != PRODUCTIVE)

    @property
    def goodput(self) -> float | None:
        """Productive device seconds divided by `device_secs`: the ETTR."""
        total = self.device_secs
        return self.secs.get(PRODUCTIVE, 0.0) / total if total > 0 else None

    @property
    def failures(self) -> int:
        """Number of unplanned ends."""
        return self.by_reason.total()

    @property
    def mttf_secs(self) -> float | None:
        """Mean time to failure; None without one."""
        return self.alive_secs / self.failures if self.failures else None

    @property
    def per_1000_device_days(self) -> float | None:
        """Failures; None if no session with telemetry ran."""
        return 1000 * DAY_SECS * self.failures / self.alive_device_secs if self.alive_device_secs > 0 else None

    def add(self, row: SessionRow) -> None:
        """Add a session."""
        self.sessions += 1
        self.wall_secs += row.wall_secs
        self.unknown_device_secs += row.unknown_secs * row.devices
        for bucket, secs in row.secs.items():
            self.secs[bucket] = self.secs.get(bucket, 0.0) + secs * row.devices
        if not row.unknown_secs:
            self.alive_secs += row.alive_secs
            self.alive_device_secs += row.alive_secs * row.devices
        if row.is_failure and row.reason is not None:
            self.by_reason[row.reason] += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFailures:
    """The failures on one host, and those to expect."""

    host: str
    alive_secs: float
    """Its exposure: how long sessions with telemetry ran on it."""
    failures: int
    """Of sessions that did a step: without one, the program is the likelier cause."""
    expected: float
    """As many as it would have if each run failed as often as all of its size, wherever it runs."""
    runs: int
    """Runs that failed there."""
    is_suspect: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetReport:
    """A fleet in one window."""

    since: float | None
    """The begin of the window; without one, of the first session."""
    until: float
    by: str | None
    unsized_runs: int
    """Runs that record neither devices nor processes: they count as one device."""
    total: Usage
    groups: tuple[Usage, ...]
    """By `by`, what lost most first."""
    hosts_tested: int
    hosts: tuple[HostFailures, ...]
    """Those with failures, those with the most beyond the expected first."""
    costliest: tuple[Usage, ...]
    """Runs, those that lost most first."""


def fleet_report(
    runs: Iterable[Run],
    *,
    now: float,
    since: float | None = None,
    until: float | None = None,
    by: str | None = None,
) -> FleetReport:
    """Return what a fleet did in a window.

    Args:
        runs: all runs, no copies; each is looked at once.
        now: wall time of the look at them.
        since: begin of the window. Default: all that there is.
        until: its end. Default: now.
        by: what to group by as well: ``host``, ``run``, ``device_kind``, or the name of a label.

    Example:
        >>> fleet_report([], now=1795222244.0).total.runs
        0
    """
    total, groups, of_runs, unsized = Usage(), dict[str | None, Usage](), list[Usage](), 0
    placed, first_at = list[SessionRow](), math.inf
    begin, end = -math.inf if since is None else since, math.inf if until is None else until
    for run in runs:
        rows = [row for row in session_rows(run, begin, end) if _is_sound(row)]
        if not rows:
            continue
        own = Usage(key=run.name)
        touched = {id(usage): usage for usage in (own, total)}
        for row in rows:
            key = _key(row, by)
            group = groups.setdefault(key, Usage(key=key))
            touched[id(group)] = group
            for usage in (own, total, group):
                usage.add(row)
            first_at = min(first_at, row.session.started_at or math.inf)
        for usage in touched.values():
            usage.runs += 1
        of_runs.append(own)
        placed += [row for row in rows if row.host is not None and row.alive_secs > 0 and not row.unknown_secs]
        unsized += rows[-1].device_count is None and rows[-1].world_size is None and own.device_secs > 0
    hosts = _hosts(placed)
    costliest = heapq.nlargest(LISTED, of_runs, key=lambda usage: usage.lost_device_secs)
    return FleetReport(
        since=since if since is not None else None if math.isinf(first_at) else first_at,
        until=now if until is None else until,
        by=by,
        unsized_runs=unsized,
        total=total,
        groups=tuple(sorted(groups.values(), key=lambda usage: (-usage.lost_device_secs, usage.key or "")))
        if by is not None
        else (),
        hosts_tested=len(hosts),
        hosts=tuple(host for host in hosts if host.failures),
        costliest=tuple(usage for usage in costliest if usage.lost_device_secs > 0),
    )


def _key(row: SessionRow, by: str | None) -> str | None:
    if by in GROUPS:
        found: str | None = getattr(row, by or "")
        return found
    return None if by is None else row.labels.get(by)


def _hosts(rows: Iterable[SessionRow]) -> list[HostFailures]:
    """Return each host, those with the most failures beyond the expected first.

    Args:
        rows: sessions with telemetry whose host is known.
    """
    exposure: defaultdict[str, Counter[int]] = defaultdict(Counter)
    failed: defaultdict[str, list[str]] = defaultdict(list)
    failures, time = Counter[int](), Counter[int]()
    for row in rows:
        size, host = (row.devices - 1).bit_length(), row.host or ""
        exposure[host][size] += row.alive_secs  # type: ignore[assignment]
        time[size] += row.alive_secs  # type: ignore[assignment]
        if row.is_failure and row.has_trained:
            failed[host].append(row.run)
            failures[size] += 1
    hosts = []
    for host, of_size in exposure.items():
        expected = sum(failures[size] * secs / time[size] for size, secs in of_size.items())
        runs = len(set(failed[host]))
        found = HostFailures(
            host=host,
            alive_secs=of_size.total(),
            failures=len(failed[host]),
            expected=expected,
            runs=runs,
            is_suspect=runs >= SUSPECT_RUNS and len(failed[host]) >= SUSPECT_FACTOR * expected,
        )
        hosts.append(found)
    return sorted(hosts, key=lambda host: (host.expected - host.failures, host.host))


def _is_sound(row: SessionRow) -> bool:
    """Return whether its times can be: some writers store what is no time."""
    every = (*row.secs.values(), row.unknown_secs, row.alive_secs)
    times = (row.session.started_at or 0.0, row.session.ended_at or 0.0)
    return all(map(math.isfinite, times)) and all(0.0 <= secs <= _MOST_SECS for secs in every)  # false for NaN, too
