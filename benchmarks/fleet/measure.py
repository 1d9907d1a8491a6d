"""The measurements of a fleet, as rows."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.fleet.exporter import ServedFleet, Took, timed
from benchmarks.fleet.logdir import WEEK_BEATS, Fleet, make
from benchmarks.fleet.prometheus import INTERVAL_SECS, NO_RULES, Watched, our_rules, watch
from benchmarks.long_run import BEAT_SECS as LONG_BEAT_SECS
from benchmarks.long_run import write_runs
from benchmarks.report import Row

SIZES = {1000: 3.0, 5000: 3.0, 10_000: 30.0}
"""Runs -> minutes for which Prometheus watches them."""
QUICK = {200: 0.75}
LIVE_SHARE = 0.1
BARE_MINUTES = 3.0
FAR = 100_000
WEEKS = 24
"""How many runs of a week are read."""
# The goals: those of 10,000 runs.
SCRAPE_BYTES, PACKED_BYTES, SCRAPE_SECS = 5e6, 0.3e6, 1.0
EVALUATION_SECS, PROMETHEUS_BYTES = 1.0, 1.5e9
RUN_BYTES, WEEK_SECS, AGAIN_SECS = 20 * 1024, 0.3, 10.0
IMPORT_GOAL_SECS = 0.3
AHEAD_SECS = 30.0
"""By how much the clock of the runs of a week is ahead: they live while they are written and read."""
LIBRARY = "the same runs by our collector and prometheus_client's encoder"


@dataclass(frozen=True)
class Measured:
    """What one fleet costs."""

    runs: int
    first: Took
    again: Took
    """The first look of another process, with what the first has written into the cache."""
    idle: list[Took]
    """Looks at nothing new."""
    grown: list[Took]
    """Looks at one heartbeat more of each live run."""
    waits: list[float]
    """Seconds of a scrape as the scraper sees it."""
    packed: list[Took]
    library: Took | None
    plain_bytes: int
    packed_bytes: int
    memory_bytes: int
    """Of the exporter, above that of one without runs."""
    watched: Watched
    bare: Watched
    """The same by a Prometheus without rules."""

    @property
    def rules_secs(self) -> float:
        """The processor time of the rules in each interval: what other work on the machine hardly changes."""
        return self.watched.processor_secs_per_interval - self.bare.processor_secs_per_interval


def measured_rows(quick: bool) -> Iterable[Row]:
    """Measure all fleets, a run of a week, and how long the command takes to start."""
    found = [_measured(runs, minutes, quick) for runs, minutes in (QUICK if quick else SIZES).items()]
    for each in found:
        yield from _of_exporter(each)
        yield from _of_prometheus(each)
    if len(found) > 1:
        yield from _far(found[0], found[-1])
    yield from _of_a_week(2 if quick else WEEKS)
    yield from _imports(3 if quick else 15)


def _measured(runs: int, minutes: float, quick: bool) -> Measured:
    rounds = 3 if quick else 7
    with tempfile.TemporaryDirectory() as made:
        empty, cache = Path(made) / "empty", Path(made) / "cache"
        empty.mkdir()
        cache.mkdir(mode=0o700)
        fleet = make(Path(made) / "runs", runs, int(runs * LIVE_SHARE))
        with ServedFleet(empty) as served:
            served.ask("look")
            empty_bytes = served.ask("memory")
        with ServedFleet(fleet.directory, cache) as served:
            first = served.took("look")
            library = served.took("library") if fleet.runs <= 1000 else None
            served.ask("close")
        with ServedFleet(fleet.directory, cache) as served:
            again = served.took("look")
            idle = [served.took("look") for _ in range(rounds)]
            grown = [_grown(fleet, served) for _ in range(rounds)]
            waits = [timed(served.scrape).wall_secs for _ in range(rounds)]
            packed = [served.took("scrape") for _ in range(rounds)]
            plain_bytes, packed_bytes = served.ask("sizes")
            served.ask("start")
            watched = watch(fleet, served, our_rules(), minutes * 60)
            bare = watch(fleet, served, NO_RULES, min(minutes, BARE_MINUTES) * 60)
            memory = served.ask("memory") - empty_bytes
    return Measured(
        runs=runs, first=first, again=again, idle=idle, grown=grown, waits=waits, packed=packed, library=library,
        plain_bytes=plain_bytes, packed_bytes=packed_bytes, memory_bytes=memory, watched=watched, bare=bare,
    )  # fmt: skip


def _grown(fleet: Fleet, served: ServedFleet) -> Took:
    fleet.grow()
    return served.took("look")


def _of_exporter(found: Measured) -> Iterator[Row]:
    wall = f"{found.first.wall_secs:.3g} s of wall time"
    yield _row(found, "first look, processor time", "s", found.first.processor_secs, note=wall)
    yield _row(
        found,
        "first look with the cache of an earlier process, processor time",
        "s",
        found.again.processor_secs,
        goal=found.first.processor_secs / 10,
        note=f"{found.again.wall_secs:.3g} s of wall time; the goal is a tenth of the first look",
    )
    yield _row(found, "until all are believed again", "s", found.again.wall_secs, goal=AGAIN_SECS)
    looks = {"nothing new": found.idle, "one heartbeat more of each live run": found.grown}
    for what, took in looks.items():
        least = min(each.processor_secs for each in took)
        yield _row(found, f"a look at {what}, processor time", "s", least, note=f"best of {len(took)}")
    yield _row(found, "a scrape", "MB", found.plain_bytes / 1e6, goal=SCRAPE_BYTES / 1e6)
    yield _row(found, "a scrape, packed", "MB", found.packed_bytes / 1e6, goal=PACKED_BYTES / 1e6)
    yield _row(found, "a scrape as the scraper sees it", "s", statistics.median(found.waits), goal=SCRAPE_SECS)
    peers = {} if found.library is None else {LIBRARY + ", not packed": found.library.processor_secs * 1e3}
    least = min(each.processor_secs for each in found.packed) * 1e3
    yield _row(found, "a scrape put together, packed, processor time", "ms", least, peers=peers)
    yield _row(
        found,
        "memory of the exporter",
        "KiB per run",
        found.memory_bytes / found.runs / 1024,
        goal=RUN_BYTES / 1024,
        note="above that of one without runs",
    )


def _of_prometheus(found: Measured) -> Iterator[Row]:
    seen = found.watched
    minutes = f"{seen.secs / 60:.3g} minutes, {seen.evaluations} evaluations"
    yield _row(found, "Prometheus: series", "", seen.series, note=f"{seen.samples:,} of a scrape, the others recorded")
    yield _row(found, "Prometheus: memory", "GB", seen.memory_bytes / 1e9, goal=PROMETHEUS_BYTES / 1e9)
    yield _row(
        found,
        "Prometheus: all rules evaluated once",
        "s",
        seen.median_evaluation_secs,
        goal=EVALUATION_SECS,
        note=f"the median; the longest {seen.worst_evaluation_secs:.3g} s; {minutes}",
    )
    wrong = f"{seen.failed} failed"
    yield _row(found, "Prometheus: evaluations that were missed", "", seen.missed, goal=0, note=f"{minutes}; {wrong}")
    note = f"of {seen.processor_secs_per_interval:.3g} s with scrapes, in each {INTERVAL_SECS:.0f} s"
    yield _row(found, "Prometheus: processor time of the rules", "s", found.rules_secs, goal=EVALUATION_SECS, note=note)


def _far(least: Measured, most: Measured) -> Iterator[Row]:
    """Compute what no machine of ours holds, as if it grew from the largest fleet as from the smallest to that."""

    def at(small: float, large: float) -> float:
        return large + (large - small) / (most.runs - least.runs) * (FAR - most.runs)

    values: dict[str, tuple[str, float, float]] = {
        "first look, processor time": ("s", least.first.processor_secs, most.first.processor_secs),
        "a scrape": ("MB", least.plain_bytes / 1e6, most.plain_bytes / 1e6),
        "memory of the exporter": ("GB", least.memory_bytes / 1e9, most.memory_bytes / 1e9),
        "a look at one heartbeat more of each live run, processor time": (
            "s",
            min(each.processor_secs for each in least.grown),
            min(each.processor_secs for each in most.grown),
        ),
        "Prometheus: series": ("", least.watched.series, most.watched.series),
        "Prometheus: memory": ("GB", least.watched.memory_bytes / 1e9, most.watched.memory_bytes / 1e9),
        "Prometheus: processor time of the rules, in each 15 s": ("s", least.rules_secs, most.rules_secs),
    }
    for what, (unit, small, large) in values.items():
        note = f"computed from {least.runs:,} and {most.runs:,} runs"
        yield Row(
            area="fleet", what=f"{FAR:,} runs: {what}", unit=unit, ours=at(small, large), peers={}, goal="", met=None,
            note=note,
        )  # fmt: skip


def _of_a_week(runs: int) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as made:
        began = time.time() + AHEAD_SECS - WEEK_BEATS * LONG_BEAT_SECS
        size = write_runs(Path(made), runs, began, WEEK_BEATS) / 1e6
        with ServedFleet(Path(made) / "run-0") as served:  # what reading one takes is taken once
            served.ask("look")
            one = served.ask("memory")
        with ServedFleet(Path(made)) as served:
            first = served.took("look")
            memory = (served.ask("memory") - one) / (runs - 1)
    note = f"{WEEK_BEATS:,} heartbeats, {size:.3g} MB; mean of {runs} runs, no cache; memory: resident"
    what = "a live run of a week"
    for name, unit, ours, goal in (
        ("read for the first time, processor time", "s", first.processor_secs / runs, WEEK_SECS),
        ("memory of the exporter", "KiB", memory / 1024, RUN_BYTES / 1024),
    ):
        yield Row(
            area="fleet", what=f"{what}: {name}", unit=unit, ours=ours, peers={}, goal=f"below {goal:g} {unit}",
            met=ours < goal, note=note,
        )  # fmt: skip


def _imports(rounds: int) -> Iterator[Row]:
    serving = "import supervisor_core.cli.exporter, supervisor_core.metrics.web, supervisor_core.run.watch.logdir_watch"
    for what, statement in (
        ("the command", "import supervisor_core.cli.exporter"),
        ("all that serving needs", serving),
    ):
        ours = min(_import_secs(statement) for _ in range(rounds))
        yield Row(
            area="fleet", what=f"importing {what}", unit="s", ours=ours, peers={}, goal=f"below {IMPORT_GOAL_SECS:g} s",
            met=ours < IMPORT_GOAL_SECS,
        )  # fmt: skip


def _import_secs(statement: str) -> float:
    """Return what a statement adds to the start of a process."""
    nothing, something = (
        timed(lambda code=code: subprocess.run([sys.executable, "-c", code], check=True)).wall_secs  # type: ignore[misc]
        for code in ("pass", statement)
    )
    return something - nothing


def _row(
    found: Measured,
    what: str,
    unit: str,
    ours: float,
    *,
    peers: dict[str, float] | None = None,
    goal: float | None = None,
    note: str = "",
) -> Row:
    is_met = goal is not None and (ours <= goal if goal == 0 else ours < goal)
    return Row(
        area="fleet",
        what=f"{found.runs:,} runs: {what}",
        unit=unit,
        ours=ours,
        peers=peers or {},
        goal="" if goal is None else "none" if goal == 0 else f"below {goal:.3g} {unit}",
        met=None if goal is None else is_met,
        note=note,
    )
