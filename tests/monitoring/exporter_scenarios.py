"""What happens to exporters: what they serve over time, and which alerts fire at which moments."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from monitoring_happenings import (
    DOWN,
    GONE,
    KILLED,
    LATER,
    SHARD,
    SILENT,
    TWICE,
    UNREADABLE,
    VANISHED,
    Moments,
    ends,
    turns,
)
from monitoring_served import HOUR, MINUTE, Target, always, clock, exporter, trainer, until


def shard(index: int, count: float = 3, **what: Any) -> Target:
    """An exporter that serves one shard: a run of its own."""
    return exporter(run=f"r{index}", instance=f"exporter-{index}", shard=(index, always(count)), **what)


EXPORTER_SCENARIOS: dict[str, list[tuple[str, list[Target], Moments]]] = {
    SHARD: [
        ("all shards", [shard(0), shard(1), shard(2)], {HOUR: SILENT}),
        ("the only shard", [shard(0, 1)], {HOUR: SILENT}),
        ("a shard that never came", [shard(0), shard(2)], {9 * MINUTE: SILENT, 12 * MINUTE: {SHARD}, HOUR: {SHARD}}),
        (
            "a shard that is gone, its target too, and comes back",
            [shard(0), shard(1, end=30 * MINUTE), replace(shard(1), start=50 * MINUTE, instance="new"), shard(2)],
            {29 * MINUTE: SILENT, 39 * MINUTE: SILENT, 42 * MINUTE: {SHARD}, 52 * MINUTE: SILENT, HOUR: SILENT},
        ),
        (
            "two exporters of one shard, and none of another",
            [shard(0), replace(shard(0), instance="exporter-9"), shard(1)],
            {12 * MINUTE: {SHARD}},
        ),
        (
            "shards that do not agree on their number",
            [shard(0, 2), shard(1, 3), shard(2, 3)],
            {9 * MINUTE: SILENT, 12 * MINUTE: {SHARD}},
        ),
        (
            "shards of another exporter",
            [shard(0), shard(1), shard(2), shard(0, 1, job="elsewhere")],
            {HOUR: SILENT},
        ),
    ],
    UNREADABLE: [
        (
            "a run that cannot be read",
            [exporter({"exporter_run_read_success": until(HOUR, always(1), always(0))})],
            {65 * MINUTE: SILENT, 75 * MINUTE: {UNREADABLE}},
        ),
        (
            "its old values are no stall",
            [exporter({"exporter_run_read_success": until(HOUR, always(1), always(0))}, progress=ends(HOUR))],
            {3 * HOUR: {UNREADABLE}},
        ),
        (
            "new damage",
            [exporter({"exporter_corrupt_records_total": lambda t: 3 + (t >= HOUR)})],
            {75 * MINUTE: {UNREADABLE}, 3 * HOUR: SILENT},
        ),
        ("old damage", [exporter({"exporter_corrupt_records_total": always(3)})], {HOUR: SILENT}),
        (
            "an exporter that is replaced by a new one",
            [
                exporter({"exporter_corrupt_records_total": always(3)}, end=HOUR),
                exporter({"exporter_corrupt_records_total": always(4)}, start=HOUR, instance="exporter-2"),
            ],
            {75 * MINUTE: SILENT},
        ),
    ],
    TWICE: [
        (
            "two trainings of one name, of which one hangs",
            [trainer(session="a"), trainer(session="b", instance="pod-2", progress=ends(20 * MINUTE))],
            {5 * MINUTE: SILENT, 15 * MINUTE: {TWICE}, HOUR: {TWICE}},
        ),
        (
            "one training that its trainer and two exporters serve",
            [trainer(session="a"), exporter(session="a"), exporter(session="a", instance="exporter-2")],
            {HOUR: SILENT},
        ),
        (
            "two runs of one name in two shards",
            [shard(0, 2), replace(shard(1, 2), run="r0")],
            {5 * MINUTE: SILENT, 15 * MINUTE: {TWICE}},
        ),
        (
            "one shard that two exporters serve, and a run that changes its shard",
            [
                *(replace(shard(0, 2), instance=f"e{number}") for number in range(2)),
                shard(1, 2, end=20 * MINUTE),
                replace(shard(0, 2), run="r1", start=20 * MINUTE, instance="e2"),
                replace(shard(1, 2), run="r2", start=20 * MINUTE, instance="e3"),
            ],
            {15 * MINUTE: SILENT, 40 * MINUTE: SILENT},
        ),
        (
            "a restart in another pod",
            [trainer(session="a", end=20 * MINUTE), trainer(session="b", instance="pod-2", start=22 * MINUTE)],
            {40 * MINUTE: SILENT, HOUR: SILENT},
        ),
        (
            "one that has ended, and the next of that name",
            [exporter(session="a", **GONE), trainer(session="b", start=40 * MINUTE)],
            {2 * HOUR: SILENT},
        ),
    ],
    VANISHED: [
        (
            "its logdir is gone: its runs are unreachable, and the dead one among them stays so",
            [
                exporter(
                    {
                        "exporter_logdir_up": until(10 * MINUTE, always(1), always(0)),
                        "exporter_runs": until(10 * MINUTE, always(2), always(0)),
                        "exporter_run_read_success": until(10 * MINUTE, always(1), always(0)),
                        "exporter_last_refresh_timestamp_seconds": ends(10 * MINUTE),
                    },
                    run=run,
                    progress=ends(5 * MINUTE),
                    seen=ends(5 * MINUTE) if state == "lost" else clock,
                    saved=always(None),
                    **turns(state, 10 * MINUTE, "unreachable"),
                )
                for run, state in (("r", "lost"), ("s", "running"))
            ],
            {9 * MINUTE: {KILLED}, 12 * MINUTE: {KILLED, VANISHED}, 28 * MINUTE: {KILLED, VANISHED}},
        ),
        (
            "one run is gone, and had not ended",
            [
                exporter(
                    {"exporter_run_read_success": until(10 * MINUTE, always(1), always(0))},
                    **turns("running", 10 * MINUTE, "unreachable"),
                )
            ],
            {9 * MINUTE: SILENT, 12 * MINUTE: {VANISHED}, 25 * MINUTE: {VANISHED}},
        ),
        (
            "a dead run that someone deletes: its alert ends, and there is no other",
            [
                exporter(
                    active=until(20 * MINUTE, always(1), until(80 * MINUTE, always(0), always(None))),
                    progress=ends(5 * MINUTE),
                    seen=ends(5 * MINUTE),
                    saved=always(None),
                    **turns("running", 6 * MINUTE, "lost", 20 * MINUTE, "deleted"),
                )
            ],
            {9 * MINUTE: {KILLED}, 19 * MINUTE: {KILLED}, 21 * MINUTE: SILENT, 2 * HOUR: SILENT},
        ),
        (
            "it never was there",
            [
                exporter(
                    {
                        "exporter_logdir_up": always(0),
                        "exporter_runs": always(None),
                        "exporter_run_read_success": always(None),
                        "exporter_last_refresh_timestamp_seconds": always(None),
                    },
                    active=always(None),
                )
            ],
            {3 * MINUTE: {VANISHED}, 25 * MINUTE: {VANISHED}},
        ),
        (
            "an empty mount point, after the exporter was restarted",
            [
                exporter(end=10 * MINUTE),
                exporter(
                    {"exporter_runs": always(0), "exporter_run_read_success": always(None)},
                    start=11 * MINUTE,
                    instance="exporter-2",
                    active=always(None),
                ),
            ],
            {9 * MINUTE: SILENT, 14 * MINUTE: {VANISHED}},
        ),
        (
            "all its runs, which had ended, are deleted",
            [
                exporter(
                    {
                        "exporter_runs": until(10 * MINUTE, always(2), always(0)),
                        "exporter_run_read_success": until(10 * MINUTE, always(1), always(None)),
                    },
                    active=until(10 * MINUTE, always(0), always(None)),
                    end=40 * MINUTE,
                ),
            ],
            {9 * MINUTE: SILENT, 12 * MINUTE: SILENT, 35 * MINUTE: SILENT},
        ),
        (
            "gone for a moment",
            [exporter({"exporter_logdir_up": lambda t: not 10 * MINUTE <= t < 10 * MINUTE + 45})],
            {10 * MINUTE + 45: SILENT, 12 * MINUTE: SILENT},
        ),
        ("all is there", [exporter()], {25 * MINUTE: SILENT}),
    ],
    DOWN: [
        (
            "one of two exporters of a job is gone",
            [
                exporter(end=5 * MINUTE, up=until(5 * MINUTE, always(1), always(0))),
                exporter(instance="exporter-2", up=always(1)),
            ],
            {14 * MINUTE: SILENT, 17 * MINUTE: {DOWN}},
        ),
        (
            "the only one is gone, and still a target: one alert",
            [exporter(end=5 * MINUTE, up=until(5 * MINUTE, always(1), always(0)))],
            {14 * MINUTE: SILENT, 17 * MINUTE: {DOWN}},
        ),
        (
            "other targets are down",
            [trainer(end=5 * MINUTE, active=always(0), up=until(5 * MINUTE, always(1), always(0))), exporter()],
            {17 * MINUTE: SILENT},
        ),
        ("it is gone", [exporter(end=HOUR), trainer()], {65 * MINUTE: SILENT, 75 * MINUTE: {DOWN}}),
        (
            "it hangs",
            [exporter({"exporter_last_refresh_timestamp_seconds": ends(HOUR)}), trainer()],
            {62 * MINUTE: SILENT, 80 * MINUTE: {DOWN}},
        ),
        (
            "one of its logdirs hangs",
            [
                exporter({"exporter_last_refresh_timestamp_seconds": ends(HOUR)}),
                exporter(run="q", logdir="/other"),
            ],
            {62 * MINUTE: SILENT, 80 * MINUTE: {DOWN}},
        ),
        (
            "one of its logdirs hangs, and answers again",
            [
                exporter({"exporter_last_refresh_timestamp_seconds": until(80 * MINUTE, ends(HOUR), clock)}),
                exporter(run="q", logdir="/other"),
            ],
            {79 * MINUTE: {DOWN}, 85 * MINUTE: SILENT},
        ),
        (
            "the first look at one of its logdirs does not end",
            [
                exporter({"exporter_last_refresh_timestamp_seconds": always(None)}),
                exporter(run="q", logdir="/other"),
            ],
            {9 * MINUTE: SILENT, 12 * MINUTE: {DOWN}},
        ),
        (
            "it comes back elsewhere",
            [exporter(end=HOUR), exporter(start=62 * MINUTE, instance="exporter-2")],
            {75 * MINUTE: SILENT, 3 * HOUR: SILENT},
        ),
        (
            "its first look does not end",
            [exporter({"exporter_last_refresh_timestamp_seconds": always(None)}), trainer()],
            {9 * MINUTE: SILENT, 12 * MINUTE: {DOWN}},
        ),
        (
            "its first look takes a while",
            [exporter({"exporter_last_refresh_timestamp_seconds": LATER}), trainer()],
            {8 * MINUTE: SILENT, 12 * MINUTE: SILENT, HOUR: SILENT},
        ),
        ("there never was one", [trainer()], {5 * HOUR: SILENT}),
        ("it was taken away for good", [exporter(end=HOUR)], {26 * HOUR: SILENT}),
    ],
}
