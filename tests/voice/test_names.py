"""The name of a run in metrics and alerts, in the tab and in `inspect` is one, so that a silence can be written."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

import supervisor_core
from supervisor_core.base.options import Options
from supervisor_core.cli.logdirs import GivenLogdir
from supervisor_core.cli.look import Looking
from supervisor_core.metrics.exporter import Exporter
from supervisor_core.metrics.render import TEXT
from supervisor_core.run.watch.logdir_watch import LogdirWatch
from tb_plugin.index import Index
from tb_plugin.logdirs import Logdir

RUNS = ("sup-0", "sup-0/nested")


def train(directory: Path, **options: str) -> None:
    """Make one step, and end."""
    with supervisor_core.supervise(directory, options=Options(**options)) as run:  # type: ignore[arg-type]
        for _ in run.steps(1):
            pass


def names(*logdirs: Path) -> tuple[list[str], dict[str, str], dict[str, str]]:
    """What an exporter calls the runs; the tab's names and those of `inspect`, with what they say alerts have."""
    exporter = Exporter([LogdirWatch(str(logdir)) for logdir in logdirs])
    exporter.refresh()
    labels = re.findall(r'^supervisor_active\{run="(.*)"\}', exporter.scrape(TEXT).decode(), re.MULTILINE)
    index = Index([Logdir(str(logdir)) for logdir in logdirs], 5.0, LogdirWatch)
    index.refresh()
    index.close()
    looking = Looking([GivenLogdir(path=str(logdir)) for logdir in logdirs])
    look = looking.look()
    looking.close()
    return sorted(labels), dict(index.view().labels), {name: seen.label for name, seen in look.runs.items()}


@pytest.mark.parametrize("root", [None, ".", "runs", "runs/sup-0"], ids="SUPERVISOR_LOGDIR={}".format)
@pytest.mark.parametrize(
    ("logdirs", "expected"),
    [
        pytest.param([""], ["team/runs/sup-0", "team/runs/sup-0/nested"], id="two above"),
        pytest.param(["team"], ["runs/sup-0", "runs/sup-0/nested"], id="the grandparent"),
        pytest.param(["team/runs"], ["sup-0", "sup-0/nested"], id="the parent"),
        pytest.param(["team/runs/sup-0"], [".", "nested"], id="the run"),
        pytest.param(["team/runs", "other"], ["sup-0", "sup-0/nested", "z"], id="several"),
    ],
)
def test_names_are_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: str | None, logdirs: Sequence[str], expected: list[str]
) -> None:
    """At any depth, and wherever runs are said to be: it is the path below the logdir, as TensorBoard has it. Only a
    run in the logdir itself, which TensorBoard calls ``.``, has a name to be told from others; the tab shows it."""
    if root is not None:
        monkeypatch.setenv("SUPERVISOR_LOGDIR", str(tmp_path / "team" / root))
    for run in RUNS:
        train(tmp_path / "team" / "runs" / run)
    if "other" in logdirs:
        train(tmp_path / "other" / "z")
    labels, tab, inspect = names(*(tmp_path / logdir for logdir in logdirs))
    assert sorted(tab) == sorted(expected)
    assert {name: label for name, label in tab.items() if name != label} == ({".": "sup-0"} if "." in tab else {})
    assert labels == sorted(tab.values()) == sorted(inspect.values())


@pytest.mark.parametrize("depth", ["", "team", "team/runs", "team/runs/sup-0"], ids="exporter of {}".format)
@pytest.mark.parametrize("how", [{"metrics_address": "127.0.0.1:0"}, {"run_name": "mine"}], ids=str)
def test_what_a_process_serves_metrics_under_is_shown(tmp_path: Path, how: dict[str, str], depth: str) -> None:
    """A trainer that is scraped has one name of its own for all readers, which the exporter takes over: then both
    series are of one run. Tab and `inspect` say it where theirs is another."""
    train(tmp_path / "team" / "runs" / "sup-0", **how)
    labels, tab, inspect = names(tmp_path / depth)
    assert labels == list(tab.values()) == list(inspect.values()) == [how.get("run_name", "runs/sup-0")]


def test_a_renamed_run_has_its_new_name_everywhere(tmp_path: Path) -> None:
    """Where nothing else calls it by the old one."""
    train(tmp_path / "sup-0")
    exporter = Exporter([LogdirWatch(str(tmp_path))])
    exporter.refresh()
    (tmp_path / "sup-0").rename(tmp_path / "sup-0-bad")
    exporter.refresh()
    assert re.findall(r'^supervisor_active\{run="(.*)"\}', exporter.scrape(TEXT).decode(), re.MULTILINE) == [
        "sup-0-bad"
    ]
    assert names(tmp_path)[1] == {"sup-0-bad": "sup-0-bad"}
