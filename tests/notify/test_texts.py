"""What is said when something is over."""

from __future__ import annotations

from pathlib import Path

from tests.notify.scene import BEGAN, MINUTE, Scene, Scripted, trains


def test_saves_that_failed_until_a_restart_are_not_said_to_succeed(tmp_path: Path) -> None:
    """The new session has saved nothing yet: the disk may be as full as before."""
    scene = Scene(tmp_path)
    session = Scripted(tmp_path / "tuning", BEGAN)
    scene.go_on(20 * MINUTE, trains(session))
    scene.go_on(10 * MINUTE, trains(session, failing_saves=True))
    second = Scripted(tmp_path / "tuning", scene.now + 5, attempt=2, step=session.step)
    events = scene.go_on(0.5 * MINUTE, trains(second))
    text = next(event.text for event in events if event.what == "is_over")
    assert text.startswith("tuning: over after 8 min 14 s, as its program has ended: Checkpoints cannot be saved: ")
