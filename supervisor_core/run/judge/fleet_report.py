"""`fleet_report`: what the runs of a fleet did with their time in a window, what failed, and what that cost.

Goodput is the effective training time ratio, ETTR, of Kokolis et al., "Revisiting Reliability in Large-Scale Machine
Learning Research Clusters" (arXiv 2410.21680), and of Wan et al., "Robust LLM Training Infrastructure at ByteDance"
(arXiv 2509.16293): productive time divided by wall time, here summed over runs, each weighted by its devices. Time in a
scheduler's queue counts as far as it lies between two sessions of a run. MTTF is that of the first paper: time in which
runs ran, divided by their failures, by the size of the run.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from supervisor_core.run.fold.advice import LEAST_SAVING, MIN_FAILURES, Costs, cost_ratio, recommended_interval
from supervisor_core.run.fold.goodput import GIVEN_UP_SECS
from supervisor_core.run.judge.session_rows import SessionRow, session_rows
from supervisor_core.run.model.run import AT_RISK, PRODUCTIVE, WASTED, Advice, Run
from supervisor_core.run.model.words import DAY_SECS

SUSPECT_RUNS = 3
"""A host is suspect only if at least this number of runs failed there: one run may fail by its own program."""
SUSPECT_FACTOR = 5.0
"""And if it has at least as many times the failures to expect from the time of runs of each size on all hosts."""
GROUPS = ("host", "run", "device_kind")
"""What a report can group by, besides labels."""
_TRAINED = (PRODUCTIVE, AT_RISK, WASTED, "unproductive_checkpoint_save")
"""Buckets of the time in which an interval costs anything: a run that is down neither saves nor loses steps."""
_MOST_SECS = 1e10
"""Of one session: three hundred years."""
LISTED = 20
"""Runs that are listed by cost, and by checkpoint interval."""


@dataclass(slots=True, kw_only=True)
class Failures:
    """Unplanned ends, and the mean time to failure."""

    by_reason: Counter[str] = field(default_factory=Counter)
    """``lost``, ``error``, ``oom`` or ``hang``."""
    alive_secs: float = 0.0
    """The time in which sessions with telemetry ran, each session once, whatever its size."""
    alive_device_secs: float = 0.0

    @property
    def failures(self) -> int:
        """Their number."""
        return self.by_reason.total()

    @property
    def mttf_secs(self) -> float | None:
        """None without a failure."""
        return self.alive_secs / self.failures if self.failures else None

    @property
    def per_1000_device_days(self) -> float | None:
        """None if no session with telemetry ran."""
        return 1000 * DAY_SECS * self.failures / self.alive_device_secs if self.alive_device_secs > 0 else None


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
    failures: Failures = field(default_factory=Failures)

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

    def add(self, row: SessionRow) -> None:
        """Add a session."""
        self.sessions += 1
        self.wall_secs += row.wall_secs
        self.unknown_device_secs += row.unknown_secs * row.devices
        for bucket, secs in row.secs.items():
            self.secs[bucket] = self.secs.get(bucket, 0.0) + secs * row.devices
        if not row.unknown_secs:
            self.failures.alive_secs += row.alive_secs
            self.failures.alive_device_secs += row.alive_secs * row.devices
        if row.is_failure and row.reason is not None:
            self.failures.by_reason[row.reason] += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeClass:
    """Runs whose numbers of devices are within a factor of two."""

    devices_low: int
    devices_high: int
    runs: int
    failures: Failures


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
class RunCost:
    """What one run lost."""

    run: str
    labels: Mapping[str, str]
    devices: int
    device_secs: float
    lost_device_secs: float
    goodput: float | None
    cause: str
    """The bucket that most of it went to."""
    failures: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointCost:
    """What another checkpoint interval is expected to save one run, by Young's formula."""

    run: str
    present_interval_secs: float
    recommended_interval_secs: float
    save_cost_secs: float
    mtbf_secs: float
    is_pooled: bool
    """Whether `mtbf_secs` is the MTTF of all runs of its size: it has failed too rarely itself."""
    present_cost_ratio: float
    recommended_cost_ratio: float
    avoidable_device_secs: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointCosts:
    """What checkpoints cost: saving, and repeating what was not saved. Those expected are by Young's formula, of runs
    of which the save cost and a mean time between failures are known."""

    save_device_secs: float
    recomputed_device_secs: float
    runs: int
    """Of which the costs are known."""
    present_device_secs: float
    recommended_device_secs: float
    """Expected at the present intervals, and at the recommended ones."""
    worst: tuple[CheckpointCost, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unwatched:
    """A run that seems to be unwatched."""

    run: str
    why: str
    """``no_telemetry``: it has written within a day, and no alert can say that it died. ``given_up``: it is lost or has
    failed, and was not started again for a day, so its alert has ended."""
    since: float | None
    """When it ended, or wrote its last event."""


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
    sizes: tuple[SizeClass, ...]
    hosts_tested: int
    hosts: tuple[HostFailures, ...]
    """Those with failures, those with the most beyond the expected first."""
    costliest: tuple[RunCost, ...]
    checkpoints: CheckpointCosts
    unwatched: tuple[Unwatched, ...]


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
    fold = _FleetFold(by)
    begin, end = -math.inf if since is None else since, math.inf if until is None else until
    for run in runs:
        fold.add(run, session_rows(run, begin, end), min(now, end))
    return fold.report(since, now if until is None else until)


class _FleetFold:
    """Adds run after run; keeps sums, and a few facts of each run."""

    def __init__(self, by: str | None) -> None:
        self._by = by
        self._total = Usage()
        self._groups: dict[str | None, Usage] = {}
        self._sizes: defaultdict[int, Usage] = defaultdict(Usage)
        self._exposure: defaultdict[str, defaultdict[int, float]] = defaultdict(lambda: defaultdict(float))
        self._failed: defaultdict[str, list[str]] = defaultdict(list)
        """By host, the run of each failure."""
        self._placed: Counter[int] = Counter()
        """Failures of which the host is known, by size."""
        self._first_at: float | None = None
        self._unsized = 0
        self._costs: list[RunCost] = []
        self._savings: list[_Saving] = []
        self._unwatched: list[Unwatched] = []

    def add(self, run: Run, rows: list[SessionRow], now: float) -> None:
        """Add a run with its rows within the window, which ends at ``now``."""
        rows = [row for row in rows if _is_sound(row)]
        if not rows:
            return
        own = Usage()
        touched: dict[int, Usage] = {}
        for row in rows:
            size, key = (row.devices - 1).bit_length(), self._key(row)
            group = self._groups.setdefault(key, Usage(key=key))
            for usage in (own, self._total, group, self._sizes[size]):
                usage.add(row)
                touched[id(usage)] = usage
            if row.host is not None and row.alive_secs > 0 and not row.unknown_secs:
                self._exposure[row.host][size] += row.alive_secs
                if row.is_failure and row.has_trained:
                    self._failed[row.host].append(run.name)
                    self._placed[size] += 1
            if row.started_at is not None:
                self._first_at = min(row.started_at, math.inf if self._first_at is None else self._first_at)
        for usage in touched.values():
            usage.runs += 1
        last = rows[-1]
        self._unsized += last.device_count is None and last.world_size is None and own.device_secs > 0
        self._add_cost(run, own, last)
        size = (last.devices - 1).bit_length()
        trained_secs = sum(own.secs.get(bucket, 0.0) for bucket in _TRAINED)
        self._savings.append(_Saving(run.name, size, trained_secs, run.advice, _mean_save_secs(run)))
        self._watch(run, rows, now)

    def _add_cost(self, run: Run, own: Usage, last: SessionRow) -> None:
        if own.lost_device_secs <= 0:
            return
        cost = RunCost(
            run=run.name,
            labels=run.labels,
            devices=last.devices,
            device_secs=own.device_secs,
            lost_device_secs=own.lost_device_secs,
            goodput=own.goodput,
            cause=max((bucket for bucket in own.secs if bucket != PRODUCTIVE), key=own.secs.__getitem__),
            failures=own.failures.failures,
        )
        self._costs.append(cost)

    def _watch(self, run: Run, rows: list[SessionRow], now: float) -> None:
        ended_at = rows[-1].ended_at
        seen_at = run.last_event_at
        launch, started_at = run.launches[-1] if run.launches else None, rows[-1].started_at or 0.0
        has_restarter = launch is not None and (launch.ended_at is None or launch.ended_at >= started_at)
        is_recent = seen_at is not None and now - seen_at <= GIVEN_UP_SECS
        if is_recent and not has_restarter and any(row.unknown_secs for row in rows):
            self._unwatched.append(Unwatched(run=run.name, why="no_telemetry", since=seen_at))
        elif run.state in ("lost", "failed") and ended_at is not None and now - ended_at > GIVEN_UP_SECS:
            self._unwatched.append(Unwatched(run=run.name, why="given_up", since=ended_at))

    def _key(self, row: SessionRow) -> str | None:
        if self._by in GROUPS:
            found: str | None = getattr(row, self._by or "")
            return found
        return None if self._by is None else row.labels.get(self._by)

    def report(self, since: float | None, until: float) -> FleetReport:
        """Return the figures."""
        hosts = self._hosts()
        return FleetReport(
            since=self._first_at if since is None else since,
            until=until,
            by=self._by,
            unsized_runs=self._unsized,
            total=self._total,
            groups=tuple(
                sorted(
                    () if self._by is None else self._groups.values(),
                    key=lambda usage: (-usage.lost_device_secs, usage.key or ""),
                )
            ),
            sizes=tuple(
                SizeClass(
                    devices_low=(1 << size - 1) + 1 if size else 1,
                    devices_high=1 << size,
                    runs=usage.runs,
                    failures=usage.failures,
                )
                for size, usage in sorted(self._sizes.items())
            ),
            hosts_tested=len(hosts),
            hosts=tuple(host for host in hosts if host.failures),
            costliest=tuple(heapq.nlargest(LISTED, self._costs, key=lambda cost: cost.lost_device_secs)),
            checkpoints=self._checkpoints(),
            unwatched=tuple(sorted(self._unwatched, key=lambda run: (run.why, -(run.since or 0.0), run.run))),
        )

    def _hosts(self) -> list[HostFailures]:
        """Return each host, those with the most failures beyond the expected first."""
        time: defaultdict[int, float] = defaultdict(float)
        for exposure in self._exposure.values():
            for size, secs in exposure.items():
                time[size] += secs
        hosts = []
        for host, exposure in self._exposure.items():
            expected = sum(self._placed[size] * secs / time[size] for size, secs in exposure.items() if time[size] > 0)
            failed = self._failed[host]
            runs = len(set(failed))
            found = HostFailures(
                host=host,
                alive_secs=sum(exposure.values()),
                failures=len(failed),
                expected=expected,
                runs=runs,
                is_suspect=runs >= SUSPECT_RUNS and len(failed) >= SUSPECT_FACTOR * expected,
            )
            hosts.append(found)
        return sorted(hosts, key=lambda host: (host.expected - host.failures, host.host))

    def _checkpoints(self) -> CheckpointCosts:
        found = [
            cost for saving in self._savings if (cost := saving.cost(self._sizes[saving.size].failures)) is not None
        ]
        listed = [cost for cost in found if cost[0].present_cost_ratio - cost[0].recommended_cost_ratio > LEAST_SAVING]
        worst = heapq.nlargest(LISTED, listed, key=lambda cost: cost[0].avoidable_device_secs)
        return CheckpointCosts(
            save_device_secs=self._total.secs.get("unproductive_checkpoint_save", 0.0),
            recomputed_device_secs=self._total.secs.get(WASTED, 0.0),
            runs=len(found),
            present_device_secs=sum(cost.present_cost_ratio * device_secs for cost, device_secs in found),
            recommended_device_secs=sum(cost.recommended_cost_ratio * device_secs for cost, device_secs in found),
            worst=tuple(cost for cost, _ in worst),
        )


@dataclass(frozen=True, slots=True)
class _Saving:
    """What is known of a run's checkpoints."""

    run: str
    size: int
    device_secs: float
    """In which it trained or saved."""
    advice: Advice
    save_secs: float
    """Mean time until a checkpoint is durable: no interval is shorter."""

    def cost(self, pool: Failures) -> tuple[CheckpointCost, float] | None:
        """Return what its interval costs, and its device seconds; None while too little is known.

        Args:
            pool: all runs of its size.
        """
        advice = self.advice
        interval, save_cost = advice.present_interval_secs, advice.save_cost_secs
        mtbf, best, is_pooled = advice.mtbf_secs, advice.recommended_interval_secs, False
        if best is None and advice.failures < MIN_FAILURES:
            mtbf, is_pooled = pool.mttf_secs, True
            best = recommended_interval(
                Costs(
                    trained_secs=pool.alive_secs,
                    failures=pool.failures,
                    saves=1,
                    save_secs=self.save_secs,
                    blocked_secs=save_cost or 0.0,
                )
            )
        present_ratio, best_ratio = cost_ratio(interval, save_cost, mtbf), cost_ratio(best, save_cost, mtbf)
        if None in (interval, save_cost, mtbf, best, present_ratio, best_ratio):
            return None
        cost = CheckpointCost(
            run=self.run,
            present_interval_secs=interval or 0.0,
            recommended_interval_secs=best or 0.0,
            save_cost_secs=save_cost or 0.0,
            mtbf_secs=mtbf or 0.0,
            is_pooled=is_pooled,
            present_cost_ratio=present_ratio or 0.0,
            recommended_cost_ratio=best_ratio or 0.0,
            avoidable_device_secs=((present_ratio or 0.0) - (best_ratio or 0.0)) * self.device_secs,
        )
        return cost, self.device_secs


def _mean_save_secs(run: Run) -> float:
    saved = [session.save_secs for session in run.sessions if session.save_secs is not None]
    count = sum(sum(each.counts) for each in saved)
    return sum(each.sum for each in saved) / count if count else 0.0


def _is_sound(row: SessionRow) -> bool:
    """Return whether its times can be: some writers store what is no time."""
    every = (*row.secs.values(), row.unknown_secs, row.alive_secs)
    times = (row.started_at or 0.0, row.ended_at or 0.0)
    return all(map(math.isfinite, times)) and all(0.0 <= secs <= _MOST_SECS for secs in every)  # false for NaN, too
