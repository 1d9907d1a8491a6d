"""`fleet_report`: what the runs of a fleet did with their time in a window, what failed, and what that cost."""

from __future__ import annotations

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from supervisor_core.run.advice import LEAST_SAVING, MIN_FAILURES, Costs, cost_ratio, recommended_interval
from supervisor_core.run.fleet import (
    AlertRoute,
    CheckpointCost,
    CheckpointCosts,
    Failures,
    FleetReport,
    HostFailures,
    RunCost,
    SizeClass,
    Unwatched,
    Usage,
)
from supervisor_core.run.goodput import GIVEN_UP_SECS
from supervisor_core.run.model import AT_RISK, LIVE, PRODUCTIVE, WASTED, Advice, Run
from supervisor_core.run.session_rows import SessionRow, session_rows
from supervisor_core.run.words import DAY_SECS

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


class _Tally:
    """Sums over rows."""

    def __init__(self) -> None:
        self.runs = self.sessions = 0
        self.wall_secs = self.unknown_device_secs = self.alive_secs = self.alive_device_secs = 0.0
        self.secs: defaultdict[str, float] = defaultdict(float)
        self.reasons: Counter[str] = Counter()
        self._run: object = None

    def add(self, row: SessionRow, run: object) -> None:
        self.runs += run is not self._run  # rows come run by run
        self._run = run
        self.sessions += 1
        self.wall_secs += row.wall_secs
        self.unknown_device_secs += row.unknown_secs * row.devices
        for bucket, secs in row.secs.items():
            self.secs[bucket] += secs * row.devices
        if not row.unknown_secs:
            self.alive_secs += row.alive_secs
            self.alive_device_secs += row.alive_secs * row.devices
        if row.is_failure and row.reason is not None:
            self.reasons[row.reason] += 1

    @property
    def device_secs(self) -> float:
        return sum(self.secs.values())

    @property
    def lost_device_secs(self) -> float:
        return sum(secs for bucket, secs in self.secs.items() if bucket != PRODUCTIVE)

    @property
    def goodput(self) -> float | None:
        total = self.device_secs
        return self.secs[PRODUCTIVE] / total if total > 0 else None

    def failures(self) -> Failures:
        count = self.reasons.total()
        return Failures(
            failures=count,
            by_reason=dict(sorted(self.reasons.items())),
            alive_secs=self.alive_secs,
            alive_device_secs=self.alive_device_secs,
            mttf_secs=self.alive_secs / count if count else None,
            per_1000_device_days=1000 * DAY_SECS * count / self.alive_device_secs
            if self.alive_device_secs > 0
            else None,
        )

    def usage(self, key: str | None = None) -> Usage:
        return Usage(
            key=key,
            runs=self.runs,
            sessions=self.sessions,
            wall_secs=self.wall_secs,
            device_secs=self.device_secs,
            unknown_device_secs=self.unknown_device_secs,
            goodput=self.goodput,
            secs=dict(self.secs),
            lost_device_secs=self.lost_device_secs,
            failures=self.failures(),
        )


def fleet_report(
    runs: Iterable[Run],
    *,
    now: float,
    since: float | None = None,
    until: float | None = None,
    by: str | None = None,
    route: AlertRoute | None = None,
) -> FleetReport:
    """Return what a fleet did in a window.

    Args:
        runs: all runs, no copies; each is looked at once.
        now: wall time of the look at them.
        since: begin of the window. Default: all that there is.
        until: its end. Default: now.
        by: what to group by as well: ``host``, ``run``, ``device_kind``, or the name of a label.
        route: what a Prometheus says of the runs. Default: it was not asked.

    Example:
        >>> fleet_report([], now=1795222244.0).total.runs
        0
    """
    fold = _FleetFold(by, route)
    begin, end = -math.inf if since is None else since, math.inf if until is None else until
    for run in runs:
        fold.add(run, session_rows(run, begin, end), min(now, end))
    return fold.report(since, now if until is None else until)


class _FleetFold:
    """Adds run after run; keeps sums, and a few facts of each run."""

    def __init__(self, by: str | None, route: AlertRoute | None) -> None:
        self._by, self._route = by, route
        self._total = _Tally()
        self._groups: defaultdict[str | None, _Tally] = defaultdict(_Tally)
        self._sizes: defaultdict[int, _Tally] = defaultdict(_Tally)
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
        own = _Tally()
        for row in rows:
            size = (row.devices - 1).bit_length()
            for tally in (own, self._total, self._groups[self._key(row)], self._sizes[size]):
                tally.add(row, run)
            if row.host is not None and row.alive_secs > 0 and not row.unknown_secs:
                self._exposure[row.host][size] += row.alive_secs
                if row.is_failure and row.has_trained:
                    self._failed[row.host].append(run.name)
                    self._placed[size] += 1
            if row.started_at is not None:
                self._first_at = min(row.started_at, math.inf if self._first_at is None else self._first_at)
        last = rows[-1]
        self._unsized += last.device_count is None and last.world_size is None and own.device_secs > 0
        self._add_cost(run, own, last)
        size = (last.devices - 1).bit_length()
        trained_secs = sum(own.secs[bucket] for bucket in _TRAINED)
        self._savings.append(_Saving(run.name, size, trained_secs, run.advice, _mean_save_secs(run)))
        self._watch(run, rows, now)

    def _add_cost(self, run: Run, own: _Tally, last: SessionRow) -> None:
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
            failures=own.reasons.total(),
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
        elif run.state in LIVE and self._route is not None and run.name not in self._route.scraped:
            self._unwatched.append(Unwatched(run=run.name, why="not_scraped", since=rows[-1].started_at))

    def _key(self, row: SessionRow) -> str | None:
        if self._by in GROUPS:
            found: str | None = getattr(row, self._by or "")
            return found
        return None if self._by is None else row.labels.get(self._by)

    def report(self, since: float | None, until: float) -> FleetReport:
        """Return the figures."""
        groups = [tally.usage(key) for key, tally in self._groups.items()] if self._by is not None else []
        hosts = self._hosts()
        return FleetReport(
            since=self._first_at if since is None else since,
            until=until,
            by=self._by,
            unsized_runs=self._unsized,
            total=self._total.usage(),
            groups=tuple(sorted(groups, key=lambda usage: (-usage.lost_device_secs, usage.key or ""))),
            sizes=tuple(
                SizeClass(
                    devices_low=(1 << size - 1) + 1 if size else 1,
                    devices_high=1 << size,
                    runs=tally.runs,
                    failures=tally.failures(),
                )
                for size, tally in sorted(self._sizes.items())
            ),
            hosts_tested=len(hosts),
            hosts=tuple(host for host in hosts if host.failures),
            costliest=tuple(heapq.nlargest(LISTED, self._costs, key=lambda cost: cost.lost_device_secs)),
            checkpoints=self._checkpoints(),
            alert_rules=None if self._route is None else self._route.rules,
            alertmanagers=None if self._route is None else self._route.alertmanagers,
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
        found = [cost for saving in self._savings if (cost := saving.cost(self._sizes[saving.size])) is not None]
        listed = [cost for cost in found if cost[0].present_cost_ratio - cost[0].recommended_cost_ratio > LEAST_SAVING]
        worst = heapq.nlargest(LISTED, listed, key=lambda cost: cost[0].avoidable_device_secs)
        return CheckpointCosts(
            save_device_secs=self._total.secs["unproductive_checkpoint_save"],
            recomputed_device_secs=self._total.secs[WASTED],
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

    def cost(self, pool: _Tally) -> tuple[CheckpointCost, float] | None:
        """Return what its interval costs, and its device seconds; None while too little is known.

        Args:
            pool: all runs of its size.
        """
        advice = self.advice
        interval, save_cost = advice.present_interval_secs, advice.save_cost_secs
        mtbf, best, is_pooled = advice.mtbf_secs, advice.recommended_interval_secs, False
        if best is None and advice.failures < MIN_FAILURES:
            failures, is_pooled = pool.reasons.total(), True
            mtbf = pool.alive_secs / failures if failures else None
            best = recommended_interval(
                Costs(
                    trained_secs=pool.alive_secs,
                    failures=failures,
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
