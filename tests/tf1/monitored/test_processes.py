"""`MonitoredTrainingSession` in processes of their own: SIGTERM and `kill -9`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from supervisor_core.errors import LogdirInUseError

v1 = tf.compat.v1
pytestmark = pytest.mark.timeout(300)
PROGRAM = Path(__file__).with_name("program.py")


@dataclass(frozen=True)
class Training:
    """A program that trains in a process of its own."""

    logdir: str
    process: subprocess.Popen[str]

    def line(self, start: str) -> str:
        """Return the program's next line that starts so; empty when it ends before."""
        assert self.process.stdout is not None
        return next((line.strip() for line in self.process.stdout if line.startswith(start)), "")

    def saved_step(self) -> int:
        """Return the step of the newest checkpoint, -1 where there is none."""
        newest = v1.train.latest_checkpoint(self.logdir)
        return -1 if newest is None else int(newest.rpartition("-")[2])


@pytest.fixture(scope="module")
def trainings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Training]]:
    """One training for each test, all started at once: most of their time goes into importing tensorflow."""
    started = {}
    for name in ("SIGTERM", "SIGKILL"):
        logdir = str(tmp_path_factory.mktemp("process") / name)
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM), logdir],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=os.getcwd(),
        )
        started[name] = Training(logdir, process)
    yield started
    for training in started.values():
        training.process.kill()
        training.process.wait()
        assert training.process.stdout is not None
        training.process.stdout.close()


@pytest.fixture
def trained(trainings: dict[str, Training], wait_until: Callable[..., None]) -> Callable[[str], Training]:
    """Returns a function that returns a training once it has written a checkpoint of a later step."""

    def get(name: str) -> Training:
        training = trainings[name]
        assert training.line("training") == "training"
        wait_until(lambda: training.saved_step() > 0, 120)
        return training

    return get


def test_sigterm_saves_the_last_step_of_a_monitored_session(
    trained: Callable[[str], Training], session_logs: Any, read_telemetry: Any
) -> None:
    """The last step is on disk, STOP is written, and the process dies of the signal."""
    training = trained("SIGTERM")
    training.process.terminate()
    last = int(training.line("last step").removeprefix("last step "))
    assert training.process.wait() == -signal.SIGTERM
    stored = tf.train.load_checkpoint(training.logdir)
    assert training.saved_step() == stored.get_tensor("global_step") == stored.get_tensor("weight") == last
    statuses = [status for status, _ in session_logs(training.logdir)]
    assert statuses[-2:] == [v1.SessionLog.CHECKPOINT, v1.SessionLog.STOP]
    [stop] = [record for record in read_telemetry(training.logdir) if record.kind == "stop"]
    assert (stop.reason, stop.signal, stop.final_checkpoint_step) == ("signal", "SIGTERM", last)


def test_kill_9_of_a_monitored_session_and_resume(
    trained: Callable[[str], Training], run_steps: Any, read_telemetry: Any
) -> None:
    """A second chief is refused while the first lives; after a kill it resumes at the newest checkpoint."""
    training = trained("SIGKILL")
    with pytest.raises(LogdirInUseError, match=str(training.process.pid)):
        run_steps(checkpoint_dir=training.logdir)
    training.process.kill()
    training.process.wait()
    step = training.saved_step()
    assert run_steps(2, checkpoint_dir=training.logdir) == (step, step + 2)
    sessions = [record for record in read_telemetry(training.logdir) if record.kind == "session"]
    first, second = sorted(sessions, key=lambda record: record.attempt)  # files of one second come in any order
    assert (first.attempt, second.attempt) == (1, 2)
    assert (second.restored_step, second.previous_outcome) == (step, "lost")
