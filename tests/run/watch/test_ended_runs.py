"""What a reader of thousands of runs holds of those that have ended."""

from __future__ import annotations

import gc
import tracemalloc
from pathlib import Path
from typing import Any
from weakref import WeakSet

from benchmarks.trained import write_runs
from supervisor_core.run.fold.run_fold import RunFold
from supervisor_core.run.watch import run_tracker
from supervisor_core.run.watch.logdir_watch import LogdirWatch

KEPT_BYTES = 20_000


def test_a_first_look_holds_no_fold_of_a_run_that_it_has_not_read(tmp_path: Path, monkeypatch) -> None:
    """Thousands of folds, each freed when its run has ended, leave a process with memory that it can hardly use."""
    held: WeakSet[RunFold] = WeakSet()

    class Counted(RunFold):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            held.add(self)

    def folds() -> int:
        gc.collect()
        return len(held)

    write_runs(tmp_path, 8)
    monkeypatch.setattr(run_tracker, "RunFold", Counted)
    counts: list[int] = []
    LogdirWatch(str(tmp_path)).refresh(lambda done, total: counts.append(folds()))
    assert len(counts) == 8
    assert max(counts) <= 1


def test_what_is_held_of_a_run_that_has_ended_is_bounded(tmp_path: Path) -> None:
    """Of thousands of runs, what is held of each is the memory of who watches them."""
    count = 120
    write_runs(tmp_path, count)
    LogdirWatch(str(tmp_path)).refresh()  # what is loaded once
    gc.collect()
    tracemalloc.start()
    try:
        watch = LogdirWatch(str(tmp_path))
        runs = watch.refresh().runs
        gc.collect()
        held = tracemalloc.get_traced_memory()[0] / count
    finally:
        tracemalloc.stop()
    assert len(runs) == count
    assert held < KEPT_BYTES, f"{held:,.0f} bytes a run"
