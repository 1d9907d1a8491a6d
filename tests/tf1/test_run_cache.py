"""RunCache: made for what is run again, bounded in number, given up whenever they might differ from ``Session.run``."""

from __future__ import annotations

import math
import weakref
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import errors, ops

from supervisor_core.tf1.run_cache import MAX_PLANS, MAX_SEEN
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


def test_a_structure_written_again_is_recognised(sess: SupervisedSession, run_cache_of: Any) -> None:
    """Lists, dictionaries and names that are built for each run lead to one plan."""
    one, two = tf.constant(1, name="one"), tf.constant(2)
    for key in "abc":
        assert sess.run({key: [one, (two,)], "n": "".join(["one", ":0"])}) == {key: [1, (2,)], "n": 1}
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


def test_a_leaf_that_changes_its_mind_gets_no_plan(sess: SupervisedSession, run_cache_of: Any) -> None:
    """An object that stands for another tensor each time is asked each time."""
    constants = [tf.constant(i) for i in range(100)]

    class Turning:
        def _as_graph_element(self) -> Any:
            return constants.pop()

    turning = Turning()
    fetched = [sess.run(turning) for _ in range(6)]
    assert len(set(fetched)) == 6
    assert len(run_cache_of(sess)) == 0
    kept = weakref.ref(turning)
    del turning
    assert kept() is not None, "another object could take its identity, and be refused in its stead"


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


def test_a_graph_that_grows_with_each_run_leaves_nothing(sess: SupervisedSession, run_cache_of: Any) -> None:
    """A program that makes new operations for each run, or fetches what has no plan, is not remembered."""
    plans = run_cache_of(sess)
    for i in range(MAX_SEEN + 20):
        assert sess.run([tf.constant(i)]) == [i]
    for i in range(MAX_SEEN + 20):
        plans.remember(f"name{i}", None, 0.0)
        plans.find(f"name{i}", None)
    assert len(plans) == 0
    assert len(plans._seen) <= MAX_SEEN
    assert len(plans._refused) <= MAX_SEEN


def test_a_plan_holds_while_the_graph_grows(sess: SupervisedSession, plan_of: Any, run_cache_of: Any) -> None:
    """Operations that are added later change nothing for what has a plan, and can be run beside it."""
    fed = v1.placeholder(tf.float32, [])
    doubled = fed * 2.0
    plan = plan_of(sess, doubled, {fed: 1.0})
    for i in range(5):
        later = doubled + float(i)
        assert sess.run(later, {fed: 2.0}) == 4.0 + i
        assert sess.run(doubled, {fed: 3.0}) == 6.0
    assert run_cache_of(sess).find(doubled, {fed: 1.0}) is plan


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


def test_a_shape_that_is_refined_later_counts(sess: SupervisedSession, plan_of: Any) -> None:
    """A placeholder whose static shape is narrowed after it had a plan refuses what no longer fits."""
    fed = v1.placeholder(tf.float32, [None], name="fed")
    total = tf.reduce_sum(fed)
    plan_of(sess, total, {fed: [1.0, 2.0]})
    fed.set_shape([3])
    with pytest.raises(ValueError, match=r"Cannot feed value of shape \(2,\) for Tensor fed:0"):
        sess.run(total, {fed: [1.0, 2.0]})
    assert sess.run(total, {fed: [1.0, 2.0, 3.0]}) == 6.0


def test_a_graph_that_was_taken_apart_is_empty(plan_of: Any) -> None:
    """After its graph was dismantled, a session says what it always said then."""
    graph = tf.Graph()
    with graph.as_default():
        one = tf.constant(1)
        with SupervisedSession() as sess:
            plan_of(sess, one)
            ops.dismantle_graph(graph)
            with pytest.raises(RuntimeError, match="The Session graph is empty"):
                sess.run(one)


def test_a_plan_survives_its_errors(sess: SupervisedSession, plan_of: Any, run_cache_of: Any) -> None:
    """After a run that failed, the same plan goes on."""
    fed = v1.placeholder(tf.float32, [])
    checked = v1.check_numerics(fed, "not finite")
    plan = plan_of(sess, checked, {fed: 1.0})
    for made in (False, True):
        if made:
            plan.make_callable()
        assert (plan.prepared is not None) is made
        for _ in range(3):
            with pytest.raises(tf.errors.InvalidArgumentError, match="not finite") as caught:
                sess.run(checked, {fed: math.nan})
            assert caught.value.op is checked.op
            assert sess.run(checked, {fed: 1.0}) == 1.0
    assert run_cache_of(sess).find(checked, {fed: 1.0}) is plan


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
