"""The private parts of TensorFlow are used where they are its own; test_private_symbols.py does without each."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.client import session as client

from supervisor_core.tf1 import run_cache
from supervisor_core.tf1.native_runs import installed, is_safe
from supervisor_core.tf1.run_cache import RunPlan
from supervisor_core.tf1.session import SupervisedSession
from supervisor_core.tf1.step_detection import RunAnalysis

v1 = tf.compat.v1


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
        later = SupervisedSession(plain=sess)
        assert [later.run(one) for _ in range(3)] == [1] * 3
    assert len(seen) == 4


def test_a_callable_is_made_when_it_has_paid_for_itself(sess: SupervisedSession) -> None:
    """A plan moves on after as many runs as would have paid for a callable; not before, and not while runs are long."""
    one = tf.constant(1)
    native = installed()
    assert native is not None

    def plan(first_secs: float) -> RunPlan:
        return RunPlan(native, sess.plain_session(), RunAnalysis(sess.graph), one, [], first_secs)

    quick, slow, costly = plan(0.0), plan(0.0), plan(200 * run_cache.SAVED_SECS)
    for _ in range(run_cache.MIN_RUNS - 1):
        quick.ran(1.0, 1.0)
    assert quick.prepared is None
    quick.ran(1.0, 1.0)
    assert quick.prepared is not None
    assert [quick.results(one, quick.run(())) for _ in range(3)] == [1] * 3
    for _ in range(1000):
        slow.ran(1.0, 1.0 + 2 * run_cache.QUICK_SECS)
    assert slow.prepared is None
    for _ in range(run_cache.MIN_RUNS):  # it was slow because it waited for a processor
        slow.ran(1.0, 1.0)
    assert slow.prepared is not None
    for _ in range(199):
        costly.ran(1.0, 1.0)
    assert costly.prepared is None
    costly.ran(1.0, 1.0)
    assert costly.prepared is not None


def test_callables_are_made_only_where_results_are_the_same(graph: Any) -> None:
    """No callable for values that may never be computed, for functions' own state, for large values and constants."""
    fed, text = v1.placeholder(tf.float32, []), v1.placeholder(tf.string, [])
    flag = v1.placeholder(tf.bool, [])
    switched = v1.raw_ops.Switch(data=fed, pred=flag)[1] + 1.0
    merged_op = tf.group(switched)
    function = tf.function(lambda value: value + 1.0)(fed)
    large = tf.reduce_sum(tf.constant(np.arange(1 << 19, dtype=np.float32)))
    behind = fed * 2.0
    assert is_safe(graph, [fed], [fed + 1.0], [])
    assert is_safe(graph, [], [], [tf.group(fed)])
    assert is_safe(graph, [flag, fed], [], [merged_op])
    assert not is_safe(graph, [flag, fed], [switched], [])
    assert not is_safe(graph, [fed], [function], [])
    assert not is_safe(graph, [fed], [], [function.op])
    assert not is_safe(graph, [], [large], [])
    assert is_safe(graph, [large], [large + 1.0], [])
    assert not is_safe(graph, [fed], [tf.stack([behind, behind])], [])
    assert not is_safe(graph, [text], [tf.strings.to_number(text)], [])
    assert not is_safe(graph, [], [tf.constant("a")], [])


def test_callables_are_released_with_their_plan(graph: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan runs by its callable and gives it back with itself; after the session is closed nothing is given back."""
    native, functions = installed(), client.tf_session
    assert native is not None
    run_wrapper, release_wrapper = functions.TF_SessionRunCallable, functions.TF_SessionReleaseCallable
    run: list[int] = []
    released: list[int] = []

    def run_callable(c_session: Any, handle: int, arrays: Any, metadata: Any) -> Any:
        run.append(handle)
        return run_wrapper(c_session, handle, arrays, metadata)

    def release(c_session: Any, handle: int) -> None:
        released.append(handle)
        release_wrapper(c_session, handle)

    monkeypatch.setattr(functions, "TF_SessionRunCallable", run_callable)
    monkeypatch.setattr(functions, "TF_SessionReleaseCallable", release)
    one = tf.constant(1)
    with v1.Session() as plain:
        plans = [RunPlan(native, plain, RunAnalysis(graph), one, []) for _ in range(2)]
        for plan in plans:
            plan.make_callable()
        assert [plan.results(one, plan.run(())) for plan in plans] == [1, 1]
        assert len(set(run)) == 2
        del plan
        plans.pop()
        assert len(released) == 1
        assert plans[0].results(one, plans[0].run(())) == 1
    plans.pop()
    assert len(released) == 1


def test_a_session_elsewhere_is_planned_without_callables(
    graph: Any, monkeypatch: pytest.MonkeyPatch, run_cache_of: Any
) -> None:
    """Runs on a server go by plans too, with the same results and errors, and without callables."""
    monkeypatch.setattr(run_cache, "MIN_RUNS", 1)
    monkeypatch.setattr(run_cache, "SAVED_SECS", math.inf)
    monkeypatch.setattr(run_cache, "QUICK_SECS", math.inf)
    fed = v1.placeholder(tf.float32, [])
    checked = v1.check_numerics(fed, "not finite")
    server = v1.train.Server.create_local_server()
    with v1.Session(server.target) as original, SupervisedSession(server.target) as sess:
        for value in (1.0, 2.0, 3.0):
            assert sess.run(checked, {fed: value}) == value
        messages = []
        for session in (original, sess):
            with pytest.raises(tf.errors.InvalidArgumentError) as caught:
                session.run(checked, {fed: math.inf})
            messages.append(caught.value.message.splitlines()[0])  # TensorFlow appends its newest warnings
        assert messages[0] == messages[1]
        plan = run_cache_of(sess).find(checked, {fed: 1.0})
        assert plan is not None
        assert plan.prepared is None
