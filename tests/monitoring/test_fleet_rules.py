"""What is recorded of a fleet: each failure once, each second once, whoever serves it and whoever restarts."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor_core.metrics.config_files import rule_groups
from supervisor_core.metrics.table import ALL_METRICS

Value = Callable[[float], "float | None"]
MINUTE = 60
END = 20 * MINUTE
FLEET = ("supervisor-shard", "supervisor-fleet")
EXPORTER = 'job="exporter",instance="e-0"'


def always(value: float) -> Value:
    """The same at all times."""
    return lambda t: value


def clock(t: float) -> float:
    """The time itself."""
    return t


ONE = always(1)


def values(value: Value, end: float, step: int) -> str:
    """A series as promtool reads it; stale where it ends."""
    found = [value(t) for t in range(0, int(end) + 1, step)]
    before = [None, *found[:-1]]
    written = [
        "stale" if now is None and was is not None else "_" if now is None else f"{now:g}"
        for was, now in zip(before, found, strict=True)
    ]
    return " ".join(written)


def run_of(
    name: str,
    team: str = "vision",
    *,
    source: str = EXPORTER,
    there: Callable[[float], bool] = lambda t: True,
    state: Callable[[float], str] = lambda t: "running",
    at_rest: Callable[[float], bool] = lambda t: False,
    **counters: Value,
) -> dict[str, str]:
    """What one source serves of a run over time.

    Args:
        name: of the run.
        team: its label.
        source: labels of the target.
        there: whether the target is scraped.
        state: of the run.
        at_rest: whether only its state is served.
        counters: values by ``METRIC__LABEL__VALUE``.
    """

    def only(value: Value, *, live: bool = True) -> Value:
        return lambda t: value(t) if there(t) and not (live and at_rest(t)) else None

    found: dict[str, Value] = {
        f'supervisor_active{{run="{name}",{source}}}': only(ONE),
        f'supervisor_run_info{{run="{name}",team="{team}",user="{team and "ada"}",{source}}}': only(ONE, live=False),
    }
    for each in ("running", "lost", "completed"):
        found[f'supervisor_run_state{{run="{name}",state="{each}",{source}}}'] = lambda t, each=each: (
            1 if there(t) and state(t) == each else None
        )
    for key, value in counters.items():
        metric, *labels = key.split("__")
        pairs = zip(labels[::2], labels[1::2], strict=True)
        text = "".join(f',{label}="{named}"' for label, named in pairs)
        found[f'supervisor_{metric}{{run="{name}",{source}{text}}}'] = only(value)
    return {series: values(value, END, MINUTE) for series, value in found.items()}


def looked(source: str = EXPORTER, there: Callable[[float], bool] = lambda t: True) -> dict[str, str]:
    """That an exporter has looked."""
    name = f'supervisor_exporter_last_refresh_timestamp_seconds{{logdir="/runs",{source}}}'
    return {name: values(lambda t: t if there(t) else None, END, MINUTE)}


MISSING = '{alertname="SupervisorShardMissing",alertstate="firing",job="exporter",severity="warning"}'
FAILURES = 'sum by (host, reason) (sum_over_time(fleet:supervisor_failures:increase1m{host!=""}[20m]))'


@pytest.fixture
def recorded(rules_test: Callable[..., str], tmp_path: Path) -> Callable[..., None]:
    """Checks what a query of what is recorded finds at the end."""

    def check(series: dict[str, str], query: str, expected: dict[str, float]) -> None:
        rules = {"groups": [group for group in rule_groups()["groups"] if group["name"] in FLEET]}
        rules_test(tmp_path, series, MINUTE, rules=rules, queries=[(query, END, expected)])

    return check


def test_a_first_failure_counts(recorded: Callable[..., None]) -> None:
    """Its series is new: the run was known, so it began at 0. The second counts once, too; so does that of a run that
    came and died within a minute."""
    failures = {"failures_total__host__n1__reason__lost": lambda t: None if t < 300 else 1 if t < 600 else 2}
    late = run_of(
        "b", there=lambda t: t >= 480, state=lambda t: "lost", failures_total__host__n2__reason__error=always(1)
    )
    series = run_of("a", **failures) | late | looked()
    recorded(series, FAILURES, {'{host="n1",reason="lost"}': 2, '{host="n2",reason="error"}': 1})


def test_who_restarts_changes_nothing(recorded: Callable[..., None]) -> None:
    """An exporter that is away for three minutes, and one that is new, count no failure of before; two exporters of
    one run count it once."""
    away = lambda t: not 300 <= t < 480  # noqa: E731
    new = 'job="exporter",instance="e-1"'
    counted = {"failures_total__host__n1__reason__lost": lambda t: 5.0 if t < 900 else 6.0}
    series = run_of("a", there=away, **counted) | looked(there=away)
    series |= run_of("a", source=new, there=lambda t: t >= 600, **counted)
    series |= looked(new, there=lambda t: t >= 600)
    recorded(series, FAILURES, {'{host="n1",reason="lost"}': 1})


def test_a_run_that_comes_to_life_again_brings_no_history(recorded: Callable[..., None]) -> None:
    """Of one at rest no counters are served; when they are again, those of long ago do not count."""
    series = looked() | run_of(
        "a",
        at_rest=lambda t: t < 600,
        state=lambda t: "completed" if t < 600 else "running",
        failures_total__host__n1__reason__lost=lambda t: 4.0 if t < 900 else 5.0,
        run_time_seconds_total__activity__productive=lambda t: 1e6 + t,
    )
    recorded(series, FAILURES, {'{host="n1",reason="lost"}': 1})
    seconds = "sum_over_time(fleet:supervisor_run_seconds:increase1m[20m])"
    recorded(series, seconds, {'{activity="productive",team="vision",user="ada"}': 600})


def test_where_the_time_went(recorded: Callable[..., None]) -> None:
    """Goodput is the productive share of the time of all runs; lost seconds of devices are by team."""
    time = {
        "run_time_seconds_total__activity__productive": lambda t: 0.75 * t,
        "run_time_seconds_total__activity__stall": lambda t: 0.25 * t,
        "lost_process_seconds_total__cause__stall": lambda t: 8 * 0.25 * t,
    }
    idle = {
        "run_time_seconds_total__activity__productive": always(5),
        "lost_process_seconds_total__cause__stall": clock,
    }
    series = looked() | run_of("a", **time) | run_of("b", "speech", **idle)
    recorded(series, "fleet:supervisor_goodput:ratio1h", {"fleet:supervisor_goodput:ratio1h": 0.75})
    lost = "sum by (team) (sum_over_time(fleet:supervisor_lost_process_seconds:increase1m[20m])) / 3600"
    hours = {'{team="vision"}': 20 * 60 * 2 / 3600, '{team="speech"}': 20 * 60 / 3600}
    recorded(series, lost, hours)


def test_runs_are_counted_by_state_and_team(recorded: Callable[..., None]) -> None:
    """Each once, whoever serves it; one at rest has no team any more."""
    other = 'job="training",instance="pod-1"'
    series = looked() | run_of("a") | run_of("a", source=other)
    series |= run_of("c", "speech", state=lambda t: "lost")
    series |= run_of("d", at_rest=lambda t: True, state=lambda t: "completed")
    recorded(
        series,
        "sum by (state, team) (fleet:supervisor_runs:count)",
        {'{state="running",team="vision"}': 1, '{state="lost",team="speech"}': 1, '{state="completed"}': 1},
    )


def test_the_source_that_knows_the_team_is_believed(recorded: Callable[..., None]) -> None:
    """Whichever of two names sorts first."""
    series = looked()
    for number, source in enumerate(('job="training",instance="pod-1"', 'job="a",instance="a"')):
        series |= run_of(f"r{number}") | run_of(f"r{number}", "", source=source)
    recorded(series, "sum by (team) (fleet:supervisor_runs:count)", {'{team="vision"}': 2})


def test_findings_are_counted(recorded: Callable[..., None]) -> None:
    """Of several sources once; what is only to be known does not count."""
    found = {
        f'supervisor_finding{{run="{run}",kind="{kind}",severity="{severity}",instance="{instance}"}}': "1x20"
        for instance in ("e-0", "e-1")
        for run, kind, severity in (("a", "lost", "page"), ("b", "lost", "page"), ("c", "stopped", "info"))
    }
    expected = {'fleet:supervisor_findings:count{kind="lost",severity="page"}': 2}
    recorded(found, "fleet:supervisor_findings:count", expected)


def test_above_several_servers_the_fleet_is_their_sum(rules_test: Callable[..., str], tmp_path: Path) -> None:
    """Of what each has recorded, by its external label; and a shard that neither of them scrapes is an alert."""
    series = {}
    for server in ("0", "1"):
        labels = f'cluster="training",prometheus="{server}"'
        series[f'shard:supervisor_runs:count{{state="running",team="vision",{labels}}}'] = "3x60"
        series[f'shard:supervisor_run_seconds:increase1m{{activity="productive",{labels}}}'] = "30x60"
        series[f'shard:supervisor_run_seconds:increase1m{{activity="stall",{labels}}}'] = "10x60"
        series[f'supervisor_exporter_shards{{job="exporter",shard="{server}",{labels}}}'] = "3x60"
    queries = [
        ("fleet:supervisor_runs:count", 3000, {'fleet:supervisor_runs:count{state="running",team="vision"}': 6}),
        ("fleet:supervisor_goodput:ratio1h", 3000, {"fleet:supervisor_goodput:ratio1h": 0.75}),
        ('ALERTS{alertstate="firing"} * 0', 3000, {MISSING: 0}),
    ]
    rules_test(tmp_path, series, MINUTE, rules=rule_groups(level="fleet"), queries=queries)


def test_levels_divide_the_rules() -> None:
    """Each Prometheus has all but what needs them all; together they have everything, once."""
    every, shard, fleet = (
        [rule for group in rule_groups(level=level)["groups"] for rule in group["rules"]]
        for level in ("all", "shard", "fleet")
    )
    assert len(shard) + len(fleet) == len(every) and all(rule in every for rule in (*shard, *fleet))
    assert [rule["alert"] for rule in fleet if "alert" in rule] == ["SupervisorShardMissing"]
    assert all("fleet:" not in rule["expr"] and "fleet:" not in rule.get("record", "") for rule in shard)
    assert all("shard:" in rule["expr"] or "fleet:" in rule["expr"] for rule in fleet if "record" in rule)


def test_only_what_is_served_is_recorded() -> None:
    """Every metric that a rule names exists."""
    served = {metric.name for metric in ALL_METRICS}
    for group in rule_groups()["groups"]:
        for rule in group["rules"] if group["name"] in FLEET else ():
            assert set(re.findall(r"(?<![:\w])supervisor_\w+(?![\w:])", rule["expr"])) <= served
