"""A name in an alert is a name: it pings nobody, links nowhere, and a command with it is the one that was meant.

Texts are expanded by Prometheus's own promtool, from what is served of runs with hostile names.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from pasting import NAMES, commands_in, paste

from supervisor_core.base.log import command_line, printable
from supervisor_core.metrics.config_files import rule_groups
from supervisor_core.metrics.render import label_text, lines
from supervisor_core.metrics.table import RUN_METRICS
from supervisor_core.run.judge.finding import KINDS, Finding
from supervisor_core.run.status import RunStatus

ALERTS = [rule for group in rule_groups()["groups"] for rule in group["rules"] if "alert" in rule]
MARKUP = re.compile(r"[<>&@\[\]`]")
METRICS = [metric for metric in RUN_METRICS if metric.name in ("supervisor_run_info", "supervisor_finding_text_info")]


@dataclass(frozen=True)
class Text:
    """An alert of a run."""

    run: str
    annotations: dict[str, str]


@pytest.fixture(scope="module")
def texts(rules_test: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> list[Text]:
    """Every alert of every run, as whoever is on call reads it."""
    series: dict[str, str] = {}
    for name in NAMES:
        action = command_line("tb-supervisor", "stacks", "--", name)
        findings = tuple(Finding(kind=kind, severity="page", text=name, action=action) for kind in KINDS)
        status = RunStatus(run=name, active=True, labels={"team": name}, findings=findings)
        for metric in METRICS:
            for line in lines(metric, metric.read(status, 0.0)).decode().rstrip("\n").split("\n"):
                series[line.removesuffix(" 1.0")] = "1"
    expr = "group by (run) (supervisor_run_info)"
    for label in ("host", "logdir", "job", "instance"):
        expr = f'label_replace({expr}, "{label}", "$1", "run", "(?s)(.*)")'
    rules = [{**rule, "alert": f"A{number}", "expr": expr, "for": "0s"} for number, rule in enumerate(ALERTS)]
    for rule in rules:
        rule["annotations"] = {name: text for name, text in rule["annotations"].items() if name != "runbook_url"}
    said = rules_test(  # what it got, where none was expected
        tmp_path_factory.mktemp("promtool"),
        series,
        15,
        rules={"groups": [{"name": "all", "interval": "15s", "rules": rules}]},
        alerts=[(rule["alert"], 0, []) for rule in rules],
        check=False,
    )
    found = re.findall(r"^ *Labels:\{(.*)\}\n *Annotations:\{(.*)\}", said, re.MULTILINE)
    read = [(pairs(labels), pairs(annotations)) for labels, annotations in found]
    assert len(read) == len(rules) * len({label_text(name) for name in NAMES}), said[:2000]
    return [Text(labels["run"], annotations) for labels, annotations in read]


def pairs(text: str) -> dict[str, str]:
    """Labels as promtool writes them."""
    return {name: ast.literal_eval(value) for name, value in re.findall(r'(\w+)=("(?:[^"\\]|\\.)*")', text)}


def test_a_name_is_shown_as_text(texts: list[Text]) -> None:
    """Nothing in an alert's texts is obeyed by a terminal, or is markup of a chat, of Markdown or of HTML."""
    for text in texts:
        for value in text.annotations.values():
            assert "<error" not in value and printable(value) == value
            assert MARKUP.search(value) is None, value


def test_harmless_names_are_shown_as_they_are(texts: list[Text]) -> None:
    """People see the names that they gave."""
    shown = {text.run: text.annotations["summary"] for text in texts if text.annotations["summary"].count(": ") == 2}
    for name in ("mnist", "my run", "a=b", "it's $(touch pwned)", "\u00fc\u65e5\u672c", "-rf"):
        assert name in shown[name]
    assert r"\x3c!channel\x3e" in shown["<!channel>"] and r"\u202egnp.exe" in shown["\u202egnp.exe"]


def test_a_pasted_command_is_the_one_that_was_meant(texts: list[Text], tmp_path: Path) -> None:
    """Each shows the directory of its own run, and runs nothing else; one with markup in it is not there."""
    said = [(text.run, each) for text in texts for each in commands_in(text.annotations["summary"])]
    assert {run for run, _ in said} > {"mnist", "my run", "it's $(touch pwned)"}
    names = {label_text(name): name for name in NAMES}
    meant = [["tb-supervisor", "stacks", "--", label_text(names[run])] for run, _ in said]
    assert paste([command for _, command in said], tmp_path / "bash") == meant
    assert paste([command for _, command in said], tmp_path / "dash", shell="dash") == meant
