"""Plans: made for what is run again, bounded in number, given up whenever they might differ from ``Session.run``."""

from __future__ import annotations

import dataclasses
import math
import weakref
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.client import pywrap_tf_session as wrappers
from tensorflow.python.client import session as client
from tensorflow.python.framework import errors, ops
from tensorflow.python.util import numpy_compat

from supervisor_core.tf1 import plan as plan_module
from supervisor_core.tf1 import plans as plans_module
from supervisor_core.tf1.native import find_native, installed
from supervisor_core.tf1.native_callable import is_safe
from supervisor_core.tf1.plan import Plan
from supervisor_core.tf1.plans import MAX_PLANS, MAX_SEEN, Plans
from supervisor_core.tf1.run_traits import RunAnalysis
from supervisor_core.tf1.session import SupervisedSession

v1 = tf.compat.v1


@pytest.fixture
def sess(graph: Any) -> Iterator[SupervisedSession]:
    """A session on the test's own graph."""
    with SupervisedSession() as session:
        yield session


def _plans(session: SupervisedSession) -> Plans:
    plans = session._plans
    assert isinstance(plans, Plans)
    return plans


def _plan(session: SupervisedSession, fetches: Any, feed_dict: Any = None) -> Plan:
    """Run twice, so that there is a plan; return it."""
    for _ in range(2):
        session.run(fetches, feed_dict)
    plan = _plans(session).find(fetches, feed_dict)
    assert plan is not None
    return plan


def test_this_tensorflow_can_be_planned_for() -> None:
    """The parts of TensorFlow that plans need are there in the version that is tested."""
    assert installed() is not None


def test_only_what_is_run_again_gets_a_plan(sess: SupervisedSession) -> None:
    """A run that happens once leaves no plan behind; the second of its kind makes one."""
    one = tf.constant(1)
    sess.run([one])
    assert len(_plans(sess)) == 0
    sess.run([one])
    assert len(_plans(sess)) == 1
    sess.run((one,))
    sess.run({"a": one})
    assert len(_plans(sess)) == 1


def test_the_same_structure_written_anew_is_recognised(sess: SupervisedSession) -> None:
    """Lists, dictionaries and names that are built for each run lead to one plan."""
    one, two = tf.constant(1, name="one"), tf.constant(2)
    for key in "abc":
        assert sess.run({key: [one, (two,)], "n": "".join(["one", ":0"])}) == {key: [1, (2,)], "n": 1}
    assert len(_plans(sess)) == 1


def test_other_leaves_or_another_form_make_another_run(sess: SupervisedSession) -> None:
    """Structures that look alike are told apart: by their leaves, their form, and where in them a leaf is."""
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
    assert len(_plans(sess)) == len(cases)


def test_a_leaf_is_never_taken_for_another(sess: SupervisedSession) -> None:
    """Objects that live for one run only are not confused with later ones that Python puts in the same place."""
    names = [tf.constant(i, name=f"number{i}").name for i in range(3)]
    for i in range(60):
        number = i // 3 % 3
        assert sess.run([bytes(bytearray(names[number].encode()))]) == [number]


def test_a_leaf_that_changes_its_mind_gets_no_plan(sess: SupervisedSession) -> None:
    """An object that stands for another tensor each time is asked each time."""
    constants = [tf.constant(i) for i in range(100)]

    class Turning:
        def _as_graph_element(self) -> Any:
            return constants.pop()

    turning = Turning()
    fetched = [sess.run(turning) for _ in range(6)]
    assert len(set(fetched)) == 6
    assert len(_plans(sess)) == 0
    kept = weakref.ref(turning)
    del turning
    assert kept() is not None, "another object could take its identity, and be refused in its stead"


def test_plans_are_bounded(sess: SupervisedSession) -> None:
    """The plan that was not used for longest makes room for the next; what is run all the time keeps its plan."""
    constants = [tf.constant(i) for i in range(MAX_PLANS + 10)]
    often = tf.constant(-1)
    plan = _plan(sess, often)
    for i, constant in enumerate(constants):
        assert [sess.run(constant) for _ in range(3)] == [i] * 3
        sess.run(often)
    assert len(_plans(sess)) == MAX_PLANS
    assert _plans(sess).find(often, None) is plan
    assert _plans(sess).find(constants[0], None) is None
    assert [sess.run(constant) for constant in constants] == list(range(len(constants)))


def test_a_graph_that_grows_with_each_run_leaves_nothing(sess: SupervisedSession) -> None:
    """A program that makes new operations for each run, or fetches what has no plan, is not remembered."""
    plans = _plans(sess)
    for i in range(MAX_SEEN + 20):
        assert sess.run([tf.constant(i)]) == [i]
    for i in range(MAX_SEEN + 20):
        plans.remember(f"name{i}", None, 0.0)
        plans.find(f"name{i}", None)
    assert len(plans) == 0
    assert len(plans._seen) <= MAX_SEEN
    assert len(plans._refused) <= MAX_SEEN


def test_a_plan_holds_while_the_graph_grows(sess: SupervisedSession) -> None:
    """Operations that are added later change nothing for what has a plan, and can be run beside it."""
    fed = v1.placeholder(tf.float32, [])
    doubled = fed * 2.0
    plan = _plan(sess, doubled, {fed: 1.0})
    for i in range(5):
        later = doubled + float(i)
        assert sess.run(later, {fed: 2.0}) == 4.0 + i
        assert sess.run(doubled, {fed: 3.0}) == 6.0
    assert _plans(sess).find(doubled, {fed: 1.0}) is plan


def test_a_callable_is_made_when_it_has_paid_for_itself(sess: SupervisedSession) -> None:
    """A plan moves on after as many runs as would have paid for a callable; not before, and not where runs are long."""
    one = tf.constant(1)
    native = installed()
    assert native is not None

    def plan(first_secs: float) -> Plan:
        return Plan(native, sess.ungated(), RunAnalysis(sess.graph), one, [], first_secs)

    quick, slow, costly = plan(0.0), plan(0.0), plan(200 * plan_module.SAVED_SECS)
    for _ in range(plan_module.MIN_RUNS - 1):
        quick.ran(1.0, 1.0)
    assert not quick.has_callable
    quick.ran(1.0, 1.0)
    assert quick.has_callable
    assert [quick.results(one, quick.run(())) for _ in range(3)] == [1] * 3
    for _ in range(1000):
        slow.ran(1.0, 1.0 + 2 * plan_module.QUICK_SECS)
    assert not slow.has_callable
    for _ in range(199):
        costly.ran(1.0, 1.0)
    assert not costly.has_callable
    costly.ran(1.0, 1.0)
    assert costly.has_callable


def test_callables_are_made_only_where_they_cannot_be_told_apart(graph: Any) -> None:
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


def test_callables_are_released_with_their_plan(graph: Any) -> None:
    """A plan runs by its callable and gives it back with itself; after the session is closed nothing is given back."""
    native = installed()
    assert native is not None
    run: list[int] = []
    released: list[int] = []

    def run_callable(c_session: Any, handle: int, arrays: Any, metadata: Any) -> Any:
        run.append(handle)
        return native.run_callable(c_session, handle, arrays, metadata)

    def release(c_session: Any, handle: int) -> None:
        released.append(handle)
        native.release_callable(c_session, handle)

    counting = dataclasses.replace(native, run_callable=run_callable, release_callable=release)
    one = tf.constant(1)
    with v1.Session() as plain:
        plans = [Plan(counting, plain, RunAnalysis(graph), one, []) for _ in range(2)]
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


def test_a_callable_that_cannot_be_made_changes_nothing(graph: Any) -> None:
    """Where TensorFlow refuses to make one, the plan goes on as before."""
    native = installed()
    assert native is not None

    def refuse(c_session: Any, options: bytes) -> int:
        raise tf.errors.UnimplementedError(None, None, "not here")

    one = tf.constant(1)
    with v1.Session() as plain:
        refusing = dataclasses.replace(native, make_callable=refuse)
        plan = Plan(refusing, plain, RunAnalysis(graph), one, [])
        plan.make_callable()
        assert not plan.has_callable
        assert plan.results(one, plan.run(())) == 1


def test_a_session_elsewhere_is_planned_without_callables(graph: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs on a server go by plans too, with the same results and errors, and without callables."""
    monkeypatch.setattr(plan_module, "MIN_RUNS", 1)
    monkeypatch.setattr(plan_module, "SAVED_SECS", math.inf)
    monkeypatch.setattr(plan_module, "QUICK_SECS", math.inf)
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
            messages.append(caught.value.message)
        assert messages[0] == messages[1]
        plan = _plans(sess).find(checked, {fed: 1.0})
        assert plan is not None
        assert not plan.has_callable


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


def test_a_run_method_put_in_its_place_is_used(sess: SupervisedSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """A profiler that replaces Session.run sees every run, of what has a plan, too."""
    one = tf.constant(1)
    _plan(sess, one)
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


def test_fetches_that_are_taught_are_learnt(sess: SupervisedSession) -> None:
    """A conversion that is registered for a type of fetches is used from then on, whether or not they have plans."""
    one = tf.constant(1)
    _plan(sess, one)
    entry = (tf.Tensor, lambda fetch: ([fetch], lambda values: ("seen", values[0])), None, None)
    client._REGISTERED_EXPANSIONS.insert(0, entry)
    try:
        assert [sess.run(one) for _ in range(3)] == [("seen", 1)] * 3
        later = SupervisedSession.around(sess)
        assert [later.run(one) for _ in range(3)] == [("seen", 1)] * 3
    finally:
        client._REGISTERED_EXPANSIONS.remove(entry)
    assert sess.run(one) == 1


def test_what_is_forbidden_later_is_refused(sess: SupervisedSession) -> None:
    """Operations that may no longer be fetched, and tensors that may no longer be fed, are refused with a plan, too."""
    fed, other = tf.constant(1.0, name="fed"), tf.constant(1.0)
    doubled = fed * 2.0
    plan = _plan(sess, doubled, {fed: 2.0})
    sess.graph.prevent_feeding(other)
    sess.graph.prevent_fetching(other.op)
    assert sess.run(doubled, {fed: 3.0}) == 6.0
    assert _plans(sess).find(doubled, {fed: 2.0}) is plan
    sess.graph.prevent_feeding(fed)
    with pytest.raises(ValueError, match="Tensor fed:0 may not be fed"):
        sess.run(doubled, {fed: 3.0})
    assert [sess.run(doubled) for _ in range(3)] == [2.0] * 3
    sess.graph.prevent_fetching(doubled.op)
    with pytest.raises(errors.InaccessibleTensorError):
        sess.run(doubled)


def test_a_shape_that_is_refined_later_counts(sess: SupervisedSession) -> None:
    """A placeholder whose static shape is narrowed after it had a plan refuses what no longer fits."""
    fed = v1.placeholder(tf.float32, [None], name="fed")
    total = tf.reduce_sum(fed)
    _plan(sess, total, {fed: [1.0, 2.0]})
    fed.set_shape([3])
    with pytest.raises(ValueError, match=r"Cannot feed value of shape \(2,\) for Tensor fed:0"):
        sess.run(total, {fed: [1.0, 2.0]})
    assert sess.run(total, {fed: [1.0, 2.0, 3.0]}) == 6.0


def test_a_graph_that_was_taken_apart_is_empty() -> None:
    """After its graph was dismantled, a session says what it always said then."""
    graph = tf.Graph()
    with graph.as_default():
        one = tf.constant(1)
        with SupervisedSession() as sess:
            _plan(sess, one)
            ops.dismantle_graph(graph)
            with pytest.raises(RuntimeError, match="The Session graph is empty"):
                sess.run(one)


def test_a_plan_survives_its_errors(sess: SupervisedSession) -> None:
    """After a run that failed, the same plan goes on."""
    fed = v1.placeholder(tf.float32, [])
    checked = v1.check_numerics(fed, "not finite")
    plan = _plan(sess, checked, {fed: 1.0})
    for made in (False, True):
        if made:
            plan.make_callable()
        assert plan.has_callable is made
        for _ in range(3):
            with pytest.raises(tf.errors.InvalidArgumentError, match="not finite") as caught:
                sess.run(checked, {fed: math.nan})
            assert caught.value.op is checked.op
            assert sess.run(checked, {fed: 1.0}) == 1.0
    assert _plans(sess).find(checked, {fed: 1.0}) is plan


def test_fed_arrays_are_not_kept(sess: SupervisedSession) -> None:
    """What was fed may be changed or freed once the run is over; the result is the caller's own."""
    fed = v1.placeholder(tf.float32, [None])
    same = tf.identity(fed)
    array = np.ones(100_000, np.float32)
    _plan(sess, same, {fed: array})
    result = sess.run(same, {fed: array})
    array[:] = 2.0
    assert (result == 1.0).all()
    result[:] = 3.0
    assert (array == 2.0).all()
    assert (sess.run(same, {fed: array}) == 2.0).all()
