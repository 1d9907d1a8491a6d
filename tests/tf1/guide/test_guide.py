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


def test_started_services(
    logdir: str, wait_until: Any, read_summaries: Callable[[str], list[tuple[int, float]]]
) -> None:
    """Checkpoints, summaries, steps per second and queue runners come with the managed session."""
    *_, my_train_op = my_model()
    queue = tf.queue.FIFOQueue(4, [tf.int32], [[]])
    v1.train.add_queue_runner(v1.train.QueueRunner(queue, [queue.enqueue(7)]))
    example = queue.dequeue()

    sv = supervisor_core.Supervisor(logdir=logdir, save_summaries_secs=0.05, save_model_secs=0.05)
    with sv.managed_session() as sess:

        def served() -> bool:
            sess.run(my_train_op)
            sv.summary_writer.flush()
            return bool(checkpoint_step(logdir) > 0 and read_summaries("loss") and read_summaries("global_step/sec"))

        wait_until(served)
        assert sess.run(example) == 7


def test_services_run_every_10_and_every_2_minutes_by_default(logdir: str, read_telemetry: Any) -> None:
    """Checkpoints every 600 s, summaries and step counts every 120 s, unless set otherwise."""
    my_model()

    sv = supervisor_core.Supervisor(logdir=logdir)
    assert (sv.save_model_secs, sv.save_summaries_secs) == (600, 120)
    with sv.managed_session():
        pass

    [session] = [record for record in read_telemetry(logdir) if record.kind == "session"]
    services = {service.name: service.interval_secs for service in session.services}
    assert services == {"summary": 120, "step_counter": 120, "checkpoint": 600}


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


def test_checking_for_stop_after_an_exception_of_the_main_loop(logdir: str) -> None:
    """An exception of the main loop is caught and reported, so that the services stop, and raised again."""
    my_model()
    sv = supervisor_core.Supervisor(logdir=logdir)
    with pytest.raises(KeyError, match="in the main loop"), sv.managed_session():
        service = sv.loop(0.01, int)
        raise KeyError("in the main loop")
    assert sv.should_stop()
    assert not service.is_alive()


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


def test_larger_model_scenario(
    logdir: str, read_summaries: Callable[[str], list[tuple[int, float]]], read_telemetry: Any
) -> None:
    """With summary_op=None no summary service runs, and the training loop writes its own every 100 steps."""
    *_, my_train_op = my_model()
    my_summary_op = v1.summary.merge_all()

    sv = supervisor_core.Supervisor(logdir=logdir, summary_op=None)  # Do not run the summary service
    with sv.managed_session() as sess:
        for step in range(301):
            if sv.should_stop():
                break
            if step % 100 == 0:
                _, summ = sess.run([my_train_op, my_summary_op])
                sv.summary_computed(sess, summ)
            else:
                sess.run(my_train_op)

    assert [step for step, _ in read_summaries("loss")] == [1, 101, 201, 301]
    [session] = [record for record in read_telemetry(logdir) if record.kind == "session"]
    assert [service.name for service in session.services] == ["step_counter", "checkpoint"]


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


def test_writing_summaries_needs_a_writer() -> None:
    """Without a logdir summary_computed() says what it needs."""
    my_model()
    sv = supervisor_core.Supervisor()
    with sv.managed_session() as sess, pytest.raises(RuntimeError, match="Writing a summary requires a summary writer"):
        sv.summary_computed(sess, v1.Summary())


def test_a_custom_saver_every_30_seconds(logdir: str, read_telemetry: Any) -> None:
    """Only what the custom saver names is saved, on the interval given, under the name given."""
    weights, _, my_train_op = my_model()
    v1.get_variable("too_large_to_save", initializer=0.0)
    my_saver = v1.train.Saver([weights])

    sv = supervisor_core.Supervisor(
        logdir=logdir, saver=my_saver, save_model_secs=30, checkpoint_basename="weights.ckpt"
    )
    assert sv.saver is my_saver
    with sv.managed_session() as sess:
        sess.run(my_train_op)

    newest = v1.train.latest_checkpoint(logdir)
    assert newest == os.path.join(logdir, "weights.ckpt-1")
    assert [name for name, _ in tf.train.list_variables(newest)] == ["weights"]
    [session] = [record for record in read_telemetry(logdir) if record.kind == "session"]
    assert ("checkpoint", 30) in [(service.name, service.interval_secs) for service in session.services]


def test_checkpoint_names_have_the_step(logdir: str) -> None:
    """At global step 1234 the checkpoint is model.ckpt-1234."""
    step = v1.get_variable("global_step", initializer=1233, trainable=False)
    my_train_op = step.assign_add(1).op
    with supervisor_core.Supervisor(logdir=logdir).managed_session() as sess:
        sess.run(my_train_op)
    assert checkpoint_step(logdir) == 1234


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


def test_intervals_of_0(logdir: str, read_events: Any, read_telemetry: Any) -> None:
    """Intervals of 0 disable checkpoints and summaries; the events file with START and STOP is still there."""
    *_, my_train_op = my_model()
    sv = supervisor_core.Supervisor(logdir=logdir, save_model_secs=0, save_summaries_secs=0)
    with sv.managed_session() as sess:
        for _ in range(10):
            sess.run(my_train_op)
    assert v1.train.latest_checkpoint(logdir) is None
    [events] = read_events(logdir, telemetry=False)
    assert [event for event in events if event.summary.value] == []
    assert len([event for event in events if event.session_log.status]) == 2
    [session] = [record for record in read_telemetry(logdir) if record.kind == "session"]
    assert session.services == ()


def test_an_integer_variable_called_global_step_is_found(logdir: str) -> None:
    """A scalar integer variable called global_step counts, whichever way it was made."""
    for number, use_resource in enumerate([False, True]):
        with tf.Graph().as_default():
            step = v1.Variable(0, name="global_step", trainable=False, use_resource=use_resource)
            add = step.assign_add(1).op
            own = os.path.join(logdir, str(number))
            with supervisor_core.Supervisor(logdir=own).managed_session() as sess:
                sess.run(add)
            assert checkpoint_step(own) == 1
