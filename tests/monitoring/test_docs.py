"""docs/alerts.md is in step with the rules: every alert, what it means, what to look at and what to do."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor_core.base.options import OPTION_NAMES
from supervisor_core.metrics.config_files import rule_groups, to_yaml
from supervisor_core.metrics.table import ALL_METRICS
from tests.cases import each

PAGE = Path(__file__).parents[2] / "docs" / "alerts.md"
TEXT = PAGE.read_text(encoding="utf-8") if PAGE.is_file() else ""
RULES = [rule for group in rule_groups()["groups"] for rule in group["rules"]]
ALERTS = {rule["alert"]: rule for rule in RULES if "alert" in rule}
SECTIONS = dict(re.findall(r"^## (Supervisor\w+)\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL))
QUERIES = re.findall(r"```promql\n(.*?)```", TEXT, re.DOTALL)

pytestmark = pytest.mark.skipif(not TEXT, reason="the documentation is not part of what is tested here")


def test_every_alert_has_a_section_and_no_other() -> None:
    """Alerts and sections are the same, in the same order."""
    assert list(SECTIONS) == sorted(ALERTS, key=TEXT.index) and set(SECTIONS) == set(ALERTS)


@each("alert", ALERTS)
def test_a_section_helps(alert: str) -> None:
    """Each says what the alert means, what to look at, with a query, what to do, and what is none, in this order."""
    text = SECTIONS[alert]
    parts = [text.index(f"**{part}.**") for part in ("Meaning", "Look at", "Do", "False alarm")]
    assert parts == sorted(parts)
    assert "```promql" in text[parts[1] : parts[2]]


def test_the_first_line_says_what_since_when_and_what_to_do() -> None:
    """Of each alert, so that whoever reads one line knows; no other text repeats it."""
    for rule in (rule for rule in RULES if "alert" in rule):
        summary, description = rule["annotations"]["summary"], rule["annotations"]["description"]
        assert 0 < summary.index(" Since {{") < summary.index(" First: ")
        assert "First: " not in description and " Since {{" not in description


@each("alert", ALERTS)
def test_the_first_action_is_that_of_the_summary(alert: str) -> None:
    """A section begins with what to do first; where the rules say it, and no finding does, in the same words."""
    found = re.match(r"\n\*\*First\.\*\* (.*)\n", SECTIONS[alert])
    assert found is not None, "the section does not begin with the first action"
    _, first = ALERTS[alert]["annotations"]["summary"].split(" First: ")
    if "{{" not in first:
        assert first.endswith(".") and ". " not in first
        assert found[1] == first[0].upper() + first[1:]


@each("alert", ALERTS)
def test_the_table_has_the_severity_and_the_link(alert: str) -> None:
    """Each alert has a row with its severity, and its runbook leads to its section."""
    severity = " or ".join(dict.fromkeys(rule["labels"]["severity"] for rule in RULES if rule.get("alert") == alert))
    if severity.startswith("{{"):
        severity = " or ".join(re.findall(r"}(critical|warning|info){", severity))
    assert re.search(rf"^\| \[`{alert}`\]\(#{alert.lower()}\) \| {severity} \| ", TEXT, re.MULTILINE)
    assert ALERTS[alert]["annotations"]["runbook_url"].endswith(f"#{alert.lower()}")


def test_every_name_exists() -> None:
    """No metric, recorded series or option is named that does not exist."""
    recorded = {rule["record"] for rule in RULES if "record" in rule}
    assert set(re.findall(r"\b(?:run|instance):\w+:\w+", TEXT)) <= recorded
    served = {metric.name for metric in ALL_METRICS}
    served |= {f"{metric.name}_bucket" for metric in ALL_METRICS if metric.type == "histogram"}
    assert set(re.findall(r"(?<![:\w])supervisor_(?!core\b)\w+", TEXT)) <= served
    assert set(re.findall(r"Options\.(\w+)", TEXT)) <= set(OPTION_NAMES)


def test_every_query_is_valid(promtool: Callable[..., None], tmp_path: Path) -> None:
    """Prometheus takes each query of the page as a rule."""
    rules = [{"record": f"docs:{number}", "expr": query} for number, query in enumerate(QUERIES)]
    (tmp_path / "docs.yaml").write_text(to_yaml({"groups": [{"name": "docs", "rules": rules}]}))
    promtool("check", "rules", tmp_path / "docs.yaml")
