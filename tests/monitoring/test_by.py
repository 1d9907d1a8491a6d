"""Rules, their texts and the dashboard tell runs apart by more labels than their names."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from monitoring_happenings import BROKEN, HUNG, STALLED
from monitoring_served import MINUTE, series_of, trainer
from monitoring_servers import as_asked

from supervisor_core.metrics.config_files import Screens, dashboard, rule_groups
from supervisor_core.run.model.thresholds import Thresholds


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
    groups = rule_groups(by=("run", "namespace"))["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    (failed,) = [rule for rule in rules if rule.get("alert") == BROKEN]
    wanted = "printf `run:supervisor_run_error:known{run=%[1]q,namespace=%[2]q}` $labels.run $labels.namespace | query"
    assert wanted in failed["annotations"]["summary"] and wanted in failed["annotations"]["description"]


def test_an_alert_names_the_namespace_of_its_run(rules_test: Callable[..., str], tmp_path: Path) -> None:
    """In its summary, and in the link to the dashboard: a chat that prints no labels shows whose run it is."""
    screens = Screens(dashboard_url="https://grafana/d/tb-supervisor")
    rules = rule_groups(Thresholds(interval_secs=30), by=("run", "namespace", "cluster"), screens=screens)
    for rule in (rule for group in rules["groups"] for rule in group["rules"]):
        if "alert" in rule:
            rule["annotations"] = {name: rule["annotations"].get(name, "") for name in ("summary", "dashboard_url")}
    texts = {
        "summary": "The training r in namespace a\\x26b is stalled.",
        "dashboard_url": "https://grafana/d/tb-supervisor?var-run=r&var-namespace=a%26b&var-cluster=&from=-1980000"
        "&to=1920000",
    }
    labels = {"severity": "critical", "run": "r", "namespace": "a&b"}
    series = series_of([trainer(labels=',namespace="a&b"', **HUNG)], 27 * MINUTE, 30)
    rules_test(tmp_path, series, 30, rules=rules, alerts=[(STALLED, 27 * MINUTE, [(labels, texts)])])


def test_the_dashboard_tells_namesakes_apart(rules_test: Callable[..., str], tmp_path: Path) -> None:
    """Two runs of one name in two namespaces have a row each in the table; where one namespace is chosen, a panel of
    the run shows its run alone, and where none is, both, with their namespaces."""
    tables = {panel["title"]: panel for panel in dashboard()["panels"] if panel["type"] == "table"}
    (panel,) = [panel for panel in dashboard()["panels"] if panel["title"] == "Step"]
    step, steps = panel["targets"][0]["expr"], tables["Runs"]["targets"][2]["expr"]
    a, b = '{run="r",namespace="a",cluster="c"}', '{run="r",namespace="b",cluster="c"}'
    series = {f"supervisor_global_step{a}": "1x9", f"supervisor_global_step{b}": "2x9"}
    both = {a: 1, b: 2}
    queries = [
        (as_asked(steps, "r"), 60, both),
        (as_asked(step, "r"), 60, both),
        (as_asked(step.replace("$namespace", "b"), "r"), 60, {b: 2}),
    ]
    rules_test(tmp_path, series, 30, queries=queries)
    (kept, *_) = tables["Runs"]["transformations"]
    assert {"run", "namespace", "cluster"} <= set(kept["options"]["include"]["names"])


def test_no_query_of_the_dashboard_mixes_namesakes() -> None:
    """Whatever is asked of one run is asked of its namespace, and what is one value for each run is one for each
    namespace, too; its legend says of which."""
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            asked, legend = target["expr"], target["legendFormat"]
            of_one = asked.count('run="$run"')
            assert asked.count('run="$run",namespace=~"$namespace",cluster=~"$cluster"') == of_one
            groups = re.findall(r"\b(?:by|on) \(([^)]*)\)", asked)
            assert groups
            if of_one or "supervisor_exporter" not in asked:
                assert all(group.startswith("run, namespace, cluster") for group in groups)
                assert legend == "__auto" or legend.endswith(" {{namespace}} {{cluster}}")
