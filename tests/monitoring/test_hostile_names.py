"""A name in an alert is a name: it pings nobody, links nowhere, and a command with it is the one that was meant.

Texts are expanded by Prometheus's own promtool, from what an exporter serves of runs with hostile names.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner
from pasting import NAMES, commands_in, paste
from prometheus_client.parser import text_string_to_metric_families

from supervisor_core.base.log import printable
from supervisor_core.cli import main
from supervisor_core.metrics.config_files import rule_groups
from supervisor_core.metrics.exporter import Exporter
from supervisor_core.metrics.render import choose_format, label_text
from supervisor_core.run.watch.logdir_watch import LogdirWatch
from tests.story import run_file

RULES = [rule for group in rule_groups()["groups"] for rule in group["rules"]]
ALERTS = [rule for rule in RULES if "alert" in rule]
WITH_COMMAND = 8
"""How many alerts say which command to give."""
LABELS = ("thread", "worker", "logdir", "job", "instance")
RECORDED = {
    "supervisor_stall_info": ("thread", "culprit", "location", "verdict"),
    "run:supervisor_run_error:known": ("error",),
}
MARKUP = re.compile(r"[<>&@\[\]`]")


def relabelled(*labels: str) -> str:
    """One series for each run, with the run's name in these labels too."""
    expr = "group by (run) (supervisor_run_info)"
    for label in labels:
        expr = f'label_replace({expr}, "{label}", "$1", "run", "(?s)(.*)")'
    return expr


@dataclass(frozen=True)
class Text:
    """An alert of a run."""

    alert: str
    run: str
    annotations: dict[str, str]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, module_at: Callable[[str], ModuleType]) -> dict[str, Path]:
    """Name -> the directory of a run that is called so, and lies in a directory that is called so as well."""
    logdir = tmp_path_factory.mktemp("logdir")
    made = {name: logdir / name.replace("/", "_") for name in NAMES}
    for name, directory in made.items():
        run_file.RunFile(directory).ready(run=label_text(name))
    return made


@pytest.fixture(scope="module")
def texts(
    runs: dict[str, Path], rules_test: Callable[..., str], tmp_path_factory: pytest.TempPathFactory
) -> list[Text]:
    """Every alert of every run, as whoever is on call reads it."""
    logdir = next(iter(runs.values())).parent
    exporter = Exporter([LogdirWatch(str(logdir))], detail=True)  # they were lost long ago, and are at rest
    exporter.refresh()
    page = exporter.scrape(choose_format("")).decode()
    series = [
        {**sample.labels, "job": "exporter", "__name__": sample.name}
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name in ("supervisor_run_info", "supervisor_exporter_build_info")
    ]
    rules = [{"record": name, "expr": relabelled(*labels)} for name, labels in RECORDED.items()]
    rules += [{**rule, "expr": relabelled(*LABELS), "for": "0s"} for rule in ALERTS]
    said = rules_test(  # what it got, where none was expected
        tmp_path_factory.mktemp("promtool"),
        {written(labels): "1" for labels in series},
        15,
        rules={"groups": [{"name": "all", "interval": "15s", "rules": rules}]},
        alerts=[(rule["alert"], 0, []) for rule in ALERTS],
        check=False,
    )
    found = re.findall(r"^ *Labels:\{(.*)\}\n *Annotations:\{(.*)\}", said, re.MULTILINE)
    read = [(pairs(labels), pairs(annotations)) for labels, annotations in found]
    return [Text(labels["alertname"], labels["run"], annotations) for labels, annotations in read]


def written(labels: dict[str, str]) -> str:
    """A series as promtool reads it."""
    own = ",".join(f"{name}={json.dumps(text, ensure_ascii=False)}" for name, text in labels.items() if name[0] != "_")
    return f"{labels['__name__']}{{{own}}}"


def pairs(text: str) -> dict[str, str]:
    """Labels as promtool writes them."""
    return {name: ast.literal_eval(value) for name, value in re.findall(r'(\w+)=("(?:[^"\\]|\\.)*")', text)}


def test_every_alert_of_every_run_is_looked_at(texts: list[Text]) -> None:
    """No text is missing in what follows, and none failed to expand."""
    named = {label_text(name) for name in NAMES}
    assert {(text.alert, text.run) for text in texts} == {(rule["alert"], name) for rule in ALERTS for name in named}
    assert not any("<error" in value for text in texts for value in text.annotations.values())


def test_a_name_is_shown_as_text(texts: list[Text]) -> None:
    """Nothing in an alert's texts is obeyed by a terminal, or is markup of a chat, of Markdown or of HTML."""
    for text in texts:
        for value in text.annotations.values():
            assert printable(value) == value
            assert MARKUP.search(value) is None, value


def test_harmless_names_are_shown_as_they_are(texts: list[Text]) -> None:
    """People see the names that they gave."""
    lost = {text.run: text.annotations["summary"] for text in texts if text.alert == "SupervisorTrainingLost"}
    for name in ("mnist", "my run", "a=b", "it's $(touch pwned)", "\u00fc\u65e5\u672c", "-rf"):
        assert lost[name] == f"The training {name} is lost."
    assert lost["<!channel>"] == r"The training \x3c!channel\x3e is lost."
    assert lost["\u202egnp.exe"] == r"The training \u202egnp.exe is lost."


def test_a_pasted_command_is_the_one_that_was_meant(texts: list[Text], runs: dict[str, Path], tmp_path: Path) -> None:
    """In a shell each inspects the directory of its own run, and runs nothing else."""
    said = [
        (text.run, command) for text in texts for value in text.annotations.values() for command in commands_in(value)
    ]
    assert len(said) == WITH_COMMAND * len(runs)
    directories = {label_text(name): label_text(str(directory)) for name, directory in runs.items()}
    meant = [["tb-supervisor", "inspect", "--run=.", "--", directories[run]] for run, _ in said]
    assert paste([command for _, command in said], tmp_path / "bash") == meant
    calls = paste([command for _, command in said], tmp_path / "dash", shell="dash")
    assert [call[:4] for call in calls] == [call[:4] for call in meant]
    assert {len(call) for call in calls} == {5}


@pytest.mark.parametrize("name", ["mnist", "'; touch pwned; '", "two\ntouch pwned\nlines"])
def test_the_command_shows_the_run(texts: list[Text], runs: dict[str, Path], tmp_path: Path, name: str) -> None:
    """It is complete, and right: `inspect` finds the run there and shows its timeline."""
    [stalled] = [text for text in texts if (text.alert, text.run) == ("SupervisorTrainingStalled", name)]
    [[program, *arguments]] = paste(commands_in(stalled.annotations["description"]), tmp_path)
    done = CliRunner().invoke(main, arguments)
    assert (program, done.exit_code) == ("tb-supervisor", 0), done.output
    assert "trainer-0" in done.output
