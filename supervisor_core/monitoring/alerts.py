"""The alert rules. The runbook is docs/alerts.md."""

from __future__ import annotations

from supervisor_core.monitoring.alert import Alert, more_lately, number
from supervisor_core.monitoring.cluster_alerts import cluster_alerts
from supervisor_core.monitoring.loss_alerts import loss_alerts
from supervisor_core.monitoring.name_alerts import name_alerts
from supervisor_core.monitoring.recordings import BEHIND, ERROR, FIRST_LOOK
from supervisor_core.monitoring.silent_alerts import silent_alerts
from supervisor_core.monitoring.thresholds import Thresholds, duration
from supervisor_core.monitoring.writing_alerts import writing_alerts


def alerts(limits: Thresholds) -> tuple[Alert, ...]:
    """Return the alert rules."""
    return (
        *_state(limits),
        *_checkpoints(limits),
        *writing_alerts(limits),
        *_services(limits),
        *cluster_alerts(limits),
        *_speed(limits),
        *name_alerts(limits),
        *loss_alerts(),
        *silent_alerts(limits),
        *_sources(limits),
    )


def _state(limits: Thresholds) -> tuple[Alert, ...]:
    error = (
        f"{{{{ with printf `{ERROR}{{run=%q}}` $labels.run | query }}}}"
        '{{ with . | first | label "error" }}: {{ . }}{{ end }}{{ end }}'
    )
    return (
        Alert(
            name="SupervisorTrainingFailed",
            severity="critical",
            expr="run:supervisor_failed:known",
            hold_secs=limits.dead_hold_secs,
            summary=f"The training {{{{ $labels.run }}}} has failed{error}.",
            description=(
                f"The training process of the run {{{{ $labels.run }}}} ended with an error{error}, and has "
                "not been restarted."
            ),
        ),
        Alert(
            name="SupervisorTrainingLost",
            severity="critical",
            expr="run:supervisor_lost:known",
            hold_secs=limits.dead_hold_secs,
            summary="The training {{ $labels.run }} is lost.",
            description=(
                "The training process of the run {{ $labels.run }} was killed, is suspended, or its machine is down: "
                "there is no heartbeat or answer, and no stop record."
            ),
        ),
        Alert(
            name="SupervisorTrainingStalled",
            severity="critical",
            expr="run:supervisor_progress_age:seconds\n  and on (run) run:supervisor_stalled:known",
            hold_secs=limits.stall_hold_secs,
            summary="The training {{ $labels.run }} is stalled.",
            description=(
                "The training process of the run {{ $labels.run }} is alive and has made no progress for "
                "{{ $value | humanizeDuration }}, longer than the budget of its phase: it hangs, or is far too slow."
            ),
        ),
    )


def _checkpoints(limits: Thresholds) -> tuple[Alert, ...]:
    hold, many = duration(limits.hold_secs), number(limits.checkpoint_intervals)
    grace = number(limits.start_grace_secs)
    factor = number(limits.interval_factor)
    return (
        Alert(
            name="SupervisorCheckpointTooOld",
            severity="warning",
            expr=(
                "run:supervisor_checkpoint_age:seconds\n"
                f"  > {many} * run:supervisor_checkpoint_interval_seconds:live\n"
                "  and on (run)\n"
                "    time() - run:supervisor_session_start_timestamp_seconds:live\n"
                f"      > {many} * run:supervisor_checkpoint_interval_seconds:live + {grace}\n"
                f'  and on (run) avg_over_time(run:supervisor_phase:live{{phase="training"}}[{hold}]) > 0.2\n'
                "  and on (run) run:supervisor_moving:live"
            ),
            hold_secs=limits.hold_secs,
            summary="The newest checkpoint of {{ $labels.run }} is too old.",
            description=(
                "The run {{ $labels.run }} trains, but its newest good checkpoint is {{ $value | humanizeDuration }} "
                f"old, more than {many} times its checkpoint interval. A crash now would cost that much work."
            ),
        ),
        Alert(
            name="SupervisorCheckpointIntervalFar",
            severity="info",
            expr=(
                "(\n"
                "  run:supervisor_checkpoint_interval_seconds:live\n"
                "    / run:supervisor_checkpoint_recommended_interval_seconds:live\n"
                f"    > {factor}\n"
                "  or\n"
                "  run:supervisor_checkpoint_interval_seconds:live\n"
                "    / run:supervisor_checkpoint_recommended_interval_seconds:live\n"
                f"    < 1 / {factor}\n"
                ")\n"
                "  and on (run) (\n"
                f"    run:supervisor_unplanned_restarts:trainer >= {limits.failures_to_judge}\n"
                f"    or run:supervisor_unplanned_restarts:exporter >= {limits.failures_to_judge}\n"
                "  )\n"
                "  and on (run) run:supervisor_moving:live"
            ),
            hold_secs=limits.hold_secs,
            summary=f"The checkpoint interval of {{{{ $labels.run }}}} is more than {factor}x off the recommended one.",
            description=(
                "The checkpoint interval of the run {{ $labels.run }} is {{ $value | humanize }} times the recommended "
                "one, which follows from the cost of its saves and the rate of its failures."
            ),
        ),
    )


def _services(limits: Thresholds) -> tuple[Alert, ...]:
    window = duration(limits.restart_window_secs)
    return (
        Alert(
            name="SupervisorRestartLoop",
            severity="critical",
            expr=(
                f"({more_lately('run:supervisor_unplanned_restarts:trainer', window)} >= {limits.restarts}\n"
                f"  or {more_lately('run:supervisor_unplanned_restarts:exporter', window)} >= {limits.restarts})\n"
                "  unless on (run) run:supervisor_ended:known"
            ),
            hold_secs=0.0,
            summary="The training {{ $labels.run }} is in a restart loop.",
            description=(
                f"The run {{{{ $labels.run }}}} was restarted {{{{ $value }}}} times within {window}, after sessions "
                "that crashed, were killed or were preempted."
            ),
        ),
        Alert(
            name="SupervisorThreadDown",
            severity="warning",
            expr=(
                "(\n"
                '  run:supervisor_thread_up:live{thread!="checkpoint"} == 0\n'
                "  or\n"
                '  run:supervisor_thread_up:live{thread="checkpoint"} == 0\n'
                f"    unless on (run) run:supervisor_checkpoint_failures_in_a_row:live >= {limits.save_failures}\n"
                "  or\n"
                f"  run:supervisor_thread_overdue_seconds:live > {number(limits.overdue_secs)}\n"
                ")\n"
                "  and on (run) run:supervisor_moving:live\n"
                '  unless on (run) run:supervisor_phase:live{phase=~"stopping|stopped"} == 1'
            ),
            hold_secs=limits.hold_secs,
            summary="The service thread {{ $labels.thread }} of {{ $labels.run }} is dead or hangs.",
            description=(
                "The run {{ $labels.run }} trains, but its service thread {{ $labels.thread }} has failed, or is late "
                f"by more than {duration(limits.overdue_secs)}. Its work is not being done."
            ),
        ),
    )


def _speed(limits: Thresholds) -> tuple[Alert, ...]:
    speed = "run:supervisor_training_steps_per_second:live"
    now, past = duration(limits.slow_window_secs), duration(24 * limits.slow_window_secs)
    seen = max(1.0, limits.slow_window_secs / limits.interval_secs / 2)
    window = duration(limits.goodput_window_secs)
    return (
        Alert(
            name="SupervisorTrainingSlow",
            severity="warning",
            expr=(
                f"avg_over_time({speed}[{now}])\n"
                f"  / quantile_over_time(0.5, {speed}[{past}])\n"
                f"  < {number(limits.slow_below)}\n"
                f"  and on (run) count_over_time({speed}[{now}]) >= {number(seen)}\n"
                f"  and on (run) count_over_time({speed}[{now}] offset {duration(4 * limits.slow_window_secs)}) > 0\n"
                "  and on (run) run:supervisor_moving:live"
            ),
            hold_secs=limits.hold_secs,
            summary="The training {{ $labels.run }} is slow.",
            description=(
                f"Over the last {now} the run {{{{ $labels.run }}}} trained at {{{{ $value | humanizePercentage }}}} "
                f"of its usual speed, the median of the last {past}."
            ),
        ),
        Alert(
            name="SupervisorGoodputLow",
            severity="warning",
            expr=(
                f"(\n{_share(limits, 'exporter')}\n  or\n{_share(limits, 'trainer')}\n"
                f"    and on (run) resets(run:supervisor_session_seconds:trainer[{window}]) == 0\n"
                "    unless on (run) run:supervisor_session_seconds:exporter\n"
                ")\n"
                f"  < {number(limits.goodput_below)}\n"
                "  and on (run) run:supervisor_moving:live"
            ),
            hold_secs=limits.hold_secs,
            summary="The goodput of {{ $labels.run }} is low.",
            description=(
                f"Of the last {window} the sessions of the run {{{{ $labels.run }}}} spent only "
                "{{ $value | humanizePercentage }} on steps that were kept; the rest was starting, restoring, "
                "saving, stalls and recomputed steps."
            ),
        ),
    )


def _sources(limits: Thresholds) -> tuple[Alert, ...]:
    silent = (
        "group by (job, instance) (\n"
        "  up == 0 and on (job, instance)\n"
        f"    last_over_time(supervisor_exporter_build_info[{duration(limits.forget_secs)}])\n"
        ")"
    )
    there = "unless on (job, logdir) supervisor_exporter_logdir_up == 0"
    return (
        Alert(
            name="SupervisorLogdirUnreachable",
            severity="critical",
            expr=(
                "max by (job, logdir) (supervisor_exporter_logdir_up == bool 0) == 1\n"
                "or count by (job, logdir) (\n"
                "  supervisor_exporter_run_read_success\n"
                '    and on (job, instance, run) supervisor_run_state{state="unreachable"} == 1\n'
                ")\n"
                "or (\n"
                "  max by (job, logdir) (supervisor_exporter_runs) == 0\n"
                "    and on (job, logdir)\n"
                f"      max_over_time(supervisor_exporter_runs[{duration(limits.forget_secs)}]) > 0\n"
                ")"
            ),
            hold_secs=limits.stall_hold_secs,
            summary="Runs in {{ $labels.logdir }} have disappeared.",
            description=(
                "The exporter of the job {{ $labels.job }} does not find the logdir {{ $labels.logdir }}, or runs in "
                "it that had not ended: the logdir is not mounted, was moved or deleted, or cannot be listed. A "
                "training there that dies now may cause no alert."
            ),
        ),
        Alert(
            name="SupervisorEventsUnreadable",
            severity="warning",
            expr=(
                "max by (run) (last_over_time(supervisor_exporter_run_read_success"
                f"[{duration(limits.behind_secs)}])) == 0\n"
                '  unless on (run) supervisor_run_state{state="unreachable"} == 1\n'
                "  or max by (run) (increase(supervisor_exporter_corrupt_records_total[1h])) > 0"
            ),
            hold_secs=limits.hold_secs,
            summary="Events of {{ $labels.run }} cannot be read.",
            description=(
                "The exporter cannot read the events files of the run {{ $labels.run }}, or has found damaged records "
                "in them within the last hour. Its data for this run is old or incomplete."
            ),
        ),
        Alert(
            name="SupervisorExporterDown",
            severity="warning",
            expr=(
                f"{silent}\n"
                "or\n"
                f"  max by (job) (last_over_time(supervisor_exporter_build_info[{duration(limits.forget_secs)}]))\n"
                "    unless on (job) max by (job) (supervisor_exporter_build_info)\n"
                f"    unless on (job) {silent}\n"
                f"or max by (job, logdir) ({BEHIND} {there})\n"
                f"or max by (job, logdir) ({FIRST_LOOK} {there})"
            ),
            hold_secs=limits.hold_secs,
            summary=(
                "The exporter {{ $labels.job }}{{ with $labels.instance }} at {{ . }}{{ end }} has no new data"
                "{{ with $labels.logdir }} for {{ . }}{{ end }}."
            ),
            description=(
                "The exporter of the job {{ $labels.job }}{{ with $labels.instance }} at {{ . }}{{ end }} "
                "{{ with $labels.logdir }}could not read {{ . }}; its storage may hang"
                "{{ else }}does not answer Prometheus{{ end }}. "
                "A training {{ if $labels.logdir }}there {{ end }}that dies now may cause no alert."
            ),
        ),
    )


def _share(limits: Thresholds, source: str) -> str:
    """The share of the sessions' time that was kept, over a window in which there was enough of it."""
    window = duration(limits.goodput_window_secs)
    kept, spent = f"run:supervisor_productive_seconds:{source}", f"run:supervisor_session_seconds:{source}"
    return (
        f"  delta({kept}[{window}]) / delta({spent}[{window}])\n"
        f"    and on (run) delta({spent}[{window}]) > {number(limits.goodput_window_secs / 3)}"
    )
