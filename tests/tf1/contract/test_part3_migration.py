"""docs/migration.md: each of its blocks, as it was before the change and as it is after it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.training import supervisor

import supervisor_core
from tests.cases import each

v1 = tf.compat.v1
PAGE = (Path(__file__).parents[3] / "docs" / "migration.md").read_text("utf-8")
DIFFS = re.findall(r"```diff\n(.*?)```", PAGE, re.DOTALL)
PATCH = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def side(diff: str, mark: str) -> str:
    """Return the program on one side of a diff: "-" before the change, "+" after it."""
    return "\n".join(line[1:] for line in diff.splitlines() if line[:1] in ("", " ", mark))


def run(program: str, logdir: Path) -> dict[str, Any]:
    """Run a program that trains in a graph of its own; return its names."""
    with tf.Graph().as_default():
        step = v1.train.get_or_create_global_step()
        names: dict[str, Any] = {
            "train_op": step.assign_add(1),
            "summary": v1.Summary(value=[v1.Summary.Value(tag="loss", simple_value=1.0)]),
        }
        exec(program.replace("/runs/a", str(logdir)), names)
    return names


def is_about(diff: str) -> str:
    """Return the name of the class that a diff is about, for the test's own name."""
    return re.findall(r"import (\w+)", diff)[-1]


@each("mark", ["-", "+"])
@each("diff", DIFFS)
def test_each_block_works_before_and_after(diff: str, mark: str, tmp_path: Path) -> None:
    """Both sides run to their end, and leave the files that they are about."""
    run(side(diff, mark), tmp_path)
    if "checkpoint" in diff.lower() or "logdir=" in diff:
        newest = v1.train.latest_checkpoint(str(tmp_path))
        if mark == "+" or "logdir=" not in diff:  # the original's newest is of its last timer
            assert newest == str(tmp_path / "model.ckpt-100")
    if "FileWriter" in diff:
        assert list(tmp_path.glob("events.out.tfevents.*"))


def test_the_blocks_change_nothing_but_the_import() -> None:
    """Each block changes lines that import, and no other."""
    assert len(DIFFS) == 4
    changed = [line[1:] for diff in DIFFS for line in diff.splitlines() if line[:1] in ("-", "+")]
    assert all(re.match(r"from [\w.]+ import [\w, ]+$", line) for line in changed)


def test_a_library_that_imports_the_internal_module(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """After the line that patches it, the internal module's name is ours."""
    monkeypatch.setattr(supervisor, "Supervisor", supervisor.Supervisor)
    exec(PATCH[0], {})
    with tf.Graph().as_default():
        train_op = v1.train.get_or_create_global_step().assign_add(1)
        sv = supervisor.Supervisor(logdir=str(tmp_path))
        assert isinstance(sv, supervisor_core.Supervisor)
        with sv.managed_session() as sess:
            sess.run(train_op)
    assert v1.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-1")


@each("facade", ["Supervisor", "MonitoredTrainingSession"])
def test_there_and_back(facade: str, tmp_path: Path) -> None:
    """A run that changes between TensorFlow's class and ours goes on from the step at which the other one stopped."""

    def train(library: Any, steps: int) -> tuple[int, int]:
        with tf.Graph().as_default():
            step = v1.train.get_or_create_global_step()
            train_op = step.assign_add(1)
            if facade == "Supervisor":
                # No timer: the original's, late, may name an older checkpoint as the newest.
                sv = library.Supervisor(logdir=str(tmp_path), save_model_secs=0)
                with sv.managed_session() as sess:
                    first = int(sess.run(step))
                    for _ in range(steps):
                        last = int(sess.run(train_op))
                    sv.saver.save(sess, sv.save_path, global_step=step)
            else:
                with library.MonitoredTrainingSession(checkpoint_dir=str(tmp_path)) as sess:
                    first = int(sess.run(step))
                    for _ in range(steps):
                        last = int(sess.run(train_op))
        return first, last

    assert train(v1.train, 5) == (0, 5)
    assert train(supervisor_core, 5) == (5, 10)
    assert train(v1.train, 5) == (10, 15)
    assert train(supervisor_core, 5) == (15, 20)
