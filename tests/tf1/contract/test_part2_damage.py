"""Contract part 2: preparations that fail, damaged checkpoints, changed models, copied run directories."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

v1 = tf.compat.v1


DATA, INDEX = ".data-00000-of-00001", ".index"


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
