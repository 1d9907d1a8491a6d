"""One save from beginning to end: what counts, what is kept, what a failure leaves, and what training sees of it."""

from __future__ import annotations

import errno
import logging
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from supervisor_core.checkpoint import bundle
from supervisor_core.checkpoint.state import read_state
from supervisor_core.checkpoint.store import CheckpointStore
from supervisor_core.errors import DamagedCheckpointError, OptionsError
from supervisor_core.options import Options
from supervisor_core.runtime.gate import Gate
from supervisor_core.tf1 import saving as module
from supervisor_core.tf1.faults import is_outside_fault
from supervisor_core.tf1.saving import CheckpointSaver, SaveResult
from supervisor_core.tf1.session import SupervisedSession

v1 = tf.compat.v1


class Bench:
    """A small model in a session, and the saver under test."""

    def __init__(self, graph: Any, directory: Path, *, resource: bool = True, size: int = 4, **changes: Any) -> None:
        directory.mkdir(exist_ok=True)
        self.logdir = directory
        self.gate = Gate()
        self.step = v1.get_variable("global_step", initializer=tf.constant(0, tf.int64), use_resource=resource)
        self.weight = v1.get_variable("weight", [size], initializer=v1.zeros_initializer(), use_resource=resource)
        self.train_op = tf.group(v1.assign_add(self.step, 1), v1.assign_add(self.weight, tf.ones([size])))
        self.initializer = v1.global_variables_initializer()
        target: str = changes.pop("target", "")
        make_saver: Callable[[], Any] = changes.pop("make_saver", v1.train.Saver)
        self.saver = make_saver()
        # Made here, since a meta graph is captured before the shadows are added.
        meta_graph = v1.train.export_meta_graph(graph=graph, saver_def=getattr(self.saver, "saver_def", None))
        arguments = {
            "graph": graph,
            "saver": self.saver,
            "save_path": str(directory / "model.ckpt"),
            "global_step": self.step,
            "meta_graph_def": meta_graph,
            "gate": self.gate,
            "options": Options(),
        }
        self.checkpoints = CheckpointSaver(**{**arguments, **changes})
        self.session = SupervisedSession(target, graph=graph, gate=self.gate)
        self.session.run(self.initializer)

    def train(self, steps: int = 1) -> None:
        """Do so many steps."""
        for _ in range(steps):
            self.session.run(self.train_op)

    def save(self, steps: int = 1) -> SaveResult:
        """Do so many steps and save; a failure is an error of the test."""
        self.train(steps)
        result = self.checkpoints.save(self.session, "timer")
        assert result.error is None, result.error
        return result

    def names(self) -> list[str]:
        """What is in the logdir."""
        return sorted(path.name for path in self.logdir.iterdir())

    def listed(self) -> list[str]:
        """What the state file lists, as it is written there."""
        state = read_state(self.logdir / "checkpoint").state
        return [] if state is None else list(state.all_model_checkpoint_paths)


@pytest.fixture
def bench(graph: Any, tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    """Returns a function that makes a `Bench`."""
    made: list[Bench] = []

    def make(**changes: Any) -> Bench:
        made.append(Bench(graph, changes.pop("directory", tmp_path / "run"), **changes))
        return made[-1]

    yield make
    for each in made:
        each.session.close()


def files(step: int) -> list[str]:
    """The files of one checkpoint."""
    return [f"model.ckpt-{step}{suffix}" for suffix in (".data-00000-of-00001", ".index", ".meta")]


def value(path: str | os.PathLike[str], name: str = "weight") -> list[float]:
    """A tensor of a checkpoint."""
    return tf.train.load_checkpoint(os.fspath(path)).get_tensor(name).tolist()  # type: ignore[no-any-return]


def test_a_save_says_what_it_has_done(bench: Callable[..., Bench]) -> None:
    """The result tells path, step, size and durations of a checkpoint that is whole, listed and restorable."""
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


def test_the_state_file_has_relative_paths(bench: Callable[..., Bench]) -> None:
    """The run's directory can be moved: the state file names its checkpoints without directories."""
    model = bench()
    model.save()
    model.save()
    assert model.listed() == ["model.ckpt-1", "model.ckpt-2"]
    assert v1.train.latest_checkpoint(str(model.logdir)) == str(model.logdir / "model.ckpt-2")


def test_the_order_on_disk_is_the_contract_s(bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_the_graph_beside_a_checkpoint_is_the_original_one(bench: Callable[..., Bench]) -> None:
    """The ``.meta`` file imports into a graph whose saver restores the checkpoint; nothing of the shadows is in it."""
    model = bench()
    result = model.save()
    with tf.Graph().as_default() as other, v1.Session() as session:
        saver = v1.train.import_meta_graph(f"{result.path}.meta")
        saver.restore(session, result.path)
        assert session.run(v1.global_variables()[1]).tolist() == [1.0] * 4
        assert not any("supervisor" in op.name for op in other.get_operations())


def test_without_meta_graph_nothing_but_the_checkpoint_is_written(bench: Callable[..., Bench]) -> None:
    """Where there is no graph to write, there is no ``.meta``."""
    model = bench(meta_graph_def=None)
    model.save()
    assert model.names() == ["checkpoint", *files(1)[:2]]


def test_names_follow_the_saver(bench: Callable[..., Bench]) -> None:
    """A saver that pads the step pads it here."""
    model = bench(make_saver=lambda: v1.train.Saver(pad_step_number=True))
    assert model.save(steps=12).path == str(model.logdir / "model.ckpt-00000012")


def test_without_a_global_step_one_checkpoint_is_replaced(bench: Callable[..., Bench]) -> None:
    """Each save replaces the one before, under the bare name, and the result has no step."""
    model = bench(global_step=None)
    for steps in (1.0, 2.0):
        result = model.save()
        assert (result.path, result.step) == (str(model.logdir / "model.ckpt"), None)
        assert value(model.logdir / "model.ckpt") == [steps] * 4
    assert model.listed() == ["model.ckpt"]


def test_checkpoints_below_the_logdir(bench: Callable[..., Bench], tmp_path: Path) -> None:
    """Where checkpoints have a directory of their own, the state file stays in the logdir, where recovery looks."""
    logdir = tmp_path / "run"
    (logdir / "saved").mkdir(parents=True)
    model = bench(save_path=str(logdir / "saved" / "m"), logdir=str(logdir))
    model.save()
    assert model.listed() == ["saved/m-1"]
    assert CheckpointStore(logdir, "saved/m").newest_usable().skipped == ()


def test_only_as_many_are_kept_as_the_saver_says(bench: Callable[..., Bench]) -> None:
    """The newest ``max_to_keep`` stay, on disk, in the state file and in the saver's own list."""
    model = bench(make_saver=lambda: v1.train.Saver(max_to_keep=2))
    paths = [model.save().path for _ in range(4)]
    assert model.listed() == ["model.ckpt-3", "model.ckpt-4"]
    assert model.saver.last_checkpoints == paths[2:]
    assert model.names() == ["checkpoint", *files(3), *files(4)]


@pytest.mark.parametrize("max_to_keep", [0, None])
def test_a_saver_that_keeps_all_keeps_all(bench: Callable[..., Bench], max_to_keep: int | None) -> None:
    """Without a bound nothing is deleted, and the newest alone is listed, as the original does."""
    model = bench(make_saver=lambda: v1.train.Saver(max_to_keep=max_to_keep))
    for _ in range(3):
        model.save()
    assert model.listed() == ["model.ckpt-3"]
    assert model.names() == ["checkpoint", *files(1), *files(2), *files(3)]
    assert model.saver.last_checkpoints == []


def test_the_program_s_own_saves_count_with_ours(bench: Callable[..., Bench]) -> None:
    """``saver.save`` by the program and saves by the supervisor delete each other's oldest, and list each other's."""
    model = bench(make_saver=lambda: v1.train.Saver(max_to_keep=2))

    def save_by_hand() -> None:
        model.train()
        model.saver.save(model.session, str(model.logdir / "model.ckpt"), global_step=model.step)

    def listed() -> list[str]:
        return [os.path.basename(path) for path in model.listed()]

    model.save()
    save_by_hand()
    assert listed() == ["model.ckpt-1", "model.ckpt-2"]
    model.save()
    assert listed() == ["model.ckpt-2", "model.ckpt-3"]
    save_by_hand()
    save_by_hand()
    assert listed() == ["model.ckpt-4", "model.ckpt-5"]
    model.save()
    assert listed() == ["model.ckpt-5", "model.ckpt-6"]
    assert model.names() == ["checkpoint", *files(5), *files(6)]


def test_a_save_of_the_same_step_counts_once(bench: Callable[..., Bench]) -> None:
    """A step that is saved again, by hand or by the timer, does not push others out."""
    model = bench(make_saver=lambda: v1.train.Saver(max_to_keep=2))
    model.save()
    model.save()
    model.saver.save(model.session, str(model.logdir / "model.ckpt"), global_step=model.step)
    model.save(steps=0)
    assert model.listed() == ["model.ckpt-1", "model.ckpt-2"]


def test_the_hours_run_on_through_saves_by_hand(bench: Callable[..., Bench]) -> None:
    """The clock of ``keep_checkpoint_every_n_hours`` is not lost when the saver itself writes the state file."""

    class Hours:
        def __init__(self) -> None:
            self.now = 1e9

        def wall(self) -> float:
            return self.now

        def monotonic(self) -> float:
            return self.now

    clock = Hours()
    model = bench(clock=clock, make_saver=lambda: v1.train.Saver(max_to_keep=1, keep_checkpoint_every_n_hours=1.0))
    for hours in (0.0, 0.5, 0.4, 0.3, 0.0):
        clock.now += hours * 3600
        model.save()
        state = read_state(model.logdir / "checkpoint").state
        assert state is not None
        # What the saver writes does not say from when the hours count.
        v1.train.update_checkpoint_state(str(model.logdir), state.model_checkpoint_path)
    kept = [name for name in model.names() if name.endswith(".index")]
    assert kept == ["model.ckpt-4.index", "model.ckpt-5.index"], "spared after 1.2 hours, and the newest"


def test_a_restarted_session_goes_on_with_the_list(bench: Callable[..., Bench], tmp_path: Path) -> None:
    """Checkpoints of the session before count against ``max_to_keep``, though the saver was never told of them."""
    model = bench(make_saver=lambda: v1.train.Saver(max_to_keep=2))
    model.save()
    model.save()
    with tf.Graph().as_default() as graph:
        later = Bench(graph, model.logdir, make_saver=lambda: v1.train.Saver(max_to_keep=2))
        later.session.run(later.initializer)
        later.save(steps=9)
        later.session.close()
    assert later.names() == ["checkpoint", *files(2), *files(9)]


def test_a_checkpoint_for_ever_is_not_deleted(bench: Callable[..., Bench], tmp_path: Path) -> None:
    """What the saver was told to keep without a time, and what lies outside the logdir, stays on disk."""
    model = bench(make_saver=lambda: v1.train.Saver(max_to_keep=1))
    model.save()
    elsewhere = model.saver.save(model.session.ungated(), str(tmp_path / "elsewhere"), write_state=False)
    model.saver.set_last_checkpoints([str(model.logdir / "model.ckpt-1"), elsewhere])
    model.save()
    model.save()
    assert model.names() == ["checkpoint", *files(1), *files(3)]
    bundle.verify(elsewhere)


def test_what_cannot_be_deleted_is_said_and_the_save_counts(
    bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An old checkpoint that cannot be deleted, or a graph that cannot be written, does not fail the new checkpoint."""
    model = bench(make_saver=lambda: v1.train.Saver(max_to_keep=1))
    model.save()
    (model.logdir / "model.ckpt-2.meta").mkdir()

    def refuse(self: Any, prefix: str) -> None:
        raise PermissionError(13, "Permission denied", prefix)

    monkeypatch.setattr(CheckpointStore, "delete", refuse)
    model.save()
    assert model.listed() == ["model.ckpt-2"]
    assert "model.ckpt-1 cannot be deleted" in caplog.text
    assert "model.ckpt-2.meta, cannot be written" in caplog.text


def test_a_model_whose_loss_is_not_finite_is_not_saved(graph: Any, bench: Callable[..., Bench]) -> None:
    """With a watched loss, a checkpoint is refused while it is nan or infinite, and taken again when it is finite."""
    loss = v1.get_variable("last_loss", initializer=0.5)
    becomes = v1.placeholder(tf.float32, [])
    change = loss.assign(becomes)
    model = bench(options=Options(watched_loss=tf.identity(loss, name="loss")))
    model.save()
    before = model.names()
    for bad in (float("nan"), float("inf")):
        model.session.run(change, {becomes: bad})
        model.train()
        result = model.checkpoints.save(model.session, "timer")
        assert (result.path, result.cause, result.consistent) == (None, None, None)
        assert result.error is not None and f"watched loss is {bad}" in result.error
        assert model.names() == before
    assert result.step == 3
    model.session.run(change, {becomes: 0.5})
    assert model.save().step == 4


def test_a_loss_can_be_handed_in(bench: Callable[..., Bench]) -> None:
    """What the caller says the loss is decides too, as long as it says anything."""
    losses = [None, float("nan"), 1.0]
    model = bench(watched=lambda: losses.pop(0))
    results = [model.checkpoints.save(model.session, "timer") for _ in range(3)]
    assert [result.error is None for result in results] == [True, False, True]


def needs_input() -> dict[str, Callable[[], Any]]:
    """Losses that cannot be read without taking input, having an effect, or being another each time."""

    def after_training() -> Any:
        with tf.control_dependencies([v1.assign_add(v1.get_variable("v", [], use_resource=False), 1.0)]):
            return tf.constant(1.0)

    return {
        "Placeholder": lambda: v1.placeholder(tf.float32, []) * 2.0,
        "QueueDequeueV2": lambda: v1.train.range_input_producer(3).dequeue(),
        "RandomUniform": lambda: tf.random.uniform([]),
        "AssignAdd": after_training,
        "IteratorGetNext": lambda: v1.data.make_one_shot_iterator(tf.data.Dataset.range(3)).get_next(),
    }


@pytest.mark.parametrize("kind", sorted(needs_input()))
def test_a_loss_that_needs_input_is_refused_at_once(graph: Any, bench: Callable[..., Bench], kind: str) -> None:
    """A watched loss that would consume input is an error when the saver is made, which says why and what to do."""
    loss = needs_input()[kind]()
    with pytest.raises(OptionsError, match=rf"{kind}\).*in a variable that the training op assigns"):
        bench(options=Options(watched_loss=loss))


def test_a_loss_of_no_graph_is_refused_at_once(bench: Callable[..., Bench]) -> None:
    """A watched loss that is not there is an error that names it."""
    with pytest.raises(OptionsError, match="'no_such_loss:0', which is not in the graph"):
        bench(options=Options(watched_loss="no_such_loss:0"))


def test_a_step_under_way_is_waited_for(bench: Callable[..., Bench]) -> None:
    """The snapshot is taken when those inside have left, and what they wait for is counted."""
    model = bench()
    model.gate.enter()
    results: list[SaveResult] = []
    thread = threading.Thread(target=lambda: results.append(model.checkpoints.save(model.session, "timer")))
    thread.start()
    model.session.ungated().run(model.train_op)
    model.gate.leave()
    thread.join()
    assert results[0].consistent is True
    assert value(results[0].path or "") == [float(results[0].step or 0)] * 4


def test_a_step_that_does_not_end_does_not_hold_saves_up(bench: Callable[..., Bench]) -> None:
    """When the wait is over a snapshot is taken regardless; its record says so, and its name is still its step."""
    model = bench(options=Options(snapshot_wait_secs=0.0))
    model.session.ungated().run(model.train_op)
    inside, done = threading.Event(), threading.Event()

    def stuck() -> None:
        model.gate.enter()
        inside.set()
        done.wait()
        model.gate.leave()

    thread = threading.Thread(target=stuck)
    thread.start()
    inside.wait()
    result = model.checkpoints.save(model.session, "final")
    done.set()
    thread.join()
    assert (result.consistent, result.verified, result.step) == (False, True, 1)
    assert bundle.verify(result.path or "").step == 1


@pytest.mark.parametrize("resource", [True, False], ids=["resource", "ref"])
def test_no_checkpoint_mixes_steps(bench: Callable[..., Bench], resource: bool) -> None:
    """Of 30 checkpoints taken beside a training thread, all have one step in name, event and every value."""
    model = bench(resource=resource, size=100_000, make_saver=lambda: v1.train.Saver(max_to_keep=3))
    stop = threading.Event()

    def loop() -> None:
        while not stop.is_set():
            model.train()

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        for _ in range(30):
            result = model.save(steps=0)
            assert result.consistent and result.path == str(model.logdir / f"model.ckpt-{result.step}")
            assert set(value(result.path)) == {float(result.step or 0)}
            assert value(result.path, "global_step") == result.step
    finally:
        stop.set()
        thread.join()


def test_one_save_at_a_time(bench: Callable[..., Bench]) -> None:
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


def test_what_is_not_new_is_not_written(bench: Callable[..., Bench]) -> None:
    """The caller is asked between two steps, with the step, and may decline; the next save works."""
    model = bench()
    model.train(2)
    asked: list[Any] = []

    def decline(step: int | None) -> bool:
        asked.append(step)
        return False

    result = model.checkpoints.save(model.session, "final", decline)
    assert (result.skipped, result.path, result.error, asked) == (True, None, None, [2])
    assert model.names() == []
    assert model.save().step == 3


def test_verification_can_be_left_out(bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch) -> None:
    """With ``verify_checkpoints=False`` no data is read back, and the result says so."""
    asked: list[bool] = []
    verify = bundle.verify

    def watched(prefix: Any, *, data: bool = True) -> Any:
        asked.append(data)
        return verify(prefix, data=data)

    monkeypatch.setattr(module.bundle, "verify", watched)
    result = bench(options=Options(verify_checkpoints=False)).save()
    assert (result.verified, asked) == (False, [False])


def flip_byte(path: Path) -> None:
    """Alter one byte."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("replaces", [False, True], ids=["new", "in place of an older one"])
def test_a_checkpoint_that_does_not_read_back_does_not_count(
    bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch, replaces: bool
) -> None:
    """A byte that changes between writing and reading back fails the save: nothing of it stays or is listed, and what
    was there under its name is as it was."""
    model = bench()
    model.save()
    if replaces:
        model.save()
    before = model.names(), model.listed()
    sync = CheckpointStore.sync

    def damage(self: Any, prefix: str) -> None:
        sync(self, prefix)
        flip_byte(Path(f"{prefix}.data-00000-of-00001"))

    monkeypatch.setattr(CheckpointStore, "sync", damage)
    model.train(0 if replaces else 1)
    result = model.checkpoints.save(model.session, "timer")
    assert isinstance(result.cause, DamagedCheckpointError) and is_outside_fault(result.cause)
    assert (result.path, result.bytes, result.consistent, result.verified, result.step) == (None, None, None, False, 2)
    assert (model.names(), model.listed()) == before
    bundle.verify(model.logdir / ("model.ckpt-2" if replaces else "model.ckpt-1"))
    monkeypatch.setattr(CheckpointStore, "sync", sync)
    assert model.save().step == 3


def test_a_state_file_that_cannot_be_written_fails_the_save(
    bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint that cannot be listed is taken back, so that it takes no room; the next save makes up for it."""
    model = bench()
    model.train()

    def refuse(self: Any, prefix: str, **kwargs: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as context:
        context.setattr(CheckpointStore, "record", refuse)
        result = model.checkpoints.save(model.session, "timer")
    assert isinstance(result.cause, OSError) and is_outside_fault(result.cause)
    assert model.names() == []
    assert model.save().step == 2


@pytest.mark.parametrize("sharded", [False, True])
def test_a_directory_that_is_gone_fails_the_save_until_it_is_back(bench: Callable[..., Bench], sharded: bool) -> None:
    """A logdir that has gone away, as a network's may, is a fault of the outside world; when it is back all is well."""
    model = bench(make_saver=lambda: v1.train.Saver(sharded=sharded))
    model.save()
    away = model.logdir.rename(model.logdir.with_name("away"))
    model.logdir.write_text("a file where the directory was")
    model.train()
    result = model.checkpoints.save(model.session, "timer")
    assert result.cause is not None and is_outside_fault(result.cause), result.error
    model.logdir.unlink()
    away.rename(model.logdir)
    assert model.save().step == 3
    assert model.listed() == ["model.ckpt-1", "model.ckpt-3"]


@pytest.mark.parametrize("sharded", [False, True])
def test_a_failed_save_leaves_the_one_it_would_have_replaced(
    bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch, sharded: bool
) -> None:
    """Without a global step every save writes over the last one: a save that fails early leaves that as it was."""
    model = bench(global_step=None, make_saver=lambda: v1.train.Saver(sharded=sharded))
    model.save()
    before = model.names()

    def fail(self: Any, prefix: str) -> None:
        Path(f"{prefix}.index.tempstate123").touch()
        Path(f"{prefix}.data-00000-of-00001.tempstate123").touch()
        Path(f"{prefix}_temp").mkdir()
        raise tf.errors.UnavailableError(None, None, "the store is busy")

    monkeypatch.setattr(module.Shadows, "write", fail)
    model.train()
    result = model.checkpoints.save(model.session, "timer")
    assert isinstance(result.cause, tf.errors.UnavailableError)
    assert model.names() == before
    assert value(model.logdir / "model.ckpt") == [1.0] * 4


def test_shards_that_do_not_merge_are_damage(bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch) -> None:
    """What TensorFlow finds damaged as it merges shards is told, and tried again, like what we find."""
    model = bench()

    def fail(self: Any, prefix: str) -> None:
        raise tf.errors.DataLossError(None, None, "block checksum mismatch")

    monkeypatch.setattr(module.Shadows, "write", fail)
    result = model.checkpoints.save(model.session, "timer")
    assert isinstance(result.cause, DamagedCheckpointError) and "block checksum mismatch" in str(result.cause)


@contextmanager
def small_disk(path: Path, size: str) -> Iterator[None]:
    """A file system of so many bytes; skips the test where none can be mounted."""
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)]
    try:
        mounted = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", str(path)], check=True)


@pytest.mark.parametrize("writer", ["from memory", "by TensorFlow", "by TensorFlow in shards"])
def test_a_full_disk_costs_one_checkpoint_and_no_more(
    bench: Callable[..., Bench], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writer: str
) -> None:
    """When there is no space the save fails as a fault of the outside world, leaves no part of itself, and what was
    there stays whole; with space again, the next one works."""
    disk = tmp_path / "disk"
    with small_disk(disk, "5m"):
        if writer != "from memory":
            monkeypatch.setattr(module.Shadows, "writes_from_memory", False)
        model = bench(directory=disk, size=500_000, make_saver=lambda: v1.train.Saver(sharded="shards" in writer))
        model.save()
        (disk / "ballast").write_bytes(bytes(2 << 20))
        before = model.names()
        for _ in range(2):
            model.train()
            result = model.checkpoints.save(model.session, "timer")
            assert result.cause is not None and is_outside_fault(result.cause)
            assert result.error is not None and "No space left on device" in result.error
            assert model.names() == before
        bundle.verify(model.logdir / "model.ckpt-1")
        (disk / "ballast").unlink()
        assert model.save().step == 4
        assert model.listed() == ["model.ckpt-1", "model.ckpt-4"]
        model.session.close()


def test_a_closed_session_is_no_fault_of_the_outside_world(bench: Callable[..., Bench]) -> None:
    """Saving a session that is closed fails, and is not worth trying again."""
    model = bench()
    model.save()
    model.session.close()
    result = model.checkpoints.save(model.session, "final")
    assert result.cause is not None and not is_outside_fault(result.cause)
    assert (result.path, result.step) == (None, None)


def test_what_a_killed_save_left_is_swept(bench: Callable[..., Bench]) -> None:
    """Temporary files of a process that was killed in the middle of a save are deleted at the first save."""
    logdir_holds = ["model.ckpt-7.index.tempstate99", "model.ckpt-7.data-00000-of-00001.tempstate98"]
    model = bench()
    for name in logdir_holds:
        (model.logdir / name).touch()
        os.utime(model.logdir / name, (1e9, 1e9))
    (model.logdir / "mine.tempstate99").touch()
    model.save()
    assert model.names() == ["checkpoint", "mine.tempstate99", *files(1)]


def test_a_saver_of_the_old_format_is_run_as_it_is(
    bench: Callable[..., Bench], caplog: pytest.LogCaptureFixture
) -> None:
    """A saver that cannot be shadowed saves as ever; its checkpoints are verified, and do not claim consistency."""
    with caplog.at_level(logging.WARNING, logger="supervisor_core"):
        model = bench(make_saver=lambda: v1.train.Saver(write_version=v1.train.SaverDef.V1, max_to_keep=1))
    assert "may mix steps, since the saver writes the V1 format" in caplog.text
    assert not model.checkpoints.consistent
    model.save()
    result = model.save()
    assert (result.consistent, result.verified, result.step) == (False, True, 2)
    assert model.names() == ["checkpoint", "model.ckpt-2", "model.ckpt-2.meta"]
    assert model.listed() == ["model.ckpt-2"]
    assert model.saver.last_checkpoints == [result.path]


def test_a_loss_that_is_not_finite_stops_every_kind_of_save(graph: Any, bench: Callable[..., Bench]) -> None:
    """The watched loss counts for savers that are run as they are, too; so does what is not new."""
    loss = v1.get_variable("last_loss", initializer=float("nan"))
    model = bench(
        options=Options(watched_loss=loss), make_saver=lambda: v1.train.Saver(write_version=v1.train.SaverDef.V1)
    )
    assert "nan" in (model.checkpoints.save(model.session, "timer").error or "")
    model.session.run(loss.initializer, {loss.initial_value: 1.0})
    assert model.checkpoints.save(model.session, "timer", lambda step: step != 0).skipped
    assert model.names() == []


def test_a_saver_with_its_own_save_is_called_as_the_original_calls_it(bench: Callable[..., Bench]) -> None:
    """A program's own saver gets the session, the path and the global step, and does all the rest itself."""
    calls: list[Any] = []

    class OwnSaver(v1.train.Saver):
        def save(self, sess: Any, save_path: str, global_step: Any = None) -> Any:
            calls.append((sess, save_path, global_step))
            return super().save(sess, save_path, global_step=global_step)

    model = bench(make_saver=OwnSaver)
    result = model.save(steps=2)
    assert calls == [(model.session.ungated(), str(model.logdir / "model.ckpt"), model.step)]
    assert (result.step, result.consistent, result.verified) == (2, False, True)
    assert result.path == str(model.logdir / "model.ckpt-2")


def test_a_saver_that_writes_something_else_is_taken_at_its_word(bench: Callable[..., Bench]) -> None:
    """What is no checkpoint of TensorFlow's cannot be verified; the result does not claim it."""

    class Elsewhere:
        def save(self, sess: Any, save_path: str, global_step: Any = None) -> str | None:
            return save_path + "-5"

    result = bench(make_saver=Elsewhere).save()
    assert (result.step, result.verified, result.bytes) == (5, None, None)


def test_a_saver_of_nothing_saves_nothing(bench: Callable[..., Bench]) -> None:
    """A saver without variables is no error and no checkpoint."""
    model = bench(make_saver=lambda: v1.train.Saver([], allow_empty=True))
    result = model.save()
    assert (result.path, result.error) == (None, None)
    assert model.names() == []


def test_variables_of_a_parameter_server_are_saved_as_they_are(
    graph: Any, bench: Callable[..., Bench], caplog: pytest.LogCaptureFixture
) -> None:
    """Where only the session shows that others share the variables, the save does not claim to be of one step."""
    ports = []
    for _ in range(2):
        with socket.socket() as probe:
            probe.bind(("localhost", 0))
            ports.append(f"localhost:{probe.getsockname()[1]}")
    cluster = tf.train.ClusterSpec({"ps": ports[:1], "worker": ports[1:]})
    servers = [tf.distribute.Server(cluster, job_name=job, task_index=0) for job in ("ps", "worker")]
    with tf.device("/job:ps/task:0"):
        model = bench(target=servers[1].target)
    assert model.checkpoints.consistent
    model.train()
    result = model.checkpoints.save(model.session, "timer")
    assert (result.error, result.consistent, result.verified, result.step) == (None, False, True, 1)
    assert "/job:ps/task:0 of a cluster with /job:ps/task:0, /job:worker/task:0" in caplog.text
    assert model.listed() == ["model.ckpt-1"]
