"""A save that an exception cuts short, as Ctrl-C does: what was reported saved stays, and what the state file names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from supervisor_core.checkpoint import bundle
from supervisor_core.checkpoint.guard import Publisher
from supervisor_core.checkpoint.store import CheckpointStore

v1 = tf.compat.v1
CHANGES = ("mkdir", "replace", "unlink", "remove", "rmdir", "fsync")


@contextmanager
def interrupted_after(number: int) -> Iterator[list[str]]:
    """Within the block, Ctrl-C comes right after a change of the file system; yields the changes up to then."""
    made: list[str] = []
    originals = {name: getattr(os, name) for name in CHANGES}

    def counted(name: str) -> Any:
        def change(*arguments: Any, **keywords: Any) -> None:
            originals[name](*arguments, **keywords)
            made.append(name)
            if len(made) == number:
                raise KeyboardInterrupt

        return change

    try:
        for name in CHANGES:
            setattr(os, name, counted(name))
        yield made
    finally:
        for name, original in originals.items():
            setattr(os, name, original)


def whole(logdir: Path) -> list[str]:
    """The names of the checkpoints whose every byte is as it was written."""
    names = sorted(path.name.removesuffix(".index") for path in logdir.glob("*.index"))
    for name in names:
        bundle.verify(logdir / name)
    return names


def some(paths: Any) -> list[str]:
    """The names of the checkpoints of some paths."""
    return [os.path.basename(path) for path in paths]


@pytest.mark.parametrize("max_to_keep", [1, 3])
def test_ctrl_c_at_each_change_of_a_save(bench: Any, max_to_keep: int) -> None:
    """From any one change on: a checkpoint can be resumed from that is no older than the last good one, nothing is
    damaged or half there, and the next save leaves ``max_to_keep`` of them."""
    model = bench(make_saver=lambda: v1.train.Saver(max_to_keep=max_to_keep))
    model.checkpoints.attach(Publisher(session="a", attempt=1))
    for _ in range(max_to_keep):
        reported = model.save().step
    counted, number = 0, 0
    while True:
        number += 1
        model.train()
        with interrupted_after(number) as made, suppress(KeyboardInterrupt):
            model.checkpoints.save(model.session, "timer")
        if len(made) < number:
            break
        chosen = CheckpointStore(model.logdir).newest_usable().chosen
        assert chosen is not None and chosen.step is not None
        assert chosen.step >= reported
        assert os.path.basename(chosen.path) in whole(model.logdir)
        counted += chosen.step > reported
        left = some(model.listed())
        reported = model.save().step
        assert some(model.listed()) == [*left, f"model.ckpt-{reported}"][-max_to_keep:]
        assert whole(model.logdir) == sorted(some(model.listed()))
        assert not list(model.logdir.glob("*_temp_*"))
    assert counted >= 4, "the state file, its directory, and what is deleted after it"


def test_ctrl_c_at_each_change_of_a_save_in_place_of_another(bench: Any, value: Any) -> None:
    """Without a global step each save replaces the last one: whatever the moment, one of the two is there, whole."""
    model = bench(global_step=None)
    model.checkpoints.attach(Publisher(session="a", attempt=1))
    model.save()
    number, replaced = 0, 0
    while True:
        number += 1
        (before,) = {*value(model.logdir / "model.ckpt")}
        model.train()
        with interrupted_after(number) as made, suppress(KeyboardInterrupt):
            model.checkpoints.save(model.session, "timer")
        assert whole(model.logdir) == ["model.ckpt"]
        (after,) = {*value(model.logdir / "model.ckpt")}
        assert after in (before, before + 1.0)
        assert not list(model.logdir.glob("*_temp_*"))
        if len(made) < number:
            break
        replaced += after > before
        model.save(steps=0)
    assert replaced >= 4, "data, index, their directory, the state file"


def test_a_graph_that_cannot_be_written_is_no_failed_save(
    bench: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One of more than 2 GB, of which protobuf makes no bytes: the checkpoint counts, and the reason is logged."""

    class Large:
        def SerializeToString(self) -> bytes:  # noqa: N802
            raise ValueError("Message exceeds maximum protobuf size of 2GB")

    model = bench(meta_graph_def=Large(), make_saver=lambda: v1.train.Saver(max_to_keep=1))
    assert model.save().error is None
    assert model.save().error is None
    assert whole(model.logdir) == ["model.ckpt-2"]
    assert "model.ckpt-2.meta, cannot be written: Message exceeds" in caplog.text
