"""The private parts of TensorFlow are used where they are its own; test_private_symbols.py does without each."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.client import session as client

from supervisor_core.tf1.native_runs import installed
from supervisor_core.tf1.session import SupervisedSession

v1 = tf.compat.v1


def test_this_tensorflow_can_be_planned_for() -> None:
    """The parts of TensorFlow that plans need are there in the version that is tested."""
    found = installed()
    assert found is not None and found.callables is not None


def test_a_run_method_put_in_its_place_is_used(
    sess: SupervisedSession, monkeypatch: pytest.MonkeyPatch, plan_of: Any
) -> None:
    """A profiler that replaces Session.run sees every run, of what has a plan, too."""
    one = tf.constant(1)
    plan_of(sess, one)
    original, seen = client.BaseSession.run, []

    def profiled(self: Any, fetches: Any, *args: Any) -> Any:
        seen.append(fetches)
        return original(self, fetches, *args)

    with monkeypatch.context() as patch:
        patch.setattr(client.BaseSession, "run", profiled)
        assert sess.run(one) == 1
    assert seen == [one]
    assert sess.run(one) == 1
    assert len(seen) == 1
    with monkeypatch.context() as patch:
        patch.setattr(client.BaseSession, "run", profiled)
        later = SupervisedSession.around(sess)
        assert [later.run(one) for _ in range(3)] == [1] * 3
    assert len(seen) == 4


def test_fetches_that_are_taught_are_learnt(sess: SupervisedSession, plan_of: Any) -> None:
    """A conversion that is registered for a type of fetches is used from then on, whether or not they have plans."""
    one = tf.constant(1)
    plan_of(sess, one)
    entry = (tf.Tensor, lambda fetch: ([fetch], lambda values: ("seen", values[0])), None, None)
    client._REGISTERED_EXPANSIONS.insert(0, entry)
    try:
        assert [sess.run(one) for _ in range(3)] == [("seen", 1)] * 3
        later = SupervisedSession.around(sess)
        assert [later.run(one) for _ in range(3)] == [("seen", 1)] * 3
    finally:
        client._REGISTERED_EXPANSIONS.remove(entry)
    assert sess.run(one) == 1
