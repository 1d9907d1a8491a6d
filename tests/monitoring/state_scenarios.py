"""Trainings that stall, are lost or fail: what is served over time, and which alerts fire at which moments."""

from __future__ import annotations

from typing import Any

from monitoring_happenings import (
    BROKEN,
    DOWN,
    GONE,
    HUNG,
    KILLED,
    LATE,
    LATER,
    LONG,
    READING,
    SILENT,
    STALLED,
    Moments,
    ends,
    phases,
    resumed,
    turns,
)
from monitoring_served import DAY, HOUR, MINUTE, Target, always, clock, exporter, saved_every, trainer, until

AT = 5 * MINUTE
"""When it happens, where nothing else is said."""
STILL: dict[str, Any] = {"progress": ends(AT), "saved": always(None)}
EVENTS = {"exporter_last_event_timestamp_seconds": ends(AT)}
LOST: dict[str, Any] = {"serves": EVENTS, "seen": ends(AT), **STILL, **turns("running", AT + 45, "lost")}
"""Killed, as an exporter reports it: after three heartbeats, and at its next look."""
OVER = until(AT, always(1), always(0))
RAISED: dict[str, Any] = {"active": OVER, "seen": ends(AT), **STILL, **turns("running", AT, "failed")}
"""Ended by an error."""
LATE_RAISED: dict[str, Any] = {
    "serves": EVENTS,
    "active": until(AT + 15, always(1), always(0)),
    "seen": ends(AT),
    **STILL,
    **turns("running", AT + 15, "failed"),
}
"""The same, as an exporter reports it."""
ENDED: dict[str, Any] = {"active": OVER, "seen": ends(AT), **STILL, **turns("running", AT, "completed")}
IN_TWO_MINUTES: Moments = {AT: SILENT, AT + 120: {KILLED}, AT + 20 * MINUTE: {KILLED}}
FAILED_IN_TWO: Moments = {AT: SILENT, AT + 90: SILENT, AT + 120: {BROKEN}, AT + 20 * MINUTE: {BROKEN}}
NEVER: Moments = {at: SILENT for at in (AT, AT + 60, AT + 120, AT + 300, AT + 20 * MINUTE, 55 * MINUTE)}


def within(phase: str, budget: float) -> dict[str, Any]:
    """A training that is in one phase all the time."""
    return {"phase": lambda t: phase, "timeout": always(budget)}


def restarted(at: float, secs: float, serves: dict[str, Any], **what: Any) -> list[Target]:
    """An exporter that is restarted, and then looks at its logdir for as long for the first time."""
    looked = until(at + 2 * secs, always(None), clock)
    return [
        exporter(serves, end=at, **what),
        exporter(
            {**serves, "exporter_last_refresh_timestamp_seconds": looked},
            start=at + secs,
            instance="exporter-2",
            **what,
        ),
    ]


STATE_SCENARIOS: dict[str, list[tuple[str, list[Target], Moments]]] = {
    BROKEN: [
        ("an exception that its own process reports", [trainer(end=AT + 30, **RAISED)], FAILED_IN_TWO),
        ("an exception that only the exporter reports", [exporter(**LATE_RAISED)], FAILED_IN_TWO),
        ("both report it", [trainer(end=AT + 30, **RAISED), exporter(**LATE_RAISED)], FAILED_IN_TWO),
        (
            "an exception in a phase with a long budget",
            [exporter(**{**LATE_RAISED, **within("evaluating", 3600)})],
            FAILED_IN_TWO,
        ),
        (
            "it is started again at once",
            [trainer(end=AT + 15, **RAISED), resumed(AT + 30)],
            NEVER,
        ),
        (
            "it is started again after a while",
            [trainer(end=AT + 30, **RAISED), exporter(**LATE_RAISED, end=20 * MINUTE), resumed(20 * MINUTE)],
            {19 * MINUTE: {BROKEN}, 21 * MINUTE: SILENT},
        ),
        (
            "the exporter is restarted",
            restarted(15 * MINUTE, 120, EVENTS, **{k: v for k, v in LATE_RAISED.items() if k != "serves"}),
            {at * MINUTE: {BROKEN} for at in (14, 15, 16, 17, 18, 19, 20, 25)},
        ),
        (
            "no source reports it any more: it is forgotten after a day",
            [trainer(end=15 * MINUTE, **RAISED)],
            {23 * HOUR: {BROKEN}, 25 * HOUR: SILENT},
        ),
        (
            "runs that failed long ago",
            [exporter({"exporter_last_event_timestamp_seconds": always(0)}, active=always(0), **turns("failed"))],
            {25 * HOUR: SILENT},
        ),
        ("completed", [trainer(end=AT + 30, **ENDED), exporter(EVENTS, **ENDED)], NEVER),
    ],
    KILLED: [
        ("killed, its pod gone, no exporter", [trainer(end=AT, **turns("running"))], IN_TWO_MINUTES),
        ("killed, and only the exporter is scraped", [exporter(**LOST)], IN_TWO_MINUTES),
        ("killed, and both are scraped", [trainer(end=AT), exporter(**LOST)], IN_TWO_MINUTES),
        *(
            (
                f"killed in {phase}, whatever its budget",
                [trainer(end=AT, **within(phase, budget)), exporter(**{**LOST, **within(phase, budget)})],
                IN_TWO_MINUTES,
            )
            for phase, budget in (
                ("starting", 1800),
                ("restoring", 1800),
                ("checkpointing", 1800),
                ("evaluating", 3600),
            )
        ),
        *(
            (
                f"killed with a budget of {budget} s: it is never called stalled",
                [*targets, exporter(**{**LOST, **turns("running", AT + lost, "lost"), **within("training", budget)})],
                {
                    **{AT + at: SILENT for at in range(0, max(lost, 105), 15)},
                    **{AT + at: {KILLED} for at in (max(lost + 30, 120), lost + 120, lost + 300)},
                },
            )
            # after three heartbeats, of 10, 30 and 60 s
            for budget, lost in ((1, 45), (1, 90), (60, 195))
            for targets in ([], [trainer(end=AT, **within("training", budget))])
        ),
        (
            "killed, and an exporter on its machine reports it at once: a restart has as long as anywhere",
            [exporter(**{**LOST, **turns("running", AT, "lost")})],
            {AT: SILENT, AT + 90: SILENT, AT + 120: {KILLED}, AT + 20 * MINUTE: {KILLED}},
        ),
        (
            "killed, reported at once, and an evaluator goes on writing into the same logdir",
            [exporter(**{**LOST, "serves": {next(iter(EVENTS)): clock}, **turns("running", AT, "lost")})],
            {AT + 90: SILENT, AT + 120: {KILLED}, AT + 20 * MINUTE: {KILLED}},
        ),
        (
            "killed, reported at once, by an exporter whose clock is behind the training's",
            [exporter(**{**LOST, "seen": always(DAY), **turns("running", AT, "lost")})],
            {AT + 90: SILENT, AT + 120: {KILLED}},
        ),
        (
            "a trainer of before there were states, no exporter",
            [trainer(end=AT)],
            IN_TWO_MINUTES,
        ),
        ("it is forgotten after a day", [trainer(end=AT)], {23 * HOUR: {KILLED}, 25 * HOUR: SILENT}),
        (
            "runs that died long ago",
            [exporter({"exporter_last_event_timestamp_seconds": always(0)}, progress=always(0), **turns("lost"))],
            {25 * HOUR: SILENT},
        ),
        (
            "runs that are given up",
            [exporter({"exporter_last_event_timestamp_seconds": always(0)}, active=always(0), **turns("lost"))],
            {20 * MINUTE: SILENT},
        ),
        (
            "resumed in another pod in time",
            [trainer(end=AT), resumed(AT + 60)],
            NEVER,
        ),
        (
            "resumed in time, and both are scraped",
            [
                trainer(end=AT),
                exporter(progress=until(AT, clock, lambda t: AT if t < AT + 60 else t)),
                resumed(AT + 60),
            ],
            NEVER,
        ),
        (
            "resumed late",
            [trainer(end=AT), resumed(20 * MINUTE)],
            {19 * MINUTE: {KILLED}, 21 * MINUTE: SILENT},
        ),
        ("some scrapes of a trainer fail", [trainer(end=AT), trainer(start=AT + 60)], NEVER),
        (
            "a trainer that is not reached, which the exporter sees alive",
            [trainer(end=AT), exporter(**turns("running"))],
            NEVER,
        ),
        (
            "a trainer that has not been reached for long, when its exporter goes",
            [trainer(end=AT), exporter(end=20 * MINUTE, **turns("running"))],
            {19 * MINUTE: SILENT, 22 * MINUTE: SILENT, 27 * MINUTE: SILENT, 40 * MINUTE: {DOWN}},
        ),
        (
            "the exporter is restarted",
            restarted(
                15 * MINUTE,
                120,
                EVENTS,
                progress=ends(AT),
                seen=ends(AT),
                saved=always(None),
                **turns("running", AT + 45, "lost"),
            ),
            {at * MINUTE: {KILLED} for at in (14, 15, 16, 17, 18, 19, 20, 25)},
        ),
        (
            "the exporter is taken away",
            [exporter(end=15 * MINUTE, **LOST)],
            {14 * MINUTE: {KILLED}, 16 * MINUTE: {KILLED}, 40 * MINUTE: {KILLED, DOWN}},
        ),
        (
            "completed, and its last sample was of a moment before: the exporter knows",
            [trainer(end=AT, **turns("running")), exporter(EVENTS, **ENDED)],
            NEVER,
        ),
        (
            "completed, and its last sample was of a moment before: the exporter knew, and is restarted",
            [trainer(end=AT, **turns("running")), *restarted(10 * MINUTE, 240, EVENTS, **ENDED)],
            NEVER,
        ),
        (
            "completed, and its last sample was of a moment before: the exporter knew, and is gone",
            [trainer(end=AT, **turns("running")), exporter(EVENTS, end=10 * MINUTE, **ENDED)],
            {9 * MINUTE: SILENT, 15 * MINUTE: SILENT, 43 * MINUTE: {DOWN}, 3 * HOUR: {DOWN}},
        ),
        (
            "completed, which one of two exporters has not seen yet",
            [
                exporter(EVENTS, **ENDED),
                exporter(instance="exporter-2", **{**ENDED, "active": until(AT + 60, always(1), always(0))}),
            ],
            NEVER,
        ),
        ("completed, its own process last", [trainer(end=AT + 30, **ENDED)], NEVER),
    ],
    STALLED: [
        (
            "a hung process, when the exporter is restarted",
            restarted(15 * MINUTE, 120, {}, **STILL),
            {at * MINUTE: {STALLED} for at in (14, 15, 16, 17, 18, 19, 20, 25)},
        ),
        (
            "a hung process that is killed then",
            [trainer(end=15 * MINUTE, **STILL)],
            {14 * MINUTE: {STALLED}, 17 * MINUTE: {KILLED}},
        ),
        ("a hung process", [trainer(**HUNG)], LATE),
        ("a hung process is reported for as long as it hangs", [trainer(**HUNG)], {30 * HOUR: {STALLED}}),
        ("a hung one that both know fires once", [trainer(**HUNG), exporter(**HUNG)], LATE),
        ("one step in 500 s", [trainer(progress=lambda t: t // 500 * 500)], {495: {STALLED}, 510: SILENT}),
        (
            "a restore that hangs",
            [trainer(phase=lambda t: "restoring", progress=always(0), timeout=always(1800), saved=always(None))],
            {30 * MINUTE: SILENT, 32 * MINUTE: {STALLED}},
        ),
        ("a planned stop that both know", [trainer(end=21 * MINUTE, **GONE), exporter(**GONE)], {27 * MINUTE: SILENT}),
        ("a quick stop", [trainer(end=1 * MINUTE, active=until(30, always(1), always(0)))], {10 * MINUTE: SILENT}),
        (
            "a quick stop that the exporter saw late",
            [
                trainer(end=60, active=until(30, always(1), always(0))),
                exporter(active=until(90, always(1), always(0)), progress=ends(30)),
            ],
            {10 * MINUTE: SILENT},
        ),
        (
            "a long save",
            [trainer(phase=phases("training", "checkpointing", HOUR), progress=ends(HOUR), timeout=always(1800))],
            {85 * MINUTE: SILENT},
        ),
        ("a long evaluation", [trainer(**LONG)], {110 * MINUTE: SILENT}),
        (
            "the first minutes",
            [
                trainer(
                    phase=lambda t: "starting",
                    progress=always(0),
                    timeout=always(1800),
                    saved=always(None),
                    rate=always(None),
                )
            ],
            {MINUTE: SILENT, 20 * MINUTE: SILENT},
        ),
        (
            "storage that the exporter cannot reach says nothing of a run",
            [exporter({"exporter_last_refresh_timestamp_seconds": ends(20 * MINUTE)}, **HUNG)],
            {27 * MINUTE: SILENT, 40 * MINUTE: {DOWN}},
        ),
        (
            "a logdir that hangs says nothing of its runs, and hides no other logdir's",
            [
                exporter({"exporter_last_refresh_timestamp_seconds": ends(20 * MINUTE)}, **HUNG),
                exporter(run="q", logdir="/other", progress=ends(HOUR), saved=ends(HOUR, saved_every(600))),
            ],
            {27 * MINUTE: SILENT, 40 * MINUTE: {DOWN}, 70 * MINUTE: {DOWN, STALLED}},
        ),
        (
            "a logdir that hangs is no reason to doubt the trainer of one of its runs",
            [
                exporter({"exporter_last_refresh_timestamp_seconds": ends(20 * MINUTE)}, **HUNG),
                exporter(run="q", logdir="/other"),
                trainer(),
            ],
            {27 * MINUTE: SILENT, 40 * MINUTE: {DOWN}, 70 * MINUTE: {DOWN}},
        ),
        (
            "the first look at a logdir hides no other logdir's runs",
            [
                exporter({"exporter_last_refresh_timestamp_seconds": LATER}, progress=always(0)),
                exporter(run="q", logdir="/other", progress=always(0)),
            ],
            {8 * MINUTE: {STALLED}},
        ),
        (
            "what an exporter has read in its first look, which takes long, says nothing of a run until it is through",
            [
                exporter(
                    {"exporter_last_refresh_timestamp_seconds": LATER}, progress=until(9 * MINUTE, always(0), clock)
                )
            ],
            {8 * MINUTE: SILENT, 10 * MINUTE: SILENT, 30 * MINUTE: SILENT},
        ),
        (
            "what an exporter brings up to date during its first look is believed at once",
            [exporter(READING, progress=always(0))],
            {8 * MINUTE: {STALLED}, 30 * MINUTE: {STALLED}},
        ),
        (
            "a first look that hangs is not believed any more",
            [
                exporter(
                    {
                        "exporter_last_refresh_timestamp_seconds": always(None),
                        "exporter_first_look_timestamp_seconds": always(60),
                    },
                    progress=always(200),
                )
            ],
            {9 * MINUTE: SILENT, 12 * MINUTE: {DOWN}, 30 * MINUTE: {DOWN}},
        ),
        (
            "an exporter that has gone says nothing of a run",
            [exporter(end=20 * MINUTE)],
            {27 * MINUTE: SILENT, 40 * MINUTE: {DOWN}},
        ),
        (
            "runs that died long ago",
            [exporter({"exporter_last_event_timestamp_seconds": always(100)}, progress=always(100), saved=always(90))],
            {26 * HOUR: SILENT},
        ),
        (
            "a run of another writer, of which no budget is known",
            [exporter(progress=ends(HOUR), timeout=always(None), active=always(None))],
            {2 * HOUR: SILENT},
        ),
    ],
}
