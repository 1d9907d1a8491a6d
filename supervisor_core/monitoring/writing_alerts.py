"""Alert rules about what a training cannot write: its checkpoints, its events."""

from __future__ import annotations

from supervisor_core.monitoring.alert import Alert
from supervisor_core.monitoring.thresholds import Thresholds, duration


def writing_alerts(limits: Thresholds) -> tuple[Alert, ...]:
    """Return the alert rules about failing writes."""
    return (_saves(limits), _events(limits))


def _saves(limits: Thresholds) -> Alert:
    return Alert(
        name="SupervisorSavesFailing",
        severity="critical",
        expr=(
            f"run:supervisor_checkpoint_failures_in_a_row:live >= {limits.save_failures}\n"
            "  and on (run) run:supervisor_moving:live"
        ),
        hold_secs=limits.save_hold_secs,
        summary="Checkpoints of {{ $labels.run }} cannot be saved.",
        description=(
            "The last {{ $value }} saves of the run {{ $labels.run }} have failed. Training continues; a crash would "
            "lose all work since the newest good checkpoint."
        ),
    )


def _events(limits: Thresholds) -> Alert:
    return Alert(
        name="SupervisorEventsNotWritten",
        severity="warning",
        expr="run:supervisor_events_failing:live == 1",
        hold_secs=limits.save_hold_secs,
        summary="The training {{ $labels.run }} cannot write its events.",
        description=(
            f"For {duration(limits.save_hold_secs)} the training {{{{ $labels.run }}}} has not been able to write to "
            "its logdir: the disk is full, read-only or unreachable. The process is alive; TensorBoard and the "
            "exporter get no new data, and saves will fail too."
        ),
    )
