"""The private parts of TensorFlow: used where they are there and its own, done without where not."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.client import pywrap_tf_session as wrappers
from tensorflow.python.client import session as client
from tensorflow.python.util import numpy_compat

from supervisor_core.tf1 import plan as plan_module
from supervisor_core.tf1 import plans as plans_module
from supervisor_core.tf1.native import find_native, installed
from supervisor_core.tf1.session import SupervisedSession

v1 = tf.compat.v1


def test_this_tensorflow_can_be_planned_for() -> None:
    """The parts of TensorFlow that plans need are there in the version that is tested."""
    assert installed() is not None


NEEDED = {
    "client": ["BaseSession", "_REGISTERED_EXPANSIONS", "_convert_to_numpy_obj"],
    "wrappers": [
        "TF_DeleteBuffer",
        "TF_NewBufferFromString",
        "TF_SessionMakeCallable",
        "TF_SessionReleaseCallable",
        "TF_SessionRunCallable",
        "TF_SessionRun_wrapper",
    ],
    "numpy_compat": ["np_asarray"],
}


@pytest.mark.parametrize("name", [name for names in NEEDED.values() for name in names])
def test_a_tensorflow_without_the_private_parts_is_found_out(name: str) -> None:
    """Whichever part is missing, there are no plans; nothing fails."""

    def without(module: ModuleType, names: list[str]) -> Any:
        return SimpleNamespace(**{each: getattr(module, each) for each in names if each != name})

    def found(take: Callable[[ModuleType, list[str]], Any]) -> Any:
        return find_native(
            take(client, NEEDED["client"]),
            take(wrappers, NEEDED["wrappers"]),
            take(numpy_compat, NEEDED["numpy_compat"]),
        )

    assert found(lambda module, names: module) is not None
    assert found(without) is None


@pytest.mark.parametrize("missing", ["everything", "of the session", "of the graph", "of the tensor"])
def test_without_the_private_parts_every_run_is_the_originals(
    graph: Any, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    """In such a TensorFlow the session works as it should, by Session.run."""
    if missing == "everything":
        monkeypatch.setattr(plans_module, "installed", lambda: None)
    elif missing == "of the session":
        monkeypatch.setattr(plans_module, "_OF_SESSIONS", ("_no_longer_there",))
    elif missing == "of the graph":
        monkeypatch.setattr(plans_module, "_OF_GRAPHS", ("_no_longer_there",))
    else:

        def gone(*arguments: Any) -> Any:
            raise AttributeError("_as_tf_output")

        monkeypatch.setattr(plan_module, "Feed", gone)
    fed = v1.placeholder(tf.float32, [None])
    doubled = fed * 2.0
    with SupervisedSession() as sess:
        for _ in range(4):
            assert sess.run([doubled], {fed: [1.0]})[0].tolist() == [2.0]
            assert sess.run_internal([doubled], {fed: [1.0]})[0].tolist() == [2.0]
        assert sess.make_callable(doubled, [fed])([3.0]).tolist() == [6.0]
        with pytest.raises(tf.errors.InvalidArgumentError, match="must feed"):
            sess.run(doubled)
        assert len(sess._plans) == 0


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
