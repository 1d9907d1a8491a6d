"""A checkpoint that is on its way when another chief takes the logdir over does not get there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from supervisor_core.base.errors import LogdirInUseError
from supervisor_core.checkpoint.guard import Publisher
from supervisor_core.tf1.tf_errors import is_outside_fault

v1 = tf.compat.v1


LEDGER = ".supervisor.checkpoints/attempt-000001-a-model.ckpt.json"


class Check:
    """A check that passes this often, then always refuses."""

    def __init__(self) -> None:
        self.left = 1_000_000
        self.asked = 0

    def __call__(self) -> None:
        self.asked += 1
        self.left -= 1
        if self.left < 0:
            raise LogdirInUseError("The logdir was taken over by another chief.")


def contents(directory: Path) -> dict[str, bytes]:
    """Every file below a directory, staged ones apart."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and "_temp_" not in str(path)
    }


def test_the_index_goes_last(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index makes a checkpoint of the files: when it is moved into place, every data file is already there."""
    subject = bench()
    seen: list[tuple[str, set[str]]] = []
    replace = os.replace

    def watching(source: Any, target: Any, **rest: Any) -> None:
        seen.append((os.path.basename(target), {path.name for path in subject.logdir.iterdir()}))
        replace(source, target, **rest)

    write = subject.checkpoints._write

    def write_two(shadows: Any, path: str) -> None:
        write(shadows, path)
        Path(f"{path}.data-00001-of-00002").write_bytes(b"more")

    monkeypatch.setattr(subject.checkpoints, "_write", write_two)
    monkeypatch.setattr(os, "replace", watching)
    subject.save()
    moved = [name for name, _ in seen if name.startswith("model.ckpt-1.") and not name.endswith(".meta")]
    assert moved[-1] == "model.ckpt-1.index"
    assert len(moved) == 3
    there = dict(seen)["model.ckpt-1.index"]
    assert {"model.ckpt-1.data-00000-of-00001", "model.ckpt-1.data-00001-of-00002"} <= there


def test_each_step_of_a_save_is_checked(bench: Any) -> None:
    """Before it is staged; the ledger, moving data and index, the state file, each file that is deleted, the graph."""
    check = Check()
    subject = bench(make_saver=lambda: v1.train.Saver(max_to_keep=1))
    subject.checkpoints.attach(Publisher(session="a", attempt=1, check=check))
    subject.save()
    first = check.asked
    subject.save()
    assert first == len(["before", "ledger", "data", "index", "state", "meta"])
    assert check.asked - first == first + len(["old index", "old data", "old meta"])


@pytest.mark.parametrize("passes", range(8))
def test_a_takeover_at_any_moment_of_a_save(bench: Any, passes: int) -> None:
    """From the moment of the takeover on nothing is moved, replaced or deleted, and nothing is left staged."""
    check = Check()
    subject = bench(make_saver=lambda: v1.train.Saver(max_to_keep=1))
    subject.checkpoints.attach(Publisher(session="a", attempt=1, check=check))
    subject.save()
    before = contents(subject.logdir)
    check.left = passes
    subject.train()
    result = subject.checkpoints.save(subject.session, "timer")
    assert isinstance(result.cause, LogdirInUseError)
    after = contents(subject.logdir)
    assert not list(subject.logdir.glob("*_temp_*"))
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    assert len(changed) <= passes
    if passes < 3:  # the ledger, data
        assert "model.ckpt-2.index" not in after
    if passes < 4:  # index
        before.pop(LEDGER)
        assert {name: after[name] for name in before} == before


def test_a_save_that_is_refused_is_not_tried_again(bench: Any) -> None:
    """A takeover is for good: the error is no fault of the outside world that may pass."""
    assert not is_outside_fault(LogdirInUseError("taken over"))
    check = Check()
    subject = bench()
    subject.checkpoints.attach(Publisher(session="a", attempt=1, check=check))
    check.left = 0
    subject.train()
    result = subject.checkpoints.save(subject.session, "timer")
    assert isinstance(result.cause, LogdirInUseError)
    assert contents(subject.logdir) == {}
