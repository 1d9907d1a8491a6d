"""Recording rules: what is known of each run, wherever it was told.

The training process and the exporter serve the same names, so everything is brought down to one series per run first.
Then one alert speaks of a run, whoever serves it, and a new pod goes on where the old one's series ended.

    :live      told now, by anybody who knows
    :trainer   told by the training process itself
    :exporter  told by an exporter
    :known     live, or else the last that the training process told

What is compared with its own past is recorded by who told it: a process counts from 0 in each session, an exporter over
the run's whole life, and where one of them misses a scrape, going over to the other's count must not look like news.

An exporter that has not looked at a run's logdir for a while, or cannot read the run, knows nothing of it: its old
values are left out. So are those of a logdir whose first look is not through: what is shown by then may have been read
minutes ago. Of its other logdirs the exporter is believed.
When an exporter goes, what it told is not carried on (that it is gone is an alert of its own); when a training
process goes, what it told last is, since that is what a dead one looks like.
"""

from __future__ import annotations

from dataclasses import dataclass

from supervisor_core.monitoring.thresholds import Thresholds, duration

_SOURCES = {
    "trainer": "unless on (job, instance) supervisor_exporter_build_info",
    "exporter": "and on (job, instance) supervisor_exporter_build_info",
}

BEHIND = "logdir:supervisor_exporter_behind:seconds"
"""How long ago a logdir was last looked at, where that is too long. A logdir's name alone is only of one exporter's."""

FIRST_LOOK = "logdir:supervisor_exporter_first_look:info"
"""Is there where the first look at a logdir is not through."""

_DOUBTED = "run:supervisor_exporter_doubted:info"
"""Is there where nothing that the exporter tells of a run is believed."""

UNPLANNED = "lost|error|signal|unknown"
"""How a session ends that nobody asked to end, as ``supervisor_restarts_total`` tells it."""

DOWNTIME = "infrastructure_recovery_from_disruption"
"""The activity in which there was no process. Whether that was wanted no metric tells, so no rule judges by it."""


@dataclass(frozen=True, kw_only=True)
class Recording:
    """A recording rule."""

    record: str
    expr: str


def recordings(limits: Thresholds) -> tuple[Recording, ...]:
    """Return the recording rules, in the order in which they build on each other."""
    rules = [
        Recording(
            record=BEHIND,
            expr=(
                "time() - max by (job, instance, logdir) (supervisor_exporter_last_refresh_timestamp_seconds)\n"
                f"  > {limits.behind_secs:.10g}"
            ),
        ),
        Recording(
            record=FIRST_LOOK,
            expr=(
                "group by (job, instance, logdir) (\n"
                "  supervisor_exporter_refresh_failures_total\n"
                "    unless on (job, instance, logdir) supervisor_exporter_last_refresh_timestamp_seconds\n"
                ")"
            ),
        ),
        Recording(
            record=_DOUBTED,
            expr=(
                "group by (job, instance, run) (\n"
                "  supervisor_exporter_run_read_success == 0\n"
                f"  or supervisor_exporter_run_read_success and on (job, instance, logdir) {BEHIND}\n"
                f"  or supervisor_exporter_run_read_success and on (job, instance, logdir) {FIRST_LOOK}\n"
                ")"
            ),
        ),
    ]
    for metric in (
        "supervisor_active",
        "supervisor_last_progress_timestamp_seconds",
        "supervisor_progress_timeout_seconds",
    ):
        rules += [
            _live(metric),
            Recording(
                record=f"run:{metric}:trainer",
                expr=f"max by (run) ({metric} {_SOURCES['trainer']})",
            ),
            Recording(
                record=f"run:{metric}:known",
                expr=(
                    f"run:{metric}:live\n"
                    f"  or max by (run) (last_over_time(run:{metric}:trainer[{duration(limits.forget_secs)}]))"
                ),
            ),
        ]
    rules += [
        Recording(
            record="run:supervisor_progress_age:seconds",
            expr="time() - run:supervisor_last_progress_timestamp_seconds:known",
        ),
        Recording(
            record="run:supervisor_stalled:known",
            expr=(
                "(run:supervisor_progress_age:seconds > bool run:supervisor_progress_timeout_seconds:known)\n"
                "  * (run:supervisor_active:known == bool 1)"
            ),
        ),
        Recording(
            record="run:supervisor_moving:live",
            expr="run:supervisor_active:live == 1 unless run:supervisor_stalled:known == 1",
        ),
        *(
            Recording(record=f"run:{metric}:live", expr=f"max by (run, worker) (\n{told(metric)}\n)")
            for metric in ("supervisor_worker_up", "supervisor_worker_waiting", "supervisor_worker_stalled")
        ),
        Recording(record="run:supervisor_phase:live", expr=f"max by (run, phase) (\n{told('supervisor_phase')}\n)"),
        *(
            _live(metric)
            for metric in (
                "supervisor_session_start_timestamp_seconds",
                "supervisor_checkpoint_last_success_timestamp_seconds",
                "supervisor_checkpoint_interval_seconds",
                "supervisor_checkpoint_recommended_interval_seconds",
            )
        ),
        Recording(
            record="run:supervisor_checkpoint_age:seconds",
            expr=(
                "time() - (\n"
                "  run:supervisor_checkpoint_last_success_timestamp_seconds:live\n"
                "  or run:supervisor_session_start_timestamp_seconds:live\n"
                ")"
            ),
        ),
        Recording(
            record="run:supervisor_training_steps_per_second:live",
            expr=(
                f"max by (run) (\n{told('supervisor_steps_per_second')}\n)\n"
                '  and on (run) run:supervisor_phase:live{phase="training"} == 1\n'
                "  and on (run) run:supervisor_moving:live"
            ),
        ),
        Recording(
            record="run:supervisor_loss_finite:live",
            expr=f"min by (run) (\n{told('supervisor_loss_finite')}\n)",
        ),
        *(
            _nearest(metric, labels)
            for metric, labels in (
                ("supervisor_thread_up", "run, thread"),
                ("supervisor_thread_overdue_seconds", "run, thread"),
                ("supervisor_checkpoint_failures_in_a_row", "run"),
                ("supervisor_events_failing", "run"),
            )
        ),
        *(rule for source in _SOURCES for rule in _compared(source)),
    ]
    return tuple(rules)


def _compared(source: str) -> tuple[Recording, ...]:
    """What alerts compare with its own past, as one source tells it."""
    by = f"\n    {_SOURCES[source]}"
    spent = "supervisor_run_time_seconds_total" if source == "exporter" else "supervisor_time_seconds_total"
    productive = told(spent, 'activity="productive"')
    in_sessions = told(spent, f'activity!="{DOWNTIME}"')
    return (
        Recording(
            record=f"run:supervisor_unplanned_restarts:{source}",
            expr=(
                "max by (run) (\n"
                "  (\n"
                f'    sum without (reason) (supervisor_restarts_total{{reason=~"{UNPLANNED}"}})\n'
                "    or supervisor_sessions_total * 0\n"
                f"  ){by}\n"
                ")"
            ),
        ),
        *(
            Recording(record=f"run:{metric}:{source}", expr=f"max by (run) (\n{told(metric)}{by}\n)")
            for metric in ("supervisor_recoveries_total",)
        ),
        Recording(
            record=f"run:supervisor_productive_seconds:{source}",
            expr=f"max by (run) (\n{productive}{by}\n)",
        ),
        Recording(
            record=f"run:supervisor_session_seconds:{source}",
            expr=f"max by (run) (sum without (activity) (\n{in_sessions}{by}\n))",
        ),
    )


def _live(metric: str) -> Recording:
    return Recording(record=f"run:{metric}:live", expr=f"max by (run) (\n{told(metric)}\n)")


def _nearest(metric: str, labels: str) -> Recording:
    """The trainer's own values; the exporter's where no trainer serves the run.

    For what the exporter may know too late: its last word would hide that a thread has died since.
    """
    return Recording(
        record=f"run:{metric}:live",
        expr=(
            f"max by ({labels}) ({metric} {_SOURCES['trainer']})\n"
            f"  or max by ({labels}) (\n"
            f"  {metric}\n"
            f"    {_SOURCES['exporter']}\n"
            f"    unless on (job, instance, run) {_DOUBTED}\n"
            "  )\n"
            f"  unless on (run) max by (run) ({metric} {_SOURCES['trainer']})"
        ),
    )


def told(metric: str, matcher: str = "") -> str:
    """Return the expression of a metric's series, those left out that an exporter serves and nobody believes."""
    selected = f"{metric}{{{matcher}}}" if matcher else metric
    return f"  {selected}\n    unless on (job, instance, run) {_DOUBTED}"
