"""One save from beginning to end: what is written in which order, and what it says of itself."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest
import tensorflow as tf

from supervisor_core.checkpoint import bundle
from supervisor_core.checkpoint.store import CheckpointStore
from supervisor_core.tf1.checkpoint_writer import SaveResult

v1 = tf.compat.v1


def test_a_save_says_what_it_has_done(bench: Any, files: Any) -> None:
    """The result has path, step, size and durations of a checkpoint that is whole, listed and restorable."""
    model = bench()
    result = model.save(steps=3)
    path = str(model.logdir / "model.ckpt-3")
    assert result == replace(
        SaveResult(trigger="timer"), path=path, step=3, bytes=bundle.verify(path).bytes, consistent=True, verified=True,
        secs=result.secs, blocked_secs=result.blocked_secs,
    )  # fmt: skip
    assert 0 <= result.blocked_secs < result.secs
    assert model.names() == ["checkpoint", *files(3)]
    model.train()
    model.saver.restore(model.session, path)
    assert model.session.run([model.step, model.weight[0]]) == [3, 3.0]


def test_the_state_file_has_relative_paths(bench: Any) -> None:
    """The run's directory can be moved: the state file names its checkpoints without directories."""
    model = bench()
    model.save()
    model.save()
    assert model.listed() == ["model.ckpt-1", "model.ckpt-2"]
    assert v1.train.latest_checkpoint(str(model.logdir)) == str(model.logdir / "model.ckpt-2")


def test_the_order_on_disk_is_the_contract_s(bench: Any, files: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Synced before it shows; then state file, deletions, ``.meta``: whenever the process dies, what shows is whole."""
    model = bench(make_saver=lambda: v1.train.Saver(max_to_keep=1))
    model.save()
    seen: list[tuple[str, list[str]]] = []

    def watch(name: str, method: Any) -> None:
        def watched(self: Any, *args: Any, **kwargs: Any) -> Any:
            seen.append((name, [each for each in model.names() if "-2" in each and "_temp" not in each]))
            return method(self, *args, **kwargs)

        monkeypatch.setattr(CheckpointStore, name, watched)

    for name in ("sync", "record", "delete"):
        watch(name, getattr(CheckpointStore, name))
    model.save()
    without_meta = files(2)[:2]
    assert seen == [("sync", []), ("record", without_meta), ("delete", without_meta)]
    assert model.names() == ["checkpoint", *files(2)]


def test_the_graph_beside_a_checkpoint_restores_it(bench: Any) -> None:
    """The ``.meta`` file imports into a graph whose saver restores the checkpoint; it is the graph that is trained."""
    model = bench()
    result = model.save()
    with tf.Graph().as_default() as other, v1.Session() as session:
        saver = v1.train.import_meta_graph(f"{result.path}.meta")
        saver.restore(session, result.path)
        assert session.run(v1.global_variables()[1]).tolist() == [1.0] * 4
        assert not any("supervisor" in op.name for op in other.get_operations())


def test_without_a_global_step_one_checkpoint_is_replaced(bench: Any, value: Any) -> None:
    """Each save replaces the one before, under the bare name, and the result has no step."""
    model = bench(global_step=None)
    for steps in (1.0, 2.0):
        result = model.save()
        assert (result.path, result.step) == (str(model.logdir / "model.ckpt"), None)
        assert value(model.logdir / "model.ckpt") == [steps] * 4
    assert model.listed() == ["model.ckpt"]


def test_one_save_at_a_time(bench: Any) -> None:
    """Saves asked for by several threads are done one after another, and all are good."""
    model = bench()
    results: list[SaveResult] = []
    threads = [
        threading.Thread(target=lambda: results.append(model.checkpoints.save(model.session, "manual")))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [result.error for result in results] == [None] * 4
