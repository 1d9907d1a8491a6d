"""The alert rule about two trainings of one name, which would hide each other's trouble."""

from __future__ import annotations

from supervisor_core.monitoring.alert import Alert
from supervisor_core.monitoring.recordings import told
from supervisor_core.monitoring.thresholds import Thresholds

_SOURCES_AGREE_SECS = 120.0
"""After a restart the exporter may report the earlier session for a minute: no shorter hold is true."""


def name_alerts(limits: Thresholds) -> tuple[Alert, ...]:
    """Return the alert rule. A training that both its trainer and exporters serve has one session, and is one."""
    chiefs = told("supervisor_run_info", 'session_id!="",task=""').strip()
    return (
        Alert(
            name="SupervisorRunDuplicated",
            severity="warning",
            expr=(
                "count by (run) (\n"
                "  group by (run, session_id) (\n"
                f"    {chiefs}\n"
                "    and on (job, instance, run) supervisor_active == 1\n"
                "  )\n"
                ") > 1"
            ),
            hold_secs=max(limits.hold_secs, _SOURCES_AGREE_SECS),
            summary="Several trainings are called {{ $labels.run }}.",
            description=(
                "{{ $value }} sessions that run at the same time are called {{ $labels.run }}. Their values are mixed "
                "in every alert and panel: one that hangs is hidden by one that runs."
            ),
        ),
    )
