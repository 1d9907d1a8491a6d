"""The private parts of TensorFlow are used where they are its own; test_private_symbols.py does without each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.client import session as client

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
