"""A training that the program finishes is completed: for good, until it has more to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor_core import supervise
from tests.training.parts import run_of


def trained(logdir: Path, until: int, *, finish_at: int = -1, save_steps: int | None = None) -> list[int]:
    """Return the steps that a program makes: it finishes the training within one of them."""
    steps = []
    with supervise(logdir, state={"data": {}}, save_secs=None, save_steps=save_steps) as run:
        for step in run.steps(until):
            steps.append(step)
            if step == finish_at:
                run.finish()
                assert run.should_stop()
            run.wait_until_saved()
    return steps


def outcomes(logdir: Path) -> list[tuple[str, int | None]]:
    """How the sessions have ended, as readers see them, and their last steps."""
    return [(session.outcome, session.last_step) for session in run_of(logdir).sessions]


def test_a_finish_that_a_kill_has_lost_is_none(tmp_path: Path) -> None:
    """The checkpoint of the step before decides: the loop goes on from there, and may come to it again."""
    with pytest.raises(ArithmeticError), supervise(tmp_path, state={"data": {}}, save_secs=None, save_steps=1) as run:
        for step in run.steps(9):
            run.wait_until_saved()
            if step == 3:
                run.finish()
                raise ArithmeticError
    assert trained(tmp_path, 9, finish_at=5) == [3, 4, 5]


def test_a_finished_training_is_completed_at_each_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It ends after the step that is under way; later starts make no step and save nothing, and say what to do."""
    caplog.set_level("INFO", "supervisor_core")
    assert trained(tmp_path, 9, finish_at=3) == [0, 1, 2, 3]
    checkpoints = sorted(tmp_path.glob("checkpoints/*"))
    assert trained(tmp_path, 9) == trained(tmp_path, 7) == []
    assert "was finished at step 4: nothing is left to do. To train on, give it more steps" in caplog.text
    assert sorted(tmp_path.glob("checkpoints/*")) == checkpoints
    assert outcomes(tmp_path) == [("completed", 4)] * 3


def test_a_loop_of_its_own_asks_should_stop(tmp_path: Path) -> None:
    """It is true from the call on, and at each later start."""
    counts = []
    for _ in range(2):
        with supervise(tmp_path, state={"data": {}}, save_secs=None) as run:
            while not run.should_stop():
                run.step()
                if run.global_step == 3:
                    run.finish()
            counts.append((run.global_step, run.goal.is_finished))
    assert counts == [(3, True)] * 2 and outcomes(tmp_path) == [("completed", 3)] * 2
