"""Contract part 2 in processes of their own: `kill -9`, and two chiefs. Signals are in `tests/endings`."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from supervisor_core.base.errors import LogdirInUseError

v1 = tf.compat.v1
STOP = v1.SessionLog.STOP
pytestmark = pytest.mark.timeout(300)
PROGRAM = Path(__file__).with_name("program.py")


@pytest.fixture(scope="module")
def trainings(start_training: Callable[..., Any]) -> dict[str, Any]:
    """The training of the test."""
    return {"SIGKILL": start_training(PROGRAM, "60")}


def finished_steps(logdir: str) -> int:
    """Return the number of steps that a training has finished."""
    counter = Path(f"{logdir}.steps")
    return int.from_bytes(counter.read_bytes(), "little") if counter.exists() else 0


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
