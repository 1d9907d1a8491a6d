"""A logdir under TensorFlow's API: relative ones, what a program reads back, and checkpoints that were deleted."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import supervisor_core
from supervisor_core.checkpoint.store import CheckpointStore

v1 = tf.compat.v1


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Another directory than the working directory, which is restored after the test."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path / "elsewhere"


def steps_saved(logdir: Path) -> list[int | None]:
    """The steps of the checkpoints in a logdir, best first."""
    return [item.step for item in CheckpointStore(logdir).candidates()]


def delete(logdir: Path) -> None:
    """Delete a logdir; the session may put a file back meanwhile."""
    while logdir.exists():
        shutil.rmtree(logdir, ignore_errors=True)


@pytest.mark.parametrize("is_own", [True, False])
def test_a_supervisor_reads_back_what_was_passed(
    build_model: Any, graph: Any, elsewhere: Path, tmp_path: Path, is_own: bool
) -> None:
    """As the original has it. Restoring, saving, events and the graph's file go to the directory that it was, also with
    a session manager of the program's own, which is asked for a session only after ``os.chdir``."""
    for expected in (1, 2):
        with tf.Graph().as_default():
            os.chdir(tmp_path)
            model = build_model()
            manager = supervisor_core.SessionManager() if is_own else None
            sv = supervisor_core.Supervisor(logdir="run", session_manager=manager, save_summaries_secs=0)
            os.chdir(elsewhere)
            assert (sv._logdir, sv.save_path) == ("run", os.path.join("run", "model.ckpt"))
            assert sv.summary_writer.get_logdir() == "run"
            with sv.managed_session() as sess:
                assert sess.run(model.train_op) is None
                assert sess.run(model.global_step) == expected
    assert steps_saved(tmp_path / "run")[0] == 2 and (tmp_path / "run" / "graph.pbtxt").exists()
    assert list(elsewhere.iterdir()) == []


def test_a_monitored_session_has_one_writer_by_either_name(
    build_model: Any, graph: Any, elsewhere: Path, tmp_path: Path
) -> None:
    """The relative one, which the program has passed, and which TensorFlow's own hooks ask for; a hook reads back what
    was passed, as the original's does."""
    build_model()
    cache = v1.summary.FileWriterCache
    hook = supervisor_core.CheckpointSaverHook("run", save_steps=1, saver=v1.train.Saver())
    assert (hook._checkpoint_dir, hook._save_path) == ("run", os.path.join("run", "model.ckpt"))
    os.chdir(elsewhere)
    with supervisor_core.MonitoredSession(hooks=[hook]):
        assert cache.get("run") is cache.get(str(tmp_path / "run"))
    assert list(elsewhere.iterdir()) == []
    assert len(list((tmp_path / "run").glob("events.out.tfevents.*"))) == 1


def test_a_last_step_whose_checkpoint_was_deleted_is_saved_again(build_model: Any, graph: Any, tmp_path: Path) -> None:
    """Though no step was made since: what is in memory is nowhere on the disk."""
    model, logdir = build_model(), tmp_path / "run"
    sv = supervisor_core.Supervisor(logdir=str(logdir), save_summaries_secs=0)
    with sv.managed_session() as sess:
        sess.run(model.train_op)
        saved = sv.save_checkpoint()
        assert saved is not None
        delete(logdir)
    assert steps_saved(logdir) == [1]
