"""`supervise`: which checkpoints are in doubt, and that a directory which cannot be listed, or whose name is not text,
ends nothing."""

from __future__ import annotations

import errno
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from supervisor_core import Options, UnlistedCheckpointsError, supervise
from supervisor_core.checkpoint.sealed_store import SealedStore
from supervisor_core.engine.session_recorder import SessionRecorder
from supervisor_core.events.file_writer import FileWriter
from supervisor_core.events.telemetry import CheckpointRecord
from tests.training.parts import Part, run_of


def doubts(logdir: Path) -> dict[int | None, str | None]:
    """Why each good save is in doubt, by step."""
    return {item.step: item.doubt for item in run_of(logdir).checkpoints if item.ok}


NOT_FINITE = 'The newest value of "train/loss" is NaN or infinite.'


def test_a_loss_that_was_not_finite_counts_until_there_is_a_new_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after a restart, though the new session has logged none: its first checkpoint is no better. Other tags may
    be NaN."""
    monkeypatch.setattr(FileWriter.losses_not_finite, "__defaults__", (60.0,))  # to write out what was added before
    with supervise(tmp_path, save_secs=None, save_steps=1) as run:
        for step in run.steps(3):
            run.wait_until_saved()
            run.log({"train/loss": math.inf if step == 2 else 0.5, "accuracy": math.nan})
    with supervise(tmp_path, save_secs=None, save_steps=1) as run:
        for step in run.steps(6):
            run.wait_until_saved()
            if step == 4:
                run.log("train/loss", 0.5)
    assert doubts(tmp_path) == {1: None, 2: None, 3: NOT_FINITE, 4: NOT_FINITE, 5: None, 6: None}


def test_what_is_saved_after_an_error_is_in_doubt(tmp_path: Path) -> None:
    """With the error's text. What the next session saves as it trains is not; nor what was saved before."""
    options = Options(save_on_error=True)
    with pytest.raises(ArithmeticError), supervise(tmp_path, options=options, save_secs=None, save_steps=2) as run:
        for step in run.steps(9):
            run.wait_until_saved()
            if step == 3:
                raise ArithmeticError("the loss exploded")
    with supervise(tmp_path, save_secs=None, save_steps=2) as run:
        list(run.steps(6))
    found = doubts(tmp_path)
    assert found.pop(3) == "It was saved after an error: ArithmeticError: the loss exploded"
    assert set(found.values()) == {None} and set(found) >= {2, 5, 6}


def test_an_array_with_nan_is_named(tmp_path: Path) -> None:
    """A float that is NaN, as a best value so far, is none; nor is an infinite number."""
    state = {"best": Part(math.nan), "mask": Part(np.full(3, -math.inf)), "model": Part({"w": np.zeros(3)})}
    with supervise(tmp_path, state=state, save_secs=None, save_steps=1) as run:
        for step in run.steps(2):
            run.wait_until_saved()
            state["model"].value = {"w": np.array([0, math.nan if step else 1, 1], np.float32)}
    assert doubts(tmp_path) == {1: None, 2: 'There is NaN in "model/value/w".'}


@pytest.mark.parametrize("number", [errno.ESTALE, errno.EIO])
def test_a_fault_while_the_directory_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Costs a save, and not the training; at a start it is an error, and nothing starts at step 0."""
    real, fails = os.listdir, [False]

    def listdir(path: Any = ".") -> list[str]:
        if fails[0] and str(path).endswith("checkpoints"):
            raise OSError(number, os.strerror(number), str(path))
        return real(path)

    monkeypatch.setattr(os, "listdir", listdir)
    with supervise(tmp_path, save_secs=None, save_steps=2, max_to_keep=2) as run:
        for step in run.steps(8):
            run.wait_until_saved()
            fails[0] = 3 <= step < 6
    saves = [(item.step, item.ok) for item in run_of(tmp_path).checkpoints]
    assert saves == [(2, True), (4, False), (6, False), (8, True)]
    assert [item.step for item in SealedStore(tmp_path / "checkpoints").candidates()] == [8, 2]
    fails[0] = True
    with pytest.raises(UnlistedCheckpointsError, match=os.strerror(number)), supervise(tmp_path):
        pass


def test_a_logdir_whose_name_is_not_text(tmp_path: Path) -> None:
    """Training saves there as elsewhere, ends, and resumes."""
    logdir = Path(os.fsdecode(os.fsencode(tmp_path) + b"/a\xff"))
    for steps in (4, 6):
        with supervise(logdir, save_secs=None, save_steps=2) as run:
            for _ in run.steps(steps):
                run.wait_until_saved()
    assert [item.step for item in run_of(logdir).checkpoints] == [2, 4, 6]


def test_a_save_that_cannot_be_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its waiter gets the error at once; the saves after it are made."""
    real = SessionRecorder.saved

    def saved(recorder: SessionRecorder, record: CheckpointRecord, *arguments: Any) -> None:
        if record.step == 2:
            raise UnicodeEncodeError("utf-8", "a", 0, 1, "surrogates not allowed")
        real(recorder, record, *arguments)

    monkeypatch.setattr(SessionRecorder, "saved", saved)
    with supervise(tmp_path, save_secs=None) as run:
        list(run.steps(2))
        with pytest.raises(UnicodeEncodeError):
            run.save()
        list(run.steps(4))
    assert [item.step for item in run_of(tmp_path).checkpoints] == [4]
