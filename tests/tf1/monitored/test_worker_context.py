"""`MonitoredTrainingSession` in a worker of a distribution strategy: the strategy says who does what."""

from __future__ import annotations

import logging
import os
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.distribute.distribute_coordinator import _WorkerContext

import supervisor_core

v1 = tf.compat.v1


class Strategy:
    """A strategy as far as a monitored session asks it."""

    def __init__(self, saves: bool = True, summarises: bool = True, initialises: bool = True) -> None:
        self.extended = SimpleNamespace(
            should_checkpoint=saves, should_save_summary=summarises, experimental_should_init=initialises
        )


class MultiWorkerMirroredStrategy(Strategy):
    """One of those whose workers have to save together."""


def files(directory: str) -> set[str]:
    """What is written in a run's directory, by kind."""
    kinds = {"events": "tfevents", "checkpoints": ".index", "graph": "graph.pbtxt"}
    names = os.listdir(directory) if os.path.isdir(directory) else []
    return {kind for kind, part in kinds.items() if any(part in name for name in names)}


def train_in(train: Any, context: Any, logdir: str, **arguments: Any) -> list[str]:
    """Train three steps in a worker context; return the kinds of the session's hooks, in their order."""
    with tf.Graph().as_default():
        train_op = v1.assign_add(v1.train.get_or_create_global_step(), 1).op
        v1.summary.scalar("one", tf.constant(1.0))
        arguments = {"checkpoint_dir": logdir, "save_checkpoint_steps": 2, **arguments}
        with context, train.MonitoredTrainingSession(**arguments) as sess:
            for _ in range(3):
                sess.run(train_op)
            hooks = [type(hook).__name__ for hook in sess._hooks]
    v1.summary.FileWriterCache.clear()
    return hooks


@pytest.mark.parametrize(
    ("saves", "summarises", "expected"),
    [
        (False, False, set()),
        (False, True, {"events"}),
        (True, True, {"events", "checkpoints", "graph"}),
    ],
)
def test_only_what_the_strategy_allows_is_written(
    train: Any, logdir: str, saves: bool, summarises: bool, expected: set[str]
) -> None:
    """No checkpoint, no events file, where it says that this worker is not the one."""
    train_in(train, _WorkerContext(Strategy(saves, summarises), None, None, None), logdir)
    assert files(logdir) == expected


def test_every_worker_of_a_collective_strategy_writes(train: Any, logdir: str) -> None:
    """Otherwise those that save would wait forever: a worker that may not has its own directory."""
    context = _WorkerContext(MultiWorkerMirroredStrategy(False, False), None, "worker", 1)
    train_in(train, context, logdir)
    assert files(logdir) == set()
    assert files(f"{logdir}/tmp_worker_1") == {"events", "checkpoints", "graph"}


def test_a_collective_strategy_saves_in_steps(logdir: str, caplog: pytest.LogCaptureFixture) -> None:
    """Seconds pass at another step in each worker; the log says what to ask for instead."""
    context = _WorkerContext(MultiWorkerMirroredStrategy(), None, "chief", 0)
    with caplog.at_level(logging.WARNING, "supervisor_core"):
        train_in(supervisor_core, context, logdir, save_checkpoint_steps=None, save_checkpoint_secs=1)
    assert [line for line in caplog.messages if "Pass save_checkpoint_steps" in line]


def test_the_programs_hooks_come_first_under_a_strategy(train: Any, logdir: str, recorder: Any) -> None:
    """Then the chief's, if this is the chief; then those that write."""
    context = _WorkerContext(Strategy(), None, None, None)
    arguments = {"hooks": [recorder()], "chief_only_hooks": [recorder()]}
    hooks = train_in(train, context, logdir, **arguments)
    assert hooks == ["Recorder", "Recorder", "StepCounterHook", "SummarySaverHook", "CheckpointSaverHook"]


def test_a_worker_that_does_not_initialise_waits_for_the_model(train: Any, logdir: str, build_model: Any) -> None:
    """On the master that the context says, with the configuration of both; chief-only hooks are left out."""
    server = v1.train.Server.create_local_server()
    with tf.device("/cpu:0"):
        model = build_model()
    spec = v1.train.ClusterSpec({"chief": ["elsewhere:1"], "worker": [server.target.removeprefix("grpc://")]})
    config = v1.ConfigProto(allow_soft_placement=True)
    context = _WorkerContext(Strategy(False, False, False), spec, "worker", 0, session_config=config)
    with train.MonitoredTrainingSession(server.target) as chief:
        chief.run(model.train_op)
        with tf.Graph().as_default():
            with tf.device("/cpu:0"):
                same = build_model()
            own = v1.ConfigProto(log_device_placement=False)
            hooks = {"chief_only_hooks": [object()]}
            with context, train.MonitoredTrainingSession(checkpoint_dir=logdir, config=own, **hooks) as sess:
                assert sess.run(same.global_step) == 1
    assert files(logdir) == set()
