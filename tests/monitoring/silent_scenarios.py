"""What happens to runs of other writers and to losses, what programs say, and which alerts fire when."""

from __future__ import annotations

from typing import Any

from monitoring_happenings import DOWN, GONE, HUNG, NAN, NOTICE, QUIET, SILENT, STALLED, Moments, ends
from monitoring_served import HOUR, MINUTE, Target, always, exporter, trainer, until


def foreign(serves: dict[str, Any] | None = None, **what: Any) -> Target:
    """A run of another writer, as an exporter serves it."""
    unknown = {name: always(None) for name in ("active", "interval", "failed_saves", "thread_up", "overdue")}
    return exporter(serves, **{**unknown, "timeout": always(900), "activity": {}, "phase": lambda t: "", **what})


SAID = until(HOUR, always(None), always(HOUR))
AGAIN = until(90 * MINUTE, SAID, always(90 * MINUTE))
DIVERGED = until(HOUR, always(1), always(0))

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
    NAN: [
        (
            "the watched loss is NaN: fires at once",
            [trainer(loss_finite=DIVERGED)],
            {59 * MINUTE: SILENT, HOUR + 30: {NAN}},
        ),
        (
            "only the exporter knows",
            [trainer(loss_finite=always(None)), exporter(loss_finite=DIVERGED)],
            {HOUR + 30: {NAN}},
        ),
        ("both know", [trainer(loss_finite=DIVERGED), exporter(loss_finite=DIVERGED)], {HOUR + 30: {NAN}}),
        ("a run of another writer", [foreign(loss_finite=DIVERGED)], {59 * MINUTE: SILENT, HOUR + 30: {NAN}}),
        (
            "a run of another writer that has ceased",
            [foreign(loss_finite=always(0), progress=ends(20 * MINUTE))],
            {30 * MINUTE: {NAN}, 40 * MINUTE: {QUIET}},
        ),
        (
            "a loss that is finite again",
            [trainer(loss_finite=until(70 * MINUTE, DIVERGED, always(1)))],
            {65 * MINUTE: {NAN}, 75 * MINUTE: SILENT},
        ),
        ("a run that has ended with it", [exporter(loss_finite=always(0), **GONE)], {18 * MINUTE: {NAN}, HOUR: SILENT}),
        ("a run that hangs", [trainer(loss_finite=always(0), **HUNG)], {40 * MINUTE: {STALLED}}),
        ("no loss is known", [trainer(loss_finite=always(None))], {HOUR: SILENT}),
    ],
    NOTICE: [
        (
            "the program says something: at once, and for an hour",
            [trainer(notices={"warn": SAID})],
            {59 * MINUTE: SILENT, HOUR + 30: {NOTICE}, 2 * HOUR - MINUTE: {NOTICE}, 2 * HOUR + MINUTE: SILENT},
        ),
        (
            "it says it again",
            [trainer(notices={"page": AGAIN})],
            {2 * HOUR + MINUTE: {NOTICE}, 2.5 * HOUR - MINUTE: {NOTICE}, 2.5 * HOUR + MINUTE: SILENT},
        ),
        ("only the exporter knows", [trainer(), exporter(notices={"page": SAID})], {HOUR + 30: {NOTICE}}),
        ("both know", [trainer(notices={"page": SAID}), exporter(notices={"page": SAID})], {HOUR + 30: [NOTICE]}),
        ("a page and a warning", [trainer(notices={"page": SAID, "warn": SAID})], {HOUR + 30: [NOTICE, NOTICE]}),
        ("an info is none", [trainer(notices={"info": SAID})], {HOUR + 30: SILENT}),
        (
            "and the run is completed",
            [exporter(notices={"warn": until(19 * MINUTE, always(None), always(19 * MINUTE))}, **GONE)],
            {30 * MINUTE: {NOTICE}, 80 * MINUTE: SILENT},
        ),
        (
            "a run whose files the exporter cannot read any more",
            [exporter({"exporter_run_read_success": until(HOUR, always(1), always(0))}, notices={"warn": ends(HOUR)})],
            {59 * MINUTE: {NOTICE}, HOUR + 2 * MINUTE: SILENT},
        ),
    ],
}
