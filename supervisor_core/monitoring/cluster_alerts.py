"""Alert rules about the other processes of a cluster, as their chief reports them while it is alive."""

from __future__ import annotations

from supervisor_core.monitoring.alert import Alert, more, number
from supervisor_core.monitoring.thresholds import Thresholds, duration


def cluster_alerts(limits: Thresholds) -> tuple[Alert, ...]:
    """Return the alert rules about clusters; trainings without one have no such series."""
    return (_lost(limits), _stuck(limits), _recoveries(limits))


def _lost(limits: Thresholds) -> Alert:
    return Alert(
        name="SupervisorWorkerLost",
        severity="warning",
        expr=(
            "run:supervisor_worker_up:live == 0\n"
            "  and on (run) run:supervisor_active:live == 1\n"
            "  and on (run) (\n"
            "    run:supervisor_reported_alive:timestamp_seconds == time()\n"
            "    or time() - max by (run) (supervisor_exporter_last_event_timestamp_seconds)"
            f" < {number(limits.behind_secs)}\n"
            "  )\n"
            '  unless on (run) run:supervisor_phase:live{phase=~"stopping|stopped"} == 1\n'
            # where the chief cannot write, the others cannot write their heartbeats
            "  unless on (run) run:supervisor_events_failing:live == 1"
        ),
        hold_secs=limits.worker_hold_secs,
        summary="{{ $labels.worker }} of {{ $labels.run }} is lost.",
        description=(
            "The process {{ $labels.worker }} of the training {{ $labels.run }} has no heartbeat, or has ended with an "
            f"error, and has not come back within {duration(limits.worker_hold_secs)}. The training continues without "
            "it, or waits for it."
        ),
    )


def _stuck(limits: Thresholds) -> Alert:
    return Alert(
        name="SupervisorWorkerStuck",
        severity="warning",
        expr=(
            "(run:supervisor_worker_waiting:live == 1 or run:supervisor_worker_stalled:live == 1)\n"
            "  and on (run) run:supervisor_moving:live\n"
            '  unless on (run) run:supervisor_phase:live{phase=~"starting|restoring|stopping|stopped"} == 1'
        ),
        hold_secs=limits.worker_wait_secs,
        summary="{{ $labels.worker }} of {{ $labels.run }} makes no progress.",
        description=(
            f"For {duration(limits.worker_wait_secs)} the chief of {{{{ $labels.run }}}} has trained, but the process "
            "{{ $labels.worker }} waited or made no progress. Its work is not done."
        ),
    )


def _recoveries(limits: Thresholds) -> Alert:
    window = duration(limits.recovery_window_secs)
    return Alert(
        name="SupervisorRecoveryLoop",
        severity="critical",
        expr=(
            f"({more('run:supervisor_recoveries_total:trainer', window)} >= {limits.recoveries}\n"
            f"  or {more('run:supervisor_recoveries_total:exporter', window)} >= {limits.recoveries})\n"
            "  and on (run) run:supervisor_active:live == 1"
        ),
        hold_secs=0.0,
        summary="The TensorFlow session of {{ $labels.run }} is lost repeatedly.",
        description=(
            f"Within {window} the training {{{{ $labels.run }}}} has lost its TensorFlow session {{{{ $value }}}} "
            "times, and recreated it. A process of its cluster dies repeatedly, or cannot be reached."
        ),
    )
