"""A run at rest: the same run in less memory."""

from __future__ import annotations

import gc
import shutil
import tracemalloc
from dataclasses import fields, replace
from pathlib import Path
from typing import Any
from weakref import WeakSet

from benchmarks.trained import write_runs
from supervisor_core.run import resting_run, run_tracker
from supervisor_core.run.fold import RunFold
from supervisor_core.run.logdir_watch import LogdirWatch
from supervisor_core.run.model import Run
from supervisor_core.run.resting_run import RestingRun, RunPacking
from tests.events.hparams_writer import framed
from tests.events.record_writer import HEAD, NAME, scalar, write

KEPT_BYTES = 6_500
"""What a reader may hold of a run that has ended; 18,000 where it is not packed."""


def test_a_run_at_rest_is_the_same_run(tmp_path: Path) -> None:
    """Every part of it is equal to that of a watch which packs nothing, and `replace` makes a plain run of it."""
    write_runs(tmp_path, 6)
    plain, packed = (LogdirWatch(str(tmp_path), packs=packs).refresh().runs for packs in (False, True))
    assert plain.keys() == packed.keys()
    for name, watched in packed.items():
        run, whole = watched.run, plain[name].run
        assert (type(run), type(whole)) == (RestingRun, Run)
        for field in fields(Run):
            assert getattr(run, field.name) == getattr(whole, field.name), field.name
        assert (run == whole, whole == run, repr(run)) == (True, True, repr(whole))
        assert (run.own_name, run.session_ids, run.versions) == (whole.own_name, whole.session_ids, whole.versions)
        renamed = replace(run, name="other")
        assert (type(renamed), renamed) == (Run, replace(whole, name="other"))
        assert run != renamed
        assert watched == plain[name]


def test_only_what_has_ended_is_packed(tmp_path: Path, writing, clock) -> None:
    """A run that goes on is put together at each look. One at rest stays the same object until something happens to
    it, and then it is what a new watch finds."""
    done = writing.RunFile(tmp_path / "done").ready().beat(clock.now - 50, steps=5).stop(clock.now - 40)
    writing.RunFile(tmp_path / "live").ready().beat(clock.now - 1, steps=5)
    watch = LogdirWatch(str(tmp_path), packs=True, clock=clock)
    before = watch.refresh().runs
    assert {name: type(watched.run) for name, watched in before.items()} == {"done": RestingRun, "live": Run}
    assert watch.refresh().runs["done"] is before["done"]
    done.scalar("loss", 7, clock.now - 41)
    after = watch.refresh().runs["done"]
    assert after.run.tag_values.tags == ("loss",)
    assert after == LogdirWatch(str(tmp_path), clock=clock).refresh().runs["done"]


def test_copies_at_rest_stay_copies(tmp_path: Path) -> None:
    """They are found by the ids of sessions, are packed again, equal those of a watch which packs nothing, and are the
    same object at the next look."""
    write_runs(tmp_path / "logs", 1)
    shutil.copytree(tmp_path / "logs" / "group-0", tmp_path / "logs" / "copy")
    watch = LogdirWatch(str(tmp_path / "logs"), packs=True)
    first, second = watch.refresh().runs, watch.refresh().runs
    copies = [name for name, watched in first.items() if watched.copy_of is not None]
    assert len(copies) == 1
    assert [type(watched.run) for watched in first.values()] == [RestingRun, RestingRun]
    assert first == LogdirWatch(str(tmp_path / "logs")).refresh().runs
    assert all(second[name] is watched for name, watched in first.items())


def test_runs_with_the_hyperparameters_of_a_neighbour_are_at_rest(tmp_path: Path) -> None:
    """The runs of a sweep: all are packed again, and equal those of a watch which packs nothing."""
    for number in range(3):
        run = tmp_path / f"run-{number}"
        (run / "train").mkdir(parents=True)
        write(str(run / "train" / NAME), HEAD, *(scalar(step) for step in range(20)))
        write(str(run / NAME), HEAD, framed({"lr": number / 10}))
    watch = LogdirWatch(str(tmp_path), packs=True)
    runs = watch.refresh().runs
    assert {name: watched.run.hparams["lr"] for name, watched in runs.items() if name.endswith("/train")} == {
        "run-0/train": 0.0,
        "run-1/train": 0.1,
        "run-2/train": 0.2,
    }
    assert {type(watched.run) for watched in runs.values()} == {RestingRun}
    assert runs == LogdirWatch(str(tmp_path)).refresh().runs
    assert all(watched is runs[name] for name, watched in watch.refresh().runs.items())


def test_a_run_that_is_too_long_stays_as_it_is(tmp_path: Path, monkeypatch) -> None:
    """Making it again would take longer than an answer may."""
    write_runs(tmp_path, 1)
    (watched,) = LogdirWatch(str(tmp_path)).refresh().runs.values()
    assert type(RunPacking().at_rest(watched.run)) is RestingRun
    monkeypatch.setattr(resting_run, "MOST_PACKED_BYTES", 1_000)
    assert RunPacking().at_rest(watched.run) is watched.run


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
    LogdirWatch(str(tmp_path), packs=True, peeks=False).refresh(lambda done, total: counts.append(folds()))
    assert len(counts) == 8
    assert max(counts) <= 1


def test_what_is_held_of_a_run_that_has_ended_is_bounded(tmp_path: Path) -> None:
    """Of thousands of runs, what is held of each is the memory of who watches them."""
    count = 120
    write_runs(tmp_path, count)
    LogdirWatch(str(tmp_path), packs=True, peeks=False).refresh()  # what is loaded once
    gc.collect()
    tracemalloc.start()
    try:
        watch = LogdirWatch(str(tmp_path), packs=True, peeks=False)
        runs = watch.refresh().runs
        gc.collect()
        held = tracemalloc.get_traced_memory()[0] / count
    finally:
        tracemalloc.stop()
    assert len(runs) == count
    assert held < KEPT_BYTES, f"{held:,.0f} bytes a run"
