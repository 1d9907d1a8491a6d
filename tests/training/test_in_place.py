"""Saves without a copy of the state: `Options(snapshot="shards")`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from supervisor_core import Options, OptionsError, SaveFailedError, supervise
from supervisor_core.checkpoint.sealed_store import SealedStore
from supervisor_core.engine.deadline import Deadline
from supervisor_core.run.watch.logdir_watch import LogdirWatch
from supervisor_core.training import saver as savers
from supervisor_core.training.run import Run
from supervisor_core.training.save_point import SavePolicy
from supervisor_core.training.state import TrainingState

SHARDS = Options(snapshot="shards")


def test_the_state_itself_is_written_before_the_next_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No array is copied; the checkpoint is durable when the step's end returns, and has that step's numbers."""
    state = {"weights": np.zeros(5), "data": {"position": 0}}
    written: list[Any] = []
    real = savers.write_tree

    def write(directory: str, tree: Any, *others: Any) -> Any:
        written.append(tree["objects"]["model"]["weights"].value)
        return real(directory, tree, *others)

    monkeypatch.setattr(savers, "write_tree", write)
    saved = []
    with supervise(tmp_path, state={"model": state}, save_steps=2, save_secs=None, options=SHARDS) as run:
        for step in run.steps(6):
            saved.append(run.newest_checkpoint and Path(run.newest_checkpoint).name)
            state["weights"] += step
    assert saved == [None, None, "ckpt-2", "ckpt-2", "ckpt-4", "ckpt-4"]
    assert len(written) == 3 and all(array is state["weights"] for array in written)
    restored = {"weights": np.ones(5)}
    with supervise(tmp_path, state={"model": restored}, options=SHARDS) as run:
        assert run.global_step == 6
    np.testing.assert_array_equal(restored["weights"], np.full(5, 15.0))


def test_the_training_has_waited_by_the_record(tmp_path: Path) -> None:
    """The time of the save is time in which it was blocked."""
    with supervise(tmp_path, state={"m": {"w": np.ones(9)}}, save_steps=2, save_secs=None, options=SHARDS) as run:
        for _ in run.steps(2):
            pass
    (item,) = LogdirWatch(str(tmp_path)).refresh().runs.values()
    (saved,) = item.run.checkpoints
    assert saved.secs is not None and saved.blocked_secs == saved.secs > 0


def test_what_the_training_did_not_wait_for_is_no_checkpoint(
    tmp_path: Path, before_writes: Callable[[Callable[[], object]], None]
) -> None:
    """A disk that hangs ends the wait at the deadline. The state may have changed when it is written at last."""
    hangs, goes_on = threading.Event(), threading.Event()

    def hang() -> None:
        hangs.set()
        goes_on.wait()

    before_writes(hang)
    with supervise(tmp_path, state={"m": {"w": np.ones(9)}}, save_secs=None, options=SHARDS) as run:
        saver = run._saver
        assert saver is not None
        with pytest.raises(SaveFailedError, match="the checkpoint of step 3 is still being written"):
            saver.save(3, "manual", Deadline.after(0.0, saver._clock))
        hangs.wait()
        goes_on.set()
        saver.wait_until_saved()
        assert saver.newest is None and SealedStore(run.logdir + "/checkpoints").candidates() == []


def test_a_phase_keeps_no_copy(tmp_path: Path) -> None:
    """There is no memory for it."""
    with supervise(tmp_path, state={"m": {"w": np.ones(9)}}, save_secs=None, options=SHARDS) as run:
        for _ in run.steps(1):
            with run.phase("evaluating"):
                assert run._saver is not None and not run._saver.is_between_steps


def test_a_facade_that_saves_copies_only(tmp_path: Path) -> None:
    """Says so at the call."""
    policy = SavePolicy(save_secs=None, save_steps=None, max_to_keep=None, keep_every_n_hours=None)
    with pytest.raises(OptionsError, match=r"^Options.snapshot is 'shards'; a facade saves copies only: expected 'c"):
        Run(str(tmp_path), state=TrainingState(), options=SHARDS, policy=policy, facade="a facade")
