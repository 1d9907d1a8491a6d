"""The panels of one run: its state, its phase, its pace, its checkpoints, its service threads, its goodput."""

from __future__ import annotations

from supervisor_core.monitoring.panels import Placeable, Query, row, stat, state_timeline, time_series

RUN = 'run="$run"'
"""Which run: the one that is chosen at the top of the dashboard."""

STATES = (
    ("unknown", "text"),
    ("completed", "blue"),
    ("stopped", "blue"),
    ("failed", "red"),
    ("lost", "red"),
    ("unreachable", "orange"),
    ("running", "green"),
    ("stalled", "red"),
)
"""Each state of a run and its colour. Where trainer and exporter report different ones, the later in this list counts:
one that sees the run alive knows more than one that does not."""

STATE_TEXTS = {number: state for number, state in enumerate(STATES)}

_UP_AND_DOWN = {0: ("down", "red"), 1: ("up", "green")}
_ON_AND_OFF = {0: ("", "transparent"), 1: ("yes", "blue")}


def run_panels() -> list[Placeable]:
    """Return the panels, with their widths and heights, in the order in which they are read."""
    return [(row("Run $run"), 24, 1), *_state(), *_pace(), *_checkpoints(), *_health(), *_goodput()]


def state_number(matcher: str = "") -> str:
    """Return the expression of each run's state, as the key of `STATE_TEXTS`."""
    more = f",{matcher}" if matcher else ""
    return (
        "max by (run) ("
        + " or ".join(
            f'(supervisor_run_state{{state="{state}"{more}}} == 1) * {number}'
            for number, (state, _) in STATE_TEXTS.items()
        )
        + ")"
    )


def _state() -> list[Placeable]:
    late = f"(time() - max by (run) (supervisor_last_progress_timestamp_seconds{{{RUN}}}))"
    budget = f"max by (run) (supervisor_progress_timeout_seconds{{{RUN}}})"
    return [
        (
            state_timeline(
                "Run state",
                "Whether the run is alive, lost or over, by the source that knows most.",
                [Query(expr=state_number(RUN), legend="state")],
                STATE_TEXTS,
            ),
            24,
            3,
        ),
        (
            state_timeline(
                "Phase",
                "What the session was doing, whether it was active, and when it saw itself stalled.",
                [
                    Query(expr=f"max by (phase) (supervisor_phase{{{RUN}}})", legend="{{phase}}"),
                    Query(expr=f"max by (run) (supervisor_active{{{RUN}}})", legend="active"),
                    Query(expr=f"max by (run) (supervisor_stalled{{{RUN}}})", legend="stalled"),
                ],
                _ON_AND_OFF,
            ),
            16,
            8,
        ),
        (stat("Step", "The global step.", Query(expr=f"max(supervisor_global_step{{{RUN}}})"), unit="locale"), 4, 4),
        (
            stat(
                "Silence",
                "Time since the last progress, as a share of the phase's budget. From 100 % on the run is stalled.",
                Query(expr=f"{late} / {budget}"),
                unit="percentunit",
                steps=((0.5, "yellow"), (1, "red")),
            ),
            4,
            4,
        ),
        (
            stat(
                "Goodput",
                "Share of the run's wall time that went into steps which were kept.",
                Query(expr=f"max(supervisor_goodput_ratio{{{RUN}}})"),
                unit="percentunit",
                decimals=1,
            ),
            4,
            4,
        ),
        (
            stat(
                "Sessions",
                "How many sessions the run has had.",
                Query(expr=f"max(supervisor_sessions_total{{{RUN}}})"),
                unit="locale",
            ),
            4,
            4,
        ),
    ]


def _pace() -> list[Placeable]:
    buckets = f"max by (le) (rate(supervisor_step_duration_seconds_bucket{{{RUN}}}[$__rate_interval]))"
    return [
        (
            time_series(
                "Steps per second",
                "Over the last window. The vertical lines are starts of sessions.",
                [Query(expr=f"max by (run) (supervisor_steps_per_second{{{RUN}}})", legend="steps/s")],
            ),
            12,
            8,
        ),
        (
            time_series(
                "Duration of steps",
                "How long a step took at most, of half of them, of 95 and of 99 in 100.",
                [
                    Query(expr=f"histogram_quantile({share}, {buckets})", legend=f"{share:.0%}")
                    for share in (0.5, 0.95, 0.99)
                ],
                unit="s",
            ),
            12,
            8,
        ),
    ]


def _checkpoints() -> list[Placeable]:
    saves = f"max by (le) (rate(supervisor_checkpoint_save_duration_seconds_bucket{{{RUN}}}[1h]))"
    blocked = "supervisor_checkpoint_blocked_seconds"
    return [
        (
            time_series(
                "Age of the newest checkpoint",
                "It should stay below the interval, or a little above. The recommended interval is the one at which "
                "saving and losing work cost least together.",
                [
                    Query(expr=f"max by (run) (supervisor_checkpoint_age_seconds{{{RUN}}})", legend="age"),
                    Query(expr=f"max by (run) (supervisor_checkpoint_interval_seconds{{{RUN}}})", legend="interval"),
                    Query(
                        expr=f"max by (run) (supervisor_checkpoint_recommended_interval_seconds{{{RUN}}})",
                        legend="recommended interval",
                    ),
                ],
                unit="s",
            ),
            12,
            8,
        ),
        (
            time_series(
                "Duration of saves",
                "Whole saves, until they were durable, over the last hour; and how long they held training up.",
                [
                    Query(expr=f"histogram_quantile(0.5, {saves})", legend="half of them"),
                    Query(expr=f"histogram_quantile(0.95, {saves})", legend="95%"),
                    Query(
                        expr=f"max by (run) (rate({blocked}_sum{{{RUN}}}[1h]) / rate({blocked}_count{{{RUN}}}[1h]))",
                        legend="training blocked, mean",
                    ),
                ],
                unit="s",
            ),
            12,
            8,
        ),
        (
            time_series(
                "Saves",
                "Saves of this session, good and bad.",
                [
                    Query(expr=f"max by (run) (supervisor_checkpoint_saves_total{{{RUN}}})", legend="tried"),
                    Query(expr=f"max by (run) (supervisor_checkpoint_failures_total{{{RUN}}})", legend="failed"),
                ],
            ),
            12,
            7,
        ),
        (
            time_series(
                "Size of the newest checkpoint",
                "It should not jump.",
                [Query(expr=f"max by (run) (supervisor_checkpoint_last_size_bytes{{{RUN}}})", legend="size")],
                unit="bytes",
            ),
            12,
            7,
        ),
    ]


def _health() -> list[Placeable]:
    return [
        (
            state_timeline(
                "Service threads",
                "Whether each service thread runs.",
                [Query(expr=f"max by (thread) (supervisor_thread_up{{{RUN}}})", legend="{{thread}}")],
                _UP_AND_DOWN,
            ),
            12,
            8,
        ),
        (
            time_series(
                "Late threads",
                "By how much each service thread is late.",
                [Query(expr=f"max by (thread) (supervisor_thread_overdue_seconds{{{RUN}}})", legend="{{thread}}")],
                unit="s",
            ),
            6,
            8,
        ),
        (
            time_series(
                "Failed ticks",
                "Ticks of each service thread that failed in this session.",
                [Query(expr=f"max by (thread) (supervisor_thread_failures_total{{{RUN}}})", legend="{{thread}}")],
            ),
            6,
            8,
        ),
    ]


def _goodput() -> list[Placeable]:
    return [
        (
            time_series(
                "Where the time went",
                "The run's wall time until then, by use.",
                [Query(expr=f"max by (activity) (supervisor_run_time_seconds_total{{{RUN}}})", legend="{{activity}}")],
                unit="s",
                stacking="percent",
            ),
            12,
            9,
        ),
        (
            time_series(
                "Lost steps",
                "Steps done again after restarts, since the run began.",
                [Query(expr=f"max by (run) (supervisor_steps_lost_total{{{RUN}}})", legend="lost steps")],
            ),
            6,
            9,
        ),
        (
            time_series(
                "Restarts",
                "How earlier sessions ended, since the run began, and how often this one has lost TensorFlow's session "
                "and recreated it.",
                [
                    Query(expr=f"max by (reason) (supervisor_restarts_total{{{RUN}}})", legend="{{reason}}"),
                    Query(expr=f"max by (run) (supervisor_recoveries_total{{{RUN}}})", legend="within this session"),
                ],
                stacking="normal",
            ),
            6,
            9,
        ),
    ]
