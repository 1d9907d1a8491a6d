"""``tb-supervisor rules``: the rules, and options that make sense or are refused in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import yaml
from click.testing import Result

from supervisor_core.metrics.config_files import Screens, dashboard, rule_groups
from supervisor_core.run.model.thresholds import Thresholds
from tests.cases import each


def printed(result: Result) -> Any:
    """What was printed, as Prometheus reads it."""
    assert result.exit_code == 0, result.output
    return yaml.safe_load(result.stdout)


def test_it_prints_the_rules(run: Callable[..., Result]) -> None:
    """Without options, the rules as they are."""
    assert printed(run("rules")) == rule_groups()


def test_every_option_arrives(run: Callable[..., Result]) -> None:
    """Each option moves the threshold that it is named for."""
    result = run(
        *("rules", "--interval", "1s", "--hold", "2s", "--forget", "1h30m", "--behind", "9s", "--unanswered", "12s"),
        *("--many", "9", "--goodput-below", "0.75", "--runbook-base", "https://wiki.example.org/alerts"),
        *("--severity", "lost=warning", "--label", "team=vision", "--label", "tier=1"),
    )
    limits = Thresholds(
        interval_secs=1,
        hold_secs=2,
        forget_secs=5400,
        behind_secs=9,
        many=9,
        unanswered_secs=12,
        goodput_below=0.75,
    )
    assert printed(result) == rule_groups(
        limits,
        runbook_base="https://wiki.example.org/alerts",
        severities={"lost": "warning"},
        labels={"team": "vision", "tier": "1"},
    )
    for group, default in zip(printed(result)["groups"], rule_groups()["groups"], strict=True):
        assert all(rule not in default["rules"] for rule in group["rules"] if "alert" in rule)


def test_links_to_the_run_arrive(run: Callable[..., Result]) -> None:
    """In the alerts of a run, in the manifests and in the dashboard."""
    links = ("--tensorboard-url", "http://tb:6006", "--dashboard-url", "https://grafana/d/tb-supervisor")
    screens = Screens(tensorboard_url=links[1], dashboard_url=links[3])
    assert printed(run("rules", *links)) == rule_groups(screens=screens)
    assert "tensorboard_url: http://tb:6006/#supervisor" in run("manifests", *links).stdout
    assert json.loads(run("dashboard", *links[:2]).stdout) == dashboard(screens)


@each(
    "arguments, complaint",
    [
        (("--by", "namespace"), "expected 'run' first"),
        (("--by", "run,run"), "each label once"),
        (("--by", "run,a-b"), "'a-b' cannot identify a run"),
        (("--hold", "soon"), "'soon' is not a duration above 0; write 15, 15s, 2m or 1h30m"),
        (("--hold", "0s"), "'0s' is not a duration"),
        (("--goodput-below", "nan"), "--goodput-below is nan; expected a share"),
        (("--many", "1"), "--many is 1; expected at least 2"),
        (("--severity", "death=warning"), "--severity is of 'death'; expected a kind of finding"),
        (("--severity", "lost"), "'lost'; expected KIND=SEVERITY"),
        (("--label", "run=x"), "--label is of 'run', which each alert has already"),
        (("--by", "run,severity"), "'severity' cannot identify a run"),
        (("--label", "a-b=c"), "'a-b=c'; expected NAME=VALUE"),
        (("--runbook-base", "docs/alerts.md"), "'--runbook-base': 'docs/alerts.md'; expected a URL"),
        (("--runbook-base", "https://x/#top"), "without '#'"),
        (("--tensorboard-url", "tensorboard:6006"), "'tensorboard:6006'; expected a URL like"),
    ],
)
def test_what_makes_no_sense_is_refused(run: Callable[..., Result], arguments: tuple[str, ...], complaint: str) -> None:
    """One clear line, status 2, and no rules."""
    result = run("rules", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert complaint in result.stderr.splitlines()[-1]
