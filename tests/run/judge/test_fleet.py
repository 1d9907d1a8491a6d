"""A fleet's report, against fleets that know the truth."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from supervisor_core.run.judge.fleet_report import FleetReport, fleet_report
from supervisor_core.run.model.program_launch import ProgramLaunch
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
    assert total.failures.alive_secs == pytest.approx(alive, rel=1e-3)
    assert total.failures.failures == sum(since <= at < until for run in fleet.truth for at, _ in run.failures)


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
    assert sum(host.failures.failures for host in hosts) == report.total.failures.failures


def test_the_costliest_run_comes_first(fleet: ScriptedFleet) -> None:
    """With what it lost, and to what most of it."""
    lost = {
        run.name: run.devices * sum(secs for bucket, secs in run.secs(0, NEVER).items() if bucket != "productive")
        for run in fleet.truth
    }
    report = fleet_report(fleet.runs, now=fleet.now)
    worst = sorted(lost, key=lambda name: -lost[name])[:5]
    assert [cost.run for cost in report.costliest[:5]] == worst and len(report.costliest) == 20
    assert report.costliest[0].lost_device_secs == pytest.approx(lost[worst[0]], rel=0.01)


def test_mttf_is_by_size(fleet: ScriptedFleet) -> None:
    """Each size has its own; without failures there is none."""
    report = fleet_report(fleet.runs, now=fleet.now)
    classes = {1: (1, 1), 8: (5, 8), 16: (9, 16), 32: (17, 32), 64: (33, 64), 256: (129, 256)}
    true = sorted({classes[run.devices] for run in fleet.truth})
    assert [(size.devices_low, size.devices_high) for size in report.sizes] == true
    assert sum(size.failures.failures for size in report.sizes) == report.total.failures.failures > 30
    for size in report.sizes:
        found = size.failures
        if found.mttf_secs is not None:
            assert found.mttf_secs * found.failures == pytest.approx(found.alive_secs)
    none = fleet_report(fleet.runs, now=fleet.now, since=BEGAN, until=BEGAN + 3600).total.failures
    assert none.failures == 0 and none.mttf_secs is None


def test_no_run_is_no_figure() -> None:
    """Unknown is None, not zero."""
    total = fleet_report([], now=BEGAN).total
    assert (total.runs, total.goodput, total.failures.mttf_secs) == (0, None, None)


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
    assert report.total.failures.failures == 48
    assert not [host.host for host in report.hosts if host.is_suspect]


def test_a_better_interval_is_by_the_failures_of_all_of_a_size(trainer: Any, run_of: RunOf) -> None:
    """A run that has failed too rarely itself gets the MTTF of its size."""
    runs = []
    for name in range(4):
        first = trainer(f"{name}a").ready(device_count=8).train(4000).save(blocked_secs=1.0).train(10)
        second = trainer(f"{name}b", first.now + 60, attempt=2)
        second.ready(4000, device_count=8, checkpoint_interval_secs=3600.0).train(100).save(blocked_secs=1.0)
        runs.append(run_of(first, second.stop()))
    found = fleet_report(runs, now=NEVER).checkpoints
    assert found.runs == 4 and len(found.worst) == 4
    worst, mttf = found.worst[0], (4010 + 100) / 1
    assert worst.is_pooled and worst.mtbf_secs == pytest.approx(mttf, rel=0.01)
    assert worst.recommended_interval_secs == pytest.approx(math.sqrt(2 * 1.0 * mttf), rel=0.01)
    expected = 1.0 / 3600 + 3600 / (2 * mttf)
    assert worst.present_cost_ratio == pytest.approx(expected, rel=0.01)
    assert found.present_device_secs > found.recommended_device_secs > 0


def test_a_run_that_is_down_gains_nothing_by_another_interval(trainer: Any, run_of: RunOf) -> None:
    """What a better interval saves is a share of the time in which it trains: an hour of ten."""
    sessions: list[Any] = []
    for attempt in range(1, 5):
        session = trainer(str(attempt), sessions[-1].now + 9 * 900 if sessions else BEGAN, attempt=attempt)
        session.ready(900 * (attempt - 1), checkpoint_interval_secs=3600.0).train(850).save(blocked_secs=1.0)
        sessions.append(session.train(50))
    report = fleet_report([run_of(*sessions[:-1], sessions[-1].stop())], now=NEVER)
    (cost,) = report.checkpoints.worst
    assert report.total.secs["infrastructure_recovery_from_disruption"] > 20_000
    gain = cost.present_cost_ratio - cost.recommended_cost_ratio
    assert cost.avoidable_device_secs == pytest.approx(gain * 4 * 900, rel=0.02)


def test_what_nobody_watches(trainer: Any, events_file: Any, run_of: RunOf) -> None:
    """A run that died more than a day ago and was left; one of another writer that wrote within a day. One of our own
    that is live, or has just died, is not listed."""
    died = trainer("a").ready().train(100).stop("error")
    other = events_file("/run/events.out.tfevents.1700000000.host").scalars("loss", range(100), BEGAN)
    fine = trainer("c").ready().train(100).stop()
    runs = [run_of(died, now=BEGAN + 3 * DAY), run_of(other), run_of(fine)]
    assert [each.why for each in fleet_report(runs, now=BEGAN + 3 * DAY).unwatched] == ["given_up"]
    assert [each.why for each in fleet_report(runs, now=BEGAN + DAY / 2).unwatched] == ["no_telemetry"]
    assert fleet_report([run_of(died, now=BEGAN + 3600)], now=BEGAN + 3600).unwatched == ()
    launch = ProgramLaunch(launch="node-3-11-1", state="begin", started_at=BEGAN - 1.0)
    under_run = replace(run_of(other), launches=(launch,))
    earlier = replace(run_of(other), launches=(replace(launch, ended_at=BEGAN - 0.5),))
    found = [fleet_report([each], now=BEGAN + DAY / 2).unwatched for each in (under_run, earlier)]
    assert [[each.why for each in some] for some in found] == [[], ["no_telemetry"]]


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
