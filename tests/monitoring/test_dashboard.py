"""The dashboard is one that Grafana takes, and asks only for what is served."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

from supervisor_core.metrics.config_files import Screens, dashboard, rule_groups
from supervisor_core.metrics.exporter import Exporter
from supervisor_core.metrics.render import TEXT
from supervisor_core.metrics.table import ALL_METRICS
from supervisor_core.run.status import ServedState
from supervisor_core.run.watch.logdir_watch import LogdirWatch
from tests.cases import each
from tests.story.scene import BEGAN
from tests.story.stories import STORIES

PANEL_TYPES = {"row", "stat", "state-timeline", "table", "timeseries"}
"""Panels that every Grafana has, and that our users can read."""

SERVED = {metric.name for metric in ALL_METRICS} | {
    metric.name + suffix
    for metric in ALL_METRICS
    if metric.type == "histogram"
    for suffix in ("_bucket", "_sum", "_count")
}
RECORDED = {rule["record"] for group in rule_groups()["groups"] for rule in group["rules"] if "record" in rule}
PANELS = dashboard()["panels"]
EVERY = {"run": dashboard(), "fleet": dashboard(fleet=True)}


@pytest.fixture(params=EVERY.values(), ids=EVERY)
def content(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Each dashboard."""
    found: dict[str, Any] = request.param
    return found


def expressions(content: dict[str, Any]) -> list[str]:
    """Every query of a dashboard: of its panels, its annotations, its variables."""
    found = [target["expr"] for panel in content["panels"] for target in panel.get("targets", ())]
    found += [annotation["expr"] for annotation in content["annotations"]["list"]]
    return found + [item["query"]["query"] for item in content["templating"]["list"] if item["type"] == "query"]


def test_it_is_plain_json(content: dict[str, Any]) -> None:
    """It survives being written and read."""
    assert json.loads(json.dumps(content, allow_nan=False)) == content


def test_a_fleet_is_shown_by_what_is_recorded_of_it() -> None:
    """Whatever the number of runs: only the table of those that need somebody asks for more."""
    names = [re.findall(r"[a-z]*:?supervisor_[\w:]+", expression) for expression in expressions(EVERY["fleet"])]
    assert {name for found in names for name in found} - {"supervisor_finding"} <= {
        name for name in RECORDED if name.startswith("fleet:")
    }
    assert all(found for found in names)


@each("expression", expressions(EVERY["run"]))
def test_only_what_is_served_is_asked_for(expression: str) -> None:
    """Every metric that a query names exists."""
    named = set(re.findall(r"\bsupervisor_\w+", expression))
    assert named and named <= SERVED


def test_an_exporter_alone_fills_the_panels(tmp_path: Path, clock_at: Callable[[float], Any]) -> None:
    """Of a live run in one process: but for failed ticks, of which there are none, and for the panels of other
    processes. It has at most 60 series."""
    STORIES["was restarted once"].write(tmp_path / "run", BEGAN)
    clock = clock_at(BEGAN)
    exporter = Exporter([LogdirWatch(str(tmp_path), clock=clock)], clock=clock)
    exporter.refresh()
    lines = [line for line in exporter.scrape(TEXT).decode().splitlines() if not line.startswith("#")]
    served = {re.split(r"[{ ]", line)[0] for line in lines}
    assert sum('run="run"' in line for line in lines) <= 60

    def is_filled(panel: dict[str, Any]) -> bool:
        return any(set(re.findall(r"\bsupervisor_\w+", target["expr"])) <= served for target in panel["targets"])

    assert {panel["title"] for panel in PANELS if panel.get("targets") and not is_filled(panel)} == {
        "Failed ticks",
        "Other processes",
        "Processes",
        "Steps per second of each process",
    }


def test_every_state_of_a_run_has_a_text() -> None:
    """None that is served is missing from the panel, and each has the value that the query gives it."""
    panel = next(panel for panel in PANELS if panel["title"] == "Run state")
    (mapping,) = panel["fieldConfig"]["defaults"]["mappings"]
    asked = re.findall(r'state="(\w+)",run="\$run"[^}]*} == 1\) \* (\d+)', panel["targets"][0]["expr"])
    assert {text["text"]: value for value, text in mapping["options"].items()} == dict(asked)
    assert {state for state, _ in asked} == set(get_args(ServedState))


def test_ids_are_unique(content: dict[str, Any]) -> None:
    """No two panels have one id, and no two queries of a panel one letter."""
    assert len({panel["id"] for panel in content["panels"]}) == len(content["panels"])
    assert EVERY["run"]["uid"] != EVERY["fleet"]["uid"]
    for panel in content["panels"]:
        letters = [target["refId"] for target in panel.get("targets", ())]
        assert len(set(letters)) == len(letters)


def test_every_panel_explains_itself(content: dict[str, Any]) -> None:
    """Panels are of kinds that are known, have a title, and but for rows a description and queries of that source."""
    for panel in content["panels"]:
        assert panel["type"] in PANEL_TYPES and panel["title"]
        if panel["type"] != "row":
            assert panel["description"].endswith(".") and panel["targets"]
            assert {target["datasource"]["uid"] for target in panel["targets"]} == {"${datasource}"}


@each("fleet, names", [(False, 4), (True, 3)])
def test_a_link_to_a_run_has_any_name(fleet: bool, names: int) -> None:
    """Grafana leaves ``&``, ``+`` and ``%`` in what it puts into an address, unless it is to be percent-encoded."""
    found = dashboard(Screens(tensorboard_url="http://tensorboard:6006"), fleet=fleet)
    links = re.findall(r'"url": "([^"]*)"', json.dumps(found))
    put = [name for link in links for name in re.findall(r"\$\{(?!__dashboard|datasource)[^}]+\}", link)]
    assert len(put) == names and all(name.endswith(":percentencode}") for name in put)


def test_a_lost_run_is_not_counted_as_stalled(rules_test: Callable[..., str], tmp_path: Path) -> None:
    """Of three runs, one that hangs, one that is lost and one that trains, one is stalled."""
    (panel,) = [panel for panel in PANELS if panel["title"] == "Stalled"]
    series = {}
    for run, state, seen, progress in (
        ("hangs", "stalled", 600, 60),
        ("dead", "lost", 60, 60),
        ("ok", "running", 600, 600),
    ):
        for name, value in (("session_last_seen", seen), ("last_progress", progress)):
            series[f'supervisor_{name}_timestamp_seconds{{run="{run}"}}'] = f"{value}x40"
        series[f'supervisor_progress_timeout_seconds{{run="{run}"}}'] = "300x40"
        series[f'supervisor_active{{run="{run}"}}'] = "1x40"
        series[f'supervisor_run_state{{run="{run}",state="{state}"}}'] = "1x40"
    rules_test(tmp_path, series, 15, queries=[(panel["targets"][0]["expr"], 600, {"{}": 1})])


def test_active_is_what_trains(rules_test: Callable[..., str], tmp_path: Path) -> None:
    """One that hangs or is lost is not; without any run that trains it is 0."""
    (panel,) = [panel for panel in PANELS if panel["title"] == "Active"]
    states = {"a": ("running", "lost"), "b": ("stalled", "stalled"), "c": ("running", "running"), "d": ("lost", "lost")}
    series = {
        f'supervisor_run_state{{run="{run}",state="{state}",job="{job}"}}': "1x9"
        for run, (by_trainer, by_exporter) in states.items()
        for job, state in (("training", by_trainer), ("exporter", by_exporter))
    }
    query = panel["targets"][0]["expr"]
    rules_test(tmp_path, series, 60, queries=[(query, 60, {"{}": 2})])
    none = {'supervisor_run_state{run="b",state="stalled"}': "1x9"}
    rules_test(tmp_path, none, 60, queries=[(query, 60, {"{}": 0})])


def test_what_is_to_be_seen() -> None:
    """The fleet; one run with state, pace, checkpoints, threads, goodput, lost steps; its cluster; the exporter."""
    rows = [panel["title"] for panel in PANELS if panel["type"] == "row"]
    assert rows == ["Fleet", "Run $run", "Cluster of $run", "Exporter"]
    titles = {panel["title"] for panel in PANELS}
    assert titles >= {
        "Runs",
        "Run state",
        "Phase",
        "Steps per second",
        "Age of the newest checkpoint",
        "Duration of saves",
    }
    assert titles >= {"Service threads", "Where the time went", "Lost steps"}
    assert titles >= {"Other processes", "Processes", "Steps per second of each process"}
    assert [item["name"] for item in dashboard()["templating"]["list"]] == ["datasource", "namespace", "cluster", "run"]


def test_grafana_models_it_as_it_is(content: dict[str, Any]) -> None:
    """Read into Grafana's own model of a dashboard and written again, nothing is lost or changed.

    But for what an annotation of Prometheus has besides: the model of annotations is that of all sources.
    """
    pytest.importorskip("grafana_foundation_sdk", reason="Grafana's SDK needs Python 3.11")
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.cog.plugins import register_default_plugins
    from grafana_foundation_sdk.models.dashboard import Dashboard

    register_default_plugins()
    written = json.loads(JSONEncoder(sort_keys=True).encode(Dashboard.from_json(content)))
    prometheus_only = {
        f".annotations.list[0].{name}" for name in ("step", "textFormat", "titleFormat", "useValueForTime")
    }
    assert set(missing(content, written)) == (prometheus_only if content["annotations"]["list"] else set())


def missing(ours: Any, theirs: Any, path: str = "") -> list[str]:
    """Where ours has something that theirs has not, or has otherwise; what they add by default does not matter."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return [
            place
            for key, value in ours.items()
            for place in ([f"{path}.{key}"] if key not in theirs else missing(value, theirs[key], f"{path}.{key}"))
            if not (value is None and key not in theirs)
        ]
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        return [
            place
            for index, (one, other) in enumerate(zip(ours, theirs, strict=True))
            for place in missing(one, other, f"{path}[{index}]")
        ]
    return [] if ours == theirs else [f"{path}: {ours!r} came back as {theirs!r}"]
