"""The scenarios of the guide (seeds 000 and 002), each under its own name, as programs that only changed the import."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import supervisor_core

v1 = tf.compat.v1
START = v1.SessionLog.START


def my_model() -> tuple[Any, Any, Any]:
    """Build a model with a global step; return weights, loss and train op."""
    weights = v1.get_variable("weights", initializer=[1.0, -2.0])
    loss = tf.reduce_sum(tf.square(weights))
    v1.summary.scalar("loss", loss)
    step = v1.train.get_or_create_global_step()
    return weights, loss, v1.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=step)


def checkpoint_step(logdir: str) -> int:
    """Return the step of the newest checkpoint, -1 where there is none."""
    newest = v1.train.latest_checkpoint(logdir)
    return -1 if newest is None else int(newest.rpartition("-")[2])


def test_very_simple_scenario(logdir: str) -> None:
    """A supervisor, a managed session, and a loop that checks for the stop: trained, and on disk."""
    *_, my_train_op = my_model()

    sv = supervisor_core.Supervisor(logdir=logdir)
    with sv.managed_session() as sess:
        for _ in range(200):
            if sv.should_stop():
                break
            sess.run(my_train_op)

    assert checkpoint_step(logdir) == 200
    assert tf.train.load_checkpoint(logdir).get_tensor("weights") == pytest.approx([0.0, 0.0], abs=1e-6)


def test_checking_for_stop(logdir: str) -> None:
    """An exception in a service makes should_stop() true, ends the other services, and comes out of the block."""
    *_, my_train_op = my_model()
    other_calls: list[int] = []

    def my_broken_service() -> None:
        raise ValueError("in my service")

    sv = supervisor_core.Supervisor(logdir=logdir)
    with pytest.raises(ValueError, match="in my service"), sv.managed_session() as sess:
        other = sv.loop(0.01, other_calls.append, args=(1,))
        sv.loop(60, my_broken_service)
        while not sv.should_stop():
            sess.run(my_train_op)

    assert not other.is_alive()


def test_recovery(logdir: str, read_events: Any) -> None:
    """A restarted program resumes where it stopped, in a new events file that says at which step."""
    for start, end in [(0, 30), (30, 50)]:
        with tf.Graph().as_default():
            *_, my_train_op = my_model()
            sv = supervisor_core.Supervisor(logdir=logdir)
            with sv.managed_session() as sess:
                assert v1.train.global_step(sess, sv.global_step) == start
                while v1.train.global_step(sess, sv.global_step) < end:
                    sess.run(my_train_op)
    assert checkpoint_step(logdir) == 50
    first, second = read_events(logdir)
    for events, step in [(first, 0), (second, 30)]:
        starts = [event.step for event in events if event.session_log.status == START]
        assert starts == [step]


def test_pre_trained_model_scenario(logdir: str, tmp_path: Path) -> None:
    """init_fn loads a pre-trained checkpoint into a new run, and is not called when the run is recovered."""
    pre_trained = str(tmp_path / "pre-trained" / "model.ckpt")
    with tf.Graph().as_default(), v1.Session() as sess:
        v1.get_variable("weights", initializer=[5.0, 6.0])
        sess.run(v1.global_variables_initializer())
        os.mkdir(os.path.dirname(pre_trained))
        v1.train.Saver().save(sess, pre_trained)
    loaded: list[str] = []

    for start in ([5.0, 6.0], [4.0, 4.8]):
        with tf.Graph().as_default():
            weights, _, my_train_op = my_model()
            v1.get_variable("not_in_the_pre_trained_model", initializer=0.0)
            # Create a saver that restores only the pre-trained variables.
            pre_train_saver = v1.train.Saver([weights])

            # Define an init function that loads the pretrained checkpoint.
            def load_pretrain(sess: Any, saver: Any = pre_train_saver) -> None:
                loaded.append("loaded")
                saver.restore(sess, pre_trained)

            sv = supervisor_core.Supervisor(logdir=logdir, init_fn=load_pretrain)
            with sv.managed_session() as sess:
                assert sess.run(weights) == pytest.approx(start)
                sess.run(my_train_op)

    assert loaded == ["loaded"]


def test_running_your_own_services(logdir: str) -> None:
    """sv.loop(1200, ...) calls a function at once and then every 20 minutes, until the stop."""
    my_model()
    called: list[Any] = []
    done = threading.Event()

    def my_additional_summaries(sv: Any, sess: Any) -> None:
        called.append((sv, sess))
        done.set()

    sv = supervisor_core.Supervisor(logdir=logdir)
    with sv.managed_session() as sess:
        service = sv.loop(1200, my_additional_summaries, args=(sv, sess))
        assert done.wait(30)

    assert called == [(sv, sess)]
    assert not service.is_alive()


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


def test_a_checkpoint_file_edited_by_hand(logdir: str) -> None:
    """When in a pinch, the state file can be edited to recover from a checkpoint that is not the newest."""
    with tf.Graph().as_default():
        *_, my_train_op = my_model()
        sv = supervisor_core.Supervisor(logdir=logdir)
        with sv.managed_session() as sess:
            for _ in range(3):
                sess.run(my_train_op)
                sv.save_checkpoint()
    Path(logdir, "checkpoint").write_text('model_checkpoint_path: "model.ckpt-2"\n')
    my_model()
    sv = supervisor_core.Supervisor(logdir=logdir)
    with sv.managed_session() as sess:
        assert v1.train.global_step(sess, sv.global_step) == 2


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
