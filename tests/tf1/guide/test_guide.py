"""The scenarios of the guide (seeds 000 and 002), each under its own name, as programs that only changed the import."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import supervisor_core

v1 = tf.compat.v1


def my_model() -> tuple[Any, Any, Any]:
    """Build a model with a global step; return weights, loss and train op."""
    weights = v1.get_variable("weights", initializer=[1.0, -2.0])
    loss = tf.reduce_sum(tf.square(weights))
    v1.summary.scalar("loss", loss)
    step = v1.train.get_or_create_global_step()
    return weights, loss, v1.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=step)


def test_writing_summaries(
    logdir: str, wait_until: Any, read_events: Any, read_summaries: Callable[[str], list[tuple[int, float]]]
) -> None:
    """Summaries of the program's own go to the run's one events file, dated by the present step."""
    *_, my_train_op = my_model()
    my_additional_summary_op = v1.summary.scalar("additional", tf.constant(3.0), collections=["mine"])

    def my_additional_summaries(sv: Any, sess: Any) -> None:
        summaries = sess.run(my_additional_summary_op)
        sv.summary_computed(sess, summaries)

    sv = supervisor_core.Supervisor(logdir=logdir)
    with sv.managed_session() as sess:
        for _ in range(4):
            sess.run(my_train_op)
        sv.loop(1200, my_additional_summaries, args=(sv, sess))

        def written() -> bool:
            sv.summary_writer.flush()
            return bool(read_summaries("additional"))

        wait_until(written)

    assert read_summaries("additional") == [(4, 3.0)]
    assert len(read_events(logdir)) == 1


def test_logdir_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a logdir the model is initialized and trained, and nothing is written."""
    monkeypatch.chdir(tmp_path)
    *_, my_train_op = my_model()
    sv = supervisor_core.Supervisor(logdir=None)
    assert (sv.save_path, sv.summary_writer) == (None, None)
    with sv.managed_session() as sess:
        for _ in range(10):
            if sv.should_stop():
                break
            sess.run(my_train_op)
        assert v1.train.global_step(sess, sv.global_step) == 10
    assert list(tmp_path.iterdir()) == []
