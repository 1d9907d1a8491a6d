"""Rules that distinguish runs by more labels than their names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from monitoring_happenings import BROKEN, HUNG, STALLED
from monitoring_served import MINUTE, series_of, trainer

from supervisor_core.metrics.config_files import rule_groups
from supervisor_core.run.thresholds import Thresholds


def test_one_that_hangs_is_not_hidden_by_its_namesake(
    promtool: Callable[..., str], rules_test: Callable[..., str], tmp_path: Path
) -> None:
    """Two runs of one name in two namespaces: the alert says in which of them the run hangs, and there alone."""
    targets = [trainer(labels=',namespace="a"', **HUNG), trainer(labels=',namespace="b"', instance="pod-2")]
    stalled = {f'{{alertname="{STALLED}",namespace="a",run="r"}}': 1}
    rules_test(
        tmp_path,
        series_of(targets, 27 * MINUTE, 30),
        30,
        rules=rule_groups(Thresholds(interval_secs=30), by=("run", "namespace")),
        queries=[('count by (alertname, run, namespace) (ALERTS{alertstate="firing"})', 27 * MINUTE, stalled)],
    )
    promtool("check", "rules", "--lint=all", "--lint-fatal", tmp_path / "rules.yaml")


def test_an_alert_s_text_is_about_its_own_run() -> None:
    """A query in an alert's text selects by all the labels that distinguish runs."""
    rules = rule_groups(by=("run", "namespace"))["groups"][0]["rules"]
    (failed,) = [rule for rule in rules if rule.get("alert") == BROKEN]
    wanted = "printf `run:supervisor_run_error:known{run=%[1]q,namespace=%[2]q}` $labels.run $labels.namespace | query"
    assert wanted in failed["annotations"]["summary"] and wanted in failed["annotations"]["description"]
