"""Deaths that are followed by a restart, were there before anybody looked, or come many at a time: which fire."""

from __future__ import annotations

from typing import Any

from monitoring_happenings import BROKEN, KILLED, MANY, SILENT, TWICE, Moments, ends, resumed, turns
from monitoring_served import DAY, HOUR, MINUTE, Target, Value, always, clock, exporter, trainer, until

AT = 5 * MINUTE
"""When it happens, where nothing else is said."""
NEVER: Moments = {AT + at: SILENT for at in range(0, 10 * MINUTE, 15)}


def dead(state: str = "lost", at: float = AT, until_at: float = 1e9, **what: Any) -> Target:
    """What an exporter on its machine says of a run that dies, until its next session is seen."""
    still = lambda value: until(until_at, ends(at, value), value)  # noqa: E731
    over: Value = lambda t: 0 if state == "failed" and at <= t < until_at else 1  # noqa: E731
    named = {"run": "r", **what}
    told = named.pop("serves", {"exporter_last_event_timestamp_seconds": still(clock)})
    return exporter(
        told,
        **{
            "progress": still(clock),
            "seen": still(clock),
            "saved": always(None),
            "interval": always(None),
            "active": over,
            **turns("running", at, state, until_at, "running"),
            **named,
        },
    )


def dying(count: int, state: str = "lost", at: float = AT, **what: Any) -> list[Target]:
    """Runs that die within seconds of each other."""
    return [dead(state, at + number, run=f"r{number}-{at}", **what) for number in range(count)]


RESTARTING = {"restarting": until(AT, always(0), always(1))}
OLD = {"exporter_last_event_timestamp_seconds": always(-HOUR)}
FOUND: dict[str, Any] = {"start": AT, "seen": always(-HOUR), "progress": always(-HOUR), "serves": OLD}
"""A run that died an hour before an exporter looks for the first time."""
AGAIN = until(AT, always(-2 * DAY), ends(AT + 15 * MINUTE))
"""When something last happened in a run that was over for two days, and goes on for a quarter of an hour."""

DEATH_SCENARIOS: dict[str, list[tuple[str, list[Target], Moments]]] = {
    KILLED: [
        # A restart is seen at worst after a look, a scrape and an evaluation.
        ("down for 59 s, and only the exporter is scraped", [dead(until_at=AT + 104)], NEVER),
        ("down for 59 s, and both are scraped", [trainer(end=AT), dead(until_at=AT + 104), resumed(AT + 59)], NEVER),
        ("down for 59 s, no exporter", [trainer(end=AT), resumed(AT + 74)], NEVER),
        (
            "the last word of its process was a moment before, and its clock is minutes ahead",
            [dead(seen=until(AT, lambda t: t + 400, always(AT + 400)))],
            {AT + 90: SILENT, AT + 120: {KILLED}, AT + 8 * MINUTE: {KILLED}},
        ),
        (
            "a clock that is ten minutes behind: from the report on",
            [dead(seen=until(AT, lambda t: t - 600, always(AT - 600)))],
            {AT + 90: SILENT, AT + 120: {KILLED}},
        ),
        (
            "its namesake in another logdir lives",
            [
                dead(session="a"),
                exporter(session="b", instance="exporter-2", logdir="/other"),
                trainer(session="b"),
            ],
            {AT + 90: SILENT, AT + 120: {KILLED}, 28 * MINUTE: {KILLED}},
        ),
        (
            "it is started again in time, and a second exporter of its logdir is minutes late to see it",
            [
                dead(session="a", until_at=AT + 300),
                exporter(session="b", instance="exporter-2", session_start=always(AT + 30), start=AT + 45),
                trainer(session="b", start=AT + 30),
            ],
            NEVER,
        ),
        (
            "an exporter takes a session for lost that its trainer shows alive",
            [dead(session="a"), trainer(session="a")],
            NEVER,
        ),
        (
            "it completed two days ago, is started again, and dies",
            [
                exporter(
                    {"exporter_last_event_timestamp_seconds": AGAIN},
                    active=until(AT, always(0), always(1)),
                    seen=AGAIN,
                    progress=AGAIN,
                    saved=always(None),
                    **turns("completed", AT, "running", AT + 15 * MINUTE, "lost"),
                )
            ],
            {AT: SILENT, AT + 16 * MINUTE: SILENT, AT + 18 * MINUTE: {KILLED}, AT + 23 * MINUTE: {KILLED}},
        ),
        ("it was dead before an exporter first looked", [dead(at=0, **FOUND)], NEVER),
        (
            "it was dead before an exporter first looked, and another run dies afterwards",
            [dead(at=0, **{**FOUND, "start": 0}), dead(run="s")],
            {AT: SILENT, AT + 120: {KILLED}},
        ),
        (
            "it dies while the exporter is away",
            [exporter(end=AT), dead(at=AT + 30, start=AT + 120, instance="exporter-2")],
            {AT + 120: SILENT, AT + 180: {KILLED}},
        ),
        (
            "its restarter waits for some minutes, then starts it again",
            [dead(until_at=AT + 9 * MINUTE, serves={**RESTARTING, "exporter_last_event_timestamp_seconds": ends(AT)})],
            NEVER,
        ),
        (
            "its restarter starts it, and it has no session after half an hour",
            [dead(serves={**RESTARTING, "exporter_last_event_timestamp_seconds": ends(AT)})],
            {AT + 25 * MINUTE: SILENT, AT + 36 * MINUTE: {KILLED}},
        ),
        (
            "it lives too shortly to be seen alive",
            [exporter(run="s"), dead(at=AT - 10, start=AT, instance="exporter-2")],
            {AT: SILENT, AT + 120: {KILLED}},
        ),
    ],
    BROKEN: [
        (
            "its namesake in another logdir lives",
            [
                dead("failed", session="a"),
                exporter(session="b", instance="exporter-2", logdir="/other"),
                trainer(session="b"),
            ],
            {AT + 90: SILENT, AT + 120: {BROKEN}, 28 * MINUTE: {BROKEN}},
        ),
        ("down for 59 s, and only the exporter is scraped", [dead("failed", until_at=AT + 104)], NEVER),
        ("it had failed before an exporter first looked", [dead("failed", at=0, **FOUND)], NEVER),
        (
            "it fails in its first second",
            [exporter(run="s"), dead("failed", at=AT - 1, start=AT, instance="exporter-2")],
            {AT: SILENT, AT + 120: {BROKEN}},
        ),
    ],
    TWICE: [
        (
            "namesakes in two logdirs, of which one dies",
            [
                dead(session="a", at=AT + 15 * MINUTE),
                exporter(session="b", instance="exporter-2", logdir="/other"),
                trainer(session="b"),
            ],
            {AT + 14 * MINUTE: {TWICE}, AT + 18 * MINUTE: {KILLED}},
        ),
    ],
    MANY: [
        (
            "five die together, of six that run",
            [*dying(3), *dying(2, "failed", AT + 20), exporter(run="s")],
            {
                AT + 60: SILENT,
                AT + 135: [MANY, *[KILLED] * 3, *[BROKEN] * 2],
                28 * MINUTE: [MANY, *[KILLED] * 3, *[BROKEN] * 2],
            },
        ),
        ("four die together", dying(4), {AT + 150: [KILLED] * 4}),
        (
            "five die, ten minutes apart",
            [each for n in range(5) for each in dying(1, at=AT + n * 600)],
            {HOUR: [KILLED] * 5},
        ),
        (
            "all but one are started again: it is the alert of many for an hour, then only its own",
            [*dying(4, until_at=AT + 10 * MINUTE), *dying(1, at=AT + 10)],
            {AT + 5 * MINUTE: [MANY, *[KILLED] * 5], AT + 30 * MINUTE: [MANY, KILLED], AT + 70 * MINUTE: {KILLED}},
        ),
        (
            "all are started again",
            dying(5, until_at=AT + 4 * MINUTE),
            {AT + 150: [MANY, *[KILLED] * 5], AT + 5 * MINUTE: SILENT, 28 * MINUTE: SILENT},
        ),
        (
            "five were dead before an exporter first looked",
            [dead(at=0, **{**FOUND, "run": f"r{n}"}) for n in range(5)],
            NEVER,
        ),
    ],
}
