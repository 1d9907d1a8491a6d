"""A silence is written from what the tab shows of a run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from supervisor_core.cli import main
from supervisor_core.engine.environment import LOGDIR_VARIABLE
from supervisor_core.metrics.exporter import Exporter
from supervisor_core.metrics.render import TEXT
from supervisor_core.run.watch.logdir_watch import LogdirWatch
from supervisor_core.training import supervise
from tb_plugin.index import Index
from tb_plugin.logdirs import Logdir
from tb_plugin.run_data import details


@pytest.mark.parametrize("name", ["sup-0", "runs/sup-0", "a/runs/sup-0"])
@pytest.mark.parametrize("is_root_known", [False, True])
def test_the_label_of_alerts_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, is_root_known: bool
) -> None:
    """It is the run's name there, or stands among its labels: with SUPERVISOR_LOGDIR or not, however deep it is."""
    if is_root_known:
        monkeypatch.setenv(LOGDIR_VARIABLE, str(tmp_path))
    with supervise(tmp_path / name) as training:
        list(training.steps(1))
    exporter = Exporter([LogdirWatch(str(tmp_path))])
    exporter.refresh()
    (label,) = set(re.findall(r'[{,]run="([^"]*)"', exporter.scrape(TEXT).decode()))
    index = Index([Logdir(str(tmp_path))], 5.0, LogdirWatch)
    index.refresh()
    tab = json.loads(details(index.view(), index.view().runs[name]))
    shown = json.loads(CliRunner().invoke(main, ["inspect", "--json", str(tmp_path)]).output)["runs"]
    assert [each["run"] for each in shown] == [name] and tab["run"] == name
    assert tab["labels"].get("run", tab["run"]) == label and (label == name) == ("run" not in tab["labels"])
    assert label == name or not is_root_known
