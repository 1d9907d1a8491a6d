"""Steps per second, for steps of any length."""

from __future__ import annotations

import pytest

from supervisor_core.engine.progress import Progress, StepRate


def train(progress: Progress, clock, *, secs: float, steps: int, look_secs: float = 1.0) -> list[float | None]:
    """Do steps of a length, with a look each second; return the rates that were reported."""
    rates: list[float | None] = []
    for _ in range(steps):
        started = clock.monotonic()
        left = secs
        while left > 0:
            pause = min(left, look_secs)
            clock.advance(pause)
            left -= pause
            progress.sample()
            if left > 0:
                rates.append(progress.snapshot().steps_per_second)
        progress.run_ended(True, started, clock.monotonic())
        rates.append(progress.snapshot().steps_per_second)
    return rates


@pytest.fixture
def progress(clock) -> Progress:
    """A session in training."""
    progress = Progress(clock)
    progress.enter("training")
    return progress


@pytest.mark.parametrize("secs", [0.01, 0.9, 7.0, 58.5, 1800.0])
def test_a_steady_training_has_a_steady_rate(clock, progress, secs: float) -> None:
    """From its second step on the rate is the true one at every moment, though the looks fall anywhere in a step."""
    train(progress, clock, secs=secs, steps=1, look_secs=secs / 3)
    rates = train(progress, clock, secs=secs, steps=40, look_secs=max(0.004, secs / 7))
    assert rates == pytest.approx([1 / secs] * len(rates), rel=0.001)


def test_what_came_before_training_is_left_out(clock) -> None:
    """Half an hour of restoring does not count: after the first step the rate is that step's."""
    progress = Progress(clock)
    progress.enter("restoring")
    clock.advance(1800)
    progress.enter("training")
    assert progress.snapshot().steps_per_second is None
    assert train(progress, clock, secs=2.0, steps=1)[-1] == pytest.approx(0.5)


def test_an_evaluation_is_left_out(clock, progress) -> None:
    """The rate is that of training, also just after an evaluation that took longer than its window."""
    train(progress, clock, secs=60.0, steps=12)
    progress.enter("evaluating")
    clock.advance(3600)
    progress.sample()
    assert progress.snapshot().steps_per_second == pytest.approx(1 / 60)
    progress.enter("training")
    rates = train(progress, clock, secs=60.0, steps=12)
    assert rates == pytest.approx([1 / 60] * len(rates))


def test_a_slower_training_is_slower_after_ten_steps(clock) -> None:
    """The rate follows a change within ten steps, or thirty seconds, whichever is longer."""
    progress = Progress(clock)
    progress.enter("training")
    train(progress, clock, secs=60.0, steps=30)
    assert train(progress, clock, secs=180.0, steps=11)[-1] == pytest.approx(1 / 180)
    progress = Progress(clock)
    progress.enter("training")
    train(progress, clock, secs=0.1, steps=1000)
    assert train(progress, clock, secs=1.0, steps=31)[-1] == pytest.approx(1.0)


def test_a_step_that_hangs(clock, progress) -> None:
    """The rate falls with each second, and is 0 once ten steps are overdue."""
    train(progress, clock, secs=60.0, steps=20)
    rates = []
    for _ in range(601):
        clock.advance(1.0)
        progress.sample()
        rates.append(progress.snapshot().steps_per_second)
    assert rates == sorted(rates, reverse=True) and rates[59] == pytest.approx(1 / 60)
    assert 0 < rates[599] < 1 / 100 and rates[600] == 0.0


def test_others_steps_count_where_this_process_does_none(clock, progress) -> None:
    """A chief that only saves reports the rate of the global step, 100 a minute, also after the model was restored."""
    for first in (0, 500):
        if first:
            progress.rewound(first)
            clock.advance(10)
        for minute in range(20):
            progress.step_read(first + 100 * minute)
            progress.sample()
            rate = progress.snapshot().steps_per_second
            assert rate is None if minute == 0 else 1.4 < rate < 1.7
            clock.advance(60)


def test_it_keeps_little() -> None:
    """A look each second keeps as many readings as the window has seconds."""
    rate = StepRate(0.0)
    for second in range(1, 10_000):
        rate.add(float(second), 1000 * second)
    assert len(rate._ends) <= 32 and rate.value(9_999.5) == 1000.0
