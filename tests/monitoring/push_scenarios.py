"""Trainings that push their metrics, which nobody scrapes: which alerts fire. The same as of those that are scraped."""

from __future__ import annotations

from collections.abc import Callable

from monitoring_happenings import (
    BROKEN,
    FAILING,
    GONE,
    HUNG,
    KILLED,
    LATE,
    LOOP,
    MANY,
    NAN,
    SILENT,
    STALLED,
    Moments,
    phases,
    turns,
)
from monitoring_served import MINUTE, Target, always, exporter, pushed, trainer, until
from monitoring_state_scenarios import ENDED, FAILED_IN_TWO, LOST, NEVER, RAISED

AT = 5 * MINUTE
"""When it happens: the last push arrived 15 s before, or is the one of the end."""


def before(at: float) -> Callable[[float], bool]:
    """Pushes arrive until a moment."""
    return lambda t: t < at


ALWAYS_SILENT: Moments = {at: SILENT for at in range(0, 29 * MINUTE, 15)}
IN_TIME: Moments = {AT + 75: SILENT, AT + 105: {KILLED}, AT + 6 * MINUTE: {KILLED}, AT + 20 * MINUTE: {KILLED}}
"""Within two minutes of the last push, so of any death since. Before and after Prometheus shows no value any more."""

PUSH_SCENARIOS: dict[str, list[tuple[str, list[Target], Moments]]] = {
    KILLED: [
        ("killed behind a wall", [pushed(before(AT), **turns("running"))], IN_TIME),
        ("killed behind a wall, and an exporter knows", [pushed(before(AT)), exporter(**LOST)], IN_TIME),
        ("killed a moment after its begin", [pushed(lambda t: AT - 30 <= t < AT)], IN_TIME),
        (
            "killed while it stopped",
            [pushed(before(AT), phase=phases("training", "stopping", AT - 30), **turns("running"))],
            IN_TIME,
        ),
        (
            "its next session pushes a minute later, from a new process",
            [pushed(before(AT)), pushed(lambda t: t >= AT + 60, instance="node-1:18", sessions=always(2))],
            ALWAYS_SILENT,
        ),
        (
            "it died a minute after the end of the session before",
            [
                pushed(before(AT + 15), **ENDED),
                pushed(lambda t: AT + 15 <= t < AT + 75, instance="node-1:18", session_start=always(AT + 15)),
            ],
            {AT + 150: SILENT, AT + 180: {KILLED}, AT + 9 * MINUTE: {KILLED}, AT + 20 * MINUTE: {KILLED}},
        ),
        ("three pushes are lost", [pushed(lambda t: not AT <= t < AT + 45)], ALWAYS_SILENT),
        ("every other push is lost", [pushed(lambda t: t % 30 == 0)], ALWAYS_SILENT),
        (
            "one that is scraped every two minutes is as old as that, and no push",
            [trainer(pushes=lambda t: t % 120 == 0, up=always(1))],
            ALWAYS_SILENT,
        ),
        ("it pushes again after five minutes", [pushed(lambda t: not AT <= t < 2 * AT)], {2 * AT + 30: SILENT}),
    ],
    BROKEN: [
        ("an exception, which the last push says", [pushed(before(AT + 15), **RAISED)], FAILED_IN_TWO),
    ],
    STALLED: [
        ("a stall behind a wall", [pushed(**HUNG)], LATE),
        ("completed: the last push says so", [pushed(before(AT + 15), **ENDED)], NEVER),
        ("a planned stop", [pushed(before(20 * MINUTE + 15), **GONE)], {at * MINUTE: SILENT for at in range(20, 55)}),
    ],
    MANY: [
        (
            "five die together behind a wall",
            [pushed(before(AT), run=f"r{number}", instance=f"node-1:{number}") for number in range(5)],
            {AT + 75: SILENT, AT + 105: [MANY, *[KILLED] * 5]},
        ),
    ],
    NAN: [("behind a wall", [pushed(loss_finite=until(AT, always(1), always(0)))], {AT: {NAN}, AT + 60: {NAN}})],
    FAILING: [("behind a wall", [pushed(failed_saves=until(AT, always(0), always(3)))], {AT + 180: {FAILING}})],
    LOOP: [
        (
            "errors every five minutes behind a wall, in a new process each time",
            [
                pushed(
                    lambda t, n=n: n * 300 <= t <= n * 300 + 240,
                    instance=f"node-1:{n}",
                    restarts={"error": always(n)} if n else {},
                    sessions=always(n + 1),
                    active=until(n * 300 + 240, always(1), always(0)),
                )
                for n in range(6)
            ],
            {14 * MINUTE: SILENT, 18 * MINUTE: {LOOP}},
        ),
    ],
}
