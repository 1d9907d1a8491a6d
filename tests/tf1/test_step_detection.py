"""Step detection: which runs move the global step, and which change the model, is read off the graph."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.training import training_util

import supervisor_core
from supervisor_core.tf1.step_detection import ChangingOps, TrainingOps

v1 = tf.compat.v1
BOTH = pytest.mark.parametrize("resource", [True, False], ids=["resource", "ref"])


@pytest.fixture
def step(graph: Any, resource: bool) -> Any:
    """A global step of the kind that the test asks for."""
    return v1.Variable(0, name="global_step", dtype=tf.int64, use_resource=resource, trainable=False)


def _other(resource: bool = True) -> Any:
    return v1.Variable(0, name="other", dtype=tf.int64, use_resource=resource)


def _updates(step: Any, *fetches: Any, fed: Any = ()) -> bool:
    return TrainingOps(step.graph, step).updates([step.graph.as_graph_element(fetch) for fetch in fetches], fed)


@BOTH
@pytest.mark.parametrize("update", ["assign_add", "assign_sub", "assign", "minimize", "count_up_to"])
def test_what_writes_the_step_is_an_update(step: Any, update: str, resource: bool) -> None:
    """Every way to write the variable makes a run a step: fetched itself, its result, or what waits for it."""
    writes: dict[str, Callable[[], Any]] = {
        "assign_add": lambda: v1.assign_add(step, 1),
        "assign_sub": lambda: v1.assign_sub(step, 1),
        "assign": lambda: v1.assign(step, step + 1),
        "minimize": lambda: v1.train.GradientDescentOptimizer(0.1).minimize(
            tf.square(v1.get_variable("w", [], use_resource=resource)), global_step=step
        ),
        "count_up_to": lambda: step.count_up_to(10),
    }
    element = step.graph.as_graph_element(writes[update]())
    op = getattr(element, "op", element)
    with tf.control_dependencies([op]):
        after = tf.no_op()
    assert _updates(step, op)
    assert _updates(step, after)
    assert _updates(step, tf.constant(1), tf.group(after, tf.no_op()))
    if op.outputs:
        assert _updates(step, tf.identity(op.outputs[0]) + 0)


@BOTH
def test_reading_the_step_is_none(step: Any, resource: bool) -> None:
    """Whatever only looks at the step leaves a run what it is: a reading, a schedule, an assignment from it."""
    other = _other(resource)
    reads = [
        step,
        step.value(),
        step.read_value(),
        tf.identity(step),
        step + 1,
        v1.is_variable_initialized(step),
        v1.report_uninitialized_variables([step]),
        v1.train.exponential_decay(0.1, step, 10, 0.5),
        v1.assign(other, step),
        v1.assign_add(other, step.read_value()),
        tf.shape(step.value()),
        tf.no_op(),
    ]
    for read in reads:
        assert not _updates(step, read), read


@BOTH
def test_setting_it_up_is_none(step: Any, resource: bool) -> None:
    """Initializing the variable is no step, nor is restoring it."""
    saver = v1.train.Saver([step, _other(resource)])
    restore = step.graph.get_operation_by_name(saver.saver_def.restore_op_name)
    assert not _updates(step, step.initializer)
    assert not _updates(step, v1.global_variables_initializer())
    assert not _updates(step, restore)
    assert not _updates(step, step.graph.get_tensor_by_name(saver.saver_def.save_tensor_name))


@BOTH
def test_updates_inside_old_control_flow(step: Any, resource: bool) -> None:
    """An update inside a v1 conditional or loop is found, through the switches and frames that carry the reference."""
    enabled = v1.control_flow_v2_enabled()
    v1.disable_control_flow_v2()
    try:
        conditional = v1.cond(
            tf.equal(tf.constant(1), 1), lambda: tf.identity(v1.assign_add(step, 1)), lambda: tf.constant(0, tf.int64)
        )
        looking = v1.cond(tf.equal(tf.constant(1), 1), lambda: tf.identity(step), lambda: tf.constant(0, tf.int64))
        if resource:  # ref variables cannot be assigned inside a while loop

            def body(i: Any) -> Any:
                with tf.control_dependencies([v1.assign_add(step, 1)]):
                    return i + 1

            assert _updates(step, v1.while_loop(lambda i: i < 3, body, [tf.constant(0)]))
            assert not _updates(
                step, v1.while_loop(lambda i: i < step.value(), lambda i: i + 1, [tf.constant(0, tf.int64)])
            )
    finally:
        if enabled:
            v1.enable_control_flow_v2()
    assert conditional.op.type == "Merge"
    assert _updates(step, conditional)
    assert not _updates(step, looking)


@pytest.mark.parametrize("resource", [True])
def test_updates_inside_functions(step: Any) -> None:
    """An update inside a function, a functional conditional or loop is found; one that only reads is not one."""

    @tf.function
    def adding(value: Any) -> Any:
        step.assign_add(value)
        return value

    @tf.function
    def reading(value: Any) -> Any:
        return value + step

    @tf.function
    def nested(value: Any) -> Any:
        return tf.cond(value > 0, lambda: adding(value), lambda: value)

    def body(i: Any) -> Any:
        step.assign_add(1)
        return i + 1

    one = tf.constant(1, tf.int64)
    assert _updates(step, adding(one))
    assert _updates(step, nested(one))
    assert not _updates(step, reading(one))
    assert _updates(step, tf.cond(one > 0, lambda: step.assign_add(1).read_value(), lambda: one))
    assert not _updates(step, tf.cond(one > 0, lambda: step.read_value(), lambda: one))
    assert _updates(step, tf.switch_case(tf.constant(0), [lambda: step.assign_add(1).read_value(), lambda: one]))
    assert _updates(step, tf.while_loop(lambda i: i < 3, body, [one])[0])
    assert not _updates(step, tf.while_loop(lambda i: i < step.read_value(), lambda i: i + 1, [one])[0])


@BOTH
def test_what_is_fed_is_not_run(step: Any, resource: bool) -> None:
    """A tensor that is fed hides the update behind it, unless something else leads there."""
    added = step.graph.as_graph_element(v1.assign_add(step, 1))
    next_step = tf.identity(added)
    doubled = next_step * 2
    assert _updates(step, doubled)
    assert not _updates(step, doubled, fed=[next_step])
    assert not _updates(step, next_step, fed=[next_step])
    assert _updates(step, doubled, added.op, fed=[next_step])
    assert _updates(step, doubled, fed=[v1.placeholder(tf.float32)])


@BOTH
def test_a_growing_graph_is_looked_at_again(step: Any, resource: bool) -> None:
    """What was added after the first look is known, too."""
    training_ops = TrainingOps(step.graph, step)
    assert not training_ops.updates([step.graph.as_graph_element(step)])
    added = v1.assign_add(step, 1)
    assert training_ops.updates([step.graph.as_graph_element(added).op])
    later = tf.group(added)
    assert training_ops.updates([later])


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


def test_a_change_without_a_step_is_saved_at_the_end(build_model: Callable[..., Any], logdir: str, graph: Any) -> None:
    """What a program assigns after the last step is in the last checkpoint."""
    model = build_model()
    change = model.weight.assign(99.0)
    with supervisor_core.MonitoredTrainingSession(checkpoint_dir=logdir, save_checkpoint_steps=1) as sess:
        sess.run(model.train_op)
        sess.run(change)
    assert tf.train.load_checkpoint(logdir).get_tensor("weight") == 99.0


@BOTH
def test_many_threads_may_ask_at_once(step: Any, resource: bool) -> None:
    """Threads that ask while the answer is being found all get the right one."""
    op = step.graph.as_graph_element(v1.assign_add(step, 1)).op
    training_ops = TrainingOps(step.graph, step)
    answers: list[bool] = []
    start = threading.Barrier(4)

    def ask() -> None:
        start.wait()
        answers.extend([training_ops.updates([op]), not training_ops.updates([step.op])])

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [True] * 8
