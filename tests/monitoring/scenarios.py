"""What happens to trainings, alert by alert: what is served over time, and which alerts fire at which moments."""

from __future__ import annotations

from monitoring_happenings import (
    FAILED,
    FAR,
    GONE,
    GOODPUT,
    LONG,
    LOOP,
    NO_SAVE,
    SILENT,
    SLOW,
    SLOWER,
    THREAD,
    TOO_OLD,
    Moments,
    between,
    ends,
    missed,
    phases,
    productive,
    restarting,
    resumed,
    shifted,
)
from monitoring_served import HOUR, MINUTE, Target, always, exporter, saved_every, trainer, until

SCENARIOS: dict[str, list[tuple[str, list[Target], Moments]]] = {
    TOO_OLD: [
        ("saves that have ceased", [trainer(**NO_SAVE)], {85 * MINUTE: SILENT, 95 * MINUTE: {TOO_OLD}}),
        (
            "saves that have ceased and come back",
            [trainer(saved=until(2 * HOUR, ends(HOUR, saved_every(600)), saved_every(600)))],
            {95 * MINUTE: {TOO_OLD}, 2 * HOUR + MINUTE: SILENT},
        ),
        ("no save at all", [trainer(saved=always(None))], {60 * MINUTE: SILENT, 75 * MINUTE: {TOO_OLD}}),
        ("both know of it", [trainer(**NO_SAVE), exporter(**NO_SAVE)], {95 * MINUTE: {TOO_OLD}}),
        ("saves in time", [trainer()], {30 * MINUTE: SILENT, 3 * HOUR: SILENT}),
        (
            "one save that is left out",
            [trainer(saved=saved_every(1500))],
            {3 * HOUR: SILENT, 3 * HOUR + 20 * MINUTE: SILENT},
        ),
        ("a long evaluation holds up the next save", [trainer(**LONG, **NO_SAVE)], {100 * MINUTE: SILENT}),
        (
            "a restart from an old checkpoint",
            [resumed(10 * HOUR, saved=until(10.5 * HOUR, always(600), saved_every(600)))],
            {10 * HOUR + 10 * MINUTE: SILENT, 10 * HOUR + 25 * MINUTE: SILENT},
        ),
        ("a run that takes none", [trainer(interval=always(None), saved=always(None))], {5 * HOUR: SILENT}),
        ("a planned stop", [exporter(**GONE)], {5 * HOUR: SILENT}),
    ],
    FAR: [
        ("too rarely", [trainer(recommended=always(100), **FAILED)], {HOUR: {FAR}}),
        ("too often", [trainer(recommended=always(6000), **FAILED)], {HOUR: {FAR}}),
        ("both know of it", [each(recommended=always(100), **FAILED) for each in (trainer, exporter)], {HOUR: {FAR}}),
        ("by steps", [trainer(recommended=always(100), present=always(50), **FAILED)], {HOUR: SILENT}),
        ("near enough", [trainer(recommended=always(400), **FAILED)], {HOUR: SILENT}),
        (
            "too few failures for a recommendation",
            [trainer(recommended=always(1), restarts={"lost": always(1)})],
            {HOUR: SILENT},
        ),
        ("nothing has failed yet", [trainer()], {HOUR: SILENT}),
    ],
    LOOP: [
        (
            "lost every 15 minutes",
            [trainer(**restarting(15 * MINUTE, "lost"))],
            {40 * MINUTE: SILENT, 50 * MINUTE: {LOOP}, 5 * HOUR: SILENT},
        ),
        (
            "errors every 5 minutes, in a new pod each time",
            [
                trainer(
                    instance=f"pod-{n}",
                    start=n * 300,
                    end=n * 300 + 280,
                    restarts={"error": always(n)} if n else {},
                    sessions=always(n + 1),
                )
                for n in range(8)
            ],
            {14 * MINUTE: SILENT, 18 * MINUTE: {LOOP}},
        ),
        (
            "it does not end between two sessions, where only its own process is scraped",
            [
                trainer(
                    instance=f"pod-{n}",
                    start=n * 300,
                    end=n * 300 + 240,
                    restarts={"lost": always(n)} if n else {},
                    sessions=always(n + 1),
                )
                for n in range(6)
            ],
            {at: {LOOP} for at in (16 * MINUTE, 19 * MINUTE + 15, 19 * MINUTE + 45, 21 * MINUTE, 24 * MINUTE + 30)},
        ),
        (
            "both know of it",
            [trainer(**restarting(15 * MINUTE, "lost")), exporter(**restarting(15 * MINUTE, "lost"))],
            {50 * MINUTE: {LOOP}},
        ),
        ("lost once", [trainer(restarts={"lost": lambda t: t >= HOUR})], {2 * HOUR: SILENT}),
        ("restarted as planned, many times", [trainer(**restarting(5 * MINUTE, "requested"))], {HOUR: SILENT}),
        (
            "a missed scrape, where the exporter knows of fewer restarts",
            [*missed(restarts={"lost": always(10)}, sessions=always(11)), exporter()],
            {70 * MINUTE: SILENT},
        ),
        (
            "restarts from before anybody looked",
            [trainer(start=HOUR, restarts={"lost": always(17)}, sessions=always(18))],
            {2 * HOUR: SILENT},
        ),
    ],
    THREAD: [
        (
            "a thread that has failed",
            [trainer(thread_up=until(HOUR, always(1), always(0)))],
            {65 * MINUTE: SILENT, 75 * MINUTE: {THREAD}},
        ),
        (
            "a thread that hangs",
            [trainer(overdue=lambda t: max(0, t - HOUR))],
            {95 * MINUTE: SILENT, 105 * MINUTE: {THREAD}},
        ),
        ("both know of it", [trainer(thread_up=always(0)), exporter(thread_up=always(0))], {HOUR: {THREAD}}),
        (
            "a long save",
            [trainer(overdue=lambda t: max(0, min(t, 85 * MINUTE) - HOUR) if t < 85 * MINUTE else 0)],
            {90 * MINUTE: SILENT},
        ),
        (
            "a thread that has failed since the exporter's last word",
            [trainer(thread_up=until(HOUR, always(1), always(0))), exporter(thread_up=always(1))],
            {75 * MINUTE: {THREAD}},
        ),
        (
            "threads that stop at the end",
            [
                trainer(
                    thread_up=until(20 * MINUTE, always(1), always(0)),
                    phase=phases("training", "stopping", 20 * MINUTE),
                )
            ],
            {40 * MINUTE: SILENT},
        ),
        ("threads of a run that has ended", [exporter(thread_up=always(0), **GONE)], {5 * HOUR: SILENT}),
    ],
    SLOW: [
        ("less than half its speed", [trainer(rate=SLOWER)], {245 * MINUTE: SILENT, 275 * MINUTE: {SLOW}}),
        (
            "steps of a minute that take two and a half",
            [trainer(rate=lambda t: (SLOWER(t) or 0) / 600)],
            {245 * MINUTE: SILENT, 275 * MINUTE: {SLOW}},
        ),
        ("both know of it", [trainer(rate=SLOWER), exporter(rate=SLOWER)], {275 * MINUTE: {SLOW}}),
        ("what lasts is the usual speed at some time", [trainer(rate=SLOWER)], {12 * HOUR: SILENT}),
        ("a little slower", [trainer(rate=until(4 * HOUR, always(10), always(7)))], {275 * MINUTE: SILENT}),
        (
            "it starts slowly",
            [trainer(rate=until(40 * MINUTE, always(1), always(10)))],
            {30 * MINUTE: SILENT, 3 * HOUR: SILENT},
        ),
        (
            "a long evaluation",
            [trainer(phase=phases("training", "evaluating", 4 * HOUR), rate=until(4 * HOUR, always(10), always(0)))],
            {275 * MINUTE: SILENT},
        ),
        (
            "a young run that was fast at first",
            [trainer(rate=until(30 * MINUTE, always(10), always(2)))],
            {50 * MINUTE: SILENT, 58 * MINUTE: SILENT},
        ),
        (
            "a slow minute between two long evaluations",
            [trainer(phase=between, rate=until(4 * HOUR, always(10), always(3)))],
            {4 * HOUR + 42 * MINUTE: SILENT},
        ),
        (
            "a slow minute",
            [trainer(rate=lambda t: 0 if 4 * HOUR < t < 4 * HOUR + 120 else 10)],
            {245 * MINUTE: SILENT, 250 * MINUTE: SILENT},
        ),
        (
            "another run is faster",
            [trainer(rate=always(1)), trainer(run="s", instance="pod-9", rate=always(100))],
            {5 * HOUR: SILENT},
        ),
    ],
    GOODPUT: [
        ("most of the time is lost", [trainer(activity=productive(0.4))], {HOUR: SILENT, 4 * HOUR: {GOODPUT}}),
        (
            "both know of it",
            [trainer(activity=productive(0.4)), exporter(activity=productive(0.4))],
            {4 * HOUR: {GOODPUT}},
        ),
        (
            "a good week does not hide a bad night",
            [
                exporter(
                    activity={
                        "productive": ends(20 * HOUR),
                        "wasted_progress_from_disruption": lambda t: max(0, t - 20 * HOUR),
                    }
                )
            ],
            {20 * HOUR: SILENT, 25 * HOUR: {GOODPUT}},
        ),
        ("most of it is kept", [trainer(activity=productive(0.9))], {4 * HOUR: SILENT, 10 * HOUR: SILENT}),
        ("the first hour", [trainer(activity=productive(0.1))], {90 * MINUTE: SILENT}),
        (
            "a night without a process",
            [
                exporter(
                    activity={
                        "productive": lambda t: min(t, 4 * HOUR) + max(0, t - 12 * HOUR),
                        "infrastructure_recovery_from_disruption": lambda t: min(max(0, t - 4 * HOUR), 8 * HOUR),
                    }
                )
            ],
            {13 * HOUR: SILENT, 15 * HOUR: SILENT},
        ),
        (
            "a new session, with no other source, is no loss of what the one before had done",
            [
                trainer(end=3 * HOUR + 600),
                resumed(3 * HOUR + 600, activity=shifted(productive(0.7), 3 * HOUR + 600)),
            ],
            {9 * HOUR: SILENT},
        ),
        (
            "a new session counts from 0",
            [trainer(end=5 * HOUR), resumed(5 * HOUR, activity={"productive": lambda t: t - 5 * HOUR})],
            {6 * HOUR: SILENT, 10 * HOUR: SILENT},
        ),
    ],
}
