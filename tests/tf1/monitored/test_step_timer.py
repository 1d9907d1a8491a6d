"""`StepTimer`: what is due when, whatever the clocks do."""

from __future__ import annotations

import pytest

from supervisor_core.tf1.monitored.hosted_hook import StepTimer


class Hands:
    """A clock whose two hands are moved apart."""

    def __init__(self) -> None:
        self.now = self.wall_now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.wall_now


@pytest.mark.parametrize(
    ("moved", "wall_moved", "due"),
    [(5, 5, True), (4, 4, False), (5, -3600, True), (0, 3600, True)],
    ids=["both", "neither", "the clock was set back", "the machine was suspended"],
)
def test_seconds_have_passed_when_either_clock_says_so(moved: float, wall_moved: float, due: bool) -> None:
    """A clock that is set back stops nothing; time that a machine was suspended counts."""
    clock = Hands()
    timer = StepTimer(every_secs=5, clock=clock)
    assert timer.should_trigger_for_step(1)
    assert timer.update_last_triggered_step(1) == (None, None)
    clock.now += moved
    clock.wall_now += wall_moved
    assert timer.should_trigger_for_step(2) is due
    assert not timer.should_trigger_for_step(1)
    assert timer.update_last_triggered_step(2) == (moved, 1)
    assert timer.last_triggered_step() == 2
