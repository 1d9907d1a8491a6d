"""Contract part 2 in processes of their own: signals, `kill -9`, and two chiefs."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from supervisor_core.errors import LogdirInUseError

v1 = tf.compat.v1
STOP, CHECKPOINT = v1.SessionLog.STOP, v1.SessionLog.CHECKPOINT
pytestmark = pytest.mark.timeout(300)
PROGRAM = Path(__file__).with_name("program.py")


@pytest.fixture(scope="module")
def trainings(start_training: Callable[..., Any]) -> dict[str, Any]:
    """One training for each test, all started at once."""
    return {
        "SIGTERM": start_training(PROGRAM, "60", "heeds"),
        "deaf": start_training(PROGRAM, "60", "ignores"),  # it ends as soon as it is saved
        "SIGKILL": start_training(PROGRAM, "60", "heeds"),
    }


def finished_steps(logdir: str) -> int:
    """Return the number of steps that a training has finished."""
    counter = Path(f"{logdir}.steps")
    return int.from_bytes(counter.read_bytes(), "little") if counter.exists() else 0


def statuses(read_events: Any, logdir: str) -> list[int]:
    """Return the status of each session log."""
    return [event.session_log.status for file in read_events(logdir) for event in file if event.session_log.status]


def test_sigterm_shuts_down(trained: Any, saved_step: Any, read_events: Any, read_telemetry: Any) -> None:
    """After SIGTERM the last step is on disk, STOP is written, and the process dies of the signal."""
    training = trained("SIGTERM")
    training.process.terminate()
    [line] = training.lines_until("nothing more")
    last = int(line.removeprefix("last step "))
    assert training.process.wait() == -signal.SIGTERM
    assert saved_step(training.logdir) == last
    stored = tf.train.load_checkpoint(training.logdir)
    assert (stored.get_tensor("global_step"), stored.get_tensor("weight")) == (last, last)
    assert statuses(read_events, training.logdir)[-2:] == [CHECKPOINT, STOP]
    [stop] = [record for record in read_telemetry(training.logdir) if record.kind == "stop"]
    assert (stop.reason, stop.signal, stop.final_checkpoint_step) == ("signal", "SIGTERM", last)


def test_ctrl_c_shuts_down(train: Any, logdir: str, saved_step: Any, read_events: Any, read_telemetry: Any) -> None:
    """After SIGINT should_stop() is true, the last step is on disk, and KeyboardInterrupt comes when all is saved."""

    def body(supervisor: Any, sess: Any, model: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        while not supervisor.should_stop():
            sess.run(model.train_op)

    with pytest.raises(KeyboardInterrupt):
        train(steps=3, body=body)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert statuses(read_events, logdir)[-1] == STOP
    [stop] = [record for record in read_telemetry(logdir) if record.kind == "stop"]
    assert (stop.reason, stop.signal) == ("signal", "SIGINT")
    assert stop.final_checkpoint_step == saved_step(logdir) >= 3


def test_a_loop_that_does_not_heed_the_signal_is_saved_beside(
    trainings: dict[str, Any], saved_step: Any, wait_until: Any, read_events: Any, read_telemetry: Any
) -> None:
    """A loop that never looks at should_stop() ends within the grace time, with a checkpoint and STOP."""
    training = trainings["deaf"]
    assert training.lines_until("training")[-1:] == ["training"]
    wait_until(lambda: -1 < saved_step(training.logdir) < finished_steps(training.logdir))  # there is more to save
    training.process.send_signal(signal.SIGTERM)
    assert training.process.wait() == -signal.SIGTERM
    assert statuses(read_events, training.logdir)[-1] == STOP
    records = read_telemetry(training.logdir)
    [stop] = [record for record in records if record.kind == "stop"]
    assert (stop.reason, stop.signal) == ("signal", "SIGTERM")
    assert stop.final_checkpoint_step == saved_step(training.logdir)
    stored = tf.train.load_checkpoint(training.logdir)
    assert stored.get_tensor("global_step") == stored.get_tensor("weight") == stop.final_checkpoint_step
    assert "signal" in {record.trigger for record in records if record.kind == "checkpoint"}


def test_kill_9_and_resume(
    trained: Any, train: Any, newest_on_disk: Any, read_events: Any, read_telemetry: Any
) -> None:
    """A second chief is refused while the first lives, and resumes at the newest checkpoint when it was killed."""
    training = trained("SIGKILL")
    with pytest.raises(LogdirInUseError) as raised:
        train(logdir=training.logdir)
    assert str(training.process.pid) in str(raised.value)
    assert socket.gethostname() in str(raised.value)
    training.process.kill()
    training.process.wait()
    step = newest_on_disk(training.logdir)
    assert step > 0
    assert train(steps=2, logdir=training.logdir) == (step, step + 2)
    first, second = [record for record in read_telemetry(training.logdir) if record.kind == "session"]
    assert (first.attempt, second.attempt) == (1, 2)
    assert (second.restored_step, second.previous_outcome) == (step, "lost")
    uncounted = second.previous_step - finished_steps(training.logdir)
    assert uncounted in (0, 1), "the kill came while a finished step was on its way to be counted"
    killed, *_, resumed = read_events(training.logdir)
    assert STOP not in [event.session_log.status for event in killed]
    assert [event.session_log.status for event in resumed][-1] == STOP
