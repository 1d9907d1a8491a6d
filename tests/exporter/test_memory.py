"""What an exporter keeps of a live run."""

from __future__ import annotations

import gc
import tracemalloc
from pathlib import Path

from benchmarks.fleet.logdir import Fleet, make
from supervisor_core.metrics.exporter import Exporter
from supervisor_core.run.watch.logdir_watch import LogdirWatch
from tests.conftest import StillClock

MOST_BYTES = 27 * 1024
"""Alone in a process it is 25 KiB, with Python 3.10, whose dictionaries are larger, 27; before the records had slots
it was 40."""
RUNS = 8


def test_a_live_run_takes_little_memory(tmp_path: Path) -> None:
    """Reader, fold, model, status and text of one: what ten runs take more than two, each with 70 heartbeats."""

    def taken(fleet: Fleet) -> int:
        clock = StillClock(fleet.made_at + 1.0)
        watch = LogdirWatch(str(fleet.directory), kept_ticks=1, all_saves=False, clock=clock)
        exporter = Exporter([watch], clock=clock)
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        exporter.refresh()
        gc.collect()
        assert {status.state for status in exporter.statuses} == {"running"}
        return tracemalloc.get_traced_memory()[0] - before

    few, many = (make(tmp_path / str(runs), runs=runs, live=runs, beats=70) for runs in (2, 2 + RUNS))
    taken(few)  # what is made once in a process
    tracemalloc.start()
    try:
        grown = min(taken(many) - taken(few) for _ in range(3))  # other threads of the process allocate, too
    finally:
        tracemalloc.stop()
    assert grown / RUNS < MOST_BYTES
