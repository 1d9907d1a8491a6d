"""The alert rule about a loss that is NaN or infinite."""

from __future__ import annotations

from supervisor_core.monitoring.alert import Alert


def loss_alerts() -> tuple[Alert, ...]:
    """Return the alert rule; runs of which no loss is known have no such series."""
    return (
        Alert(
            name="SupervisorLossNotFinite",
            severity="critical",
            expr=(
                "run:supervisor_loss_finite:live == 0\n"
                "  and on (run) (\n"
                "    run:supervisor_moving:live\n"
                "    or (\n"
                "      time() - run:supervisor_last_progress_timestamp_seconds:live\n"
                "        <= run:supervisor_progress_timeout_seconds:live\n"
                "    )\n"
                "    unless on (run) run:supervisor_reported:timestamp_seconds\n"
                "  )"
            ),
            hold_secs=0.0,
            summary="The loss of {{ $labels.run }} is NaN or infinite.",
            description=(
                "The training {{ $labels.run }} continues with a loss that is NaN or infinite. Its further steps are "
                "most likely useless."
            ),
        ),
    )
