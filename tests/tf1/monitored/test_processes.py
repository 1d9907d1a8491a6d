"""`MonitoredTrainingSession` in processes of their own: SIGTERM and `kill -9`."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from supervisor_core.base.errors import LogdirInUseError

v1 = tf.compat.v1
pytestmark = pytest.mark.timeout(300)
PROGRAM = Path(__file__).with_name("program.py")


@pytest.fixture(scope="module")
def trainings(start_training: Callable[..., Any]) -> dict[str, Any]:
    """One training for each test, both started at once."""
    return {name: start_training(PROGRAM) for name in ("SIGTERM", "SIGKILL")}


def test_sigterm_saves_the_last_step_of_a_monitored_session(
    trained: Any, saved_step: Any, session_logs: Any, read_telemetry: Any
) -> None:
    """The last step is on disk, STOP is written, and the process dies of the signal."""
    training = trained("SIGTERM")
    training.process.terminate()
    last = int(training.lines_until("last step")[-1].removeprefix("last step "))
    assert training.process.wait() == -signal.SIGTERM
    stored = tf.train.load_checkpoint(training.logdir)
    assert saved_step(training.logdir) == stored.get_tensor("global_step") == stored.get_tensor("weight") == last
    statuses = [status for status, _ in session_logs(training.logdir)]
    assert statuses[-2:] == [v1.SessionLog.CHECKPOINT, v1.SessionLog.STOP]
    [stop] = [record for record in read_telemetry(training.logdir) if record.kind == "stop"]
    assert (stop.reason, stop.signal, stop.final_checkpoint_step) == ("signal", "SIGTERM", last)


def test_kill_9_of_a_monitored_session_and_resume(
    trained: Any, run_steps: Any, newest_on_disk: Any, read_telemetry: Any
) -> None:
    """A second chief is refused while the first lives; after a kill it resumes at the newest checkpoint."""
    training = trained("SIGKILL")
    with pytest.raises(LogdirInUseError, match=str(training.process.pid)):
        run_steps(checkpoint_dir=training.logdir)
    training.process.kill()
    training.process.wait()
    step = newest_on_disk(training.logdir)
    assert run_steps(2, checkpoint_dir=training.logdir) == (step, step + 2)
    sessions = [record for record in read_telemetry(training.logdir) if record.kind == "session"]
    first, second = sorted(sessions, key=lambda record: record.attempt)  # files of one second come in any order
    assert (first.attempt, second.attempt) == (1, 2)
    assert (second.restored_step, second.previous_outcome) == (step, "lost")
    finished = int.from_bytes(Path(f"{training.logdir}.steps").read_bytes(), "little")
    assert second.previous_step - finished in (0, 1), "the kill came while a finished step was on its way to be counted"
