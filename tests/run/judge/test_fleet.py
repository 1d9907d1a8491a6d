"""A fleet's report, against fleets that know the truth."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from supervisor_core.run.judge.fleet_report import FleetReport, fleet_report
from supervisor_core.run.model.run import Run
from tests.story.fleet import BAD_HOST, BEGAN, DAY, HOSTS, ScriptedFleet, sessions_on_hosts

RunOf = Callable[..., Run]
POINT = 0.001
"""A tenth of a percentage point, as a share."""
NEVER = BEGAN + 1e9


@pytest.fixture(scope="module")
def fleet(trainer: Any) -> ScriptedFleet:
    """Thirty runs; the long test has 500."""
    return ScriptedFleet(trainer, seed=1, runs=30)


def check(fleet: ScriptedFleet, report: FleetReport, since: float, until: float) -> None:
    """Compare a report with the truth in its window."""
    true: Counter[str] = Counter()
    for run in fleet.truth:
        for bucket, secs in run.secs(since, until).items():
            true[bucket] += secs * run.devices  # type: ignore[assignment]
    total = report.total
    assert total.device_secs == pytest.approx(true.total(), rel=1e-3)
    assert total.goodput == pytest.approx(true["productive"] / true.total(), abs=POINT)
    assert total.lost_device_secs == pytest.approx(true.total() - true["productive"], rel=0.01)
    for bucket, secs in true.items():
        assert total.secs.get(bucket, 0.0) == pytest.approx(secs, rel=0.01, abs=1e-4 * true.total()), bucket
    alive = sum(max(0.0, min(end, until) - max(begin, since)) for run in fleet.truth for begin, end in run.alive)
    assert total.alive_secs == pytest.approx(alive, rel=1e-3)
    assert total.failures == sum(since <= at < until for run in fleet.truth for at, _ in run.failures)


@pytest.mark.parametrize(("begin", "end"), [(0.0, 9.0), (1.0, 2.0), (2.5, 3.0), (1.3, 1.342)])
def test_a_window_of_the_fleet_is_right(fleet: ScriptedFleet, begin: float, end: float) -> None:
    """Goodput within a tenth of a point, lost hours within a percent, each cause, exposure and failures: of all, of a
    day, of the last twelve hours, of an hour."""
    since, until = BEGAN + begin * DAY, min(BEGAN + end * DAY, fleet.now)
    check(fleet, fleet_report(fleet.runs, now=fleet.now, since=since, until=until), since, until)


def test_groups_sum_to_the_whole(fleet: ScriptedFleet) -> None:
    """By a label: each team's own truth; what lost most comes first."""
    report = fleet_report(fleet.runs, now=fleet.now, by="team")
    assert sum(group.device_secs for group in report.groups) == pytest.approx(report.total.device_secs)
    losses = [group.lost_device_secs for group in report.groups]
    assert losses == sorted(losses, reverse=True) and len(losses) == 4
    for group in report.groups:
        true = sum(
            run.devices * sum(secs for bucket, secs in run.secs(0, NEVER).items() if bucket != "productive")
            for run in fleet.truth
            if run.team == group.key
        )
        assert group.lost_device_secs == pytest.approx(true, rel=0.01)
    hosts = fleet_report(fleet.runs, now=fleet.now, by="host").groups
    assert {host.key for host in hosts} <= set(HOSTS) and len(hosts) > 40
    assert sum(host.failures for host in hosts) == report.total.failures


def test_the_costliest_run_comes_first(fleet: ScriptedFleet) -> None:
    """With what it lost, and to what most of it."""
    lost = {
        run.name: run.devices * sum(secs for bucket, secs in run.secs(0, NEVER).items() if bucket != "productive")
        for run in fleet.truth
    }
    report = fleet_report(fleet.runs, now=fleet.now)
    worst = sorted(lost, key=lambda name: -lost[name])[:5]
    assert [cost.key for cost in report.costliest[:5]] == worst and len(report.costliest) == 20
    assert report.costliest[0].lost_device_secs == pytest.approx(lost[worst[0]], rel=0.01)


def test_mttf_is_the_time_run_by_failures(fleet: ScriptedFleet) -> None:
    """Without failures there is none."""
    total = fleet_report(fleet.runs, now=fleet.now).total
    assert total.failures > 30 and (total.mttf_secs or 0.0) * total.failures == pytest.approx(total.alive_secs)
    none = fleet_report(fleet.runs, now=fleet.now, since=BEGAN, until=BEGAN + 3600).total
    assert none.failures == 0 and none.mttf_secs is None


def test_no_run_is_no_figure() -> None:
    """Unknown is None, not zero."""
    total = fleet_report([], now=BEGAN).total
    assert (total.runs, total.goodput, total.mttf_secs) == (0, None, None)


def suspects(seed: int, **how: Any) -> set[str]:
    """Return the hosts that a fleet's report names."""
    report = fleet_report(sessions_on_hosts(seed, **how), now=BEGAN + 7 * DAY)
    assert report.hosts_tested == len(HOSTS)
    return {host.host for host in report.hosts if host.is_suspect}


def test_the_bad_host_is_named() -> None:
    """One of 64 that fails ten times as often; where none does, none is."""
    assert [suspects(seed) for seed in range(5)] == [{BAD_HOST}] * 5
    assert [suspects(seed, bad=None) for seed in range(5)] == [set()] * 5


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_hundred_fleets() -> None:
    """The one bad host is named in at least 95, a good one in at most 5; so it is where all are good."""
    found = [suspects(seed) for seed in range(100)]
    assert sum(BAD_HOST in named for named in found) >= 95
    assert sum(bool(named - {BAD_HOST}) for named in found) <= 5
    assert sum(bool(suspects(seed, bad=None)) for seed in range(100, 200)) <= 5


@pytest.mark.long
def test_the_truth_of_500_runs(trainer: Any) -> None:
    """The whole, and windows of it."""
    fleet = ScriptedFleet(trainer, seed=2)
    for begin, end in ((0.0, 9.0), (2.0, 3.0), (1.0, 1.5), (2.9, 3.0)):
        since, until = BEGAN + begin * DAY, min(BEGAN + end * DAY, fleet.now)
        check(fleet, fleet_report(fleet.runs, now=fleet.now, since=since, until=until), since, until)


def test_a_host_on_which_one_program_fails_is_not_named(trainer: Any, run_of: RunOf) -> None:
    """However often: it may be the program."""
    sessions = [trainer(str(n), BEGAN + n * 1000, attempt=n + 1) for n in range(30)]
    for number, session in enumerate(sessions):
        session.ready(number * 100, host="a").train(100).stop("error")
    elsewhere = trainer("z").ready(host="b").train(3000).stop()
    report = fleet_report([run_of(*sessions), run_of(elsewhere)], now=NEVER)
    (host,) = report.hosts
    assert (host.host, host.failures, host.runs, host.is_suspect) == ("a", 30, 1, False)
    assert host.failures > 1.5 * host.expected and report.hosts_tested == 2


def test_a_host_on_which_programs_fail_before_a_step_is_not_named(trainer: Any, run_of: RunOf) -> None:
    """A broken script that was submitted twice, and a session that died in the moment in which it began."""
    trained = [run_of(trainer(str(n)).ready(host=f"good-{n % 4}").train(5000).stop("error")) for n in range(40)]
    broken = [run_of(trainer(f"b{n}").ready(host="a").spend(20.0).stop("error")) for n in range(8)]
    runs = [replace(run, name=str(number)) for number, run in enumerate([*trained, *broken])]
    report = fleet_report(runs, now=NEVER)
    assert report.total.failures == 48
    assert not [host.host for host in report.hosts if host.is_suspect]


@pytest.mark.parametrize(
    "changes",
    [
        {"started_at": -1e308, "ended_at": math.inf},
        {"started_at": math.nan},
        {"started_at": None},
        {"ended_at": 1e300},
        {"activity_secs": {"productive": math.nan, "stall": 5.0}},
    ],
    ids=str,
)
def test_times_that_cannot_be_are_left_out(trainer: Any, run_of: RunOf, changes: dict[str, Any]) -> None:
    """One run cannot spoil the figures of all."""
    good = run_of(trainer("a").ready().train(100).stop())
    odd = replace(good, name="odd", sessions=(replace(good.sessions[0], **changes),))
    assert fleet_report([good, odd], now=NEVER).total == fleet_report([good], now=NEVER).total
