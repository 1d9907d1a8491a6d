"""One moment of a model, put aside and written: every kind of variable, every type, every saver."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from supervisor_core.checkpoint import blocks, bundle
from supervisor_core.tf1.snapshot import Snapshot

v1 = tf.compat.v1

NUMBERS = (
    tf.bfloat16, tf.complex64, tf.complex128, tf.float32, tf.float64, tf.half, tf.int8, tf.int16, tf.int32, tf.int64,
    tf.uint8, tf.uint16, tf.uint32, tf.uint64,
)  # fmt: skip


@pytest.fixture(params=["resource", "ref"])
def resource(request: pytest.FixtureRequest) -> bool:
    """Whether variables are resource variables."""
    return bool(request.param == "resource")


@pytest.fixture(params=["from memory", "by the saver process", "by TensorFlow"])
def writer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What writes where each can."""
    monkeypatch.setattr(Snapshot, "writes_from_memory", request.param != "by TensorFlow")
    monkeypatch.setattr(blocks, "MIN_BYTES", 1 if request.param == "by the saver process" else 1 << 40)
    return str(request.param)


@pytest.fixture
def new_session(graph: Any) -> Iterator[Callable[..., Any]]:
    """Returns a function that launches the graph, with two CPU devices, and initialises its variables."""
    opened = []

    def launch(target: str = "") -> Any:
        session = v1.Session(target, graph=graph, config=v1.ConfigProto(device_count={"CPU": 2}))
        opened.append(session)
        session.run(graph.get_collection("init"))
        return session

    yield launch
    for session in opened:
        session.close()


def build(graph: Any, saver: Any, global_step: Any = None) -> Snapshot:
    """Add initialisers; return a snapshot of what the saver saves."""
    graph.add_to_collection("init", v1.global_variables_initializer())
    graph.add_to_collection("init", v1.tables_initializer())
    return Snapshot(graph, saver, global_step, blocks.BlockWriter(has_process=True))


def take(snapshot: Snapshot, session: Any) -> int | None:
    """Put the present moment aside; return its step."""
    assert snapshot.bind(session)
    snapshot.prepare()
    return snapshot.take()


def value_of(dtype: Any, shape: tuple[int, ...], start: int = 1) -> np.ndarray[Any, Any]:
    """Values of a type and shape, none like the other where the type has as many."""
    count = int(np.prod(shape))
    if dtype == tf.string:
        return np.array([f"text {start + index}" * 20 for index in range(count)], object).reshape(shape)
    return (np.arange(start, start + count).reshape(shape) % 2 if dtype == tf.bool else
            np.arange(start, start + count).reshape(shape)).astype(dtype.as_numpy_dtype)  # fmt: skip


@pytest.mark.parametrize("dtypes", [(*NUMBERS, tf.bool), (tf.string,)], ids=["numbers", "text"])
def test_what_is_written_is_the_moment_of_the_snapshot(
    graph: Any, new_session: Any, tmp_path: Path, resource: bool, writer: str, dtypes: tuple[Any, ...]
) -> None:
    """Whatever happens to a variable after the snapshot, its file holds the value of the snapshot, of every type."""
    shapes: list[tuple[int, ...]] = [(), (5,), (3, 4), (0, 2)]
    then = [(dtype, value_of(dtype, shape)) for dtype in dtypes for shape in shapes]
    variables = [
        v1.Variable(value, dtype=dtype, name=f"{dtype.name}_{number}", use_resource=resource)
        for number, (dtype, value) in enumerate(then)
    ]
    saver = v1.train.Saver()
    later = [v1.assign(variables[n], value_of(each, value.shape, start=50)) for n, (each, value) in enumerate(then)]
    snapshot = build(graph, saver)
    session = new_session()
    take(snapshot, session)
    session.run([item.op for item in later])
    prefix = str(tmp_path / "model.ckpt")
    snapshot.write(prefix)
    saver.restore(session, prefix)
    for (dtype, value), restored in zip(then, session.run(variables), strict=True):
        np.testing.assert_array_equal(restored, value.astype("S") if dtype == tf.string else value)
    bundle.verify(prefix)


def test_updates_in_place_do_not_reach_the_snapshot(
    graph: Any, new_session: Any, tmp_path: Path, resource: bool, writer: str
) -> None:
    """Dense and sparse updates, which write into a variable's buffer, leave what was put aside as it was."""
    dense = v1.get_variable("dense", [1000], initializer=v1.ones_initializer(), use_resource=resource)
    rows = v1.get_variable("rows", [1000, 2], initializer=v1.ones_initializer(), use_resource=resource)
    saver = v1.train.Saver()
    update = tf.group(v1.assign_add(dense, tf.ones([1000])), v1.scatter_add(rows, [7, 8], tf.ones([2, 2])))
    snapshot = build(graph, saver)
    session = new_session()
    for expected in (2.0, 4.0):
        session.run(update)
        take(snapshot, session)
        session.run(update)
        snapshot.write(str(tmp_path / "model.ckpt"))
        snapshot.drop()
        reader = tf.train.load_checkpoint(str(tmp_path / "model.ckpt"))
        np.testing.assert_array_equal(reader.get_tensor("dense"), np.full(1000, expected))
        np.testing.assert_array_equal(reader.get_tensor("rows")[6:9, 0], [1.0, expected, expected])


def make_saver(kind: str, model: list[Any]) -> Any:
    """A saver made in this way, of the model where the way takes a list."""
    by_name = {f"renamed/{variable.op.name}": variable for variable in model}
    if kind == "imported":
        return v1.train.Saver(saver_def=v1.train.Saver(sharded=True).saver_def)
    return {
        "default": lambda: v1.train.Saver(),
        "list": lambda: v1.train.Saver(model),
        "dictionary": lambda: v1.train.Saver(by_name),
        "sharded": lambda: v1.train.Saver(sharded=True),
        "sequential": lambda: v1.train.Saver(restore_sequentially=True, sharded=True),
    }[kind]()


@pytest.mark.usefixtures("writer")
@pytest.mark.parametrize("kind", ["default", "list", "dictionary", "sharded", "sequential", "imported"])
def test_the_saver_restores_what_a_snapshot_writes(
    graph: Any, new_session: Any, tmp_path: Path, resource: bool, kind: str
) -> None:
    """However a saver was made, its own restore reads what is written: partitions, shards and tables too."""
    plain = v1.get_variable("plain", [6], initializer=v1.ones_initializer(), use_resource=resource)
    with tf.device("/device:CPU:1"):
        other = v1.get_variable("other", [6], initializer=v1.ones_initializer(), use_resource=resource)
    parts = v1.get_variable(
        "parts", [4, 3], partitioner=v1.fixed_size_partitioner(2), initializer=v1.ones_initializer(),
        use_resource=resource,
    )  # fmt: skip
    model = [plain, other, *parts]
    step = v1.get_variable("global_step", [], tf.int64, initializer=v1.zeros_initializer(), use_resource=resource)
    table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1, name="table")
    saver = make_saver(kind, model)
    change = [v1.assign_add(variable, tf.ones_like(variable)).op for variable in model]
    change += [v1.assign_add(step, 1).op, table.insert(["word"], tf.cast(step, tf.int64)[None])]
    read = [*model, step, *table.export()]
    snapshot = build(graph, saver, step)
    session = new_session()
    for operation in change:
        session.run(operation)
    assert take(snapshot, session) == 1
    then = session.run(read)
    session.run(change)
    prefix = str(tmp_path / "model.ckpt-1")
    snapshot.write(prefix)
    snapshot.drop()
    bundle.verify(prefix)
    assert not list(tmp_path.glob("*_temp*"))
    saver.restore(session, prefix)
    whole = kind not in ("list", "dictionary")
    for before, after in list(zip(then, session.run(read), strict=True))[: None if whole else len(model)]:
        np.testing.assert_array_equal(before, after)


def test_quantized_variables_are_saved(graph: Any, new_session: Any, tmp_path: Path, resource: bool) -> None:
    """Types that TensorFlow cannot copy by itself are saved all the same."""
    v1.Variable(tf.bitcast(tf.constant([1, 2], tf.int8), tf.qint8), name="quantized", use_resource=resource)
    snapshot = build(graph, v1.train.Saver())
    take(snapshot, new_session())
    snapshot.write(str(tmp_path / "model.ckpt"))
    bundle.verify(tmp_path / "model.ckpt")
    assert tf.train.load_checkpoint(str(tmp_path / "model.ckpt")).get_tensor("quantized").tolist() == [1, 2]


def test_a_snapshot_that_fails_holds_nothing(graph: Any, new_session: Any, writer: str) -> None:
    """A variable without a value fails the snapshot as it fails a save; the next one works."""
    v1.get_variable("a", [10], use_resource=True)
    late = v1.Variable(tf.ones([3]), name="late", use_resource=False, collections=["late"])
    saver = v1.train.Saver([*v1.global_variables(), late])
    snapshot = build(graph, saver)
    session = new_session()
    with pytest.raises(tf.errors.FailedPreconditionError, match="late"):
        take(snapshot, session)
    snapshot.drop()
    session.run(late.initializer)
    take(snapshot, session)
    snapshot.drop()
