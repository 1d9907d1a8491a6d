"""What a monitored session does besides its hooks: stop, close, step functions, threads, scaffolds."""

from __future__ import annotations

import functools
import sys
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.eager import context

import supervisor_core

v1 = tf.compat.v1


def test_isinstance_of_the_originals() -> None:
    """Programs that check for TensorFlow's classes take ours."""
    with supervisor_core.MonitoredTrainingSession() as sess:
        assert isinstance(sess, v1.train.MonitoredSession)
    with supervisor_core.SingularMonitoredSession() as sess:
        assert isinstance(sess, v1.train.SingularMonitoredSession)
    assert issubclass(supervisor_core.CheckpointSaverHook, v1.train.CheckpointSaverHook)
    assert issubclass(supervisor_core.ChiefSessionCreator, v1.train.SessionCreator)


def test_eager_execution_is_refused() -> None:
    """Contract, item 34: the error says what to do."""
    with context.eager_mode(), pytest.raises(RuntimeError, match=r"with tf.Graph\(\).as_default\(\)"):
        supervisor_core.MonitoredTrainingSession()


def test_run_step_fn_runs_with_and_without_hooks(train: Any, recorder: Any) -> None:
    """A step function has the session inside, and a run with hooks; what it returns is returned."""
    hook = recorder()
    two = tf.constant(2)
    seen = []

    def step_fn(step_context: Any) -> Any:
        seen.append(step_context.session.run(two))
        seen.append([phase for _, phase in hook.notes].count("before_run"))
        return step_context.run_with_hooks(two) * 10

    with train.MonitoredSession(hooks=[hook]) as sess:
        assert sess.run_step_fn(step_fn) == 20
    assert seen == [2, 0]
    assert [phase for _, phase in hook.notes].count("before_run") == 1


class Stepper:
    """Step functions in the forms that programs have them."""

    def method(self, step_context: Any) -> str:
        return "method"

    def __call__(self, step_context: Any) -> str:
        return "object"


def test_run_step_fn_takes_whatever_is_called_with_one_step_context(train: Any) -> None:
    """Methods, objects and partials; a function with another argument, or more of them, is refused."""
    taken = {
        "method": Stepper().method,
        "object": Stepper(),
        "partial": functools.partial(lambda more, step_context: more, "partial"),
    }
    refused: list[Any] = [lambda: None, lambda context: None, lambda step_context, more: None]
    with train.MonitoredSession() as sess:
        assert [sess.run_step_fn(step_fn) for step_fn in taken.values()] == list(taken)
        for step_fn in refused:
            with pytest.raises(ValueError, match="step_context"):
                sess.run_step_fn(step_fn)


def test_the_raw_session_runs_without_hooks(train: Any, recorder: Any) -> None:
    """`SingularMonitoredSession` hands out a real session, which saves and restores."""
    hook = recorder()
    two = tf.constant(2)
    with train.SingularMonitoredSession(hooks=[hook]) as sess:
        raw = sess.raw_session()
        assert isinstance(raw, v1.Session)
        assert raw.run(two) == 2
    assert "before_run" not in [phase for _, phase in hook.notes]
    assert sess.raw_session() is None


def _report(coord: Any, error: Exception) -> None:
    try:
        raise error
    except ValueError:
        coord.request_stop(sys.exc_info())


def test_a_threads_error_ends_the_loop_and_is_raised_at_its_end(train: Any, recorder: Any) -> None:
    """should_stop() is true, and the error comes out of the block."""
    error = ValueError("in a thread")
    coords = []
    hook = recorder(act={"after_create_session": lambda session, coord: coords.append(coord)})
    with pytest.raises(ValueError, match="in a thread"), train.MonitoredSession(hooks=[hook]) as sess:
        _report(coords[0], error)
        assert sess.should_stop()


def test_a_scaffold_initialises(train: Any, build_model: Any) -> None:
    """init_op with its feeds, then init_fn(scaffold, session), then local_init_op with its feeds."""
    x, y = v1.placeholder(tf.float32, []), v1.placeholder(tf.float32, [])
    weight = v1.Variable(0.0, name="w")
    local = v1.Variable(0.0, name="l", collections=[v1.GraphKeys.LOCAL_VARIABLES])
    bump = weight.assign_add(1.0)
    scaffold = v1.train.Scaffold(
        init_op=weight.assign(x),
        init_feed_dict={x: 5.0},
        init_fn=lambda scaffold, session: session.run(bump),
        local_init_op=local.assign(y),
        local_init_feed_dict={y: 7.0},
    )
    with train.MonitoredSession(train.ChiefSessionCreator(scaffold)) as sess:
        assert sess.run([weight, local]) == [6.0, 7.0]


@pytest.mark.parametrize("whose", ["the program's", "the original's"])
def test_any_session_creator_will_do(whose: str, build_model: Any, logdir: str) -> None:
    """One of the program's own, or TensorFlow's: hooks, checkpoints and counts work as with ours."""
    model = build_model()
    scaffold = v1.train.Scaffold()
    original = v1.train.ChiefSessionCreator(scaffold)

    class Creator(v1.train.SessionCreator):  # type: ignore[misc]
        def create_session(self) -> Any:
            return original.create_session()

    hook = supervisor_core.CheckpointSaverHook(logdir, save_steps=2, scaffold=scaffold)
    creator = Creator() if whose == "the program's" else original
    with supervisor_core.MonitoredSession(creator, hooks=[hook]) as sess:
        for _ in range(3):
            sess.run(model.train_op)
        assert sess.run_status().session.steps == 3
    assert v1.train.latest_checkpoint(logdir) == f"{logdir}/model.ckpt-3"


def test_a_closed_session_stops_and_is_closed_once(train: Any) -> None:
    """After close() should_stop() is true and graph is None; closing again is an error."""
    graph = v1.get_default_graph()
    sess = train.MonitoredSession()
    assert sess.graph is graph and not sess.should_stop()
    sess.close()
    assert sess.should_stop() and sess.graph is None
    with pytest.raises(RuntimeError, match="Session is already closed"):
        sess.close()


def test_two_items_in_a_collection_are_refused(train: Any) -> None:
    """Contract, item 2: a scaffold does not choose among several."""
    for _ in range(2):
        v1.add_to_collection(v1.GraphKeys.READY_OP, tf.constant([""]))
    with pytest.raises(RuntimeError, match="More than one item in the collection"):
        train.MonitoredSession()


def test_an_error_before_the_session_is_there_leaves_nothing_behind(recorder: Any, raises: Any, logdir: str) -> None:
    """A hook that fails in ``begin`` ends the run, and the logdir is free again."""
    hook = recorder(act={"begin": raises(ValueError("not today"))})
    with pytest.raises(ValueError, match="not today"):
        supervisor_core.MonitoredTrainingSession(checkpoint_dir=logdir, hooks=[hook])
    with supervisor_core.MonitoredTrainingSession(checkpoint_dir=logdir):
        pass


def test_a_singular_session_raises_a_threads_error_at_once(train: Any, recorder: Any) -> None:
    """There should_stop() itself raises."""
    coords = []
    hook = recorder(act={"after_create_session": lambda session, coord: coords.append(coord)})
    with (
        pytest.raises(ValueError, match="in a thread"),
        train.SingularMonitoredSession(hooks=[hook]) as sess,
    ):
        _report(coords[0], ValueError("in a thread"))
        sess.should_stop()
        pytest.fail("it did not raise")


def test_a_thread_of_a_hook_stops_the_loop(train: Any, recorder: Any) -> None:
    """A stop that is requested of the coordinator which hooks are given makes should_stop() true."""
    coords = []
    hook = recorder(act={"after_create_session": lambda session, coord: coords.append(coord)})
    with train.MonitoredSession(hooks=[hook]) as sess:
        assert not sess.should_stop()
        coords[0].request_stop()
        assert sess.should_stop()
