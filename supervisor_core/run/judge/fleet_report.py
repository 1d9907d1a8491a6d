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
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from supervisor_core.run.judge.session_rows import SessionRow, session_rows
from supervisor_core.run.model.run import PRODUCTIVE, Run
from supervisor_core.run.model.words import DAY_SECS

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
