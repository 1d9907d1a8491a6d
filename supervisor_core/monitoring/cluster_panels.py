"""The panels of one run's cluster: what each process but the chief does, how fast it is, when it was last seen."""

from __future__ import annotations

from supervisor_core.monitoring.panels import Column, Placeable, Query, row, state_timeline, table, time_series
from supervisor_core.monitoring.run_panels import RUN

_STATES = {0: ("lost", "red"), 1: ("up", "green"), 2: ("waiting", "blue"), 3: ("stalled", "orange")}
_STATE = " + ".join(
    f"{weight} * max by (worker) (supervisor_worker_{name}{{{RUN}}})"
    for weight, name in ((1, "up"), (1, "waiting"), (2, "stalled"))
)
_PACE = f"max by (worker) (rate(supervisor_worker_steps_total{{{RUN}}}[$__rate_interval]))"


def cluster_panels() -> list[Placeable]:
    """Return the panels, with their widths and heights; they are empty where there is no cluster."""
    return [(row("Cluster of $run"), 24, 1), *_states(), *_now()]


def _states() -> list[Placeable]:
    return [
        (
            state_timeline(
                "Other processes",
                "The state of each process of the cluster except the chief. A planned end has no state.",
                [Query(expr=_STATE, legend="{{worker}}")],
                _STATES,
            ),
            24,
            8,
        )
    ]


def _now() -> list[Placeable]:
    columns = [
        Column(
            title="state", expr=_STATE, texts=tuple((value, text, color) for value, (text, color) in _STATES.items())
        ),
        Column(
            title="last seen, ago",
            expr=(
                f"time() - max by (worker) (supervisor_worker_last_seen_timestamp_seconds{{{RUN}}})"
                f" and on (worker) supervisor_worker_up{{{RUN}}}"
            ),
            unit="s",
            steps=((60, "yellow"), (120, "red")),
        ),
        Column(title="steps", expr=f"max by (worker) (supervisor_worker_steps_total{{{RUN}}})", unit="locale"),
        Column(title="steps/s", expr=_PACE),
    ]
    return [
        (table("Processes", "Each process of the cluster but the chief, now.", columns, by="worker", link=None), 12, 9),
        (
            time_series(
                "Steps per second of each process",
                "Training steps that each process of the cluster does, the chief apart.",
                [Query(expr=_PACE, legend="{{worker}}")],
            ),
            12,
            9,
        ),
    ]
