"""What happens to trainings that cannot write: over time what is served, and which alerts fire at which moments."""

from __future__ import annotations

from monitoring_happenings import FAILING, NO_SAVE, SILENT, STALLED, TOO_OLD, UNWRITTEN, Moments, ends, resumed
from monitoring_served import HOUR, MINUTE, Target, Value, always, exporter, saved_every, trainer, until


def growing(since: float, every: float = 30) -> Value:
    """Saves that fail one after the other from then on."""
    return lambda t: 0 if t < since else 1 + (t - since) // every


FULL = {"saved": ends(HOUR, saved_every(600)), "failed_saves": growing(HOUR + 600)}
"""A disk that is full after an hour: the next save, ten minutes later, fails, and all that are tried again."""

WRITING_SCENARIOS: dict[str, list[tuple[str, list[Target], Moments]]] = {
    FAILING: [
        (
            "every save fails: fires within two intervals of the checkpoint service",
            [trainer(**FULL)],
            {70 * MINUTE: SILENT, 75 * MINUTE: {FAILING}, 79 * MINUTE: {FAILING}},
        ),
        (
            "a logdir that was renamed after an hour: the saves that are tried at once fail, and the age of the newest "
            "checkpoint counts from the first of them",
            [trainer(saved=ends(HOUR, saved_every(600)), failed_saves=lambda t: 2 * (t >= HOUR))],
            {61 * MINUTE: SILENT, 63 * MINUTE: {FAILING}, 69 * MINUTE: {FAILING}, 71 * MINUTE: {FAILING, TOO_OLD}},
        ),
        (
            "one save fails, and none is tried again",
            [trainer(saved=ends(HOUR, saved_every(600)), failed_saves=lambda t: t >= HOUR)],
            {69 * MINUTE: SILENT, 71 * MINUTE: {TOO_OLD}},
        ),
        (
            "its service counts as failed after some of them: that is the same trouble, and one alert",
            [trainer(thread_up=until(HOUR + 700, always(1), always(0)), **FULL)],
            {75 * MINUTE: {FAILING}, 79 * MINUTE: {FAILING}},
        ),
        (
            "saves that are far between",
            [trainer(interval=always(7200), saved=always(1), failed_saves=growing(7200))],
            {119 * MINUTE: SILENT, 129 * MINUTE: {FAILING}},
        ),
        (
            "both know of it",
            [trainer(**FULL), exporter(**FULL)],
            {75 * MINUTE: {FAILING}},
        ),
        (
            "an exporter that has not read the newest failures hides nothing",
            [trainer(**FULL), exporter(**FULL | {"failed_saves": always(0)})],
            {75 * MINUTE: {FAILING}},
        ),
        (
            "one fails and the next is good",
            [trainer(failed_saves=until(HOUR + 600, lambda t: t >= HOUR, always(0)))],
            {65 * MINUTE: SILENT, 75 * MINUTE: SILENT},
        ),
        (
            "failures for a minute",
            [trainer(failed_saves=until(HOUR + 60, growing(HOUR, 10), always(0)))],
            {61 * MINUTE: SILENT, 63 * MINUTE: SILENT, 70 * MINUTE: SILENT},
        ),
        (
            "one in two fails",
            [trainer(failed_saves=lambda t: t // 600 % 2)],
            {n * 10 * MINUTE + 300: SILENT for n in range(2, 9)},
        ),
        (
            "failures of the session before",
            [trainer(failed_saves=always(9), end=HOUR), resumed(HOUR)],
            {2 * HOUR: SILENT},
        ),
    ],
    UNWRITTEN: [
        (
            "the disk is full, and only the exporter is scraped: the lease says that the training runs",
            [exporter(events_failing=lambda t: t >= HOUR, **FULL)],
            {61 * MINUTE: SILENT, 64 * MINUTE: {UNWRITTEN}, 75 * MINUTE: {UNWRITTEN, FAILING}},
        ),
        (
            "the disk is full, and both know of it",
            [each(events_failing=lambda t: t >= HOUR, **FULL) for each in (trainer, exporter)],
            {64 * MINUTE: {UNWRITTEN}, 75 * MINUTE: {UNWRITTEN, FAILING}},
        ),
        (
            "a full disk for a minute",
            [trainer(events_failing=until(HOUR + 60, lambda t: t >= HOUR, always(0)))],
            {61 * MINUTE: SILENT, 64 * MINUTE: SILENT},
        ),
        (
            "a training that hangs on a full disk",
            [exporter(events_failing=lambda t: t >= HOUR, progress=ends(HOUR), **NO_SAVE)],
            {64 * MINUTE: {UNWRITTEN}, 67 * MINUTE: {UNWRITTEN, STALLED}},
        ),
    ],
}
