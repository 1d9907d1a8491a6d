"""Savers other than TensorFlow's plain one."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import tensorflow as tf

from supervisor_core.base.errors import OptionsError
from supervisor_core.tf1 import checkpoint_writer, snapshot
from supervisor_core.tf1.saver_graph import CannotSnapshot

v1 = tf.compat.v1
ENDINGS = ("data-00000-of-00001", "index", "meta")


@pytest.fixture
def no_snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a saver writes is not known."""

    def unknown(graph: Any, saver: Any) -> Any:
        raise CannotSnapshot("of a reason")

    monkeypatch.setattr(snapshot, "read_saver", unknown)


def test_the_older_format_is_refused(bench: Any) -> None:
    """It could not be read back; the error says what to do."""
    with pytest.raises(OptionsError, match="Leave write_version out"):
        bench(make_saver=lambda: v1.train.Saver(write_version=v1.train.SaverDef.V1))


def test_a_saver_of_an_unknown_kind_is_run_as_it_is(
    bench: Any, caplog: pytest.LogCaptureFixture, no_snapshots: None
) -> None:
    """Without a snapshot the saver is run as it is; its checkpoints are verified, and do not claim consistency."""
    with caplog.at_level(logging.WARNING, logger="supervisor_core"):
        model = bench(make_saver=lambda: v1.train.Saver(max_to_keep=1))
    assert "may mix steps, since of a reason" in caplog.text
    assert not model.checkpoints.consistent
    model.save()
    result = model.save()
    assert (result.consistent, result.verified, result.step) == (False, True, 2)
    assert model.names() == ["checkpoint", *(f"model.ckpt-2.{ending}" for ending in ENDINGS)]
    assert model.listed() == ["model.ckpt-2"]
    assert model.saver.last_checkpoints == [result.path]


def test_a_save_that_others_train_on_during_is_named_by_the_step_in_it(
    bench: Any, monkeypatch: pytest.MonkeyPatch, no_snapshots: None
) -> None:
    """Between the look at the step and the saver's run another worker does one: name, record and content agree."""
    model = bench(make_saver=v1.train.Saver)
    read = checkpoint_writer.read_global_step

    def read_before_a_step(sess: Any, global_step: Any) -> int:
        step = read(sess, global_step)
        sess.run(model.train_op)
        return step

    monkeypatch.setattr(checkpoint_writer, "read_global_step", read_before_a_step)
    result = model.save()
    assert (result.step, result.path) == (2, str(model.logdir / "model.ckpt-2"))
    assert tf.train.load_checkpoint(result.path).get_tensor("global_step") == 2
    assert model.names() == ["checkpoint", *(f"model.ckpt-2.{ending}" for ending in ENDINGS)]


def test_a_saver_with_its_own_save_is_called_as_the_original_calls_it(bench: Any) -> None:
    """A program's own saver gets the session, the path and the global step, and does all the rest itself."""
    calls: list[Any] = []

    class OwnSaver(v1.train.Saver):
        def save(self, sess: Any, save_path: str, global_step: Any = None) -> Any:
            calls.append((sess, save_path, global_step))
            return super().save(sess, save_path, global_step=global_step)

    model = bench(make_saver=OwnSaver)
    result = model.save(steps=2)
    assert calls == [(model.session.plain_session(), str(model.logdir / "model.ckpt"), model.step)]
    assert (result.step, result.consistent, result.verified) == (2, False, True)
    assert result.path == str(model.logdir / "model.ckpt-2")


def test_a_saver_that_writes_something_else_is_taken_at_its_word(bench: Any) -> None:
    """What is no checkpoint of TensorFlow's cannot be verified; the result does not claim it."""

    class Elsewhere:
        def save(self, sess: Any, save_path: str, global_step: Any = None) -> str | None:
            return save_path + "-5"

    result = bench(make_saver=Elsewhere).save()
    assert (result.step, result.verified, result.bytes) == (5, None, None)
