"""Sessions that write no checkpoints are in the way of none that does, and leave no trace in their history."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from supervisor_core.base.errors import LogdirInUseError

Make = Any  # `Leases`


def test_a_logdir_of_its_own_is_taken(make: Make) -> None:
    """Where no session has written checkpoints it is one like any other, and the next one follows it."""
    first = make(yields_logdir=True)
    assert first.acquire("a").attempt == 1
    first.renew(last_step=70)
    first.check()
    first.release("completed", last_step=70)
    history = make(yields_logdir=True).acquire("b")
    assert (history.attempt, history.last_step, history.restarts) == (2, 70, {"completed": 1})


def test_a_session_that_writes_checkpoints_keeps_it_out(make: Make, on_disk: Callable[[], dict[str, Any]]) -> None:
    """Beside a training, and after it, it is refused, and changes nothing in the lease."""
    training = make.hold("training")
    during = on_disk()
    make.refuse("evaluation", yields_logdir=True, exclusive=False)
    assert on_disk() == during
    training.release("signal", last_step=5)
    after = on_disk()
    make.refuse("evaluation", yields_logdir=True)
    assert on_disk() == after
    assert make().acquire("training again").attempt == 2


def test_a_training_in_another_process_keeps_it_out(make: Make, holder: subprocess.Popen[str]) -> None:
    """The lock of another process is respected as it is by all."""
    assert holder.poll() is None
    make.refuse("evaluation", yields_logdir=True)


def test_a_training_takes_over_at_once(make: Make, on_disk: Callable[[], dict[str, Any]]) -> None:
    """A session that is alive gives way; it is no earlier session of the training, and notices before it publishes."""
    heard: list[LogdirInUseError] = []
    evaluation = make.hold("evaluation", yields_logdir=True, on_taken_over=heard.append)
    evaluation.check()
    training = make()
    history = training.acquire("training")
    assert (history.previous, history.restarts, history.exclusive) == (None, {}, True)
    with pytest.raises(LogdirInUseError, match="writes no telemetry any more"):
        evaluation.check()
    assert len(heard) == 1
    evaluation.release("completed")
    training.check()
    assert on_disk()["session"] == "training"


def test_an_evaluation_in_another_process_yields_logdir(make: Make, holder_script: str, tmp_path: Any) -> None:
    """It keeps no lock on the file: a training on the same machine does not have to wait for it."""
    script = holder_script.replace("LogdirLock(sys.argv[1]", "LogdirLock(sys.argv[1], yields_logdir=True")
    assert "yields_logdir" in script
    command = [sys.executable, "-c", script, str(tmp_path / "run")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        make.refuse("another evaluation", yields_logdir=True)
        assert make().acquire("training").previous is None
        process.communicate("")


def test_a_dead_one_is_followed(make: Make, edit: Callable[..., None]) -> None:
    """One that was killed is an earlier session like any other, for one of its kind."""
    killed = make.hold("killed", yields_logdir=True)
    killed._close_in_child()  # as the end of the process does
    edit(pid=2**22 + 1)
    history = make(yields_logdir=True).acquire("next")
    assert (history.attempt, history.previous_outcome) == (2, "lost")
