"""Contract part 2: what a session's end owes to its errors, its last steps, its threads, and the events file."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from supervisor_core import MonitoredTrainingSession, Supervisor
from supervisor_core.base.options import Options
from supervisor_core.tf1 import supervisor as module

v1 = tf.compat.v1
START, STOP, CHECKPOINT = v1.SessionLog.START, v1.SessionLog.STOP, v1.SessionLog.CHECKPOINT


@pytest.fixture
def ending(logdir: str, read_telemetry: Callable[..., Any]) -> Callable[[], Any]:
    """Returns a function that reads the one stop record."""

    def read() -> Any:
        [record] = [record for record in read_telemetry(logdir) if record.kind == "stop"]
        return record

    return read


@pytest.fixture
def logs(logdir: str, read_events: Any) -> Callable[[], list[tuple[int, int, str]]]:
    """Returns a function that reads status, step and checkpoint of each session log."""

    def read() -> list[tuple[int, int, str]]:
        events = [event for file in read_events(logdir) for event in file if event.HasField("session_log")]
        return [(event.session_log.status, event.step, event.session_log.checkpoint_path) for event in events]

    return read


def newest(logdir: str) -> str | None:
    """Return the name of the checkpoint that TensorFlow itself finds to be the newest."""
    path = v1.train.latest_checkpoint(logdir)
    return None if path is None else os.path.basename(path)


def test_the_error_of_the_body_is_never_lost(train: Any, ending: Any) -> None:
    """An error raised after somebody had asked for a stop comes out all the same."""

    def body(supervisor: Any, sess: Any, model: Any) -> None:
        supervisor.request_stop()
        raise ValueError("after the stop")

    with pytest.raises(ValueError, match="after the stop"):
        train(body=body)
    assert (ending().reason, ending().error) == ("error", "ValueError: after the stop")


def test_the_first_of_two_errors_comes_out(train: Any) -> None:
    """A service's error that stopped the run is the one raised; the body's own, which followed, is its context."""

    def broken() -> None:
        raise KeyError("the cause")

    def body(supervisor: Any, sess: Any, model: Any) -> None:
        supervisor.loop(9999, broken)
        supervisor.wait_for_stop()
        raise ValueError("what followed")

    with pytest.raises(KeyError, match="the cause") as raised:
        train(body=body)
    assert isinstance(raised.value.__context__, ValueError)


def test_a_clean_end_at_step_500_is_on_disk(train: Any, logdir: str, logs: Any, ending: Any) -> None:
    """The last step is saved at a clean end, then STOP is written; the state file names it."""
    assert train(steps=500) == (0, 500)
    assert newest(logdir) == "model.ckpt-500"
    assert tf.train.load_checkpoint(f"{logdir}/model.ckpt-500").get_tensor("weight") == 500.0
    assert logs()[0][:2] == (START, 0)
    assert [status for status, _, _ in logs()][-2:] == [CHECKPOINT, STOP]
    assert logs()[-2] == (CHECKPOINT, 500, f"{logdir}/model.ckpt-500")
    record = ending()
    assert (record.reason, record.step, record.final_checkpoint_step) == ("completed", 500, 500)
    assert record.final_checkpoint == f"{logdir}/model.ckpt-500"


def test_what_blocks_in_the_session_is_released_before_the_grace_is_over(
    ours: Any,
    build_model: Callable[..., Any],
    logdir: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A service blocked in a dequeue is let go by closing the session, and ends within the grace time."""
    monkeypatch.setattr(module, "RELEASE_AFTER_SECS", 0.5)  # of 30: the rest is for a slow machine
    build_model()
    empty = tf.queue.FIFOQueue(1, [tf.int32], [[]]).dequeue()
    supervisor = ours.Supervisor(logdir=logdir, stop_grace_secs=30.0, options=Options(snapshot_wait_secs=0.01))
    begun = threading.Event()
    with caplog.at_level(logging.WARNING, logger="supervisor_core"), supervisor.managed_session() as sess:

        def blocked() -> None:
            begun.set()
            sess.run(empty)

        looper = supervisor.loop(None, blocked)
        assert begun.wait(120)
    assert not looper.is_alive()
    assert "still running" not in caplog.text


def test_a_session_that_is_not_managed_is_saved_by_stop(
    ours: Any, build_model: Callable[..., Any], logdir: str
) -> None:
    """Programs that call prepare_or_wait_for_session() and stop() get their last step on disk as well."""
    model = build_model()
    supervisor = ours.Supervisor(logdir=logdir)
    sess = supervisor.prepare_or_wait_for_session()
    for _ in range(5):
        sess.run(model.train_op)
    supervisor.stop()
    sess.close()
    assert newest(logdir) == "model.ckpt-5"
    assert Path(logdir, "model.ckpt-5.meta").exists()


FACADES = pytest.mark.parametrize("facade", ["Supervisor", "MonitoredTrainingSession"])


def open_session(facade: str, logdir: str) -> tuple[Any, Callable[[], None]]:
    """Return a session without a block, and what ends it."""
    if facade == "MonitoredTrainingSession":
        sess = MonitoredTrainingSession(checkpoint_dir=logdir, save_checkpoint_secs=9999)
        return sess, sess.close
    supervisor = Supervisor(logdir=logdir, save_model_secs=9999)
    sess = supervisor.prepare_or_wait_for_session()
    supervisor.save_checkpoint()
    return sess, supervisor.stop


def test_the_final_checkpoint_can_be_declined(train: Any, logdir: str, wait_until: Callable[..., None]) -> None:
    """With `Options(save_on_stop=False)` only the timer saves."""

    def body(supervisor: Any, sess: Any, model: Any) -> None:
        wait_until(lambda: newest(logdir))
        for _ in range(50):
            sess.run(model.train_op)

    train(body=body, options=Options(save_on_stop=False))
    assert newest(logdir) == "model.ckpt-0"


@FACADES
def test_an_exception_on_its_way_through_finally(
    build_model: Callable[..., Any], logdir: str, ending: Any, facade: str
) -> None:
    """It counts as the same exception in a block does: the run has failed, and its last step is not saved."""
    model = build_model()
    sess, stop = open_session(facade, logdir)
    with pytest.raises(ValueError, match="exploded"):
        try:
            sess.run(model.train_op)
            raise ValueError("exploded")
        finally:
            stop()
    assert (ending().reason, ending().error) == ("error", "ValueError: exploded")
    assert newest(logdir) == "model.ckpt-0"


@FACADES
@pytest.mark.parametrize("error", [StopIteration(), tf.errors.OutOfRangeError(None, None, "no more")])
def test_exhausted_input_that_is_handled(
    build_model: Callable[..., Any], logdir: str, ending: Any, facade: str, error: Exception
) -> None:
    """The end of the input is no failure, wherever the program ends the session."""
    model = build_model()
    sess, stop = open_session(facade, logdir)
    try:
        sess.run(model.train_op)
        raise error
    except (StopIteration, tf.errors.OutOfRangeError):
        stop()
    assert (ending().reason, newest(logdir)) == ("exhausted", "model.ckpt-1")


def test_services_end_with_a_session_that_the_program_closes(
    ours: Any, build_model: Callable[..., Any], logdir: str, wait_until: Any, ending: Callable[[], Any]
) -> None:
    """Whatever a service was doing in it at that moment: it stops, and nothing is raised for that."""
    build_model()
    supervisor = ours.Supervisor(logdir=logdir, save_model_secs=0.01, save_summaries_secs=0.01)
    sess = supervisor.prepare_or_wait_for_session()
    sess.close()
    names = ("checkpoint", "step_counter", "step_reader")
    wait_until(
        lambda: (
            {each.name: each.state for each in supervisor.run_status().threads if each.name in names}
            == dict.fromkeys(names, "stopped")
        )
    )
    assert not supervisor.should_stop()
    supervisor.stop()
    assert ending().reason == "completed"
