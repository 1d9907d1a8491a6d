"""What the steps show that are done again after a kill: `program.py` is the training."""

from __future__ import annotations

import signal
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

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
