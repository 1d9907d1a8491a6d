"""`ChangingOps`: which runs leave a model as it is, so that what is saved need not be saved again."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.training import training_util

import supervisor_core
from supervisor_core.tf1.step_detection import ChangingOps

v1 = tf.compat.v1


@pytest.fixture
def fetches(graph: Any, request: pytest.FixtureRequest) -> dict[str, Any]:
    """Things to fetch of a model, of resource or of ref variables."""
    with v1.variable_scope("", use_resource=request.param):
        step = v1.train.get_or_create_global_step()
        weights = v1.get_variable("weights", [3])
    fed = v1.placeholder(tf.float32, [3])
    loss = tf.reduce_sum(weights * fed)
    queue = v1.FIFOQueue(3, [tf.float32])
    reads = tf.function(lambda variable: variable.read_value() + 1.0)
    writes = tf.function(lambda variable: variable.assign_add([1.0, 1.0, 1.0]))
    saver = v1.train.Saver()
    own = {
        "the step": step,
        "the step as TensorFlow's hooks read it": training_util._get_or_create_global_step_read(),
        "a loss": loss,
        "a gradient": v1.gradients(loss, weights)[0],
        "a summary": v1.summary.scalar("loss", loss),
        "what is not initialised": tf.identity(v1.report_uninitialized_variables()),
        "a save": graph.get_tensor_by_name(saver.saver_def.save_tensor_name),
        "a training step": v1.train.AdamOptimizer().minimize(loss, global_step=step),
        "an assignment": v1.assign(weights, fed),
        "what comes after an assignment": v1.assign(weights, fed) * 2.0,
        "a part of a variable": v1.scatter_add(weights, [0], [1.0]),
        "an initializer": v1.global_variables_initializer(),
        "a restore": graph.get_operation_by_name(saver.saver_def.restore_op_name),
        "an element of a queue": queue.dequeue(),
        "random numbers": tf.random.normal([2]),
    }
    if request.param:
        own |= {
            "a function that reads": reads(weights),
            "a function that writes": writes(weights),
            "a branch that reads": tf.cond(loss > 0.0, weights.read_value, lambda: fed),
            "a branch that writes": tf.cond(loss > 0.0, lambda: weights.assign(fed) + 0.0, lambda: fed),
        }
    return own


READING = {
    "the step",
    "the step as TensorFlow's hooks read it",
    "a loss",
    "a gradient",
    "a summary",
    "what is not initialised",
    "a save",
    "a branch that reads",
    "a function that reads",
}


@pytest.mark.parametrize("fetches", [False, True], indirect=True, ids=["ref", "resource"])
def test_what_only_reads_changes_nothing(graph: Any, fetches: dict[str, Any]) -> None:
    """Reads, losses, gradients, saves; whatever else is not known to be harmless counts as a change."""
    ops = ChangingOps(graph)
    for _ in range(2):  # the second time from memory
        assert {name for name, fetch in fetches.items() if not ops.reached_by([fetch])} == READING & set(fetches)


@pytest.mark.parametrize("fetches", [True], indirect=True)
def test_one_fetch_that_writes_is_enough(graph: Any, fetches: dict[str, Any]) -> None:
    """A run is as its fetches taken together."""
    ops = ChangingOps(graph)
    assert ops.reached_by([fetches["a loss"], fetches["an assignment"]])
    assert not ops.reached_by([fetches["a loss"], fetches["the step"]])


def saves_of(logdir: str, read_telemetry: Any) -> list[tuple[int, str]]:
    """Step and trigger of each checkpoint that was written."""
    records = [record for record in read_telemetry(logdir) if record.kind == "checkpoint"]
    return [(record.step, record.trigger) for record in records]


@pytest.mark.parametrize("resource", [False, True])
def test_hooks_that_read_the_step_bring_no_second_write_of_the_last_checkpoint(
    build_model: Callable[..., Any],
    logdir: str,
    read_telemetry: Any,
    caplog: pytest.LogCaptureFixture,
    resource: bool,
) -> None:
    """TensorFlow's own StopAtStepHook and LoggingTensorHook read after the last step: the model is as it was saved."""
    with tf.Graph().as_default(), v1.variable_scope("", use_resource=resource):
        step = v1.train.get_or_create_global_step()
        train_op = v1.assign_add(step, 1).op
        hooks = [v1.train.StopAtStepHook(last_step=4), v1.train.LoggingTensorHook([step + 0], at_end=True)]
        with (
            caplog.at_level(logging.WARNING, "supervisor_core"),
            supervisor_core.MonitoredTrainingSession(
                checkpoint_dir=logdir, save_checkpoint_steps=2, hooks=hooks
            ) as sess,
        ):
            while not sess.should_stop():
                sess.run(train_op)
    assert saves_of(logdir, read_telemetry) == [(0, "timer"), (2, "timer"), (4, "timer")]
    assert [line for line in caplog.messages if "has not moved" in line] == []


def test_a_supervisor_does_not_save_again_what_was_only_read(
    build_model: Callable[..., Any], logdir: str, graph: Any, read_telemetry: Any
) -> None:
    """A loss that is looked at after the last save is no news."""
    model = build_model()
    supervisor = supervisor_core.Supervisor(logdir=logdir, save_model_secs=9999, save_summaries_secs=0)
    with supervisor.managed_session() as sess:
        sess.run(model.train_op)
        path = supervisor.save_checkpoint()
        written = os.stat(f"{path}.index").st_mtime_ns
        assert sess.run([model.weight, model.global_step]) == [1.0, 1]
    assert os.stat(f"{path}.index").st_mtime_ns == written
    assert "final" not in [trigger for _, trigger in saves_of(logdir, read_telemetry)]


def test_a_change_without_a_step_is_saved_at_the_end(build_model: Callable[..., Any], logdir: str, graph: Any) -> None:
    """What a program assigns after the last step is in the last checkpoint."""
    model = build_model()
    change = model.weight.assign(99.0)
    with supervisor_core.MonitoredTrainingSession(checkpoint_dir=logdir, save_checkpoint_steps=1) as sess:
        sess.run(model.train_op)
        sess.run(change)
    assert tf.train.load_checkpoint(logdir).get_tensor("weight") == 99.0
