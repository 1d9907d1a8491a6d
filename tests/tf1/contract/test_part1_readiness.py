"""Contract part 1, items 19 and 21: when a model counts as ready, and how a worker waits until it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

v1 = tf.compat.v1


def test_item_19_ready(facade: Any, build_model: Callable[..., Any]) -> None:
    """No op, an op without a value, an int32, and anything empty mean ready."""
    model = build_model()
    ready_ops = [None, v1.no_op(), tf.constant([1, 2]), tf.constant([], tf.string), tf.constant([], tf.float32)]
    initialize = v1.global_variables_initializer()
    for ready_op in ready_ops:
        with facade.SessionManager(ready_op=ready_op).prepare_session("", init_op=initialize) as sess:
            assert sess.run(model.global_step) == 0


def test_item_19_names_mean_not_ready(facade: Any, build_model: Callable[..., Any]) -> None:
    """A ready op that names variables means not ready, and the reason has the names."""
    build_model()
    manager = facade.SessionManager(ready_op=v1.report_uninitialized_variables())
    with pytest.raises(RuntimeError, match="Variables not initialized: global_step, weight"):
        manager.prepare_session("", init_op=v1.no_op())


@pytest.mark.parametrize("resource", [False, True])
def test_item_19_uninitialized_is_not_ready(facade: Any, build_model: Callable[..., Any], resource: bool) -> None:
    """A ready op that fails because it reads what is uninitialized means not ready."""
    model = build_model(resource=resource)
    manager = facade.SessionManager(ready_op=tf.identity(model.weight))
    with pytest.raises(RuntimeError, match=r"did not make model ready(.|\n)*uninitialized"):
        manager.prepare_session("", init_op=v1.no_op())


def test_item_19_any_other_failed_precondition_is_raised(facade: Any, build_model: Callable[..., Any]) -> None:
    """A ready op that fails for another reason is an error of its own."""
    build_model()
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a"], [1]), -1)
    manager = facade.SessionManager(ready_op=table.lookup(tf.constant("a")))
    with pytest.raises(tf.errors.FailedPreconditionError, match="Table not initialized"):
        manager.prepare_session("", init_op=v1.no_op())


def ready_at_poll(number: int) -> Any:
    """Return a ready op that names something missing until it has been run this many times."""
    polls: list[int] = []

    def poll() -> Any:
        polls.append(1)
        return np.array([b"chief"] if len(polls) < number else [], dtype=object)

    return v1.py_func(poll, [], tf.string, stateful=True)


def test_item_21_each_poll_opens_a_session_of_its_own(facade: Any, sessions: Any) -> None:
    """Polling goes on, without end if asked, with a new session each time; those that were not ready are closed."""
    for max_wait_secs in (60, None, float("inf")):
        sessions.opened.clear()
        sessions.closed.clear()
        manager = facade.SessionManager(ready_op=ready_at_poll(3), recovery_wait_secs=0.01)
        sess = manager.wait_for_session("", max_wait_secs=max_wait_secs)
        assert len(sessions.opened) == 3
        assert sessions.opened[-1] is sess
        assert sessions.closed == sessions.opened[:2]
        sess.close()


def test_item_21_local_init_runs_in_each_session(facade: Any) -> None:
    """A worker runs its own local init op, since local variables are each session's own."""
    local = v1.Variable(3, collections=[v1.GraphKeys.LOCAL_VARIABLES], use_resource=False)
    manager = facade.SessionManager(
        local_init_op=v1.local_variables_initializer(), ready_op=ready_at_poll(2), recovery_wait_secs=0.01
    )
    with manager.wait_for_session("") as sess:
        assert sess.run(local) == 3


def test_item_21_the_wait_has_an_end(facade: Any, sessions: Any) -> None:
    """Not ready in time: a DeadlineExceededError that says how long, and every session closed."""
    manager = facade.SessionManager(ready_op=tf.constant(["chief"]), recovery_wait_secs=0.01)
    with pytest.raises(tf.errors.DeadlineExceededError, match="Session was not ready after waiting"):
        manager.wait_for_session("", max_wait_secs=0.05)
    assert sessions.closed == sessions.opened
