"""The alerts repeat what is served as findings, and say what only Prometheus can see. By promtool, minute by minute."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.metrics.config_files import Screens, rule_groups, to_yaml
from supervisor_core.run.judge.finding import KINDS, SEVERITIES
from supervisor_core.run.model.thresholds import Thresholds
from tests.cases import each

MINUTE = 60
E = 'job="exporter",instance="e"'
T = 'job="training",instance="t"'
UP = {f"up{{{E}}}": "1x40", f"supervisor_exporter_build_info{{{E}}}": "1x40"}
LOOKS = {f'supervisor_exporter_last_refresh_timestamp_seconds{{{E},logdir="/logs"}}': "0+60x40"}
WATCHED = UP | LOOKS
Firing = Mapping[float, set[str]]


def finding(kind: str, values: str = "1x40", run: str = "r", at: str = E, **more: str) -> dict[str, str]:
    """A finding that is served."""
    labels = {"run": run, "kind": kind, "severity": KINDS[kind].severity, **more}
    written = ",".join(f'{name}="{text}"' for name, text in labels.items())
    return {f"supervisor_finding{{{at},{written}}}": values}


def named(alerts: set[str]) -> dict[str, float]:
    """What `count by (alertname)` of these alerts is, each once."""
    return {f'{{alertname="{alert}"}}': 1 for alert in alerts}


@pytest.fixture
def fires(rules_test: Callable[..., str], tmp_path: Path) -> Callable[..., None]:
    """Check which alerts fire at which minutes."""

    def check(series: Mapping[str, str], firing: Firing, **options: Any) -> None:
        query = 'count by (alertname) (group by (alertname, run) (ALERTS{alertstate="firing"}))'
        queries = [(query, at * MINUTE, named(alerts)) for at, alerts in firing.items()]
        rules_test(tmp_path, series, MINUTE, rules=rule_groups(**{"limits": LIMITS, **options}), queries=queries)

    return check


LIMITS = Thresholds(interval_secs=MINUTE)


def test_each_kind_has_its_alert(rules_test: Callable[..., str], tmp_path: Path) -> None:
    """It fires at once while the finding is served, with whose the run is, and two minutes longer; not as an info."""
    series, expected = dict(WATCHED), []
    for kind, of in KINDS.items():
        if of.alert is None:
            continue
        series |= finding(kind, "1x5 stale", kind, host="node-1", team="vision")
        if of.severity != "info":
            series |= finding(kind, run=f"old {kind}", severity="info")
        severity = SEVERITIES[of.severity]
        expected.append(f'{{alertname="{of.alert}",run="{kind}",severity="{severity}",host="node-1",team="vision"}}')
    query = 'group by (alertname, run, severity, host, team) (ALERTS{alertstate="firing",run!=""})'
    firing = dict.fromkeys(expected, 1.0)
    queries = [(query, at * MINUTE, there) for at, there in ((0, firing), (7, firing), (9, {}))]
    rules_test(tmp_path, series, MINUTE, rules=rule_groups(LIMITS), queries=queries)


@each("at", [E, T])
def test_a_text_is_that_of_the_finding(rules_test: Callable[..., str], tmp_path: Path, at: str) -> None:
    """What, since when, whose it is, what to do now, where to look; without its texts what the kind is."""
    about = f'{at},run="r",cluster="c",kind="stalled",severity="page"'
    text = (
        'text="No progress in the phase training: a <b> in <module>.",action="tb-supervisor stacks -- \'/my logs/r\'"'
    )
    series = {
        f"supervisor_finding{{{about}}}": "1x40",
        f"supervisor_finding_since_timestamp_seconds{{{about}}}": "30x40",
        f"supervisor_finding_text_info{{{about},{text}}}": "1x40",
        f'supervisor_run_info{{{at},run="r",cluster="c",team="vision",host="n",pid="1"}}': "1x40",
    } | finding("lost", at=at)
    screens = Screens(tensorboard_url="http://tb:6006/", dashboard_url="https://grafana/d/tb")
    said = "No progress in the phase training: a \\x3cb\\x3e in <module>."
    annotations = {
        "summary": f"r in cluster c: {said} Since 1970-01-01 00:00:30 UTC. First: tb-supervisor stacks -- '/my logs/r'",
        "description": "Its state is stalled: alive, and no progress for longer than the hang timeout. Labels: "
        "team=vision.",
        "runbook_url": "http://127.0.0.1:10988/alerts#supervisortrainingstalled",
        "tensorboard_url": "http://tb:6006/#supervisor&p.supervisor.s=run%3Dr%26x%3Dwall%26zoom%3D-3600~300",
        "dashboard_url": "https://grafana/d/tb?var-run=r&var-cluster=c&from=-3600000&to=300000",
    }
    bare = {
        **annotations,
        "summary": "r: Its state is lost: no sign of life, or its process is gone. First: see the runbook.",
        "description": "Its state is lost: no sign of life, or its process is gone.",
        "runbook_url": "http://127.0.0.1:10988/alerts#supervisortraininglost",
        "dashboard_url": "https://grafana/d/tb?var-run=r&var-cluster=&from=-3600000&to=300000",
    }
    labels = {"run": "r", "severity": "critical"}
    alerts = [
        ("SupervisorTrainingStalled", 0, [({**labels, "cluster": "c"}, annotations)]),
        ("SupervisorTrainingLost", 0, [(labels, bare)]),
    ]
    rules_test(tmp_path, series, MINUTE, rules=rule_groups(LIMITS, screens=screens), alerts=alerts)


def test_what_only_prometheus_sees_has_its_begin(rules_test: Callable[..., str], tmp_path: Path) -> None:
    """A logdir that is gone since minute 3, five trainings since the first of them died, in their own cluster."""
    series = {'supervisor_exporter_logdir_up{job="exporter",logdir="/logs"}': "1 1 1 0x20"}
    for number, cluster in enumerate("cccccd"):
        about = f'{E},run="r{number}",cluster="{cluster}",kind="lost",severity="page"'
        series[f"supervisor_finding_since_timestamp_seconds{{{about}}}"] = f"{30 + 10 * ((number + 1) % 6)}x20"
        series[f'supervisor_finding{{{about},host="h{number}"}}'] = "1x20"
    gone = {
        "summary": "The logdir /logs has disappeared. Since 1970-01-01 00:03:00 UTC. First: look on the exporter's "
        "machine whether the logdir is mounted (ls).",
        "description": "The exporter of the job exporter does not find it, or an empty mount point is in its place. A "
        "training there that dies now causes no alert.",
        "runbook_url": "http://127.0.0.1:10988/alerts#supervisorlogdirunreachable",
    }
    many = {
        "summary": "5 trainings in cluster c died within 5m. Among them: r0 on h0, r1 on h1, r2 on h2, r3 on h3, r4 on "
        "h4. Since 1970-01-01 00:00:40 UTC. First: check what they share: their hosts, the scheduler, the storage, the "
        "network.",
        "description": "Each has an alert of its own.",
        "runbook_url": "http://127.0.0.1:10988/alerts#supervisormanylost",
    }
    alerts = [
        (
            "SupervisorLogdirUnreachable",
            4 * MINUTE,
            [({"job": "exporter", "logdir": "/logs", "severity": "critical"}, gone)],
        ),
        ("SupervisorManyLost", 4 * MINUTE, [({"cluster": "c", "severity": "critical"}, many)]),
    ]
    rules_test(tmp_path, series, MINUTE, rules=rule_groups(LIMITS), alerts=alerts)


def test_an_exporter_that_dies_takes_no_text_along(rules_test: Callable[..., str], tmp_path: Path) -> None:
    """The page that goes on says what it said last, not what was said of the run before."""
    about = f'{E},run="r",kind="lost",severity="page"'
    series = {
        f"up{{{E}}}": "1x9 0x20",
        f"supervisor_exporter_build_info{{{E}}}": "1x9 stale",
        f"supervisor_finding{{{about}}}": "1x2 stale _x2 1x3 stale",
        f"supervisor_finding_since_timestamp_seconds{{{about}}}": "30x2 stale _x2 330x3 stale",
        f'supervisor_finding_text_info{{{about},text="Process 1.",action="see 1"}}': "1x2 stale",
        f'supervisor_finding_text_info{{{about},text="Process 2.",action="see 2"}}': "_x5 1x3 stale",
    }
    annotations = {
        "summary": "r: Process 2. Since 1970-01-01 00:05:30 UTC. First: see 2",
        "description": "Its state is lost: no sign of life, or its process is gone.",
        "runbook_url": "http://127.0.0.1:10988/alerts#supervisortraininglost",
    }
    alerts = [("SupervisorTrainingLost", 25 * MINUTE, [({"run": "r", "severity": "critical"}, annotations)])]
    rules_test(tmp_path, series, MINUTE, rules=rule_groups(LIMITS), alerts=alerts)


def test_an_exporter_that_dies_resolves_no_page(fires: Callable[..., None]) -> None:
    """It is a page itself after two minutes; what it said stays until it has looked. Of a trainer nothing stays."""
    series = {
        f"up{{{E}}}": "1x4 0x10 1x20",
        f"supervisor_exporter_build_info{{{E}}}": "1x4 stale _x9 1x20",
        f'supervisor_exporter_live_runs{{{E},logdir="/logs"}}': "3x4 stale _x12 2x20",
        f'supervisor_exporter_last_refresh_timestamp_seconds{{{E},logdir="/logs"}}': "0+60x4 stale _x12 1020+60x20",
        f'supervisor_exporter_logdir_up{{{E},logdir="/gone"}}': "0x4 stale _x10 0x2 1x20",
        f'supervisor_active{{{E},run="r"}}': "1x4 stale",
        f'supervisor_active{{{T},run="t"}}': "1x40",
    }
    series |= finding("loss_not_finite", "1x4 stale _x12 1x2 stale") | finding("stalled", "1x4 stale", "t", T)
    nan, gone, down = "SupervisorLossNotFinite", "SupervisorLogdirUnreachable", "SupervisorExporterDown"
    hangs = "SupervisorTrainingStalled"
    alive, dead = {nan, gone, hangs}, {nan, gone, down}
    fires(series, {4: alive, 8: dead, 14: dead, 16: {nan, gone}, 20: {nan}, 24: set()})


@each("kind", ["lost", "failed", "unreachable"])
def test_who_knows_a_run_alive_outweighs_who_does_not(fires: Callable[..., None], kind: str) -> None:
    """Another exporter, whose storage is up to date; or the training itself."""
    other = 'job="exporter",instance="f"'
    series = WATCHED | finding(kind) | finding(kind, run="s") | finding(kind, run="u", cluster="c")
    series |= {f'supervisor_run_state{{{other},run="r",state="running"}}': "1x40"}
    series |= {f'supervisor_active{{{T},run="s"}}': "1x40", f'supervisor_active{{{T},run="u"}}': "1x40"}
    fires(series, {5: {KINDS[kind].alert or ""}})


def test_a_training_that_no_exporter_watches(fires: Callable[..., None]) -> None:
    """Lost once neither a scrape nor a push has come for a minute; not after a final report, nor where an exporter
    serves the run."""
    lost = "SupervisorTrainingLost"
    scraped, pushed = f'supervisor_active{{{T},run="r"}}', 'supervisor_active{job="training",instance="p",run="r"}'
    fires({scraped: "1x5 stale", f"up{{{T}}}": "1x5 0x40"}, {5: set(), 6: set(), 8: {lost}, 30: {lost}})
    fires({pushed: "1x5 _x40"}, {5: set(), 8: {lost}, 30: {lost}})
    fires({scraped: "1x5 stale _x5 1x40"}, {9: {lost}, 16: set()})
    fires({scraped: "1x5 0 stale"}, {8: set(), 30: set()})
    fires({scraped: "1x5 stale", f'supervisor_active{{{E},run="r"}}': "1x40"} | WATCHED, {8: set(), 30: set()})


def test_many_that_die_together(rules_test: Callable[..., str], tmp_path: Path) -> None:
    """One alert more, with ten of them; it silences none of theirs."""
    series = dict(WATCHED)
    for number in range(12):
        about = f'{E},run="r{number:02}",cluster="c",kind="lost",severity="page"'
        series[f'supervisor_finding{{{about},host="n{number % 2}"}}'] = "1x40"
        series[f"supervisor_finding_since_timestamp_seconds{{{about}}}"] = "60x40"
    query = 'count by (alertname) (ALERTS{alertstate="firing"})'
    both = {'{alertname="SupervisorManyLost"}': 1.0, '{alertname="SupervisorTrainingLost"}': 12.0}
    queries = [(query, 3 * MINUTE, both), (query, 20 * MINUTE, {'{alertname="SupervisorTrainingLost"}': 12.0})]
    rules_test(tmp_path, series, MINUTE, rules=rule_groups(LIMITS), queries=queries)


def test_two_trainings_of_one_name(fires: Callable[..., None]) -> None:
    """Two sessions that are alive, for ten minutes; not a restart, of which two sources may name different sessions."""

    def session(name: str, at: str, values: str = "1x40") -> dict[str, str]:
        info = f'supervisor_run_info{{{at},run="r",session_id="{name}"}}'
        return {info: values, f'supervisor_active{{{at},run="r"}}': values}

    twice = {"SupervisorRunDuplicated"}
    fires(session("a", T) | session("b", T.replace('"t"', '"u"')), {9: set(), 11: twice})
    fires(session("a", E, "1x20 stale") | session("b", T) | WATCHED, {9: set(), 11: twice, 25: set()})
    fires(session("a", E, "1x5 stale") | session("b", T) | WATCHED, {11: set()})
    died = {
        f"up{{{E}}}": "1x14 0x10 1x20",
        f"supervisor_exporter_build_info{{{E}}}": "1x14 stale _x9 1x20",
        f'supervisor_exporter_last_refresh_timestamp_seconds{{{E},logdir="/logs"}}': "0+60x14 stale _x12 1620+60x20",
    }
    both = session("a", E, "1x14 stale") | session("b", E, "1x14 stale")
    fires(died | both, {12: twice, 16: twice, 24: twice, 27: twice, 30: set()})


def test_exporters_and_logdirs(fires: Callable[..., None]) -> None:
    """A logdir that is gone is a page; one that is not read to the end, an exporter without live runs that is down,
    runs that are left out, and a shard that is missing, are warnings after ten minutes."""
    gone, down, shard = "SupervisorLogdirUnreachable", "SupervisorExporterDown", "SupervisorShardMissing"
    fires(WATCHED | {f'supervisor_exporter_logdir_up{{{E},logdir="/logs"}}': "1 0x40"}, {1: set(), 3: {gone}})
    stopped = {f'supervisor_exporter_last_refresh_timestamp_seconds{{{E},logdir="/logs"}}': "0x40"}
    fires(UP | stopped, {10: set(), 17: {down}})
    fires(UP | {f'supervisor_exporter_refresh_failures_total{{{E},logdir="/logs"}}': "0x40"}, {5: set(), 11: {down}})
    idle = {f"up{{{E}}}": "1x4 0x40", f"supervisor_exporter_build_info{{{E}}}": "1x4 stale"}
    fires(idle | {f'supervisor_exporter_live_runs{{{E},logdir="/logs"}}': "0x4 stale"}, {8: set(), 16: {down}})
    fires(
        WATCHED | {f'supervisor_exporter_left_out_runs{{{E},logdir="/logs"}}': "0 7x40"},
        {9: set(), 12: {"SupervisorRunsLeftOut"}},
    )
    fires(WATCHED | {f'supervisor_exporter_shards{{{E},shard="0"}}': "2x40"}, {9: set(), 11: {shard}})


def test_goodput_is_that_of_the_last_hours(fires: Callable[..., None]) -> None:
    """Less than half of the sessions' time; the time without a process does not count."""
    time = f'supervisor_run_time_seconds_total{{{E},run="r",activity='
    good, bad = "30+30x400", "20+20x400"
    down = {f'{time}"infrastructure_recovery_from_disruption"}}': "0+3600x400"}
    limits = Thresholds(interval_secs=MINUTE, goodput_window_secs=3600)
    busy = {f'{time}"productive"}}': good, f'{time}"stall"}}': bad}
    fires(WATCHED | down | busy, {40: set()}, limits=limits)
    idle = {f'{time}"productive"}}': bad, f'{time}"stall"}}': good}
    fires(WATCHED | down | idle, {10: set(), 40: {"SupervisorGoodputLow"}}, limits=limits)


@each("by", [("run",), ("run", "cluster"), ("run", "namespace", "cluster"), ("run", "cluster", "team")])
def test_the_rule_file_is_valid(promtool: Callable[..., str], tmp_path: Path, by: tuple[str, ...]) -> None:
    """Prometheus takes the rules, whatever identifies a run, and finds nothing to complain of."""
    rules = rule_groups(by=by, severities={"lost": "warning"}, labels={"team": "vision"})
    (tmp_path / "rules.yaml").write_text(to_yaml(rules))
    promtool("check", "rules", "--lint=all", "--lint-fatal", tmp_path / "rules.yaml")
    alerts = [rule for group in rules["groups"] for rule in group["rules"] if "alert" in rule]
    assert all(rule["labels"]["team"] == "vision" for rule in alerts)
    assert {rule["labels"]["severity"] for rule in alerts if rule["alert"] == "SupervisorTrainingLost"} == {"warning"}


def test_a_trend_names_its_cause(rules_test: Callable[..., str], tmp_path: Path) -> None:
    """Which two trainings have one name; what takes the time."""
    time, limits = (
        f'supervisor_run_time_seconds_total{{{E},run="r"',
        Thresholds(interval_secs=MINUTE, goodput_window_secs=3600),
    )
    series = WATCHED | {
        f'supervisor_run_info{{{at},run="r",session_id="{name}",logdir="/logs/{name}",host="h"}}': "1x40"
        for name, at in (("a", E), ("b", T))
    }
    series |= {f'supervisor_active{{{at},run="r"}}': "1x40" for at in (E, T)}
    rates = {"productive": 10, "stall": 30, "program_startup": 20, "infrastructure_recovery_from_disruption": 60}
    series |= {f'{time},activity="{name}"}}': f"0+{rate}x40" for name, rate in rates.items()}
    labels = {"run": "r", "severity": "warning"}
    runbook = "http://127.0.0.1:10988/alerts#supervisor"
    twice = {
        "summary": "2 trainings that run at the same time are called r. They are /logs/a on h, /logs/b on h. "
        "Since 1970-01-01 00:00:00 UTC. First: rename one of them.",
        "description": "If one of them hangs, the other hides it.",
        "runbook_url": f"{runbook}runduplicated",
    }
    low = {
        "summary": "The goodput of r is low: 16.67%. Most of the rest is stall. Since 1970-01-01 00:20:00 UTC. First: "
        "find what takes that time.",
        "description": "Of the last 1h only that share of its sessions' time went into steps that were kept; the rest "
        "was starting, restoring, saving, stalls and recomputed steps.",
        "runbook_url": f"{runbook}goodputlow",
    }
    firing = [("SupervisorRunDuplicated", twice), ("SupervisorGoodputLow", low)]
    alerts = [(name, 39 * MINUTE, [(labels, texts)]) for name, texts in firing]
    rules_test(tmp_path, series, MINUTE, rules=rule_groups(limits), alerts=alerts)


def test_namesakes_are_told_apart(fires: Callable[..., None]) -> None:
    """One that is lost is not taken for alive because of a run of that name in another namespace."""
    series = WATCHED | finding("lost", namespace="a")
    series |= {f'supervisor_run_state{{{E},run="r",namespace="b",state="running"}}': "1x40"}
    fires(series, {3: {"SupervisorTrainingLost"}}, by=("run", "namespace"))
