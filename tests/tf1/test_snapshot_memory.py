"""What a snapshot copies, what it holds, and for how long."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from supervisor_core.tf1 import snapshot as module
from supervisor_core.tf1.native_runs import PreparedRun
from supervisor_core.tf1.snapshot import Snapshot

v1 = tf.compat.v1


@pytest.fixture(params=["from memory", "by TensorFlow"], autouse=True)
def writer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What writes where both can."""
    monkeypatch.setattr(Snapshot, "writes_from_memory", request.param == "from memory")


@pytest.fixture
def session(graph: Any) -> Iterator[Any]:
    """A session on the test's own graph."""
    with v1.Session(graph=graph) as opened:
        yield opened


def take(snapshot: Snapshot, session: Any) -> None:
    """Put the present moment aside."""
    assert snapshot.bind(session)
    snapshot.prepare()
    snapshot.take()


def test_a_resource_variable_is_not_copied(graph: Any, session: Any, tmp_path: Path) -> None:
    """While a snapshot holds its buffer an update takes another one; once it is written or dropped, the same."""
    variable = v1.get_variable("a", [1000], initializer=v1.zeros_initializer(), use_resource=True)
    update = v1.assign_add(variable, tf.ones([1000])).op
    snapshot = Snapshot(graph, v1.train.Saver())
    session.run(v1.global_variables_initializer())
    session.run(update)  # away from the buffer of the constant that it was initialised with
    fetch = PreparedRun(session, fetches=[variable.value()])

    def moves() -> bool:
        before = fetch()[0].ctypes.data
        session.run(update)
        return bool(fetch()[0].ctypes.data != before)

    assert not moves()
    take(snapshot, session)
    assert moves()
    snapshot.drop()
    assert not moves()
    take(snapshot, session)
    snapshot.write(str(tmp_path / "model.ckpt"))
    assert not moves(), "what was written is not held any longer"
    snapshot.drop()


def test_memory_for_copies_is_that_of_the_save_before(graph: Any, session: Any, tmp_path: Path) -> None:
    """A ref variable is copied at each save, into the same pages."""
    variable = v1.get_variable("a", [1000], initializer=v1.zeros_initializer(), use_resource=False)
    snapshot = Snapshot(graph, v1.train.Saver())
    session.run(v1.global_variables_initializer())
    places = set()
    for number in range(3):
        session.run(v1.assign_add(variable, tf.ones([1000])).op)
        take(snapshot, session)
        places.add(snapshot._values[0].ctypes.data)  # type: ignore[index]
        path = str(tmp_path / f"model.ckpt-{number}")
        snapshot.write(path)
        snapshot.drop()
        np.testing.assert_array_equal(tf.train.load_checkpoint(path).get_tensor("a"), np.full(1000, number + 1.0))
    assert len(places) == 1


def test_copies_of_several_threads_are_whole(
    graph: Any, session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values that are copied by several threads, cut at any byte between them, are complete in the checkpoint."""
    monkeypatch.setattr(module, "_SHARE_BYTES", 16)
    monkeypatch.setattr(module, "_COPYING_THREADS", 3)
    monkeypatch.setattr(module.os, "cpu_count", lambda: 3)
    values = {
        f"v{size}": np.arange(size).astype(dtype.as_numpy_dtype)
        for size, dtype in ((0, tf.int8), (1, tf.int64), (7, tf.int8), (501, tf.int16))
    }
    for name, value in values.items():
        v1.Variable(value, name=name, use_resource=False)
    snapshot = Snapshot(graph, v1.train.Saver())
    session.run(v1.global_variables_initializer())
    take(snapshot, session)
    session.run([v1.assign_add(variable, tf.ones_like(variable)).op for variable in v1.global_variables()])
    snapshot.write(str(tmp_path / "model.ckpt"))
    reader = tf.train.load_checkpoint(str(tmp_path / "model.ckpt"))
    for name, value in values.items():
        np.testing.assert_array_equal(reader.get_tensor(name), value)
