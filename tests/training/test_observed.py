"""What the steps show that are done again after a kill: `program.py` is the training."""

from __future__ import annotations

import re
import signal
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from supervisor_core.events.file_writer import FileWriter
from supervisor_core.training.save_point import Due
from supervisor_core.training.state import TrainingState
from supervisor_core.training.state_notes import StateNotes
from tests.training.parts import run_of, training


class StillClock:
    """A clock that only the test moves."""

    at = 0.0

    def wall(self) -> float:
        """Return the time."""
        return self.at

    monotonic = wall


@pytest.mark.parametrize("broken", (False, True))
def test_what_a_resume_recomputes_is_compared_with_what_was_logged(tmp_path: Path, broken: bool) -> None:
    """After a kill: equal losses show that it is exact, one that differs shows that it is not, whatever was captured.
    Log, record, model and metrics say the same."""
    environment = {"TRIAL_BROKEN": str(int(broken)), "TRIAL_OBSERVE": "1"}
    first = training(tmp_path, 30, "kill", 18, **environment)
    assert first.returncode == -signal.SIGKILL, first.stderr
    second = training(tmp_path, 30, **environment)
    assert second.returncode == 0, second.stderr
    *_, resumed = run_of(tmp_path).sessions
    check = resumed.resume_check
    assert check is not None and resumed.restored_step == 16
    if broken:
        assert (check.tag, check.step, check.is_equal, resumed.resume_exact) == ("loss", 16, False, False)
        assert resumed.resume_reasons == (f"{check.text}.",)
        assert f"The resume is not exact: {check.text}." in second.stderr
    else:
        assert (check.text, resumed.resume_exact) == ("3 of 3 recomputed losses equal", True)
        assert "The resume is observed exact (3 of 3 recomputed losses equal)." in second.stderr
    observed = second.stdout.splitlines()[-2]
    assert observed == f"observed {check.text}"


def test_after_a_clean_stop_steps_are_recomputed_where_that_is_asked_for(tmp_path: Path) -> None:
    """From the newest checkpoint that is so many steps before the stop; without one the log says so. The training ends
    with the bits of one that was never stopped. One that is completed is not verified."""
    ends = [training(tmp_path / "whole", 30).stdout.splitlines()[-1]]
    for verify, restored, observed in (("3", 12, "6 of 6 recomputed losses equal"), ("100", 18, "None")):
        logdir = tmp_path / verify
        stopped = training(logdir, 30, "SIGTERM", 17)
        assert stopped.returncode == -signal.SIGTERM, stopped.stderr
        resumed = training(logdir, 30, TRIAL_VERIFY=verify, TRIAL_OBSERVE="1")
        assert resumed.returncode == 0, resumed.stderr
        *_, said, end = resumed.stdout.splitlines()
        assert said == f"observed {observed}" and run_of(logdir).sessions[-1].restored_step == restored
        no_usable = "Options.verify_resume: no usable checkpoint is 100 steps before step 18, the last one reached"
        assert (no_usable in resumed.stderr) is (verify == "100")
        ends.append(end)
    assert len(set(ends)) == 1
    again = training(tmp_path / "3", 31, TRIAL_VERIFY="3", TRIAL_OBSERVE="1")
    assert again.stdout.splitlines()[-2] == "observed None"


@pytest.mark.parametrize("broken", (False, True))
def test_the_trained_state_is_compared_where_nothing_is_logged(tmp_path: Path, broken: bool) -> None:
    """By digests, noted after one, two and four steps since the checkpoint of step 12."""
    environment = {"TRIAL_BROKEN": str(int(broken)), "TRIAL_OBSERVE": "1", "TRIAL_LOG": "0"}
    first = training(tmp_path, 30, "kill", 15, **environment)
    assert first.returncode == -signal.SIGKILL, first.stderr
    second = training(tmp_path, 30, **environment)
    assert second.returncode == 0, second.stderr
    observed = second.stdout.splitlines()[-2]
    if broken:
        assert re.fullmatch(
            r"observed state of model at step 13 differs \([0-9a-f]{12} before, [0-9a-f]{12} now\)", observed
        )
    else:
        assert observed == "observed 2 of 2 recomputed states equal"


def test_what_the_digests_cost_is_bounded(tmp_path: Path) -> None:
    """A state that takes long to return is not asked for it after each step that could be noted."""
    clock = StillClock()

    class Slow:
        asked = 0

        def state_dict(self) -> dict[str, Any]:
            self.asked += 1
            clock.at += 1.0
            return {"weight": np.ones(4)}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            pass

    slow, due = Slow(), Due()
    notes = StateNotes(TrainingState(objects={"model": slow}), due, clock)
    with closing(FileWriter(tmp_path)) as writer:
        notes.begin(writer, "a", 0)
        may_be_saved = [notes.note(step) for step in range(1, 100)]
    assert slow.asked == 1 and due.note_step == 128
    assert [step for step, may in enumerate(may_be_saved, 1) if not may] == [1, 2, 4, 8, 16, 32, 64]


def test_a_state_that_cannot_be_noted_is_left_out_and_saved_when_it_is_due(tmp_path: Path) -> None:
    """The error is the save's to raise: until that is due nothing is saved, and nothing is noted any more."""

    class Refusing:
        def state_dict(self) -> dict[str, Any]:
            raise RuntimeError("not now")

        def load_state_dict(self, state: dict[str, Any]) -> None:
            pass

    due = Due()
    due.plan(1e9, 10)
    notes = StateNotes(TrainingState(objects={"model": Refusing()}), due, StillClock())
    with closing(FileWriter(tmp_path)) as writer:
        notes.begin(writer, "a", 0)
        assert [notes.note(1), due.step, notes.note(10)] == [False, 10, True]
