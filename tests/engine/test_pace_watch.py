"""How long a process of several takes for a step, and how much of that it waits for the others."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor_core.engine import monitor as pace_watch
from supervisor_core.engine.monitor import PaceWatch
from supervisor_core.events.telemetry import Pace

OWN = ("/x/train.py:14 load",)
WAITS = ("/x/train.py:25 main", "/venv/site-packages/torch/autograd/graph.py:1113 _engine_run_backward")


class Trained:
    """A training of which each step takes as long as is said, looked at every half second."""

    def __init__(self, clock: Any) -> None:
        self.clock, self.steps, self.stack = clock, 0, OWN
        self.phase = "training"
        self.watch = PaceWatch(
            lambda: int(self.steps) if self.phase == "training" else None, clock, stack=lambda: self.stack
        )

    def look(self, looks: int, steps_each: float, own_of: int = 1) -> None:
        """Look that often; each ``own_of``-th time it does not wait."""
        for number in range(looks):
            self.clock.advance(0.5)
            self.steps += steps_each  # type: ignore[assignment]
            self.stack = OWN if number % own_of == 0 else WAITS
            self.watch.look()


@pytest.fixture
def trained(clock: Any) -> Trained:
    """One that has not begun."""
    return Trained(clock)


@pytest.mark.parametrize(("steps_each", "step_secs"), [(5, 0.1), (0.25, 2.0)])
def test_the_share_of_the_looks_is_the_share_of_the_step(trained: Trained, steps_each: float, step_secs: float) -> None:
    """Of short steps and of long ones. With too few looks nothing is said."""
    trained.look(50, steps_each, own_of=4)
    assert trained.watch.pace() is None
    trained.look(50, steps_each, own_of=4)
    pace = trained.watch.pace()
    assert pace is not None and pace.step_secs == pytest.approx(step_secs)
    assert pace.own_secs == pytest.approx(step_secs / 4, rel=0.1)


def test_only_the_last_minute_counts(trained: Trained) -> None:
    """A process that was slow is not."""
    trained.look(200, 1)
    trained.look(119, 5, own_of=2)
    pace = trained.watch.pace()
    assert pace is not None and (pace.step_secs, pace.own_secs) == (pytest.approx(0.1), pytest.approx(0.05, rel=0.05))


def test_an_evaluation_does_not_count(trained: Trained) -> None:
    """Neither one that has a phase, nor one that has none: no step for longer than five steps take."""
    trained.look(100, 5, own_of=2)
    before = trained.watch.pace()
    trained.look(20, 0)
    trained.look(1, 5)
    trained.phase = "evaluating"
    trained.look(10, 0)
    trained.phase = "training"
    trained.look(1, 5)
    after = trained.watch.pace()
    assert before is not None and after is not None and after.step_secs == before.step_secs
    assert after.own_secs == pytest.approx(before.own_secs, rel=0.03)


def test_a_thread_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until it is stopped; starting twice changes nothing."""
    monkeypatch.setattr(pace_watch, "LOOK_SECS", (0.0, 0.001))
    steps = iter(range(1_000_000))
    watch = PaceWatch(lambda: next(steps))
    watch.start()
    watch.start()
    while (pace := watch.pace()) is None:
        pass
    watch.stop()
    watch._thread.join()
    assert isinstance(pace, Pace) and pace.own_secs == pace.step_secs  # the main thread was here
    watch.start()
    assert not watch._thread.is_alive()
