"""What messages say besides the words of the findings: for how long, that it is over, and what is neither."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from supervisor_core.notify.changes import begins_text as begins
from supervisor_core.run.judge.finding import Finding
from tests.story.scene import BEGAN, MINUTE, Scene, Scripted, launch, names, trains


def test_saves_that_failed_until_a_restart_are_not_said_to_succeed(tmp_path: Path) -> None:
    """The new session has saved nothing yet: the disk may be as full as before."""
    scene = Scene(tmp_path)
    session = Scripted(tmp_path / "tuning", BEGAN)
    scene.go_on(20 * MINUTE, trains(session))
    scene.go_on(10 * MINUTE, trains(session, failing_saves=True))
    second = Scripted(tmp_path / "tuning", scene.now + 5, attempt=2, step=session.step)
    events = scene.go_on(0.5 * MINUTE, trains(second))
    text = next(event.text for event in events if event.what == "is_over")
    assert text.startswith("tuning: over after 8 min 14 s, as its program has ended. It was: Checkpoints cannot be ")


def test_the_age_of_several_sentences_is_one_of_its_own() -> None:
    """In the last of them it would be about the last of them."""
    text = "The newest checkpoint is damaged: it is empty. The last good one is ckpt-93."
    found = Finding(kind="checkpoint_damaged", since=10.0, text=text, cost="4 steps are lost.")
    assert begins(found, 70.0) == f"{text} This has lasted for 1 min. 4 steps are lost."


@pytest.mark.parametrize("is_done", [False, True])
def test_how_a_session_began_or_ended_is_said_once_without_an_age(tmp_path: Path, is_done: bool) -> None:
    """It is a moment: not over when the next session begins."""
    scene, step = Scene(tmp_path), 0
    events = []
    for attempt in (1, 2, 3):
        how = {} if attempt != 2 else {"resume_exact": False, "resume_reasons": ("another seed",)}
        session = Scripted(tmp_path / "tuning", scene.now, attempt=attempt, step=step, **how)
        if not (is_done and attempt == 2):
            events += scene.go_on(3 * MINUTE, trains(session))
        session.stop()
        events += scene.go_on(MINUTE)
        step = session.step
    kind = "completed_without_step" if is_done else "resumed_not_exactly"
    (event,) = [event for event in events if event.kind == kind]
    assert names([event]) == [f"info happened {kind}"] and "(for " not in event.text


def test_a_loss_that_is_finite_again(tmp_path: Path) -> None:
    """It is said so, not that it is not finite."""
    scene = Scene(tmp_path)
    session = Scripted(tmp_path / "tuning", BEGAN)
    scene.go_on(5 * MINUTE, trains(session))
    session.nan_from = session.step + 1
    assert names(scene.go_on(5 * MINUTE, trains(session))) == ["page begins loss_not_finite"]
    session.nan_from = session.step + 10**9
    (event,) = [each for each in scene.go_on(5 * MINUTE, trains(session)) if each.kind == "loss_not_finite"]
    assert event.what == "is_over" and event.text.startswith("tuning: the loss is finite again after ")


def test_a_directory_that_is_back(tmp_path: Path) -> None:
    """It is said so."""
    session, scene = Scripted(tmp_path / "runs" / "tuning", BEGAN), Scene(tmp_path / "runs")
    scene.go_on(5 * MINUTE, trains(session))
    shutil.move(tmp_path / "runs" / "tuning", tmp_path / "tuning")
    assert names(scene.go_on(3 * MINUTE)) == ["page begins unreachable"]
    shutil.move(tmp_path / "tuning", tmp_path / "runs" / "tuning")
    (event,) = [event for event in scene.go_on(MINUTE) if event.what == "is_over"]
    assert event.text.startswith("tuning: its directory can be read again after ")


def test_a_restart_loop_says_how_the_last_launch_ended(tmp_path: Path) -> None:
    """Not for how long the next one was waited for, which began long ago."""
    run, scene, step = tmp_path / "tuning", Scene(tmp_path), 0
    events = []
    for attempt in (1, 2, 3, 4):
        began = scene.now
        launch(run, attempt, began)
        session = Scripted(run, began, attempt=attempt, step=step)
        events += scene.go_on(3 * MINUTE, trains(session))
        if attempt < 4:
            launch(
                run, attempt, began, scene.now, cause="signal", signal="SIGKILL", session=session.session,
                backoff_secs=8.0,
            )  # fmt: skip
        step = session.step
    (event,) = [event for event in events if event.kind == "restart_loop"]
    assert "unplanned restarts within 1 h. Last: killed by SIGKILL; attempt 3. This has lasted for " in event.text
