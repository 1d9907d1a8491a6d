"""What happens to the trainings of a cluster: what is served over time, and which alerts fire at which moments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from monitoring_happenings import (
    BROKEN,
    GONE,
    HUNG,
    KILLED,
    LATE,
    LOOP,
    RAISED,
    RECOVERIES,
    SILENT,
    STALLED,
    STUCK,
    UNWRITTEN,
    WORKER,
    Moments,
    ends,
    phases,
    resumed,
    turns,
)
from monitoring_served import HOUR, MINUTE, Target, always, exporter, trainer

State = Callable[[float], "str | None"]


def worker(*states: str | float | None) -> dict[str, dict[str, State]]:
    """A cluster of which one process is in one state until a moment, in the next until another ..."""
    *turns, last = states

    def state(t: float) -> str | None:
        for now, at in zip(turns[::2], turns[1::2], strict=True):
            if t < at:  # type: ignore[operator]
                return now  # type: ignore[return-value]
        return last  # type: ignore[return-value]

    return {"workers": {"ps:0": lambda t: "running", "worker:1": state}}


LOST = worker("running", 20 * MINUTE, "lost")
AT_ONCE = {21 * MINUTE: SILENT, 23 * MINUTE: {WORKER}}


def both(**what: Any) -> list[Target]:
    """A training that is scraped itself, and through the exporter."""
    return [trainer(**what), exporter(**what)]


def lost_every(secs: float, last: float = 1e9) -> dict[str, Any]:
    """A training whose TensorFlow session is lost again and again."""
    return {"recoveries": lambda t: min(t, last) // secs}


CLUSTER_SCENARIOS: dict[str, list[tuple[str, list[Target], Moments]]] = {
    WORKER: [
        (
            "the disk is full: heartbeats of the others cannot be written either",
            both(events_failing=lambda t: t >= 20 * MINUTE, **LOST),
            {19 * MINUTE: SILENT, 24 * MINUTE: {UNWRITTEN}, 28 * MINUTE: {UNWRITTEN}},
        ),
        ("lost", [trainer(**LOST)], {**AT_ONCE, 50 * MINUTE: {WORKER}}),
        ("ended by an error", [trainer(**worker("running", 20 * MINUTE, "failed"))], AT_ONCE),
        ("lost, and only the exporter knows", [exporter(**LOST)], AT_ONCE),
        ("both know of it", both(**LOST), AT_ONCE),
        ("the training waits for it", both(**LOST, **HUNG), {22.5 * MINUTE: {WORKER}, 28 * MINUTE: {WORKER, STALLED}}),
        (
            "back before the time",
            [trainer(**worker("running", 20 * MINUTE, "lost", 21.5 * MINUTE, "waiting", 23 * MINUTE, "running"))],
            {21 * MINUTE: SILENT, 23 * MINUTE: SILENT, 30 * MINUTE: SILENT},
        ),
        (
            "back after it",
            [trainer(**worker("running", 20 * MINUTE, "lost", 26 * MINUTE, "running"))],
            {25 * MINUTE: {WORKER}, 27 * MINUTE: SILENT},
        ),
        (
            "ended as planned",
            both(**worker("running", 20 * MINUTE, "stopped")),
            {23 * MINUTE: SILENT, 40 * MINUTE: SILENT},
        ),
        (
            "ended as planned, having been lost for a minute",
            both(**worker("running", 20 * MINUTE, "lost", 21 * MINUTE, "stopped")),
            {23 * MINUTE: SILENT, 40 * MINUTE: SILENT},
        ),
        ("the run has been completed", both(**GONE, **LOST), {23 * MINUTE: SILENT, 2 * HOUR: SILENT}),
        (
            "killed while the chief stops, and takes its time",
            both(phase=phases("training", "stopping", 20 * MINUTE), **LOST),
            {23 * MINUTE: SILENT, 40 * MINUTE: SILENT},
        ),
        (
            "the chief was killed: another alert's",
            [trainer(end=20 * MINUTE, **LOST)],
            {20 * MINUTE: SILENT, 23 * MINUTE: {KILLED}, 40 * MINUTE: {KILLED}},
        ),
        (
            "the chief was killed a while after it: the exporter reports the worker until the chief is called lost",
            [
                trainer(end=25 * MINUTE, progress=ends(25 * MINUTE), **LOST),
                exporter(
                    {"exporter_last_event_timestamp_seconds": ends(25 * MINUTE)},
                    progress=ends(25 * MINUTE),
                    seen=ends(25 * MINUTE),
                    **LOST,
                    **turns("running", 26 * MINUTE, "lost"),
                ),
            ],
            {24 * MINUTE: {WORKER}, 29 * MINUTE: {WORKER, KILLED}, 32 * MINUTE: {KILLED}},
        ),
        (
            "the chief ended by an error, and its processes with it",
            [
                trainer(
                    end=21 * MINUTE,
                    phase=phases("training", "stopped", 20 * MINUTE),
                    **worker("running", 19.5 * MINUTE, "failed"),
                    **RAISED,
                )
            ],
            {22 * MINUTE: {BROKEN}, 27 * MINUTE: {BROKEN}},
        ),
        (
            "the next session does not know of it",
            [trainer(end=21 * MINUTE, **LOST), resumed(22 * MINUTE, **worker("running", 0, "running"))],
            {24 * MINUTE: SILENT, 40 * MINUTE: SILENT},
        ),
        (
            "storage that the exporter cannot reach says nothing of it",
            [exporter({"exporter_last_refresh_timestamp_seconds": ends(21 * MINUTE)}, **LOST)],
            {28 * MINUTE: SILENT},
        ),
        ("a process that was never seen", [trainer(**worker(None, 1, None))], {HOUR: SILENT}),
    ],
    STUCK: [
        (
            "waits while the chief trains",
            [trainer(**worker("running", 20 * MINUTE, "waiting"))],
            {34 * MINUTE: SILENT, 36 * MINUTE: {STUCK}},
        ),
        (
            "does not move, and both know of it",
            both(**worker("running", 20 * MINUTE, "stalled")),
            {34 * MINUTE: SILENT, 36 * MINUTE: {STUCK}},
        ),
        ("back before the time", [trainer(**worker("waiting", 14 * MINUTE, "running"))], {20 * MINUTE: SILENT}),
        (
            "waits, is lost, and waits again",
            [trainer(**worker("waiting", 10 * MINUTE, "lost", 11 * MINUTE, "waiting"))],
            {24 * MINUTE: SILENT, 27 * MINUTE: {STUCK}},
        ),
        (
            "the chief restores for long",
            [trainer(phase=lambda t: "restoring", timeout=always(3600), **worker("running", 0, "waiting"))],
            {50 * MINUTE: SILENT},
        ),
        (
            "the chief does not move either: another alert's",
            [trainer(**HUNG, **worker("running", 20 * MINUTE, "stalled"))],
            {**LATE, 40 * MINUTE: {STALLED}},
        ),
        ("the run has been completed", both(**GONE, **worker("running", 0, "waiting")), {50 * MINUTE: SILENT}),
        ("ended as planned", [trainer(**worker("waiting", 10 * MINUTE, "stopped"))], {50 * MINUTE: SILENT}),
    ],
    RECOVERIES: [
        (
            "lost every 8 minutes",
            [trainer(**lost_every(8 * MINUTE, 50 * MINUTE))],
            {20 * MINUTE: SILENT, 25 * MINUTE: {RECOVERIES}, 90 * MINUTE: SILENT},
        ),
        ("both know of it", both(**lost_every(8 * MINUTE)), {25 * MINUTE: {RECOVERIES}}),
        ("lost every 20 minutes", both(**lost_every(20 * MINUTE)), {50 * MINUTE: SILENT, 5 * HOUR: SILENT}),
        (
            "losses from before anybody looked",
            [trainer(start=20 * MINUTE, recoveries=always(17))],
            {21 * MINUTE: SILENT, 40 * MINUTE: SILENT},
        ),
        (
            "each session loses it twice, which is not yet a loop",
            [
                trainer(end=20 * MINUTE, recoveries=lambda t: min(2, t // (5 * MINUTE))),
                resumed(21 * MINUTE, recoveries=lambda t: min(2, (t - 21 * MINUTE) // (3 * MINUTE))),
            ],
            {19 * MINUTE: SILENT, 30 * MINUTE: SILENT},
        ),
        ("the run has been completed", both(**{**GONE, **lost_every(8 * MINUTE)}), {25 * MINUTE: SILENT}),
        (
            "its process starts again and again: another alert's",
            [trainer(restarts={"lost": lambda t: t // (10 * MINUTE)}, sessions=lambda t: 1 + t // (10 * MINUTE))],
            {35 * MINUTE: {LOOP}},
        ),
    ],
}
