"""Contract part 2: preparations that fail, damaged checkpoints, changed models, copied run directories."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from supervisor_core.base.errors import NoUsableCheckpointError

v1 = tf.compat.v1


def cut(path: Path) -> None:
    """Cut a file in half."""
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def flip(path: Path) -> None:
    """Change one bit in the middle of a file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data)


def empty(path: Path) -> None:
    """Leave nothing of a file but its name."""
    path.write_bytes(b"")


DATA, INDEX = ".data-00000-of-00001", ".index"
DAMAGES = {
    "data cut": (DATA, cut),
    "data flipped": (DATA, flip),
    "data empty": (DATA, empty),
    "data gone": (DATA, Path.unlink),
    "index cut": (INDEX, cut),
    "index flipped": (INDEX, flip),
    "index empty": (INDEX, empty),
    "index gone": (INDEX, Path.unlink),
}


@pytest.mark.parametrize("error", [tf.errors.OutOfRangeError(None, None, "cut short"), ValueError("no data")])
def test_a_preparation_that_fails_raises_its_own_error(
    ours: Any, build_model: Callable[..., Any], logdir: str, sessions: Any, error: Exception
) -> None:
    """What a preparation raises comes out, end of input too, with the session closed and the logdir free again."""
    build_model()

    def init_fn(sess: Any) -> None:
        raise error

    supervisor = ours.Supervisor(logdir=logdir, init_fn=init_fn)
    for _ in range(2):
        with pytest.raises(type(error)) as raised, supervisor.managed_session():
            pytest.fail("the body must not run")
        assert raised.value is error
    assert len(sessions.opened) == 2
    assert set(sessions.opened) <= set(sessions.closed)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_newest_checkpoint_is_passed_over(
    build_model: Callable[..., Any],
    save_steps: Any,
    train: Any,
    logdir: str,
    read_telemetry: Any,
    caplog: pytest.LogCaptureFixture,
    damage: str,
) -> None:
    """The run resumes from the newest that is whole; log and session record say what was skipped and why."""
    *_, newest = save_steps(logdir, build_model(), 3, 7)
    suffix, harm = DAMAGES[damage]
    harm(Path(newest + suffix))
    with caplog.at_level(logging.WARNING, logger="supervisor_core"):
        assert train(steps=2) == (3, 5)
    [session] = [record for record in read_telemetry(logdir) if record.kind == "session"]
    assert session.restored_step == 3
    [skipped] = session.skipped
    assert skipped.path == newest
    assert skipped.reason
    assert newest in caplog.text
    assert skipped.reason in caplog.text


@pytest.mark.parametrize("harm", [cut, empty, Path.unlink, lambda path: path.write_bytes(b"\x00\xff" * 20)])
def test_a_torn_state_file_loses_nothing(
    build_model: Callable[..., Any],
    save_steps: Any,
    train: Any,
    logdir: str,
    read_telemetry: Any,
    caplog: pytest.LogCaptureFixture,
    harm: Callable[[Path], object],
) -> None:
    """With the state file torn, empty, gone or overwritten the newest checkpoint is found, and it is said."""
    save_steps(logdir, build_model(), 3, 7)
    harm(Path(logdir, "checkpoint"))
    with caplog.at_level(logging.WARNING, logger="supervisor_core"):
        assert train() == (7, 7)
    [session] = [record for record in read_telemetry(logdir) if record.kind == "session"]
    assert session.restored_step == 7
    assert session.state_problem
    assert session.state_problem in caplog.text


def test_all_damaged_is_an_error_that_lists_each(
    build_model: Callable[..., Any], save_steps: Any, train: Any, logdir: str
) -> None:
    """With checkpoints of which none can be read nothing starts at step 0: the error lists each with its damage."""
    paths = save_steps(logdir, build_model(), 3, 7)
    cut(Path(paths[0] + DATA))
    Path(paths[1] + INDEX).unlink()
    before = sorted(path.name for path in Path(logdir).glob("model.ckpt*"))
    with pytest.raises(NoUsableCheckpointError) as raised:
        train()
    for path in paths:
        assert path in str(raised.value)
    assert sorted(path.name for path in Path(logdir).glob("model.ckpt*")) == before


def test_a_copied_run_leaves_the_originals_checkpoints_alone(
    build_model: Callable[..., Any], save_steps: Any, train: Any, logdir: str, read_telemetry: Any
) -> None:
    """A copy resumes from its own files though its state file names the original's, and deletes only its own."""
    save_steps(logdir, build_model(), 3, 7)
    copy = logdir + "-copy"
    shutil.copytree(logdir, copy)
    before = {path.name: path.read_bytes() for path in Path(logdir).iterdir()}
    assert train(steps=2, logdir=copy) == (7, 9)
    assert {path.name: path.read_bytes() for path in Path(logdir).iterdir()} == before
    [session] = [record for record in read_telemetry(copy) if record.kind == "session"]
    assert session.restored_checkpoint == f"{copy}/model.ckpt-7"
    text = Path(copy, "checkpoint").read_text()
    assert 'model_checkpoint_path: "model.ckpt-9"' in text
    assert logdir not in text


def test_another_models_checkpoint_says_what_differs(
    ours: Any, build_model: Callable[..., Any], save_steps: Any, logdir: str
) -> None:
    """Restoring into a changed model lists the variables that are missing, extra and of another shape."""
    v1.Variable(1.0, name="only_in_the_checkpoint", use_resource=False)
    v1.Variable([1.0, 2.0], name="bias", use_resource=False)
    save_steps(logdir, build_model(), 7)
    with tf.Graph().as_default():
        build_model()
        v1.Variable(1.0, name="only_in_the_model", use_resource=False)
        v1.Variable([1.0, 2.0, 3.0], name="bias", use_resource=False)
        supervisor = ours.Supervisor(logdir=logdir)
        with (
            pytest.raises((tf.errors.NotFoundError, tf.errors.InvalidArgumentError)) as raised,
            supervisor.managed_session(),
        ):
            pytest.fail("the body must not run")
    lines = [line.strip() for line in str(raised.value).splitlines()]
    assert "in the model, not in the checkpoint (1): only_in_the_model" in lines
    assert "in the checkpoint, not in the model (1): only_in_the_checkpoint" in lines
    assert "of another shape (1): bias (model [3], checkpoint [2])" in lines
