"""Every alert, put by promtool through what happens to trainings: it fires when it is true, and else it is silent.

The scenarios are in scenarios.py and the other files named *_scenarios.py.
At each moment of one, exactly the alerts fire that are named there, once each.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from monitoring_cluster_scenarios import CLUSTER_SCENARIOS
from monitoring_death_scenarios import DEATH_SCENARIOS
from monitoring_exporter_scenarios import EXPORTER_SCENARIOS
from monitoring_happenings import (
    DOWN,
    HUNG,
    KILLED,
    MANY,
    NOTICE,
    SHARD,
    STALLED,
    UNREADABLE,
    VANISHED,
    Moments,
    ends,
    turns,
)
from monitoring_push_scenarios import PUSH_SCENARIOS
from monitoring_rest_scenarios import REST_SCENARIOS
from monitoring_scenarios import SCENARIOS
from monitoring_served import DAY, HOUR, MINUTE, Target, always, exporter, series_of, trainer, until
from monitoring_silent_scenarios import SILENT_SCENARIOS
from monitoring_state_scenarios import LOST, STATE_SCENARIOS
from monitoring_writing_scenarios import WRITING_SCENARIOS

from supervisor_core.metrics.config_files import Screens, rule_groups, to_yaml
from supervisor_core.run.model.thresholds import DEFAULT_RUNBOOK_BASE, Thresholds

pytestmark = pytest.mark.timeout(900)  # of one test that goes through all scenarios
GROUPS = (
    *(STATE_SCENARIOS, SCENARIOS, CLUSTER_SCENARIOS, EXPORTER_SCENARIOS, WRITING_SCENARIOS, SILENT_SCENARIOS),
    DEATH_SCENARIOS,
    REST_SCENARIOS,
    PUSH_SCENARIOS,
)
EVERY = {about: [case for group in GROUPS for case in group.get(about, ())] for group in GROUPS for about in group}
CASES = [(about, *case) for about, cases in EVERY.items() for case in cases]
BATCHES = ((0.5, 15), (1, 60), (2, 60), (6, 180), (30, 600))
"""(hours, seconds): scenarios of up to these hours are evaluated at this interval."""
ALERTS = {rule["alert"] for group in rule_groups()["groups"] for rule in group["rules"] if "alert" in rule}


def batch_of(moments: Moments) -> tuple[float, int]:
    """Up to when a scenario's batch goes, and at which interval: many hours of 15 s each take promtool long."""
    end = max(moments)
    return next((hours * HOUR, step) for hours, step in BATCHES if end <= hours * HOUR)


def apart(series: str, number: int) -> str:
    """A series of a scenario, with labels that no other scenario has."""
    series = re.sub(r'\b(run|job|instance|logdir)="', rf'\1="{number}:', series)
    return series.replace("{", f'{{cluster="{number}:",', 1)


Case = tuple[str, str, list[Target], Moments]


def wrong_of(cases: list[Case], rules_test: Callable[..., str], directory: Path) -> dict[int, str]:
    """What promtool finds wrong, by the scenario's number. Scenarios of like length are put through it together, since
    most of its time goes into evaluating the rules at each moment, for however many runs."""
    batches: dict[tuple[float, int], list[int]] = {}
    for number, (*_, moments) in enumerate(cases):
        batches.setdefault(batch_of(moments), []).append(number)
    found: dict[int, str] = {}
    for (_, step), numbers in batches.items():
        series: dict[str, str] = {}
        queries = []
        for number in numbers:
            _, _, targets, moments = cases[number]
            served = series_of(targets, max(moments), step)
            series |= {apart(name, number): text for name, text in served.items()}
            firing = f'ALERTS{{alertstate="firing",run=~"{number}:.*"}}'
            of_exporters = f'ALERTS{{alertstate="firing",run="",job=~"{number}:.*"}}'
            of_many = f'ALERTS{{alertstate="firing",run="",cluster="{number}:"}}'
            expr = f"count by (alertname) ({firing} or {of_exporters} or {of_many})"
            queries += [
                (expr, at, {f'{{alertname="{alert}"}}': count for alert, count in sorted(Counter(names).items())})
                for at, names in moments.items()
            ]
        rules = rule_groups(Thresholds(interval_secs=step))
        said = rules_test(directory, series, step, rules=rules, queries=queries, check=False)
        failures = re.findall(r'expr: ".*?run=~.{1,2}"(\d+):(.*?)(?=expr: "|\Z)', said, re.DOTALL)
        assert failures or "SUCCESS" in said, said
        for number, text in failures:
            found[int(number)] = found.get(int(number), "") + text
    return found


def test_what_fires(rules_test: Callable[..., str], tmp_path: Path) -> None:
    """At each moment of each scenario exactly the alerts fire that should, each once."""
    wrong = wrong_of(CASES, rules_test, tmp_path)
    assert {f"{CASES[number][0]}: {CASES[number][1]}": said for number, said in wrong.items()} == {}


@pytest.mark.long
def test_the_same_fires_where_trainings_push(rules_test: Callable[..., str], tmp_path: Path) -> None:
    """Each scenario of minutes with a training that is scraped, as one that pushes: the same alerts at the same
    moments. Those of hours are evaluated too rarely for that to make a difference."""
    pushing = [
        (about, text, [behind_a_wall(target) for target in targets], moments)
        for about, text, targets, moments in CASES
        if batch_of(moments)[1] == BATCHES[0][1] and any(behind_a_wall(target) is not target for target in targets)
    ]
    assert len(pushing) > 40
    wrong = wrong_of(pushing, rules_test, tmp_path)
    assert not wrong, {pushing[number][:2]: text for number, text in wrong.items()}


def behind_a_wall(target: Target) -> Target:
    """A training that pushes what it would be scraped for; anything else as it is."""
    if target.exporter is not None or target.pushes is not None:
        return target
    return replace(target, pushes=lambda t: target.start <= t < target.end)


def test_an_empty_mount_point_makes_no_run_unreadable(rules_test: Callable[..., str], tmp_path: Path) -> None:
    """Whatever the thresholds: runs that were unreachable, and that an exporter which starts again does not know, are
    no runs that cannot be read."""
    away = until(10 * MINUTE, always(1), until(12 * MINUTE, always(0), always(None)))
    was = exporter(
        {"exporter_run_read_success": away},
        end=12 * MINUTE,
        **turns("running", 10 * MINUTE, "unreachable"),
    )
    unreadable = exporter({"exporter_run_read_success": until(10 * MINUTE, always(1), always(0))}, run="s")
    rules = rule_groups(Thresholds(interval_secs=15, hold_secs=MINUTE))
    query = f'ALERTS{{alertname="{UNREADABLE}",alertstate="firing"}}'
    fires = {f'{{alertname="{UNREADABLE}",run="s"}}': 1.0}
    queries = [(f"count by (alertname, run) ({query})", at, fires) for at in (12 * MINUTE, 14 * MINUTE, 16 * MINUTE)]
    rules_test(tmp_path, series_of([was, unreadable], 20 * MINUTE, 15), 15, rules=rules, queries=queries)


STEP = 60
FIRST_OF_EXPORTER = "First: check whether the exporter runs; if the alert has a logdir, check whether ls answers there."
LOST_TEXT = (
    "was killed, is suspended, or its machine is down: there is no heartbeat or answer, and no stop record. First: "
    "check whether the process still exists; if it does not, start the training again."
)
STALL_TEXT = (
    "The training process of the run {run} is alive and has made no progress for {age}, longer than the hang timeout "
    "of its phase: it hangs, or is far too slow.{where} First: read the stacks, then kill the training and start it "
    "again."
    "{command}"
)
INSPECT = " Command: tb-supervisor inspect --run=. --"
AT_STEP = 'thread="MainThread",location="train.py:88 in step",phase="training"'
NAMED = {
    "of exporters that divide the runs, which of them report": (
        SHARD,
        "warning",
        [exporter(instance=f"e{number}", run=f"r{number}", shard=(number, lambda t: 3)) for number in (0, 2)],
        {},
        [
            (
                {"job": "exporter"},
                "A shard of the exporter exporter is missing.",
                "Of the shards of the exporter exporter only these report: 0 of 3, 2 of 3. A training in another "
                "shard that dies now may cause no alert. First: check whether an exporter runs and is scraped for "
                "each shard from 0 on.",
            )
        ],
    ),
    "of an exporter, which logdir is behind; one that is gone names none": (
        DOWN,
        "warning",
        [
            exporter({"exporter_last_refresh_timestamp_seconds": ends(20 * MINUTE)}),
            exporter(run="q", logdir="/other"),
            exporter(run="s", job="gone", instance="exporter-2", end=20 * MINUTE),
        ],
        {},
        [
            (
                {"job": "exporter", "logdir": "/logs"},
                "The exporter exporter has no new data for /logs.",
                "The exporter of the job exporter could not read /logs; its storage may hang. A training there that "
                f"dies now may cause no alert. {FIRST_OF_EXPORTER}",
            ),
            (
                {"job": "gone"},
                "The exporter gone has no new data.",
                "The exporter of the job gone does not answer Prometheus. A training that dies now may cause no alert. "
                f"{FIRST_OF_EXPORTER}",
            ),
        ],
    ),
    "which exporters do not find a logdir, where several have one of that name": (
        VANISHED,
        "critical",
        [],
        {
            f'supervisor_exporter_logdir_up{{job="exporter",instance="{host}:10988",logdir="/data/runs"}}': up
            for host, up in (("a", 1), ("b", 0), ("c", 1), ("d", 1))
        }
        | {
            'supervisor_exporter_run_read_success{job="exporter",instance="c:10988",logdir="/data/runs",run="r"}': 1,
            'supervisor_run_state{job="exporter",instance="c:10988",run="r",state="unreachable"}': 1,
        },
        [
            (
                {"job": "exporter", "logdir": "/data/runs"},
                "Runs in /data/runs have disappeared.",
                "The exporter of the job exporter at b:10988, c:10988 does not find the logdir /data/runs, or live "
                "runs in it: the logdir is not mounted, was moved or deleted, or cannot be listed. A training there "
                "that dies now may cause no alert. First: look on the exporter's machine whether the logdir is "
                "mounted (ls).",
            )
        ],
    ),
    "which process on which machine is lost; where no source reports that any more, neither": (
        KILLED,
        "critical",
        [exporter(**LOST), exporter(run="q", instance="exporter-2", **LOST)],
        {'supervisor_run_info{run="r",job="exporter",instance="exporter-1",host="trainer-0",pid="4711"}': 1},
        [
            (
                {"run": run} | ({"host": "trainer-0"} if process else {}),
                f"The training {run} is lost.",
                f"The training process of the run {run}{process} {LOST_TEXT}",
            )
            for run, process in (("r", " (process 4711 on trainer-0)"), ("q", ""))
        ],
    ),
    "whose it is, by its labels; none of them is a label of the alert": (
        KILLED,
        "critical",
        [exporter(**LOST)],
        {
            'supervisor_run_info{run="r",job="exporter",instance="exporter-1",host="trainer-0",pid="4711",'
            'user="ada",team="@here",namespace="ml",exported_namespace="x",device_count="8"}': 1
        },
        [
            (
                {"run": "r", "host": "trainer-0"},
                "The training r is lost.",
                f"The training process of the run r (process 4711 on trainer-0) {LOST_TEXT}".replace(
                    " First: ", r" Labels: team=\x40here, user=ada. First: "
                ),
            )
        ],
    ),
    "how many died together, and on which hosts": (
        MANY,
        "critical",
        [exporter(run=f"r{n}", instance=f"exporter-{n}", **LOST) for n in range(6)],
        {
            f'supervisor_run_info{{run="r{n}",job="exporter",instance="exporter-{n}",host="{host}"}}': 1
            for n, host in enumerate(("a", "a", "b", "c", "c", "c"))
        },
        [
            (
                {},
                "6 trainings died together.",
                "6 trainings that died within 5m of each other are down: they are lost, or have failed. Hosts: a (2), "
                'b (1), c (3). Each has an alert of its own, with the label died="together". First: check what these '
                "trainings share: their hosts, the scheduler, the storage, the network.",
            )
        ],
    ),
    "what the program says, in its words": (
        NOTICE,
        "critical",
        [trainer(run="r", instance="t")],
        {
            'supervisor_notice_timestamp_seconds{run="r",job="trainer",instance="t",severity="page",'
            'text="accuracy <b>fell</b>"}': 40 * MINUTE - 60,
            'supervisor_notice_timestamp_seconds{run="r",job="exporter",instance="e",severity="page",'
            'text="something else"}': 40 * MINUTE - 600,
            'supervisor_run_info{run="r",job="trainer",instance="t",logdir="/logs/r",team="vision"}': 1,
        },
        [
            (
                {"run": "r"},
                r"The program of r says: accuracy \x3cb\x3efell\x3c/b\x3e",
                "The program of the training r has called notify with this text and the severity page. The alert ends "
                f"1h after the last call. Labels: team=vision. First: look at the run for what the text says.{INSPECT} "
                "/logs/r",
            )
        ],
    ),
    # By the trainer and by an exporter, in one sentence. The command that shows the run has the directory that the
    # exporter knows, else the trainer's; else there is none.
    "the line at which a training hangs; where it is not known, the text does without": (
        STALLED,
        "critical",
        [
            trainer(run=run, instance=instance, **HUNG)
            for run, instance in (("r", "t"), ("q", "q"), ("w", "w"), ("b", "b"), ("c", "c"), ("u", "u"))
        ],
        {
            f'supervisor_stall_info{{run="r",job="trainer",instance="t",{AT_STEP}}}': 1,
            f'supervisor_stall_info{{run="r",job="exporter",instance="e",{AT_STEP}}}': 1,
            'supervisor_stall_info{run="q",job="trainer",instance="q",phase="training"}': 1,
            f'supervisor_stall_info{{run="w",job="trainer",instance="w",{AT_STEP},activity="waits"}}': 1,
            f'supervisor_stall_info{{run="b",job="trainer",instance="b",{AT_STEP},activity="busy"}}': 1,
            'supervisor_stall_info{run="c",job="trainer",instance="c",culprit="rank 2",'
            'location="train.py:14 in stuck",phase="training",verdict="rank 2 hangs; rank 0 waits for it"}': 1,
            'supervisor_stall_info{run="u",job="trainer",instance="u",phase="training",'
            'verdict="undecided: two groups"}': 1,
            'supervisor_run_info{run="r",job="trainer",instance="t",logdir="/mnt/its own/r"}': 1,
            'supervisor_run_info{run="r",job="exporter",instance="e",logdir="/logs/r"}': 1,
            'supervisor_exporter_build_info{job="exporter",instance="e"}': 1,
            'supervisor_run_info{run="w",job="trainer",instance="w",logdir="/mnt/its own/w"}': 1,
        },
        [
            (
                {"run": run},
                f"The training {run} is stalled.",
                STALL_TEXT.format(run=run, age="20m 1s", where=where, command=command),
            )
            for run, where, command in (
                ("r", " MainThread is at train.py:88 in step.", f"{INSPECT} /logs/r"),
                ("q", "", ""),
                ("w", " MainThread waits at train.py:88 in step.", f"{INSPECT} '/mnt/its own/w'"),
                ("b", " MainThread is busy at train.py:88 in step.", ""),
                ("c", " Of its processes: rank 2 hangs; rank 0 waits for it.", ""),
                ("u", " Of its processes: undecided: two groups.", ""),
            )
        ],
    ),
}


@pytest.mark.parametrize(("alert", "severity", "targets", "besides", "named"), NAMED.values(), ids=NAMED)
def test_an_alert_names(
    rules_test: Callable[..., str],
    tmp_path: Path,
    alert: str,
    severity: str,
    targets: list[Target],
    besides: dict[str, float],
    named: list[tuple[dict[str, str], str, str]],
) -> None:
    """Its labels and its texts say where to look, as far as that is known."""
    end = 40 * MINUTE
    expected = [
        (
            {"severity": severity, **labels},
            {
                "summary": summary,
                "description": description,
                "runbook_url": f"{DEFAULT_RUNBOOK_BASE}#{alert.lower()}",
            },
        )
        for labels, summary, description in named
    ]
    rules_test(
        tmp_path,
        series_of(targets, end, STEP) | {name: f"{value}x{end // STEP}" for name, value in besides.items()},
        STEP,
        rules=rule_groups(Thresholds(interval_secs=STEP)),
        alerts=[(alert, end, expected)],
    )


LINKS = {
    # What a browser makes of it: run=a b/ü&x=wall&zoom=-1200~2700
    "tensorboard_url": "http://tb:6006/#supervisor&p.supervisor.s="
    "run%3Da%2Bb%252F%25C3%25BC%26x%3Dwall%26zoom%3D-1200~2700",
    "dashboard_url": "https://grafana/d/tb-supervisor?var-run=a+b%2F%C3%BC&var-cluster=&from=-1200000&to=2700000",
}


def test_an_alert_links_to_the_run_at_its_time(rules_test: Callable[..., str], tmp_path: Path) -> None:
    """In the tab and in the dashboard, whatever the run is called."""
    screens = Screens(tensorboard_url="http://tb:6006/", dashboard_url="https://grafana/d/tb-supervisor")
    rules = rule_groups(Thresholds(interval_secs=STEP), screens=screens)
    for rule in (rule for group in rules["groups"] for rule in group["rules"]):
        if "alert" in rule:
            rule["annotations"] = {name: text for name, text in rule["annotations"].items() if name in LINKS}
    expected = [({"severity": "critical", "run": "a b/ü"}, LINKS)]
    series = series_of([exporter(run="a b/ü", **LOST)], 40 * MINUTE, STEP)
    rules_test(tmp_path, series, STEP, rules=rules, alerts=[(KILLED, 40 * MINUTE, expected)])


def test_a_run_that_ended_long_ago_costs_no_recorded_series(rules_test: Callable[..., str], tmp_path: Path) -> None:
    """Nothing is recorded of it, however much an exporter serves of it; of one that ended an hour ago it is."""
    series = {}
    for run, ago in (("old", 2 * DAY), ("new", HOUR)):
        over: Any = always(-ago)
        ended = {"active": always(0), "seen": over, "progress": over, "state": lambda t: "completed"}
        series |= series_of(
            [exporter({"exporter_last_event_timestamp_seconds": over}, run=run, **ended)], 20 * MINUTE, STEP
        )
    query = 'group by (run) ({__name__=~"run:.*"})'
    rules = rule_groups(Thresholds(interval_secs=STEP))
    rules_test(tmp_path, series, STEP, rules=rules, queries=[(query, 20 * MINUTE, {'{run="new"}': 1})])


def test_the_rule_file_is_valid(promtool: Callable[..., str], tmp_path: Path) -> None:
    """Prometheus takes the rules, and finds nothing to complain of."""
    (tmp_path / "rules.yaml").write_text(to_yaml(rule_groups()))
    promtool("check", "rules", "--lint=all", "--lint-fatal", tmp_path / "rules.yaml")


def test_every_alert_is_tried_both_ways() -> None:
    """Each alert has a scenario in which it fires and one in which it is silent throughout; no other name is tested."""
    assert set(EVERY) == ALERTS
    for about, cases in EVERY.items():
        firing = [set().union(*moments.values()) for _, _, moments in cases]
        assert any(about in names for names in firing), f"nothing lets {about} fire"
        assert any(about not in names for names in firing), f"{about} is silent in no scenario"
        assert set().union(*firing) <= ALERTS
