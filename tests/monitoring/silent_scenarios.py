"""What happens to runs of other writers: over time what is served, and which alerts fire at which moments."""

from __future__ import annotations

from typing import Any

from monitoring_happenings import DOWN, QUIET, SILENT, Moments, ends
from monitoring_served import HOUR, MINUTE, Target, always, exporter, until


def foreign(serves: dict[str, Any] | None = None, **what: Any) -> Target:
    """A run of another writer, as an exporter serves it."""
    unknown = {name: always(None) for name in ("active", "interval", "failed_saves", "thread_up", "overdue")}
    return exporter(serves, **{**unknown, "timeout": always(900), "activity": {}, "phase": lambda t: "", **what})


SILENT_SCENARIOS: dict[str, list[tuple[str, list[Target], Moments]]] = {
    QUIET: [
        (
            "it hangs",
            [foreign(progress=ends(HOUR))],
            {74 * MINUTE: SILENT, 78 * MINUTE: {QUIET}, 3 * HOUR: {QUIET}},
        ),
        ("it may have ended: given up after 6 hours", [foreign(progress=ends(HOUR))], {8 * HOUR: SILENT}),
        ("it goes on", [foreign(progress=until(80 * MINUTE, ends(HOUR), lambda t: t))], {85 * MINUTE: SILENT}),
        ("it writes every 14 minutes", [foreign(progress=lambda t: t // 840 * 840)], {835: SILENT, 2 * HOUR: SILENT}),
        ("it ended by itself", [foreign(progress=ends(HOUR), timeout=always(None))], {2 * HOUR: SILENT}),
        ("it ended long ago", [foreign(progress=always(-7 * HOUR))], {2 * HOUR: SILENT}),
        (
            "a run that says how it is, is not judged by its silence",
            [exporter(progress=ends(HOUR), active=always(0))],
            {2 * HOUR: SILENT},
        ),
        (
            "an exporter that hangs says nothing of it",
            [foreign({"exporter_last_refresh_timestamp_seconds": ends(HOUR)}, progress=ends(HOUR))],
            {90 * MINUTE: {DOWN}},
        ),
    ],
}
