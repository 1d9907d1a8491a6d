"""How many checkpoints are kept, and who counts."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from supervisor_core.base.errors import UnlistedCheckpointsError
from supervisor_core.checkpoint import bundle
from supervisor_core.checkpoint.recovery import Skipped
from supervisor_core.checkpoint.set_aside import MAX_SET_ASIDE
from supervisor_core.checkpoint.state_file import read_state
from supervisor_core.checkpoint.store import CheckpointStore
from supervisor_core.tf1.tf_errors import is_outside_fault

v1 = tf.compat.v1


def test_only_as_many_are_kept_as_the_saver_says(bench: Any, files: Any) -> None:
    """The newest ``max_to_keep`` stay, on disk, in the state file and in the saver's own list."""
    model = bench(make_saver=lambda: v1.train.Saver(max_to_keep=2))
    paths = [model.save().path for _ in range(4)]
    assert model.listed() == ["model.ckpt-3", "model.ckpt-4"]
    assert model.saver.last_checkpoints == paths[2:]
    assert model.names() == ["checkpoint", *files(3), *files(4)]


def test_the_program_s_own_saves_count_with_ours(bench: Any, files: Any) -> None:
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


def test_the_hours_run_on_through_saves_by_hand(bench: Any) -> None:
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


def test_a_checkpoint_to_keep_is_not_deleted(bench: Any, files: Any, tmp_path: Path) -> None:
    """What the saver keeps without a time, and what lies outside the logdir, stays on disk."""
    model = bench(make_saver=lambda: v1.train.Saver(max_to_keep=1))
    model.save()
    elsewhere = model.saver.save(model.session.plain_session(), str(tmp_path / "elsewhere"), write_state=False)
    model.saver.set_last_checkpoints([str(model.logdir / "model.ckpt-1"), elsewhere])
    model.save()
    model.save()
    assert model.names() == ["checkpoint", *files(1), *files(3)]
    bundle.verify(elsewhere)


def spoil(model: Any, number: float = float("nan")) -> None:
    """Set one number of the weight; a good one makes it good again."""
    model.weight.load([number, 1.0, 1.0, 1.0], model.session.plain_session())


@pytest.mark.parametrize("resource", [True, False])
def test_the_last_good_checkpoint_stays(bench: Any, files: Any, resource: bool) -> None:
    """Besides those that the state file and the saver list, through saves of the program's own and through restarts,
    until as many good ones have followed; also where TensorFlow writes the files."""
    model = bench(make_saver=lambda: v1.train.Saver(max_to_keep=2), resource=resource)
    model.save()
    model.save()
    spoil(model)
    for _ in range(3):
        assert model.save().doubt == 'There is NaN in "weight".'
    assert model.names() == ["checkpoint", *files(2), *files(4), *files(5)]
    assert model.listed() == ["model.ckpt-4", "model.ckpt-5"]
    assert [os.path.basename(path) for path in model.saver.last_checkpoints] == ["model.ckpt-4", "model.ckpt-5"]
    model.train()
    model.saver.save(model.session, str(model.logdir / "model.ckpt"), global_step=model.step)
    assert (model.logdir / "model.ckpt-2.index").exists()
    spoil(model, 1.0)
    assert model.save().doubt is None
    assert model.save().doubt is None
    assert model.names() == ["checkpoint", *files(7), *files(8)]


def test_what_cannot_be_deleted_is_said_and_the_save_counts(
    bench: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
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


def flip(path: Path) -> None:
    """Change one bit of a file's last byte."""
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def test_a_save_that_waits_is_not_kept_waiting_by_older_checkpoints(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading older checkpoints back ends as soon as another save waits; what is deleted is decided without it."""
    model = bench(make_saver=lambda: v1.train.Saver(max_to_keep=2))
    model.save()
    path = model.save().path
    flip(Path(f"{path}.data-00000-of-00001"))
    model.checkpoints.attach(holds=lambda directory: True)
    verify, read = bundle.verify, []

    def noted(path: str, **arguments: Any) -> Any:
        if os.path.basename(path) == "model.ckpt-2":
            read.append(path)
            model.checkpoints.hurry()
        return verify(path, **arguments)

    monkeypatch.setattr(bundle, "verify", noted)
    model.save()
    assert read
    assert model.listed() == ["model.ckpt-2", "model.ckpt-3"]
    monkeypatch.setattr(bundle, "verify", verify)
    model.save()
    assert model.listed() == ["model.ckpt-3", "model.ckpt-4"]


def skipped(path: str | None) -> list[Skipped]:
    """Return what a session's start would say of a damaged checkpoint."""
    assert path is not None
    return [Skipped(path, "it was altered")]


@pytest.mark.parametrize("number", [errno.ESTALE, errno.EIO, errno.ENOTDIR])
def test_a_directory_that_cannot_be_listed_fails_one_save(
    bench: Any, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """It is the disk's fault, which may pass: the save is tried again, and nothing was deleted meanwhile."""
    model = bench(make_saver=lambda: v1.train.Saver(max_to_keep=1))
    model.save()
    before = model.names()

    def refuse(self: Any) -> set[str]:
        raise OSError(number, os.strerror(number))

    model.train()
    with monkeypatch.context() as context:
        context.setattr(CheckpointStore, "names", refuse)
        result = model.checkpoints.save(model.session, "timer")
    assert isinstance(result.cause, UnlistedCheckpointsError) and is_outside_fault(result.cause)
    assert f"cannot be listed: {os.strerror(number)}" in (result.error or "")
    assert model.names() == before
    assert model.save().step == 3


def test_the_number_of_damaged_ones_is_bounded(bench: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Beyond five the oldest that was set aside is deleted, with a word about it; the newest is there."""
    model = bench()
    for _ in range(MAX_SET_ASIDE + 1):
        model.checkpoints.attach(holds=lambda directory: True, skipped=skipped(model.save().path))
        model.save(steps=0)
    aside = [item.name for item in CheckpointStore(model.logdir).all_set_aside()]
    assert len(aside) == MAX_SET_ASIDE
    assert f"model.ckpt-{MAX_SET_ASIDE + 1}" in aside
    assert "more than 5 damaged checkpoints" in caplog.text
