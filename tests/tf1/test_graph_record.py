"""`graph.pbtxt`: written whole by whatever protobuf there is, and never the end of a training."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf
from google.protobuf import text_format

import supervisor_core

v1 = tf.compat.v1
Train = Callable[[str], int]


def supervised(logdir: str) -> int:
    """Train two steps by a `Supervisor`, and return the last."""
    with tf.Graph().as_default():
        train_op = v1.train.get_or_create_global_step().assign_add(1)
        sv = supervisor_core.Supervisor(logdir=logdir, save_summaries_secs=0)
        with sv.managed_session() as sess:
            steps = [int(sess.run(train_op)) for _ in range(2)]
            sv.request_stop()
    return steps[-1]


def monitored(logdir: str) -> int:
    """Train two steps in a monitored session, and return the last."""
    with tf.Graph().as_default():
        train_op = v1.train.get_or_create_global_step().assign_add(1)
        with supervisor_core.MonitoredTrainingSession(checkpoint_dir=logdir) as sess:
            return [int(sess.run(train_op)) for _ in range(2)][-1]


def refuse(*arguments: Any, **keywords: Any) -> Any:
    """What TensorFlow 2.20's function does with protobuf 7."""
    raise TypeError("MessageToString() got an unexpected keyword argument 'float_format'")


@pytest.mark.parametrize("train", [supervised, monitored])
@pytest.mark.parametrize("fault", ["disk", "protobuf"])
def test_a_graph_that_cannot_be_written_ends_no_training(
    train: Train, fault: str, logdir: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is said once at each start, and training goes on."""
    if fault == "disk":
        os.makedirs(os.path.join(logdir, "graph.pbtxt", "in the way"))
    else:
        original = text_format.MessageToString
        monkeypatch.setattr(
            text_format,
            "MessageToString",
            lambda message, **keywords: (refuse if isinstance(message, v1.GraphDef) else original)(message, **keywords),
        )
    with caplog.at_level(logging.WARNING, "supervisor_core"):
        assert train(logdir) == 2
    (said,) = [text for text in caplog.messages if "graph.pbtxt" in text]
    assert said.startswith("graph.pbtxt cannot be written; training continues without it: ")
    assert tf.train.latest_checkpoint(logdir).endswith("-2")
    assert not [name for name in os.listdir(logdir) if ".tmp" in name]
