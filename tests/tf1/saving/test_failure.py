"""A save that fails costs one checkpoint: nothing of it stays, and what was there is as it was."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from supervisor_core.base.errors import DamagedCheckpointError
from supervisor_core.checkpoint import bundle
from supervisor_core.checkpoint.store import CheckpointStore
from supervisor_core.tf1 import checkpoint_writer as module
from supervisor_core.tf1.tf_errors import is_outside_fault

v1 = tf.compat.v1


def flip_byte(path: Path) -> None:
    """Alter one byte."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("replaces", [False, True], ids=["new", "in place of an older one"])
def test_a_checkpoint_that_does_not_read_back_does_not_count(
    bench: Any, monkeypatch: pytest.MonkeyPatch, replaces: bool
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


def test_a_state_file_that_cannot_be_written_fails_the_save(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_a_failed_save_leaves_the_one_it_would_have_replaced(
    bench: Any, value: Any, monkeypatch: pytest.MonkeyPatch, sharded: bool
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

    monkeypatch.setattr(module.Snapshot, "write", fail)
    model.train()
    result = model.checkpoints.save(model.session, "timer")
    assert isinstance(result.cause, tf.errors.UnavailableError)
    assert model.names() == before
    assert value(model.logdir / "model.ckpt") == [1.0] * 4


@contextmanager
def small_disk(path: Path, size: str) -> Iterator[None]:
    """A file system of this size in bytes; skips the test where none can be mounted."""
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
    bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writer: str
) -> None:
    """When there is no space the save fails as a fault of the outside world, leaves no part of itself, and what was
    there stays whole; with space again, the next one works."""
    disk = tmp_path / "disk"
    with small_disk(disk, "5m"):
        if writer != "from memory":
            monkeypatch.setattr(module.Snapshot, "writes_from_memory", False)
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


def test_what_a_killed_save_left_is_swept(bench: Any, files: Any) -> None:
    """Temporary files of a process that was killed in the middle of a save are deleted at the first save."""
    logdir_holds = ["model.ckpt-7.index.tempstate99", "model.ckpt-7.data-00000-of-00001.tempstate98"]
    model = bench()
    for name in logdir_holds:
        (model.logdir / name).touch()
        os.utime(model.logdir / name, (1e9, 1e9))
    (model.logdir / "mine.tempstate99").touch()
    model.save()
    assert model.names() == ["checkpoint", "mine.tempstate99", *files(1)]


@pytest.mark.parametrize("sharded", [False, True])
def test_a_directory_that_is_gone_fails_the_save_until_it_is_back(bench: Any, sharded: bool) -> None:
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


def test_shards_that_do_not_merge_are_damage(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What TensorFlow finds damaged as it merges shards is reported and tried again, like what we find."""
    model = bench()

    def fail(self: Any, prefix: str) -> None:
        raise tf.errors.DataLossError(None, None, "block checksum mismatch")

    monkeypatch.setattr(module.Snapshot, "write", fail)
    result = model.checkpoints.save(model.session, "timer")
    assert isinstance(result.cause, DamagedCheckpointError) and "block checksum mismatch" in str(result.cause)


def test_a_closed_session_is_no_fault_of_the_outside_world(bench: Any) -> None:
    """Saving a session that is closed fails, and is not worth trying again."""
    model = bench()
    model.save()
    model.session.close()
    result = model.checkpoints.save(model.session, "final")
    assert result.cause is not None and not is_outside_fault(result.cause)
    assert (result.path, result.step) == (None, None)
