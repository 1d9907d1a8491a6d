"""Recording rules: what is known of each run, whichever source reports it.

The training process and the exporter serve the same names, so everything is brought down to one series per run first.
Then one alert speaks of a run, whoever serves it, and a new pod goes on where the old one's series ended.

    :live      reported now, by any source that is believed; while an exporter restarts, what it reported last
    :trainer   reported by the training process itself
    :exporter  reported by an exporter
    :known     by the newest report, however long ago that was, until it is forgotten

A report is one evaluation in which a believed source serves the run. The time of the newest report of each kind is
recorded and carried from one evaluation to the next; a run is dead if it was dead at its newest report. So the newest
report of any source decides, and an alert does not end because no source reports any more.

What is compared with its own past is recorded by who reported it: a process counts from 0 in each session, an exporter
over the run's whole life, and where one of them misses a scrape, going over to the other's count must not look like
news.

An exporter is not believed about a logdir that it has not looked at for a while or is still looking at for the first
time, about a run that it cannot read, or about one that is gone from the disk: its values are old. An exporter that is
gone says nothing about the runs that it last saw alive; a training process that is gone without a final report is what
a dead one looks like.
"""

from __future__ import annotations

from dataclasses import dataclass

from supervisor_core.monitoring.thresholds import Thresholds

_SOURCES = {
    "trainer": "unless on (job, instance) supervisor_exporter_build_info",
    "exporter": "and on (job, instance) supervisor_exporter_build_info",
}

BEHIND = "logdir:supervisor_exporter_behind:seconds"
"""How long ago a logdir was last looked at, where that is too long. A logdir's name alone is only of one exporter's."""

FIRST_LOOK = "logdir:supervisor_exporter_first_look:info"
"""Is there where the first look at a logdir is not through."""

_DOUBTED = "run:supervisor_exporter_doubted:info"
"""Present where an exporter's data for a run is stale."""

_GAP = "run:supervisor_exporter_gap:info"
"""Present where an exporter reported a run until a moment ago, and none does now: it restarts."""

_REPORTED = "run:supervisor_reported:timestamp_seconds"
"""When any source last reported the run. The others say when it was last reported to be so."""
_REPORTED_ALIVE = "run:supervisor_reported_alive:timestamp_seconds"
"""By its own process."""
_REPORTED_OVER = "run:supervisor_reported_over:timestamp_seconds"
_REPORTED_STALLED = "run:supervisor_reported_stalled:timestamp_seconds"
_REPORTED_LOST = "run:supervisor_reported_lost:timestamp_seconds"
_REPORTED_FAILED = "run:supervisor_reported_failed:timestamp_seconds"

_MEMORY = "30m"
"""How long Prometheus may be down until it forgets what was reported before."""

ERROR = "run:supervisor_run_error:known"
"""The type of the error that ended a run, as the label ``error``."""

UNPLANNED = "lost|error|signal|unknown"
"""How a session ends without a request to stop, as a reason of ``supervisor_restarts_total``."""

DOWNTIME = "infrastructure_recovery_from_disruption"
"""The activity in which there was no process. No metric shows whether that was wanted, so no rule uses it."""


@dataclass(frozen=True, kw_only=True)
class Recording:
    """A recording rule."""

    record: str
    expr: str


def recordings(limits: Thresholds) -> tuple[Recording, ...]:
    """Return the recording rules, in the order in which they build on each other."""
    return (
        *_exporters(limits),
        *_reports(limits),
        *_states(limits),
        *_present(),
        *(rule for source in _SOURCES for rule in _compared(source)),
    )


def _exporters(limits: Thresholds) -> tuple[Recording, ...]:
    """About which logdirs and runs no exporter is believed."""
    behind = f"{limits.behind_secs:.10g}"
    return (
        Recording(
            record=BEHIND,
            expr=(
                "time() - max by (job, instance, logdir) (supervisor_exporter_last_refresh_timestamp_seconds)\n"
                f"  > {behind}"
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
                '  or supervisor_run_state{state="unreachable"} == 1\n'
                ")"
            ),
        ),
        _reported(
            "run:supervisor_exporter_reported:timestamp_seconds",
            f"group by (run) (\n{told('supervisor_exporter_run_read_success')}\n)",
            behind,
        ),
        Recording(
            record=_GAP,
            expr=(
                f"(run:supervisor_exporter_reported:timestamp_seconds > time() - {behind}) < time()\n"
                "  unless on (run)\n"
                f"    (supervisor_exporter_run_read_success unless on (job, instance, logdir) {FIRST_LOOK})"
            ),
        ),
    )


def _reports(limits: Thresholds) -> tuple[Recording, ...]:
    """When each run was last reported, and when it was last reported to be alive, over, stalled, lost or failed."""
    forget = f"{limits.forget_secs:.10g}"
    alive, over = told("supervisor_active", value=1), told("supervisor_active", value=0)
    not_alive = "  unless on (run) run:supervisor_alive:live"
    not_old = (
        f"  unless on (run)\n    time() - max by (run) (supervisor_exporter_last_event_timestamp_seconds) > {forget}"
    )
    lost = '    unless on (job, instance, run) supervisor_run_state{state="lost"} == 1'
    return (
        _live("supervisor_active"),
        _live("supervisor_last_progress_timestamp_seconds"),
        _live("supervisor_progress_timeout_seconds"),
        Recording(record="run:supervisor_alive:live", expr=f"group by (run) (\n{alive}\n{lost}\n)"),
        _reported(_REPORTED, f"group by (run) (\n{told('supervisor_active')}\n)", forget),
        _reported(_REPORTED_ALIVE, f"group by (run) (supervisor_active == 1 {_SOURCES['trainer']})", forget),
        _reported(_REPORTED_OVER, f"(\n  group by (run) (\n{over}\n  )\n{not_alive}\n)", forget),
        Recording(
            record="run:supervisor_stalled:live",
            expr=(
                "group by (run) (\n"
                "  time() - run:supervisor_last_progress_timestamp_seconds:live\n"
                "    > on (run) run:supervisor_progress_timeout_seconds:live\n"
                "  and on (run) run:supervisor_alive:live\n"
                ")"
            ),
        ),
        _reported(_REPORTED_STALLED, f"(\n  run:supervisor_stalled:live\n{not_old}\n)", forget),
        *(
            _reported(
                record,
                (
                    "(\n"
                    f"  group by (run) (\n{told('supervisor_run_state', matcher, 1)}{more}\n  )\n"
                    f"{not_alive}\n{not_old}\n"
                    ")"
                ),
                forget,
            )
            for record, matcher, more in (
                (_REPORTED_LOST, 'state="lost"', "\n    and on (job, instance, run) supervisor_active == 1"),
                (_REPORTED_FAILED, 'state="failed"', ""),
            )
        ),
    )


def _states(limits: Thresholds) -> tuple[Recording, ...]:
    """What each run is, by its newest report."""
    return (
        Recording(
            record="run:supervisor_lost:known",
            expr=(
                "group by (run) (\n"
                f"  {_REPORTED_LOST} == on (run) {_REPORTED}\n"
                "  or\n"
                f"  {_REPORTED_ALIVE} > on (run) {_REPORTED} - {limits.behind_secs:.10g}\n"
                f"    unless on (run) {_REPORTED} > time() - {limits.unanswered_secs:.10g}\n"
                f"    unless on (run) {_REPORTED_OVER} >= on (run) {_REPORTED_ALIVE}\n"
                ")"
            ),
        ),
        Recording(
            record="run:supervisor_failed:known",
            expr=f"group by (run) ({_REPORTED_FAILED} == on (run) {_REPORTED})",
        ),
        Recording(
            record="run:supervisor_ended:known",
            expr=(
                f"group by (run) ({_REPORTED_OVER} == on (run) {_REPORTED})\n"
                "  unless on (run) run:supervisor_failed:known"
            ),
        ),
        Recording(
            record="run:supervisor_stalled:known",
            expr=(
                f"group by (run) ({_REPORTED_STALLED} == on (run) {_REPORTED})\n"
                "  unless on (run) run:supervisor_lost:known"
            ),
        ),
        Recording(
            record=ERROR,
            expr=(
                f"group by (run, error) (\n{told('supervisor_run_error_info')}\n)\n"
                f"  or on (run) {ERROR} and on (run) run:supervisor_failed:known"
            ),
        ),
        Recording(
            record="run:supervisor_last_progress_timestamp_seconds:known",
            expr=(
                "run:supervisor_last_progress_timestamp_seconds:live\n"
                f"  or run:supervisor_last_progress_timestamp_seconds:known and on (run) {_REPORTED}"
            ),
        ),
        Recording(
            record="run:supervisor_progress_age:seconds",
            expr="time() - run:supervisor_last_progress_timestamp_seconds:known",
        ),
        _bridged(
            "run:supervisor_moving:live",
            "run:supervisor_alive:live unless on (run) run:supervisor_stalled:live",
        ),
    )


def _present() -> tuple[Recording, ...]:
    """What is reported of each run now, beside its state."""
    return (
        *(
            _bridged(f"run:{metric}:live", f"max by (run, worker) (\n{told(metric)}\n)")
            for metric in ("supervisor_worker_up", "supervisor_worker_waiting", "supervisor_worker_stalled")
        ),
        _bridged("run:supervisor_phase:live", f"max by (run, phase) (\n{told('supervisor_phase')}\n)"),
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
        _bridged("run:supervisor_loss_finite:live", f"min by (run) (\n{told('supervisor_loss_finite')}\n)"),
        *(
            _nearest(metric, labels)
            for metric, labels in (
                ("supervisor_thread_up", "run, thread"),
                ("supervisor_thread_overdue_seconds", "run, thread"),
                ("supervisor_checkpoint_failures_in_a_row", "run"),
                ("supervisor_events_failing", "run"),
            )
        ),
    )


def _compared(source: str) -> tuple[Recording, ...]:
    """What alerts compare with its own past, as one source reports it."""
    by = f"\n    {_SOURCES[source]}"
    spent = "supervisor_run_time_seconds_total" if source == "exporter" else "supervisor_time_seconds_total"
    productive = told(spent, 'activity="productive"')
    in_sessions = told(spent, f'activity!="{DOWNTIME}"')
    exprs = {
        "run:supervisor_unplanned_restarts": (
            "max by (run) (\n"
            "  (\n"
            f'    sum without (reason) (supervisor_restarts_total{{reason=~"{UNPLANNED}"}})\n'
            "    or supervisor_sessions_total * 0\n"
            f"  ){by}\n"
            ")"
        ),
        "run:supervisor_recoveries_total": f"max by (run) (\n{told('supervisor_recoveries_total')}{by}\n)",
        "run:supervisor_productive_seconds": f"max by (run) (\n{productive}{by}\n)",
        "run:supervisor_session_seconds": f"max by (run) (sum without (activity) (\n{in_sessions}{by}\n))",
    }
    if source == "exporter":
        return tuple(_bridged(f"{record}:{source}", expr) for record, expr in exprs.items())
    return tuple(Recording(record=f"{record}:{source}", expr=expr) for record, expr in exprs.items())


def _reported(record: str, expr: str, forget: str) -> Recording:
    """Return the recording of when something was last reported, until that is this many seconds ago."""
    return Recording(record=record, expr=f"time() * {expr}\nor last_over_time({record}[{_MEMORY}]) > time() - {forget}")


def _live(metric: str) -> Recording:
    return _bridged(f"run:{metric}:live", f"max by (run) (\n{told(metric)}\n)")


def _bridged(record: str, expr: str) -> Recording:
    """Return a recording that stays as it was while an exporter restarts."""
    return Recording(record=record, expr=f"{expr}\nor on (run) ({record} and on (run) {_GAP})")


def _nearest(metric: str, labels: str) -> Recording:
    """The trainer's own values; the exporter's where no trainer serves the run.

    For what the exporter may know too late: its last word would hide that a thread has died since.
    """
    return _bridged(
        f"run:{metric}:live",
        (
            f"max by ({labels}) ({metric} {_SOURCES['trainer']})\n"
            f"  or max by ({labels}) (\n"
            f"  {metric}\n"
            f"    {_SOURCES['exporter']}\n"
            f"    unless on (job, instance, run) {_DOUBTED}\n"
            "  )\n"
            f"  unless on (run) max by (run) ({metric} {_SOURCES['trainer']})"
        ),
    )


def told(metric: str, matcher: str = "", value: int | None = None) -> str:
    """Return the expression of a metric's series, without those of an exporter that is not believed."""
    selected = f"{metric}{{{matcher}}}" if matcher else metric
    if value is not None:
        selected += f" == {value}"
    return f"  {selected}\n    unless on (job, instance, run) {_DOUBTED}"
