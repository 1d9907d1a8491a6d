"""The alert rule about two trainings of one name, which would hide each other's trouble.

Trainer and exporter name the newest session that each knows of. After a restart they know of different ones for a
moment: the exporter of the earlier session until its next look, Prometheus of the earlier process until its next
scrape. So different names are not enough: a session counts if it was seen alive after the newest one began.
"""

from __future__ import annotations

from supervisor_core.monitoring.alert import Alert
from supervisor_core.monitoring.recordings import told
from supervisor_core.monitoring.thresholds import Thresholds


def name_alerts(limits: Thresholds) -> tuple[Alert, ...]:
    """Return the alert rule. A training that both its trainer and exporters serve has one session, and is one."""
    chiefs = told("supervisor_run_info", 'session_id!="",task=""').strip()
    alive = (
        f"({chiefs}\n"
        "    and on (job, instance, run) supervisor_active == 1\n"
        '    unless on (job, instance, run) supervisor_run_state{state="lost"} == 1)'
    )
    return (
        Alert(
            name="SupervisorRunDuplicated",
            severity="warning",
            expr=(
                "count by (run) (\n"
                "  max by (run, session_id) (\n"
                f"    {alive}\n"
                "    * on (job, instance, run) group_left\n"
                "      max by (job, instance, run) (supervisor_session_last_seen_timestamp_seconds)\n"
                "  )\n"
                "  >= on (run) group_left max by (run) (\n"
                "    supervisor_session_start_timestamp_seconds\n"
                f"    and on (job, instance, run) {alive}\n"
                "  )\n"
                ") > 1"
            ),
            hold_secs=limits.hold_secs,
            summary="Several trainings are called {{ $labels.run }}.",
            description=(
                "{{ $value }} sessions that run at the same time are called {{ $labels.run }}. Their values are mixed "
                "in every alert and panel: one that hangs is hidden by one that runs."
            ),
        ),
    )
