"""What the dashboard shows of a cluster is what its processes do."""

from __future__ import annotations

import typing
from collections.abc import Callable
from pathlib import Path

from monitoring_servers import as_asked

from supervisor_core.events.telemetry import WorkerState, WorkerStatus
from supervisor_core.metrics.config_files import dashboard
from supervisor_core.metrics.render import lines
from supervisor_core.metrics.table import RUN_METRICS
from supervisor_core.run.status import RunStatus

SHOWN = {"lost": "lost", "failed": "lost", "running": "up", "waiting": "waiting", "stalled": "stalled"}
"""State of a process -> the text that is shown; one that ended as planned is not shown."""

PANELS = {panel["title"]: panel for panel in dashboard()["panels"]}


def served() -> list[tuple[str, str]]:
    """The series of a run whose cluster has a process in each state, all seen at second 0, and their values."""
    states = typing.get_args(WorkerState)
    workers = tuple(WorkerStatus(name=name, state=name, last_seen_at=0.0) for name in states)
    status = RunStatus(run="r", active=True, workers=workers)
    text = b"".join(lines(m, m.read(status, 0.0)) for m in RUN_METRICS if m.name.startswith("supervisor_worker_"))
    return [(name, value) for line in text.decode().splitlines() for name, value in [line.rsplit(" ", 1)]]


def asked(panel: str, query: int) -> str:
    """A query of a panel, as Grafana asks it of the run."""
    return as_asked(PANELS[panel]["targets"][query]["expr"], "r")


def test_each_state_has_its_text(rules_test: Callable[..., str], tmp_path: Path) -> None:
    """Every state of a process is shown by its name; silence is shown of those that are missed."""
    (mapping,) = PANELS["Other processes"]["fieldConfig"]["defaults"]["mappings"]
    numbers = {item["text"]: int(value) for value, item in mapping["options"].items()}
    shown = {f'{{run="r",worker="{state}"}}': numbers[text] for state, text in SHOWN.items()}
    queries = [
        (asked("Other processes", 0), 60, shown),
        (asked("Processes", 0), 60, shown),
        (asked("Processes", 1), 60, dict.fromkeys(shown, 60)),
    ]
    rules_test(tmp_path, {name: f"{value}x10" for name, value in served()}, 30, queries=queries)
