"""What is kept of a long session takes little memory, and says what is asked of it."""

from __future__ import annotations

import random

from supervisor_core.events.chunk import Chunk, TelemetryMark
from supervisor_core.events.telemetry import CheckpointRecord, SessionRecord
from supervisor_core.run.fold.bounds import KEPT_SAVES
from supervisor_core.run.fold.run_fold import RunFold
from supervisor_core.run.fold.step_time_curve import MOST_POINTS, StepTimeCurve


def test_two_days_of_steps_take_no_more_than_the_bound() -> None:
    """Steps of some 0.27 s: all seconds are within six, those of the newest points are as they were added."""
    draw, curve, points, secs, step = random.Random(1), StepTimeCurve(0), [], 0.0, 0
    for _ in range(20_000):
        taken = draw.randrange(30, 45)
        step, secs = step + taken, secs + sum(0.27 + draw.gauss(0.0, 0.03) for _ in range(taken))
        curve.reached(step, secs)
        points.append((step, secs))
    assert max(abs(curve.secs_at(step) - secs) for step, secs in points) < 6.0
    assert all(curve.secs_at(step) == secs for step, secs in points[-MOST_POINTS // 3 :])


def test_who_asks_about_the_present_keeps_the_newest_saves() -> None:
    """Failures displace no good one, and of a long row of them the first is kept: it says since when saves fail."""

    def kept(count: int, failing_from: int) -> list[int | None]:
        records = [
            CheckpointRecord(
                session="s",
                path=None if n >= failing_from else f"m-{n}",
                step=n,
                error=None if n < failing_from else "full",
            )
            for n in range(count)
        ]
        marks = [TelemetryMark(offset=n + 1, at=10.0 + n, step=n, record=record) for n, record in enumerate(records)]
        begin = TelemetryMark(offset=0, at=1.0, step=0, record=SessionRecord(session="s", started_at=1.0))
        fold = RunFold("a", all_saves=False)
        fold.update([Chunk(path="a", from_start=True, marks=(begin, *marks))])
        run = fold.run(1e6)
        assert run.sessions[-1].saves == count and not run.dropped
        return [saved.step for saved in run.checkpoints]

    assert kept(300, 300) == [*range(300 - KEPT_SAVES, 300)]
    assert kept(300, 290) == [*range(290 - KEPT_SAVES, 300)]
    assert kept(300, 100) == [*range(100 - KEPT_SAVES, 101), *range(300 - KEPT_SAVES + 1, 300)]
