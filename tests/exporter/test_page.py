"""The page: the same samples as a trainer serves, valid in both formats, written once."""

from __future__ import annotations

import os
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest
from prometheus_client import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics_latest

from supervisor_core.events.telemetry import ThreadStatus
from supervisor_core.metrics.collector import RunCollector
from supervisor_core.metrics.metric import Metric, Sample, Stage
from supervisor_core.metrics.page import Page, write_run
from supervisor_core.metrics.render import END, OPENMETRICS, TEXT, Format
from supervisor_core.metrics.table import LOGDIR_METRICS, SCRAPE_SUCCESS
from supervisor_core.run.model.checkpoints import Checkpoint
from supervisor_core.run.model.distribution import Distribution
from supervisor_core.run.model.run import Session
from supervisor_core.run.status import CheckpointStatus, Reading, RunStatus

NOW = 1_700_000_000.0
READING = Reading(logdir="/logs", success=True, last_event_at=NOW - 1, corrupt_records=2)
FORMATS = pytest.mark.parametrize("format", [TEXT, OPENMETRICS], ids=["text", "openmetrics"])


def status(run: str, **more) -> RunStatus:
    """A run of which much is known."""
    known = RunStatus(
        run=run,
        active=True,
        state="running",
        session=Session(
            session="s1",
            ended_at=None,
            outcome="running",
            inferred=False,
            phase="training",
            steps_per_sec=1.5,
            last_progress_at=NOW - 0.5,
            progress_timeout_secs=300.0,
            saves=3,
            save_secs=Distribution(bounds=(1.0, 10.0), counts=(1, 2, 0), sum=9.5),
            reported_secs={"productive": 3000.5},
            attempt=1,
            started_at=NOW - 3600,
            checkpoint_interval_secs=600.0,
            versions={"python": "3.12"},
        ),
        restarts={"lost": 2},
        global_step=10_000_000,
        checkpoint=CheckpointStatus(last_success=Checkpoint(session="s1", at=NOW - 90, step=5)),
        threads=(ThreadStatus(name="checkpoint", state="idle", ticks=7, last_tick_at=NOW - 90),),
        goodput=0.875,
        info={"logdir": "/data"},
    )
    return replace(known, **more)


RUNS = [
    status("a"),
    status('quo"te\\ \n ' + os.fsdecode(b"\xff"), goodput=None),
    RunStatus(run="other writer", active=None, stalled=None),
]


def about(complete: bool) -> Iterator[tuple[Metric, list[Sample]]]:
    """What an exporter says of itself, in short."""
    yield SCRAPE_SUCCESS, [Sample({}, float(complete))]
    yield LOGDIR_METRICS[1], []


def page(*runs: RunStatus) -> Page:
    """A page of these runs."""
    return Page([write_run(replace(run, reading=READING), Stage.DETAIL) for run in runs])


def of_runs(text: bytes) -> Counter[str]:
    """The lines of a scrape but for those that are the exporter's own."""
    own = ("supervisor_exporter", "supervisor_checkpoint_age")  # ages are a training's
    return Counter(line for line in text.decode().split("\n") if not any(name in line for name in own))


class StillClock:
    def wall(self) -> float:
        return NOW

    monotonic = wall


@FORMATS
@pytest.mark.parametrize("runs", [[], RUNS[:1], RUNS], ids=["none", "one", "all"])
def test_the_same_as_the_collector(format: Format, runs: list[RunStatus]) -> None:
    """Line for line the scrape is what the trainer's collector serves of the same runs; only the order differs."""
    collector = RunCollector(lambda: runs, clock=StillClock())
    expected = openmetrics_latest(collector) if format.openmetrics else generate_latest(collector)
    served = page(*runs).render(format, about=about)
    assert of_runs(served) == of_runs(expected)
    assert served.endswith(END) == format.openmetrics


@FORMATS
def test_compressed_or_not_it_is_the_same(format: Format) -> None:
    """gzip changes the bytes and nothing of what they say, in each scrape of a page. It is one member: a reader that
    stops after the first misses nothing."""
    made = page(*RUNS)
    for _ in range(2):
        plain = made.render(format, about=about)
        packed = made.render(format, about=about, gzip=True)
        reader = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
        assert reader.decompress(packed) == plain and len(packed) < len(plain)
        assert (reader.eof, reader.unused_data) == (True, b"")


def test_one_unreadable_value_costs_no_other() -> None:
    """A value that cannot be written is left out, named, and marks the scrape; everything else is there."""
    bad = replace(RUNS[0], goodput="good")
    made = page(bad)
    (problem,) = made.problems
    assert "supervisor_goodput_ratio of run 'a' could not be read" in problem
    whole = page(RUNS[0]).render(TEXT, about=about)
    lines = [line for line in whole.split(b"\n") if b"supervisor_goodput_ratio" not in line]
    expected = b"\n".join(lines).replace(b"scrape_success 1.0", b"scrape_success 0.0")
    assert made.render(TEXT, about=about) == expected
