"""The examples of seed 004, with the import changed and nothing else but TensorFlow 1's names."""

from __future__ import annotations

import os
from typing import Any

import pytest
import tensorflow as tf

import supervisor_core

v1 = tf.compat.v1


@pytest.fixture(autouse=True)
def _in_a_directory_of_its_own(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The programs write to ``log`` in the working directory."""
    monkeypatch.chdir(tmp_path)
    os.mkdir("log")


def checkpoint_files() -> list[str]:
    """Return what is in ``log`` that belongs to checkpoints."""
    return sorted(name for name in os.listdir("log") if name.startswith(("checkpoint", "model")))


def test_seed_004_a_session_without_a_global_step() -> None:
    """The first example, which raised "Global step should be created to use StepCounterHook", runs."""
    v = tf.constant(1)

    with supervisor_core.MonitoredTrainingSession(
        checkpoint_dir="log",
    ) as sess:
        assert sess.run(v) == 1
    assert checkpoint_files() == []


def train_nothing_from_step_three() -> None:
    """The second example."""
    tf.compat.v1.Variable(3, trainable=False, name="global_step")

    with supervisor_core.MonitoredTrainingSession(
        checkpoint_dir="log",
        hooks=[supervisor_core.StopAtStepHook(last_step=10)],
        save_checkpoint_secs=2,
    ):
        pass  # where the example slept for a second


FILES = ["checkpoint", *(f"model.ckpt-3.{end}" for end in ("data-00000-of-00001", "index", "meta"))]


def test_seed_004_a_checkpoint_of_step_three() -> None:
    """The second example leaves the four files that are listed there."""
    train_nothing_from_step_three()
    assert checkpoint_files() == FILES


def test_seed_004_training_hooks(caplog: pytest.LogCaptureFixture) -> None:
    """The third example restores step three, and logs its tensor with each of ten runs."""
    with tf.Graph().as_default():
        train_nothing_from_step_three()
    caplog.set_level("INFO", logger="tensorflow")

    tf.compat.v1.Variable(3, trainable=False, name="global_step")
    v = tf.constant(1, name="v")

    with supervisor_core.MonitoredTrainingSession(
        checkpoint_dir="log",
        hooks=[supervisor_core.LoggingTensorHook([v], every_n_iter=1)],
    ) as sess:
        for _ in range(10):
            sess.run(v)

    assert any("log/model.ckpt-3" in line and "Restor" in line for line in caplog.messages)
    lines = [line for line in caplog.messages if "= 1" in line]
    assert len(lines) == 10 and 'Tensor("v:0", shape=(), dtype=int32) = 1' in lines[0]
    assert checkpoint_files() == FILES


def test_seed_004_the_phases_as_they_are_described(recorder: Any) -> None:
    """Begin, finalize, create, initialise; before_run, run, after_run; end: in the order of the seed."""
    v1.train.get_or_create_global_step()
    order: list[str] = []
    scaffold = v1.train.Scaffold(init_fn=lambda scaffold, session: order.append("initialise"))

    def note(*args: Any) -> None:
        finalized = v1.get_default_graph().finalized
        order.append(f"{hook.notes[-1][1]}{' (finalized)' if finalized else ''}")

    phases = ("begin", "after_create_session", "before_run", "after_run", "end")
    hook = recorder(act=dict.fromkeys(phases, note))
    two = tf.constant(2)
    with supervisor_core.MonitoredTrainingSession(checkpoint_dir="log", scaffold=scaffold, hooks=[hook]) as sess:
        sess.run(two)
        raise tf.errors.OutOfRangeError(None, None, "the input's samples are used up")
    assert order == [
        "begin",
        "initialise",
        *(f"{phase} (finalized)" for phase in phases[1:]),
    ]
