"""What a training holds of its own run, where nobody else looks at it."""

from __future__ import annotations

from dataclasses import replace

from supervisor_core.events.telemetry import ThreadStatus, WorkerStatus
from supervisor_core.metrics.collector import OwnFindings
from supervisor_core.run.model.checkpoints import Checkpoint
from supervisor_core.run.model.run import Session
from supervisor_core.run.status import CheckpointStatus, RunStatus, StallStatus

SESSION = Session(session="s", ended_at=None, outcome="running", inferred=False, phase="training")
WELL = RunStatus(run="r", active=True, session=SESSION, info={"logdir": "/my logs/r"})
ILL = replace(
    WELL,
    stalled=True,
    stall=StallStatus(phase="training", thread="MainThread", location="train.py:15 in load", activity="waits"),
    session=replace(SESSION, save_failures_in_a_row=2, save_error="OSError: full"),
    loss_finite=False,
    threads=(ThreadStatus(name="summary", state="failed"),),
    workers=(WorkerStatus(name="worker:1", state="lost"), WorkerStatus(name="worker:2", state="running")),
)


def test_each_is_held_once_it_has_lasted() -> None:
    """As long as its kind needs; what is over begins anew. Texts and commands are those of any finding."""
    own = OwnFindings()
    seen = {secs: [found.kind for found in own.held(ILL, 1000.0 + secs)] for secs in (0, 29, 30, 60, 120, 600)}
    assert seen == {
        0: ["loss_not_finite"],
        29: ["loss_not_finite"],
        30: ["stalled", "loss_not_finite"],
        60: ["stalled", "saves_failing", "loss_not_finite"],
        120: ["stalled", "saves_failing", "loss_not_finite", "worker_lost"],
        600: ["stalled", "saves_failing", "loss_not_finite", "worker_lost", "thread_down"],
    }
    stalled, failing, *_ = own.held(ILL, 1600.0)
    assert stalled.text == "No progress in the phase training: MainThread waits at train.py:15 in load."
    assert stalled.action == "tb-supervisor stacks -- '/my logs/r'" and failing.action == "df -h -- '/my logs/r'"
    assert failing.text == "Checkpoints cannot be saved: OSError: full."
    assert own.held(WELL, 1601.0) == ()
    assert [found.kind for found in own.held(ILL, 1602.0)] == ["loss_not_finite"]


def test_the_first_step_after_nan_is_that_of_an_exporter() -> None:
    """Which checkpoint is good and how to resume from it, or that there is none."""
    good = Checkpoint(session="s", at=1.0, step=1200, path="/my logs/r/ckpt-1200")
    doubted = replace(good, step=1300, path="/my logs/r/ckpt-1300", doubt="The loss was NaN.")

    def action(**checkpoint: Checkpoint) -> str | None:
        status = replace(WELL, loss_finite=False, checkpoint=CheckpointStatus(**checkpoint))
        (found,) = OwnFindings().held(status, 1000.0)
        return found.action

    assert action(last_success=doubted, last_good=good) == (
        "Stop the training, then rewind it (tb-supervisor rewind -- '/my logs/r/ckpt-1200'): the next start resumes "
        "from the last good checkpoint, of step 1,200."
    )
    assert action() == ("Stop the training. No good checkpoint is known: begin again at step 0, in another directory.")
    assert action(last_success=doubted) == "tb-supervisor inspect --run=. -- '/my logs/r'"


def test_nothing_is_held_of_a_session_that_has_ended() -> None:
    """Its last report says so."""
    assert OwnFindings().held(replace(ILL, active=False), 1000.0) == ()
