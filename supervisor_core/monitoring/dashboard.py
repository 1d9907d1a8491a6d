"""The Grafana dashboard: the fleet, then one run and its cluster, then the exporter.

It asks for what is served, not for what the rules record, so it works without them. Trainer and exporter serve the same
names: every query takes the maximum by run, or it would show both.
"""

from __future__ import annotations

from typing import Any

from supervisor_core.monitoring.cluster_panels import cluster_panels
from supervisor_core.monitoring.panels import (
    DATASOURCE,
    Column,
    Panel,
    Placeable,
    Query,
    row,
    stat,
    table,
    time_series,
)
from supervisor_core.monitoring.run_panels import RUN, STATE_TEXTS, run_panels, state_number

UID = "tb-supervisor"

_LATE = "time() - max by (run) (supervisor_last_progress_timestamp_seconds)"
_STALLED = f"(({_LATE}) > bool max by (run) (supervisor_progress_timeout_seconds)) * max by (run) (supervisor_active)"
_AGE_IN_INTERVALS = (
    "max by (run) (supervisor_checkpoint_age_seconds) / max by (run) (supervisor_checkpoint_interval_seconds)"
)


def dashboard() -> dict[str, Any]:
    """Return the dashboard, as Grafana imports it (11 and later).

    Example:
        >>> dashboard()["title"]
        'Supervised training'
    """
    return {
        "uid": UID,
        "title": "Supervised training",
        "description": "Trainings under supervision: the fleet, one run and its cluster, the exporter.",
        "tags": ["supervisor", "training"],
        "timezone": "browser",
        "editable": True,
        "graphTooltip": 1,
        "schemaVersion": 39,
        "version": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [_datasource_variable(), _run_variable()]},
        "annotations": {"list": [_restarts()]},
        "links": [],
        "panels": _placed([*_fleet(), *run_panels(), *cluster_panels(), *_exporter()]),
    }


def _fleet() -> list[Placeable]:
    texts = tuple((number, state, color) for number, (state, color) in STATE_TEXTS.items())
    columns = [
        Column(title="state", expr=state_number(), texts=texts),
        Column(title="stalled", expr=_STALLED, texts=((0, "no", "green"), (1, "yes", "red"))),
        Column(title="step", expr="max by (run) (supervisor_global_step)", unit="locale"),
        Column(title="steps/s", expr="max by (run) (supervisor_steps_per_second)"),
        Column(
            title="checkpoint age, in intervals",
            expr=_AGE_IN_INTERVALS,
            steps=((2, "yellow"), (3, "red")),
        ),
        Column(title="restarts", expr="max by (run) (supervisor_sessions_total) - 1", unit="locale"),
        Column(
            title="goodput",
            expr="max by (run) (supervisor_goodput_ratio)",
            unit="percentunit",
        ),
    ]
    active = Query(expr="sum(max by (run) (supervisor_active))")
    stalled = Query(expr=f"sum({_STALLED})")
    return [
        (row("Fleet"), 24, 1),
        (
            stat("Active", "Runs that have begun and not ended, lost ones included until they are given up.", active),
            4,
            4,
        ),
        (
            stat("Stalled", "Of those, runs in which nothing moves for too long.", stalled, steps=((1, "red"),)),
            4,
            4,
        ),
        (
            time_series(
                "Steps per second",
                "Training steps per second of every run.",
                [Query(expr="max by (run) (supervisor_steps_per_second)", legend="{{run}}")],
            ),
            16,
            8,
        ),
        (
            table(
                "Runs",
                "Every run. A name leads to the run below.",
                columns,
                by="run",
                link=(
                    "Show this run",
                    "/d/${__dashboard.uid}?${datasource:queryparam}&var-run=${__data.fields.run}",
                ),
            ),
            24,
            9,
        ),
    ]


def _exporter() -> list[Placeable]:
    refreshed = "time() - max by (instance, logdir) (supervisor_exporter_last_refresh_timestamp_seconds)"
    silent = f"time() - max by (run) (supervisor_exporter_last_event_timestamp_seconds{{{RUN}}})"
    return [
        (row("Exporter"), 24, 1),
        (
            time_series(
                "Runs",
                "How many runs each exporter serves, how many of them it cannot read, and how often something in a "
                "logdir could not be looked at.",
                [
                    Query(expr="sum by (instance) (supervisor_exporter_runs)", legend="{{instance}}"),
                    Query(
                        expr="count by (instance) (supervisor_exporter_run_read_success)"
                        " - sum by (instance) (supervisor_exporter_run_read_success)",
                        legend="{{instance}}, not read",
                    ),
                    Query(
                        expr="max by (instance, logdir) (supervisor_exporter_refresh_failures_total)",
                        legend="{{instance}} {{logdir}}, failures",
                    ),
                ],
            ),
            12,
            7,
        ),
        (
            time_series(
                "Looking",
                "How long a look at each logdir takes, how long ago the last one ended, and how long a scrape takes.",
                [
                    Query(
                        expr="max by (instance, logdir) (supervisor_exporter_refresh_duration_seconds)",
                        legend="a look at {{logdir}}",
                    ),
                    Query(expr=refreshed, legend="since the last at {{logdir}}"),
                    Query(expr="max by (instance) (supervisor_exporter_scrape_duration_seconds)", legend="a scrape"),
                ],
                unit="s",
            ),
            12,
            7,
        ),
        (
            time_series(
                "Silence of $run",
                "Time since the run's last event.",
                [Query(expr=silent, legend="since its last event")],
                unit="s",
            ),
            12,
            7,
        ),
        (
            time_series(
                "Damage in $run",
                "Damaged places that were skipped in the run's events files.",
                [
                    Query(
                        expr=f"max by (run) (supervisor_exporter_corrupt_records_total{{{RUN}}})",
                        legend="damaged records",
                    )
                ],
            ),
            12,
            7,
        ),
    ]


def _placed(panels: list[Placeable]) -> list[Panel]:
    """Give every panel an id and a place: from left to right, and below where the 24 columns are full.

    A panel goes as far up as the panels above it allow, so two short ones stand beside one that is twice as high.
    """
    floor = [0] * 24
    placed: list[Panel] = []
    for panel, width, height in panels:
        left = min(range(25 - width), key=lambda start: (max(floor[start : start + width]), start))
        top = max(floor[left : left + width])
        floor[left : left + width] = [top + height] * width
        place = {"x": left, "y": top, "w": width, "h": height}
        placed.append({"id": len(placed) + 1, **panel, "gridPos": place})
    return placed


def _datasource_variable() -> dict[str, Any]:
    return {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus", "refresh": 1}


def _run_variable() -> dict[str, Any]:
    return {
        "name": "run",
        "label": "Run",
        "type": "query",
        "datasource": DATASOURCE,
        "query": {"query": "label_values(supervisor_sessions_total, run)", "refId": "run"},
        "refresh": 2,
        "sort": 1,
        "multi": False,
        "includeAll": False,
    }


def _restarts() -> dict[str, Any]:
    return {
        "name": "Sessions",
        "enable": True,
        "iconColor": "orange",
        "datasource": DATASOURCE,
        "expr": f"max by (run) (supervisor_session_start_timestamp_seconds{{{RUN}}}) * 1000",
        "titleFormat": "A session begins",
        "textFormat": "{{run}}",
        "useValueForTime": True,
        "step": "30s",
    }
