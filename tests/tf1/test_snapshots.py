"""One moment of a model, put aside and written: every kind of variable, every type, every saver."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from supervisor_core.checkpoint import bundle
from supervisor_core.engine.step_lock import StepLock
from supervisor_core.tf1.saver_graph import CannotSnapshot
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


@pytest.fixture(params=["from memory", "by TensorFlow"])
def writer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What writes where both can."""
    monkeypatch.setattr(Snapshot, "writes_from_memory", request.param == "from memory")
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
    return Snapshot(graph, saver, global_step)


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


def test_a_ref_variable_of_another_shape_each_time(graph: Any, new_session: Any, tmp_path: Path, writer: str) -> None:
    """A variable whose shape is not checked is put aside with the shape that it has."""
    variable = v1.Variable([1.0], validate_shape=False, name="v", use_resource=False, shape=None)
    saver = v1.train.Saver()
    longer = v1.assign(variable, [1.0, 2.0, 3.0], validate_shape=False)
    snapshot = build(graph, saver)
    session = new_session()
    for expected in ([1.0], [1.0, 2.0, 3.0]):
        take(snapshot, session)
        snapshot.write(str(tmp_path / "model.ckpt"))
        snapshot.drop()
        assert tf.train.load_checkpoint(str(tmp_path / "model.ckpt")).get_tensor("v").tolist() == expected
        session.run(longer.op)


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
    assert snapshot.step_name == ("global_step" if whole else None)


def global_steps() -> dict[str, Any]:
    """Every kind of global step that there is: the name it is saved under, and the step."""

    def new(name: str, start: Any = 7, dtype: Any = tf.int64, *, resource: bool = True) -> Any:
        return v1.get_variable(name, initializer=tf.constant(start, dtype), use_resource=resource)

    return {
        "ref": new("ref", resource=False),
        "resource": new("resource"),
        "int32": new("int32", dtype=tf.int32),
        "rank_1": new("rank_1", [7]),
        "rank_1_ref": new("rank_1_ref", [7], resource=False),
        "read": tf.identity(new("read")),
        "computed": new("computed", 6) + 1,
        "name": new("name", resource=False).name,
    }


def test_the_step_is_read_whatever_it_is_made_of(graph: Any, new_session: Any) -> None:
    """The global step of a snapshot is an int, from variables, tensors and names, of rank 0 or 1, saved or not."""
    other = v1.get_variable("other", [2])
    steps = global_steps()
    savers = {True: v1.train.Saver(), False: v1.train.Saver([other])}
    graph.add_to_collection("init", v1.global_variables_initializer())
    session = new_session()
    for name, step in steps.items():
        for saved, saver in savers.items():
            snapshot = Snapshot(graph, saver, step)
            assert take(snapshot, session) == 7, name
            snapshot.drop()
            assert snapshot.step_name == (name if saved and name != "computed" else None)


def test_a_snapshot_between_steps_never_mixes_them(graph: Any, new_session: Any, tmp_path: Path, writer: str) -> None:
    """Of 30 checkpoints taken while another thread trains as fast as it can, each holds one step in all its values."""
    variables = [
        v1.get_variable(f"v{number}", [50_000], tf.int64, initializer=v1.zeros_initializer(), use_resource=number < 2)
        for number in range(4)
    ]
    train = tf.group(*[v1.assign_add(variable, tf.ones([50_000], tf.int64)) for variable in variables])
    snapshot = build(graph, v1.train.Saver(), variables[0][0])
    session, step_lock, stop = new_session(), StepLock(), threading.Event()
    step = session.make_callable(train)

    def loop() -> None:
        while not stop.is_set():
            step_lock.acquire_shared()
            step()
            step_lock.release_shared()

    thread = threading.Thread(target=loop)
    thread.start()
    steps = []
    try:
        snapshot.bind(session)
        for number in range(30):
            snapshot.prepare()
            with step_lock.exclusive(60.0) as held:
                taken = snapshot.take()
            assert held.consistent
            prefix = str(tmp_path / f"model.ckpt-{number}")
            snapshot.write(prefix)
            snapshot.drop()
            reader = tf.train.load_checkpoint(prefix)
            held_values = {int(item) for name in range(4) for item in np.unique(reader.get_tensor(f"v{name}"))}
            assert held_values == {taken}
            steps.append(taken)
    finally:
        stop.set()
        thread.join()
    assert steps == sorted(steps) and steps[-1] > steps[0]


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


def test_the_graph_stays_as_it_is(graph: Any, new_session: Any, tmp_path: Path, resource: bool, writer: str) -> None:
    """A finalized graph will do: from the first snapshot to the last file nothing is added to it."""
    v1.get_variable("a", [10], use_resource=resource), v1.get_variable("words", initializer=tf.constant(["a"]))
    step = v1.get_variable("step", [], tf.int64, initializer=v1.ones_initializer(), use_resource=resource)
    saver = v1.train.Saver(sharded=True)
    graph.add_to_collection("init", v1.global_variables_initializer())
    graph.add_to_collection("init", tf.no_op())
    graph.finalize()
    before, version = graph.as_graph_def(), graph.version
    snapshot = Snapshot(graph, saver, step)
    take(snapshot, new_session())
    snapshot.write(str(tmp_path / "model.ckpt"))
    snapshot.drop()
    assert (graph.as_graph_def(), graph.version) == (before, version)
    bundle.verify(tmp_path / "model.ckpt")


def test_a_moment_longer_for_a_second_session(graph: Any, new_session: Any, tmp_path: Path) -> None:
    """The same snapshot serve one session after another, the first one closed or not."""
    step = v1.get_variable("step", [], tf.int64, initializer=v1.zeros_initializer())
    increment = v1.assign_add(step, 1)
    snapshot = build(graph, v1.train.Saver(), step)
    first, second = new_session(), new_session()
    second.run(increment)
    assert [take(snapshot, first), snapshot.drop(), take(snapshot, second)] == [0, None, 1]
    snapshot.write(str(tmp_path / "model.ckpt-1"))
    assert bundle.verify(tmp_path / "model.ckpt-1", step_name="step").step == 1
    first.close()
    with pytest.raises(tf.errors.CancelledError):
        snapshot.bind(first)
    snapshot.drop()
    assert take(snapshot, second) == 1, "and what worked goes on working"
    snapshot.drop()


def test_a_session_without_callables_will_do(graph: Any, new_session: Any, tmp_path: Path, writer: str) -> None:
    """A session of another make, which can only run, is enough."""

    class RunsOnly:
        def __init__(self, session: Any) -> None:
            self.run, self.list_devices = session.run, session.list_devices

    step = v1.get_variable("step", [1], tf.int64, initializer=v1.ones_initializer(), use_resource=False)
    snapshot = build(graph, v1.train.Saver(sharded=True), step)
    assert take(snapshot, RunsOnly(new_session())) == 1
    snapshot.write(str(tmp_path / "model.ckpt-1"))
    snapshot.drop()
    bundle.verify(tmp_path / "model.ckpt-1")


def test_through_a_server_no_snapshot_is_taken(graph: Any, new_session: Any) -> None:
    """A session that reaches its values through a server says so; the same snapshot works in one that does not."""
    v1.get_variable("a", [10], use_resource=True)
    snapshot = build(graph, v1.train.Saver())
    assert not snapshot.bind(new_session(tf.distribute.Server.create_local_server().target))
    assert snapshot.bind(new_session())


def test_variables_of_a_cluster_s_other_processes_are_refused(graph: Any) -> None:
    """Where others share the variables no snapshot can be of one step; the reason names them."""
    with tf.device("/job:ps/task:0"):
        shared = v1.get_variable("shared", [2])
    with tf.device("/job:worker/task:0"):
        tf.no_op()
    with pytest.raises(CannotSnapshot, match="/job:ps/task:0 of a cluster"):
        Snapshot(graph, v1.train.Saver([shared]))


def test_quantized_variables_are_saved(graph: Any, new_session: Any, tmp_path: Path, resource: bool) -> None:
    """Types that TensorFlow cannot copy by itself are saved all the same."""
    v1.Variable(tf.bitcast(tf.constant([1, 2], tf.int8), tf.qint8), name="quantized", use_resource=resource)
    snapshot = build(graph, v1.train.Saver())
    take(snapshot, new_session())
    snapshot.write(str(tmp_path / "model.ckpt"))
    bundle.verify(tmp_path / "model.ckpt")
    assert tf.train.load_checkpoint(str(tmp_path / "model.ckpt")).get_tensor("quantized").tolist() == [1, 2]
