"""Plans are made for what is run again, are few, and are given up where they might differ from ``Session.run``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import errors

from supervisor_core.tf1.run_cache import MAX_PLANS
from supervisor_core.tf1.session import SupervisedSession

v1 = tf.compat.v1


def test_only_what_is_run_again_gets_a_plan(sess: SupervisedSession, run_cache_of: Any) -> None:
    """A run that happens once leaves no plan behind; the second of its kind makes one."""
    one = tf.constant(1)
    sess.run([one])
    assert len(run_cache_of(sess)) == 0
    sess.run([one])
    assert len(run_cache_of(sess)) == 1
    sess.run((one,))
    sess.run({"a": one})
    assert len(run_cache_of(sess)) == 1


def test_other_leaves_or_another_form_make_another_run(sess: SupervisedSession, run_cache_of: Any) -> None:
    """Structures that look alike are kept apart: by their leaves, their form, and where in them a leaf is."""
    one, two = tf.constant(1), tf.constant(2)
    cases: list[tuple[Any, Any]] = [
        ([one, two], [1, 2]),
        ([two, one], [2, 1]),
        ((one, two), (1, 2)),
        ([[one], two], [[1], 2]),
        ([one, [two]], [1, [2]]),
        ([[one, two]], [[1, 2]]),
        ({"a": one, "b": two}, {"a": 1, "b": 2}),
        ({"a": two, "b": one}, {"a": 2, "b": 1}),
        ([one], [1]),
        (one, 1),
    ]
    for _ in range(3):
        for fetches, expected in cases:
            assert sess.run(fetches) == expected
    assert len(run_cache_of(sess)) == len(cases)


def test_a_leaf_is_never_taken_for_another(sess: SupervisedSession) -> None:
    """Objects that live for one run only are not confused with later ones that Python puts in the same place."""
    names = [tf.constant(i, name=f"number{i}").name for i in range(3)]
    for i in range(60):
        number = i // 3 % 3
        assert sess.run([bytes(bytearray(names[number].encode()))]) == [number]


def test_plans_are_bounded(sess: SupervisedSession, plan_of: Any, run_cache_of: Any) -> None:
    """The plan that was not used for longest makes room for the next; what is run all the time keeps its plan."""
    constants = [tf.constant(i) for i in range(MAX_PLANS + 10)]
    often = tf.constant(-1)
    plan = plan_of(sess, often)
    for i, constant in enumerate(constants):
        assert [sess.run(constant) for _ in range(3)] == [i] * 3
        sess.run(often)
    assert len(run_cache_of(sess)) == MAX_PLANS
    assert run_cache_of(sess).find(often, None) is plan
    assert run_cache_of(sess).find(constants[0], None) is None
    assert [sess.run(constant) for constant in constants] == list(range(len(constants)))


def test_what_is_forbidden_later_is_refused(sess: SupervisedSession, plan_of: Any, run_cache_of: Any) -> None:
    """Operations that may no longer be fetched, and tensors that may no longer be fed, are refused with a plan, too."""
    fed, other = tf.constant(1.0, name="fed"), tf.constant(1.0)
    doubled = fed * 2.0
    plan = plan_of(sess, doubled, {fed: 2.0})
    sess.graph.prevent_feeding(other)
    sess.graph.prevent_fetching(other.op)
    assert sess.run(doubled, {fed: 3.0}) == 6.0
    assert run_cache_of(sess).find(doubled, {fed: 2.0}) is plan
    sess.graph.prevent_feeding(fed)
    with pytest.raises(ValueError, match="Tensor fed:0 may not be fed"):
        sess.run(doubled, {fed: 3.0})
    assert [sess.run(doubled) for _ in range(3)] == [2.0] * 3
    sess.graph.prevent_fetching(doubled.op)
    with pytest.raises(errors.InaccessibleTensorError):
        sess.run(doubled)


def test_fed_arrays_are_not_kept(sess: SupervisedSession, plan_of: Any) -> None:
    """What was fed may be changed or freed once the run is over; the result is the caller's own."""
    fed = v1.placeholder(tf.float32, [None])
    same = tf.identity(fed)
    array = np.ones(100_000, np.float32)
    plan_of(sess, same, {fed: array})
    result = sess.run(same, {fed: array})
    array[:] = 2.0
    assert (result == 1.0).all()
    result[:] = 3.0
    assert (array == 2.0).all()
    assert (sess.run(same, {fed: array}) == 2.0).all()
