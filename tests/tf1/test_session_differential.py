"""Whatever it is given, a supervised session answers as ``tf.compat.v1.Session`` does, at first and every time."""

from __future__ import annotations

import math
import re
import warnings
from collections import OrderedDict, defaultdict, namedtuple
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.ops import session_ops

from supervisor_core.tf1 import run_cache
from supervisor_core.tf1.session import SupervisedSession

v1 = tf.compat.v1
# numpy and TensorFlow warn of some of these inputs, in either session.
pytestmark = pytest.mark.filterwarnings("ignore")

Pair = namedtuple("Pair", ["left", "right"])


class OwnList(list):  # type: ignore[type-arg]
    pass


class OwnDict(dict):  # type: ignore[type-arg]
    pass


class AttrsLike:
    """What the attrs library makes of a class, as far as Session.run looks."""

    __attrs_attrs__ = (SimpleNamespace(name="left"), SimpleNamespace(name="right"))

    def __init__(self, left: Any, right: Any) -> None:
        self.left, self.right = left, right


class FloatArray(np.ndarray):
    pass


def _build(resource: bool) -> SimpleNamespace:
    """A graph with something of everything."""
    n = SimpleNamespace()
    n.graph = tf.Graph()
    with tf.Graph().as_default():
        n.stranger = tf.constant(1.0, name="stranger")
    with n.graph.as_default():
        n.step = v1.Variable(0, name="global_step", dtype=tf.int64, use_resource=resource, trainable=False)
        n.x = v1.placeholder(tf.float32, [None, 2], name="x")
        n.rate = v1.placeholder(tf.float32, [], name="rate")
        n.any = v1.placeholder(tf.float32, None, name="any")
        n.i8 = v1.placeholder(tf.int8, None, name="i8")
        n.i32 = v1.placeholder(tf.int32, [None], name="i32")
        n.i64 = v1.placeholder(tf.int64, [], name="i64")
        n.u8 = v1.placeholder(tf.uint8, None, name="u8")
        n.flag = v1.placeholder(tf.bool, None, name="flag")
        n.text = v1.placeholder(tf.string, None, name="text")
        n.half = v1.placeholder(tf.float16, None, name="half")
        n.brain = v1.placeholder(tf.bfloat16, None, name="brain")
        n.complex = v1.placeholder(tf.complex64, None, name="complex")
        n.w = v1.get_variable("w", [2, 1], initializer=v1.constant_initializer(0.5), use_resource=resource)
        n.unset = v1.get_variable("unset", [2], use_resource=resource)
        n.loss = tf.reduce_mean(tf.square(n.x @ n.w - 1.0), name="loss")
        n.train = v1.train.GradientDescentOptimizer(0.01).minimize(n.loss, global_step=n.step, name="train")
        n.increment = v1.assign_add(n.step, 1)
        n.increment_op = n.increment.op
        n.scaled = n.rate * 2.0
        n.constant = tf.constant(3.0, name="constant")
        n.vector = tf.constant([1.0, 2.0], name="vector")
        n.empty = tf.zeros([0, 3])
        n.big = tf.ones([200, 300])
        n.string = tf.constant(b"a\x00b\xff")
        n.strings = tf.constant([["x", "yy"]])
        n.sparse = tf.sparse.from_dense([[1.0, 0.0, 2.0]])
        n.sparse_fed = v1.sparse_placeholder(tf.float32, name="sparse_fed")
        n.sparse_sum = v1.sparse_reduce_sum(n.sparse_fed)
        n.slices = tf.IndexedSlices(n.vector, tf.constant([0, 1]))
        n.ragged = tf.ragged.constant([[1], [2, 3]])
        n.random = v1.random_uniform([3], seed=7)
        n.handle = session_ops.get_session_handle(n.vector)
        n.handle_fed, n.from_handle = session_ops.get_session_tensor("", tf.float32)
        n.off, n.on = v1.raw_ops.Switch(data=n.constant, pred=n.flag)
        n.off, n.on = n.off + 1.0, n.on + 1.0
        n.check = v1.assert_less(n.rate, 10.0, name="check")
        with tf.control_dependencies([n.check]):
            n.checked = tf.identity(n.rate)
        n.division = tf.raw_ops.Div(x=n.i32, y=tf.constant([0]))
        n.queue = v1.FIFOQueue(2, tf.float32, shapes=[[]])
        n.enqueue, n.dequeue, n.close_queue = n.queue.enqueue(n.rate), n.queue.dequeue(), n.queue.close()
        n.python = v1.py_func(_fail, [n.rate], tf.float32)
        n.function = tf.function(lambda value: tf.random.uniform([], seed=3) + value)(n.constant)
        n.conditional = v1.cond(n.rate > 1.0, lambda: n.rate + 1.0, lambda: n.rate - 1.0)
        n.group = tf.group(n.increment_op, n.check)
        n.unfetchable, n.unfeedable = tf.identity(n.constant), tf.identity(n.constant)
        n.graph.prevent_fetching(n.unfetchable.op)
        n.graph.prevent_feeding(n.unfeedable)
        n.init = tf.group(n.step.initializer, n.w.initializer)
    return n


def _fail(rate: Any) -> Any:
    if rate > 5:
        raise ValueError(f"the rate is {rate}")
    return rate


def _x(rows: int = 2) -> Any:
    return np.arange(2.0 * rows, dtype=np.float32).reshape(rows, 2)


Run = tuple[Any, ...]
"""The arguments of one run."""

FETCHES: dict[str, Callable[[Any], Any]] = {
    "operation": lambda n: n.increment_op,
    "tensor": lambda n: n.constant,
    "assigned": lambda n: n.increment,
    "variable": lambda n: n.w,
    "variables": lambda n: [n.step, n.w],
    "unset variable": lambda n: n.unset,
    "list": lambda n: [n.constant, n.increment_op, n.vector],
    "list of one operation": lambda n: [n.increment_op],
    "list of one tensor": lambda n: [n.vector],
    "tuple": lambda n: (n.vector, n.constant),
    "tuple of one": lambda n: (n.increment,),
    "the same twice": lambda n: [n.vector, n.vector, n.increment_op, n.increment_op],
    "dict": lambda n: {"a": n.constant, "op": n.increment_op},
    "dict with odd keys": lambda n: {1: n.constant, None: n.vector, n.constant: n.increment_op, "x": "constant:0"},
    "ordered dict": lambda n: OrderedDict([("z", n.constant), ("a", n.vector)]),
    "default dict": lambda n: defaultdict(list, {"a": n.constant}),
    "own dict": lambda n: OwnDict(a=n.constant),
    "own list": lambda n: OwnList([n.constant]),
    "named tuple": lambda n: Pair(n.constant, n.increment_op),
    "attrs": lambda n: AttrsLike(n.constant, n.increment_op),
    "nested": lambda n: {"k": Pair(n.constant, [n.vector, n.increment_op]), "l": [[n.vector], (), {}]},
    "deep": lambda n: [[[[n.constant]]], ((n.increment_op,),)],
    "tensor's name": lambda n: "constant:0",
    "operation's name": lambda n: n.increment_op.name,
    "names": lambda n: ["constant:0", n.vector, "vector:0"],
    "names made each time": lambda n: ["".join(["const", "ant:0"])],
    "bytes name": lambda n: b"constant:0",
    "sparse": lambda n: n.sparse,
    "sparse in a list": lambda n: [n.sparse, n.constant],
    "slices": lambda n: n.slices,
    "ragged": lambda n: n.ragged,
    "string": lambda n: n.string,
    "strings": lambda n: n.strings,
    "empty": lambda n: n.empty,
    "big": lambda n: n.big,
    "random": lambda n: [n.random, n.function],
    "function": lambda n: n.function,
    "handle": lambda n: n.handle,
    "no list": lambda n: [],
    "no tuple": lambda n: (),
    "no dict": lambda n: {},
    "None": lambda n: None,
    "None in a list": lambda n: [n.constant, None],
    "number": lambda n: 3,
    "object": lambda n: [n.constant, object],
    "unknown name": lambda n: "nothing:0",
    "unknown operation": lambda n: "nothing",
    "no name": lambda n: "constant:zero",
    "no such output": lambda n: "constant:7",
    "stranger": lambda n: n.stranger,
    "array": lambda n: np.zeros(2),
    "unfetchable": lambda n: n.unfetchable,
    "unfetchable operation": lambda n: [n.unfetchable.op],
    "unfed": lambda n: n.loss,
    "unfed step": lambda n: [n.train, n.loss],
    "a set": lambda n: {n.constant.name, n.vector.name},
    "reference": lambda n: [n.w_reference, n.w_value],
}

FEEDS: dict[str, Callable[[Any], list[Run]]] = {
    "step": lambda n: [([n.train, n.loss], {n.x: _x()})] * 4,
    "shapes": lambda n: [(n.loss, {n.x: _x(rows)}) for rows in (1, 2, 2, 3, 1, 0, 2)],
    "wrong shape": lambda n: [
        (n.loss, {n.x: v}) for v in (_x(), _x(), np.zeros([2, 3], "f4"), _x(), np.zeros(2, "f4"))
    ],
    "no rank": lambda n: [(n.any, {n.x: _x(), n.any: v}) for v in (1.0, [1.0], [[1.0]], 2)],
    "other dtype": lambda n: [
        (n.loss, {n.x: _x().astype(t)}) for t in ("f4", "f4", "f8", "i8", "f2", "?", ">f4", "c8")
    ],
    "other order": lambda n: [(n.loss, {n.x: v}) for v in (_x(), np.asfortranarray(_x(3)), _x(6)[::2], _x(3)[:, ::-1])],
    "subclass": lambda n: [(n.loss, {n.x: v}) for v in (_x(), _x().view(FloatArray), np.ma.masked_array(_x()))],
    "read only": lambda n: [(n.loss, {n.x: np.broadcast_to(np.float32(1), (3, 2))})] * 4,
    "lists": lambda n: [
        (n.loss, {n.x: v}) for v in ([[1, 2]], [[1, 2]], ((1.0, 2.0),), [_x()[0], _x()[1]], [[True, 2]])
    ],
    "ragged lists": lambda n: [(n.loss, {n.x: v}) for v in ([[1, 2]], [[1, 2]], [[1], [2, 3]], [[1, 2]], [], [[]])],
    "floats": lambda n: [
        (n.scaled, {n.rate: v}) for v in (0.1, 0.1, 1, True, np.float64(0.1), np.int8(3), math.inf, 1e300)
    ],
    "not floats": lambda n: [
        (n.scaled, {n.rate: v}) for v in (1.0, 1.0, None, "a", b"1", "1.5", object(), {}, 1j, [1], [])
    ],
    "big ints in floats": lambda n: [
        (n.scaled, {n.rate: v}) for v in (1, 1, 2048, 2049, 2**24 + 1, 2**60 + 1, 10**30, 10**400, -(2**25) - 1)
    ],
    "big ints": lambda n: [(n.i8_next, {n.i8: v}) for v in (1, 1, 127, 128, -128, -129, 256, 10**30)],
    "long ints": lambda n: [(n.i64_next, {n.i64: v}) for v in (1, 1, 2**63 - 1, 2**63, -1)],
    "int lists": lambda n: [
        (n.i32_next, {n.i32: v}) for v in ([1], [1], [2**31], [2**40], [1.7], ["1"], [None], [True])
    ],
    "unsigned": lambda n: [(n.u8_next, {n.u8: v}) for v in (1, 1, 255, 256, -1, 1.5, [300], np.int64(300))],
    "bools": lambda n: [
        ([n.not_flag], {n.flag: v}) for v in (True, True, 0, 1, 2, 0.5, "x", [], np.True_, [1, 0], None)
    ],
    "halves": lambda n: [(n.half_next, {n.half: v}) for v in (1, 1, 2047, 2049, 70000, 0.1, np.float16(2))],
    "brain floats": lambda n: [(n.brain_next, {n.brain: v}) for v in (1, 1, 255, 257, 0.1, np.float32(2))],
    "complex": lambda n: [(n.complex_next, {n.complex: v}) for v in (1, 1, 1j, 0.5, np.complex128(2), 10**30)],
    "text": lambda n: [
        (n.text_joined, {n.text: v})
        for v in (
            b"a",
            b"a",
            "é",
            ["a", b"b"],
            np.array(["a", "bc"]),
            np.array([b"a\x00"]),
            np.array(["a"], object),
            3,
            [1],
            None,
        )
    ],
    "missing": lambda n: [(n.loss, {n.rate: 1.0})] * 4,
    "missing at times": lambda n: [
        (n.loss, {n.x: _x()}),
        (n.loss, {n.x: _x()}),
        (n.loss,),
        (n.loss, {}),
        (n.loss, None),
    ],
    "in another order": lambda n: [
        ([n.loss, n.scaled], f) for f in ({n.x: _x(), n.rate: 1.0}, {n.rate: 2.0, n.x: _x(1)}) for _ in range(3)
    ],
    "by name": lambda n: [(n.loss, {"x:0": _x()})] * 4,
    "by name made each time": lambda n: [(n.loss, {"".join(["x", ":0"]): _x()}) for _ in range(4)],
    "by bytes name": lambda n: [(n.loss, {b"x:0": _x()})] * 3,
    "by unknown name": lambda n: [(n.loss, {"nothing:0": _x()})] * 3,
    "an operation": lambda n: [(n.loss, {n.x.op: _x()})] * 3,
    "an operation's name": lambda n: [(n.loss, {"x": _x()})] * 3,
    "a number": lambda n: [(n.loss, {3: _x()})] * 3,
    "a stranger": lambda n: [(n.loss, {n.stranger: 1.0, n.x: _x()})] * 3,
    "twice": lambda n: [(n.loss, {n.x: _x(1), "x:0": _x(2)})] * 4,
    "a tensor": lambda n: [(n.loss, {n.x: _x()})] * 3 + [(n.loss, {n.x: n.vector}), (n.loss, {n.x: [n.vector]})],
    "a variable as value": lambda n: [(n.scaled, {n.rate: 1.0})] * 3 + [(n.scaled, {n.rate: n.step})],
    "a variable": lambda n: [(n.w_sum, {n.w_value: [[1.0], [v]]}) for v in (1.0, 2.0, 3.0, 4.0)],
    "in the middle": lambda n: [(n.loss_next, {n.loss: 5.0})] * 4,
    "what is fetched": lambda n: [([n.x, n.loss], {n.x: _x()})] * 4,
    "what is fetched, only": lambda n: [(n.rate, {n.rate: v}) for v in (1, 1.5, [1], 2, 3)],
    "unfeedable": lambda n: [(n.unfeedable_next, {n.unfeedable: 1.0})] * 3,
    "sparse": lambda n: [(n.sparse_sum, {n.sparse_fed: v1.SparseTensorValue([[0]], [2.0], [1])})] * 4,
    "sparse tuple": lambda n: [(n.sparse_sum, {n.sparse_fed: ([[0]], [2.0], [1])})] * 4,
    "sparse, wrongly": lambda n: [(n.sparse_sum, {n.sparse_fed: 1.0})] * 3,
    "a tuple of tensors": lambda n: [([n.scaled, n.loss], {(n.rate, n.x): (2.0, _x())})] * 4,
    "a tuple, wrongly": lambda n: [([n.scaled, n.loss], {(n.rate, n.x): (2.0,)})] * 3,
    "ordered dict": lambda n: [(n.scaled, OrderedDict([(n.rate, 1.0)]))] * 4,
    "own dict": lambda n: [(n.scaled, OwnDict({n.rate: 1.0}))] * 4,
    "no dict": lambda n: (
        [(n.constant, f) for f in ([], (), 0, "", False)]
        + [(n.constant, [1]), (n.constant, 1), (n.constant, np.zeros(2))]
    ),
    "dead": lambda n: [(n.on, {n.flag: v}) for v in (True, True, True, False, True, False)],
    "dead in a list": lambda n: [([n.on, n.off], {n.flag: True})] * 4,
    "failing": lambda n: [(n.checked, {n.rate: v}) for v in (1.0, 1.0, 20.0, 1.0, 30.0, 20.0, 1.0)],
    "failing operation": lambda n: [(n.group, {n.rate: v}) for v in (1.0, 1.0, 20.0, 1.0)],
    "failing kernel": lambda n: [(n.division, {n.i32: [v]}) for v in (1, 2, 3)],
    "failing python": lambda n: [(n.python, {n.rate: v}) for v in (1.0, 1.0, 6.0, 2.0)],
    "failing shapes": lambda n: [
        (n.matmul, {n.any: v}) for v in (_x(), _x(), np.ones([3, 3], "f4"), _x(), np.ones(2, "f4"))
    ],
    "failing numbers": lambda n: [([n.finite], {n.rate: v}) for v in (1.0, 1.0, math.inf, 1.0, math.nan, 1.0)],
    "failing sum": lambda n: [(n.matmul_sum, {n.any: v}) for v in (_x(), _x(), np.ones([3, 3], "f4"), _x(), 5.0)],
    "conditional": lambda n: [([n.conditional, n.increment_op], {n.rate: v}) for v in (0.5, 1.5, 0.5, 1.5)],
    "queue": lambda n: [(n.enqueue, {n.rate: 1.0}), (n.dequeue,)] * 4,
    "closed queue": lambda n: [
        (n.enqueue, {n.rate: 1.0}),
        (n.close_queue,),
        (n.dequeue,),
        (n.dequeue,),
        (n.dequeue,),
        (n.enqueue, {n.rate: 1.0}),
    ],
    "options": lambda n: [(n.loss, {n.x: _x()}, v1.RunOptions(timeout_in_ms=60_000))] * 4,
    "no options": lambda n: [(n.constant, None, v) for v in (0, {}, "options", 5)],
    "timeout": lambda n: [(n.dequeue, None, v1.RunOptions(timeout_in_ms=5))] * 2 + [(n.constant,)] * 3,
    "metadata": lambda n: (
        [(n.constant, None, v1.RunOptions(trace_level=1), v1.RunMetadata())] * 2 + [(n.constant,)] * 3
    ),
    "metadata only": lambda n: [(n.constant, None, None, v1.RunMetadata())] * 3,
}


def _more(n: SimpleNamespace) -> None:
    """What the feeds' table needs on top."""
    with n.graph.as_default():
        n.i8_next = tf.bitwise.invert(n.i8)
        n.i64_next, n.i32_next, n.u8_next = tf.add(n.i64, 0), tf.add(n.i32, 0), tf.bitwise.invert(n.u8)
        n.not_flag, n.half_next, n.brain_next = tf.logical_not(n.flag), n.half * 2, n.brain * 2
        n.complex_next, n.text_joined = n.complex * 2, tf.strings.join([n.text, "!"])
        n.w_value, n.loss_next = n.w.value(), n.loss + 1.0
        n.w_sum = tf.reduce_sum(n.w_value)
        n.w_reference = n.w_value if n.resource else n.w.op.outputs[0]
        n.finite = v1.check_numerics(n.rate, "not finite")
        n.unfeedable_next, n.matmul = n.unfeedable + 1.0, tf.matmul(n.any, n.any, transpose_b=True) @ [[1.0], [2.0]]
        n.matmul_sum = tf.reduce_sum(n.matmul)


@pytest.fixture(scope="module", params=[True, False], ids=["resource", "ref"])
def n(request: pytest.FixtureRequest) -> SimpleNamespace:
    """The graph, once with resource variables and once with refs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        built = _build(request.param)
        built.resource = request.param
        built.expected = {}
        _more(built)
        built.graph.finalize()
    return built


@pytest.fixture(params=["planned", "prepared"])
def promotion(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans keep to what Session.run calls; or move on to callables, wherever they may, after their first run."""
    if request.param == "prepared":
        monkeypatch.setattr(run_cache, "MIN_RUNS", 1)
        monkeypatch.setattr(run_cache, "SAVED_SECS", math.inf)
        monkeypatch.setattr(run_cache, "QUICK_SECS", math.inf)
    else:
        monkeypatch.setattr(run_cache, "MIN_RUNS", math.inf)


def described(value: Any) -> Any:
    """Everything about a result that a program could see, in a form that can be compared."""
    if isinstance(value, np.ndarray):
        flags = value.flags
        layout = (flags.writeable, flags.owndata, flags.c_contiguous, flags.f_contiguous, value.base is None)
        return (type(value), value.dtype, value.shape, repr(value.tolist()), layout)
    if isinstance(value, session_ops.TensorHandle):
        return (type(value), value._dtype)
    if isinstance(value, dict):
        return (type(value), [(repr(key), described(each)) for key, each in value.items()])
    if isinstance(value, (list, tuple)):
        return (type(value), [described(each) for each in value])
    if isinstance(value, AttrsLike):
        return (type(value), described(value.left), described(value.right))
    return (type(value), repr(value))


def outcome(call: Callable[..., Any], *args: Any) -> Any:
    """What a call returns or raises, described."""
    try:
        return described(call(*args))
    except tf.errors.OpError as error:
        op = None if error.op is None else error.op.name
        # Sessions number their queues from the first one in the process.
        texts = [re.sub(r"\b_\d+_fifo", "fifo", text) for text in (str(error), error.message)]
        return (type(error), texts, error.error_code, op, str(error.node_def))
    except Exception as error:
        return (type(error), str(error), error.args and str(error.args))


def answers(sess: Any, n: SimpleNamespace, runs: list[Run]) -> list[Any]:
    """What comes of each run in a session, and what is left in the variables."""
    with sess:
        sess.run(n.init)
        return [*(outcome(sess.run, *run) for run in runs), outcome(sess.run, [n.step, n.w])]


def differing(n: SimpleNamespace, runs_of: dict[str, Callable[[], list[Run]]]) -> list[str]:
    """Run the same in both kinds of session; return the names of what has other results.

    TensorFlow's has no promotion: it answers once for both.
    """
    config, found = v1.ConfigProto(inter_op_parallelism_threads=1, intra_op_parallelism_threads=1), []
    for name, make in runs_of.items():
        if name not in n.expected:
            runs = make()
            n.expected[name] = (runs, answers(v1.Session(graph=n.graph, config=config), n, runs))
        runs, expected = n.expected[name]
        if answers(SupervisedSession(graph=n.graph, config=config, global_step=n.step), n, runs) != expected:
            found.append(name)
    return found


@pytest.mark.usefixtures("promotion")
def test_every_kind_of_fetch(n: SimpleNamespace) -> None:
    """Each kind of fetch gives the same results and the same errors, however often it is run."""
    fetches = {
        f"fetch {name}": partial(lambda make: [(make(n),) for _ in range(5)], make) for name, make in FETCHES.items()
    }
    assert differing(n, fetches) == []


@pytest.mark.usefixtures("promotion")
def test_every_kind_of_feed(n: SimpleNamespace) -> None:
    """Each kind of feed and option gives the same results and the same errors, with and without a plan."""
    assert differing(n, {f"feed {name}": partial(lambda make: make(n) * 2, make) for name, make in FEEDS.items()}) == []
