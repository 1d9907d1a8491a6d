"""Runs at rest, of which an exporter serves little, and the page of one run, which no rule goes by: which fire."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from monitoring_happenings import BROKEN, KILLED, SILENT, THREAD, WORKER, Moments, ends, turns
from monitoring_served import HOUR, MINUTE, NOTHING, Target, Value, always, clock, exporter, trainer, until

AT = 5 * MINUTE
"""When a run ends."""
ALIVE = (
    *("active", "progress", "seen", "timeout", "sessions", "session_start", "rate", "interval", "saved"),
    *("failed_saves", "events_failing", "loss_finite", "thread_up", "overdue", "recoveries"),
)
"""What is not served of a run at rest, and not by the page of one run."""
OF_READING = {"last_event_timestamp_seconds": clock, "run_read_success": always(1), "corrupt_records_total": always(0)}


def resting(state: str, at: float = AT, rests_at: float = 0, **what: Any) -> Target:
    """What an exporter serves of a run that ended long ago, or of one that comes to rest: its state and its end."""
    known = {name: getattr(Target, name) for name in ALIVE if name != "session_start"} | {"session_start": always(0)}
    told: dict[str, Value] = {name: until(rests_at, value, NOTHING) for name, value in (known | what).items()}
    read = {f"exporter_{name}": until(rests_at, value, NOTHING) for name, value in OF_READING.items()}
    return exporter(read, **{"phase": lambda t: "", "activity": {}, "ended": always(at), **turns(state), **told})


def details(**what: Any) -> Target:
    """The page of one run: what the page of all runs leaves out."""
    nothing: dict[str, Value] = dict.fromkeys(ALIVE, NOTHING)
    return trainer(**{**nothing, "job": "details", "instance": "exporter-1", "phase": lambda t: "", **what})


OVER = {"active": until(AT, always(1), always(0)), "progress": ends(AT), "seen": ends(AT)}

REST_SCENARIOS: dict[str, list[tuple[str, list[Target], Moments]]] = {
    KILLED: [
        (
            "a run that has ended as planned comes to rest",
            [trainer(end=AT), resting("completed", rests_at=HOUR, **OVER)],
            {at: SILENT for at in range(0, 2 * HOUR, 180)},
        ),
        (
            "the exporter begins when it has long ended, and finds it at rest",
            [trainer(end=AT), replace(resting("stopped"), start=2 * HOUR)],
            {30 * MINUTE: {KILLED}, 2 * HOUR + 9 * MINUTE: SILENT, 4 * HOUR: SILENT},
        ),
        (
            "what is at rest ended before its process was last seen alive",
            [trainer(start=HOUR, end=2 * HOUR), resting("completed")],
            {HOUR + 9 * MINUTE: SILENT, 2 * HOUR + 30 * MINUTE: {KILLED}},
        ),
    ],
    BROKEN: [
        (
            "a run of its name was given up, and it is stopped",
            [resting("failed", at=-HOUR), trainer(**OVER, **turns("running", AT, "stopped"))],
            {at: SILENT for at in range(0, 25 * MINUTE, 15)},
        ),
    ],
    THREAD: [
        (
            "the page of one run shows it alive",
            [exporter(thread_up=always(0)), details(thread_up=always(1), overdue=always(0))],
            {HOUR: {THREAD}},
        ),
        (
            "only the page of one run shows it late",
            [exporter(thread_up=NOTHING, overdue=NOTHING), details(overdue=always(9999))],
            {HOUR: SILENT},
        ),
    ],
    WORKER: [
        (
            "only the page of one run shows it down",
            [exporter(), details(workers={"worker:1": lambda t: "lost"})],
            {HOUR: SILENT},
        ),
    ],
}
