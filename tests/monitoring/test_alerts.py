"""Every alert, put by promtool through what happens to trainings: it fires when it is true, and else it is silent.

The scenarios are in scenarios.py and the other files named *_scenarios.py.
At each moment of one, exactly the alerts fire that are named there, once each.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from monitoring_cluster_scenarios import CLUSTER_SCENARIOS
from monitoring_exporter_scenarios import EXPORTER_SCENARIOS
from monitoring_happenings import DOWN, HUNG, KILLED, STALLED, Moments, ends
from monitoring_scenarios import SCENARIOS
from monitoring_served import HOUR, MINUTE, always, exporter, trainer, values
from monitoring_silent_scenarios import SILENT_SCENARIOS
from monitoring_state_scenarios import LOST, STATE_SCENARIOS
from monitoring_writing_scenarios import WRITING_SCENARIOS

from supervisor_core.exporter.config_files import rule_groups, to_yaml
from supervisor_core.exporter.thresholds import DEFAULT_RUNBOOK_BASE, Thresholds

pytestmark = pytest.mark.timeout(900)  # the first test waits for all scenarios
EVERY = STATE_SCENARIOS | SCENARIOS | CLUSTER_SCENARIOS | EXPORTER_SCENARIOS | WRITING_SCENARIOS | SILENT_SCENARIOS
CASES = [(about, *case) for about, cases in EVERY.items() for case in cases]
BATCHES = ((0.5, 15), (1, 60), (2, 60), (6, 180), (12, 300), (30, 300), (24 * 30, 600))
"""(hours, seconds): scenarios of up to these hours are evaluated at this interval."""
ALERTS = {rule["alert"] for group in rule_groups()["groups"] for rule in group["rules"] if "alert" in rule}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the rules as they are shipped, and with the same rules evaluated more rarely."""
    path = tmp_path_factory.mktemp("rules")
    for step in {15, *(step for _, step in BATCHES)}:
        (path / f"rules-{step}.yaml").write_text(to_yaml(rule_groups(Thresholds(interval_secs=step))))
    return path


def batch_of(moments: Moments) -> tuple[float, int]:
    """Up to when a scenario's batch goes, and at which interval: many hours of 15 s each take promtool long."""
    end = max(moments)
    return next((hours * HOUR, step) for hours, step in BATCHES if end <= hours * HOUR)


def apart(series: str, number: int) -> str:
    """A series of a scenario, with labels that no other scenario has."""
    return re.sub(r'\b(run|job|instance|logdir)="', rf'\1="{number}:', series)


@pytest.fixture(scope="module")
def wrong(promtool: Callable[..., str], directory: Path) -> dict[int, str]:
    """What promtool finds wrong, by the scenario's number. Scenarios of like length are put through it together, since
    most of its time goes into evaluating the rules at each moment, for however many runs."""
    batches: dict[tuple[float, int], list[int]] = {}
    for number, (*_, moments) in enumerate(CASES):
        batches.setdefault(batch_of(moments), []).append(number)
    found: dict[int, str] = {}
    for (end, step), numbers in batches.items():
        test: dict[str, Any] = {"interval": f"{step}s", "input_series": [], "promql_expr_test": []}
        for number in numbers:
            _, _, targets, moments = CASES[number]
            series = {labels: value for target in targets for labels, value in target.series().items()}
            test["input_series"] += [
                {"series": apart(key, number), "values": values(value, max(moments), step)}
                for key, value in series.items()
            ]
            firing = f'ALERTS{{alertstate="firing",run=~"{number}:.*"}}'
            of_exporters = f'ALERTS{{alertstate="firing",run="",job=~"{number}:.*"}}'
            test["promql_expr_test"] += [
                {
                    "expr": f"count by (alertname) ({firing} or {of_exporters})",
                    "eval_time": f"{int(at)}s",
                    "exp_samples": [{"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in sorted(names)],
                }
                for at, names in moments.items()
            ]
        path = directory / f"until-{end:.0f}.yaml"
        asked = {"rule_files": [f"rules-{step}.yaml"], "evaluation_interval": f"{step}s", "tests": [test]}
        path.write_text(to_yaml(asked))
        said = promtool("test", "rules", path, check=False)
        failures = re.findall(r'expr: ".*?run=~.{1,2}"(\d+):(.*?)(?=expr: "|\Z)', said, re.DOTALL)
        assert failures or "SUCCESS" in said, said
        for number, text in failures:
            found[int(number)] = found.get(int(number), "") + text
    return found


@pytest.mark.parametrize("number", range(len(CASES)), ids=[f"{case[0]}: {case[1]}" for case in CASES])
def test_what_fires(wrong: dict[int, str], number: int) -> None:
    """At each moment of the scenario exactly the alerts fire that should, each once."""
    assert number not in wrong, wrong[number]


def test_the_logdir_that_hangs_is_named(promtool: Callable[..., None], directory: Path) -> None:
    """The alert of an exporter says in its label, and in words, which logdir is behind; one that is gone names none."""
    targets = [
        exporter({"exporter_last_refresh_timestamp_seconds": ends(20 * MINUTE)}),
        exporter(run="q", logdir="/other"),
        exporter(run="s", job="gone", instance="exporter-2", end=20 * MINUTE),
    ]
    series = {labels: value for target in targets for labels, value in target.series().items()}
    first = "First: check whether the exporter runs; if the alert has a logdir, check whether ls answers there."
    alerts = [
        (
            {"job": "exporter", "logdir": "/logs"},
            "The exporter exporter has no new data for /logs.",
            "The exporter of the job exporter could not read /logs; its storage may hang. A training there that dies "
            f"now may cause no alert. {first}",
        ),
        (
            {"job": "gone"},
            "The exporter gone has no new data.",
            "The exporter of the job gone does not answer Prometheus. A training that dies now may cause no alert. "
            f"{first}",
        ),
    ]
    test = {
        "interval": "15s",
        "input_series": [{"series": key, "values": values(value, 40 * MINUTE, 15)} for key, value in series.items()],
        "alert_rule_test": [
            {
                "eval_time": "40m",
                "alertname": DOWN,
                "exp_alerts": [
                    {
                        "exp_labels": {"severity": "warning", **labels},
                        "exp_annotations": {
                            "summary": summary,
                            "description": description,
                            "runbook_url": f"{DEFAULT_RUNBOOK_BASE}#{DOWN.lower()}",
                        },
                    }
                    for labels, summary, description in alerts
                ],
            }
        ],
    }
    path = directory / "named.yaml"
    path.write_text(to_yaml({"rule_files": ["rules-15.yaml"], "evaluation_interval": "15s", "tests": [test]}))
    promtool("test", "rules", path)


def test_the_process_that_is_lost_is_named(promtool: Callable[..., None], directory: Path) -> None:
    """The page says which process on which machine to look for; where no source reports that any more, it does not."""
    info = 'supervisor_run_info{run="r",job="exporter",instance="exporter-1",host="trainer-0",pid="4711"}'
    series = {
        **exporter(**LOST).series(),
        info: always(1),
        **exporter(run="q", instance="exporter-2", **LOST).series(),
    }
    text = (
        "was killed, is suspended, or its machine is down: there is no heartbeat or answer, and no stop record. First: "
        "check whether the process still exists; if it does not, start the training again."
    )
    test = {
        "interval": "15s",
        "input_series": [{"series": key, "values": values(value, 10 * MINUTE, 15)} for key, value in series.items()],
        "alert_rule_test": [
            {
                "eval_time": "10m",
                "alertname": KILLED,
                "exp_alerts": [
                    {
                        "exp_labels": {"severity": "critical", "run": run},
                        "exp_annotations": {
                            "summary": f"The training {run} is lost.",
                            "description": f"The training process of the run {run}{process} {text}",
                            "runbook_url": f"{DEFAULT_RUNBOOK_BASE}#{KILLED.lower()}",
                        },
                    }
                    for run, process in (("r", " (process 4711 on trainer-0)"), ("q", ""))
                ],
            }
        ],
    }
    path = directory / "process.yaml"
    path.write_text(to_yaml({"rule_files": ["rules-15.yaml"], "evaluation_interval": "15s", "tests": [test]}))
    promtool("test", "rules", path)


def test_the_line_at_which_a_training_hangs_is_named(promtool: Callable[..., None], directory: Path) -> None:
    """By the trainer and by an exporter, in one sentence; where it is not known, the text does without.

    The command that shows the run has the directory that the exporter knows, else the trainer's; else there is none.
    """
    inspect = " Command: tb-supervisor inspect --run=. --"
    labels = 'thread="MainThread",location="train.py:88 in step",phase="training"'
    series = {
        **trainer(**HUNG).series(),
        f'supervisor_stall_info{{run="r",job="trainer",instance="t",{labels}}}': always(1),
        f'supervisor_stall_info{{run="r",job="exporter",instance="e",{labels}}}': always(1),
        **trainer(run="q", instance="q", **HUNG).series(),
        'supervisor_stall_info{run="q",job="trainer",instance="q",phase="training"}': always(1),
        **trainer(run="w", instance="w", **HUNG).series(),
        f'supervisor_stall_info{{run="w",job="trainer",instance="w",{labels},activity="waits"}}': always(1),
        **trainer(run="b", instance="b", **HUNG).series(),
        f'supervisor_stall_info{{run="b",job="trainer",instance="b",{labels},activity="busy"}}': always(1),
        'supervisor_run_info{run="r",job="trainer",instance="t",logdir="/mnt/its own/r"}': always(1),
        'supervisor_run_info{run="r",job="exporter",instance="e",logdir="/logs/r"}': always(1),
        'supervisor_exporter_build_info{job="exporter",instance="e"}': always(1),
        'supervisor_run_info{run="w",job="trainer",instance="w",logdir="/mnt/its own/w"}': always(1),
    }
    test = {
        "interval": "15s",
        "input_series": [{"series": key, "values": values(value, 40 * MINUTE, 15)} for key, value in series.items()],
        "alert_rule_test": [
            {
                "eval_time": "40m",
                "alertname": STALLED,
                "exp_alerts": [
                    {
                        "exp_labels": {"severity": "critical", "run": run},
                        "exp_annotations": {
                            "summary": f"The training {run} is stalled.",
                            "description": f"The training process of the run {run} is alive and has made no progress "
                            f"for 20m 1s, longer than the budget of its phase: it hangs, or is far too slow.{place} "
                            f"First: read the stacks, then kill the training and start it again.{command}",
                            "runbook_url": f"{DEFAULT_RUNBOOK_BASE}#{STALLED.lower()}",
                        },
                    }
                    for run, place, command in (
                        ("r", " MainThread is at train.py:88 in step.", f"{inspect} /logs/r"),
                        ("q", "", ""),
                        ("w", " MainThread waits at train.py:88 in step.", f"{inspect} '/mnt/its own/w'"),
                        ("b", " MainThread is busy at train.py:88 in step.", ""),
                    )
                ],
            }
        ],
    }
    path = directory / "line.yaml"
    path.write_text(to_yaml({"rule_files": ["rules-15.yaml"], "evaluation_interval": "15s", "tests": [test]}))
    promtool("test", "rules", path)


def test_the_rule_file_is_valid(promtool: Callable[..., None], directory: Path) -> None:
    """Prometheus takes the rules, and finds nothing to complain of."""
    promtool("check", "rules", "--lint=all", "--lint-fatal", directory / "rules-15.yaml")


def test_every_alert_is_tried_both_ways() -> None:
    """Each alert has a scenario in which it fires and one in which it is silent throughout; no other name is tested."""
    assert set(EVERY) == ALERTS
    for about, cases in EVERY.items():
        firing = [set().union(*moments.values()) for _, _, moments in cases]
        assert any(about in names for names in firing), f"nothing lets {about} fire"
        assert any(about not in names for names in firing), f"{about} is silent in no scenario"
        assert set().union(*firing) <= ALERTS
