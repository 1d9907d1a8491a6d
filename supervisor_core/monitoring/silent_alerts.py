"""Alert rules about runs of other writers, which say nothing of themselves but what they write."""

from __future__ import annotations

from supervisor_core.monitoring.alert import Alert, number
from supervisor_core.monitoring.thresholds import Thresholds


def silent_alerts(limits: Thresholds) -> tuple[Alert, ...]:
    """Return the alert rules about runs without telemetry."""
    silence = "time() - run:supervisor_last_progress_timestamp_seconds:live"
    return (
        Alert(
            name="SupervisorRunSilent",
            severity="warning",
            expr=(
                f"({silence} > run:supervisor_progress_timeout_seconds:live)\n"
                f"  and on (run) ({silence} < {number(limits.silent_secs)})\n"
                "  unless on (run) run:supervisor_reported:timestamp_seconds"
            ),
            hold_secs=limits.stall_hold_secs,
            summary="The run {{ $labels.run }} writes no more events.",
            description=(
                "Nothing was written in the run {{ $labels.run }} for {{ $value | humanizeDuration }}, much longer "
                "than between two of its points before. It hangs, has died, or has ended; its program records "
                "no state."
            ),
        ),
    )
