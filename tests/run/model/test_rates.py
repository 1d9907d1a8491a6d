from __future__ import annotations

import random

import numpy as np
import pytest

from supervisor_core.events.chunk import Chunk, Points, TelemetryMark
from supervisor_core.events.telemetry import HeartbeatRecord
from supervisor_core.run.fold.file_fold import RATE_TAG, READINGS
from supervisor_core.run.fold.run_fold import RunFold
from supervisor_core.run.model import rate_history
from supervisor_core.run.model.rate_history import RateHistory
from tests.cases import each


def beat(at: float, rate: float | None) -> TelemetryMark:
    """A heartbeat with a rate."""
    return TelemetryMark(
        offset=int(at), at=at, step=1, record=HeartbeatRecord(session="s", phase="training", step=1, steps_per_sec=rate)
    )


def rate_points(values: list[float]) -> Points:
    """Summaries of rates."""
    count = np.arange(len(values))
    return Points(count, count, count.astype(float), np.array(values))


def rates_of(*chunks: Chunk) -> tuple[float, ...]:
    """The rates of a run with these chunks."""
    fold = RunFold("run")
    fold.update(chunks)
    return fold.run(now=100.0).rates


def test_heartbeats_give_the_rates() -> None:
    """The heartbeats' steps per second are kept, oldest first; a heartbeat without a rate adds nothing."""
    marks = (beat(1.0, None), beat(2.0, 10.0), beat(4.0, 12.5))
    assert rates_of(Chunk(path="a", from_start=True, created_at=1.0, marks=marks)) == (10.0, 12.5)


def test_summaries_give_the_rates_of_other_writers() -> None:
    """Without rates in heartbeats those in summaries of TensorFlow's hooks count; what is no number is left out."""
    chunk = Chunk(path="a", from_start=True, scalars={RATE_TAG: rate_points([5.0, float("nan"), 6.0])})
    assert rates_of(chunk) == (5.0, 6.0)


def test_only_the_latest_of_all_files_are_kept() -> None:
    """A run of many files and readings has the latest sixty, from as many files as it takes."""
    earlier = Chunk(path="a", from_start=True, created_at=1.0, scalars={RATE_TAG: rate_points([1.0] * 1000)})
    later = Chunk(path="b", from_start=True, created_at=2.0, scalars={RATE_TAG: rate_points([2.0] * 10)})
    assert rates_of(later, earlier) == (1.0,) * (READINGS - 10) + (2.0,) * 10


def test_a_rate_history_keeps_six_hours_and_no_nonsense() -> None:
    """Old minutes go; a reading of no time, or that is no number, is left out; files are joined in their order."""
    first, later = RateHistory(), RateHistory()
    for minute in range(1000):
        first.add(minute * 60.0, 10.0)
    for at, rate in ((float("nan"), 1.0), (1e300, 1.0), (-5.0, 1.0), (60_000.0, float("inf"))):
        first.add(at, rate)
    for minute in range(1000, 1030):
        later.add(minute * 60.0 + 1, 1.0)
    joined = RateHistory.joined([first, later])
    assert joined.slow(0.5, 900.0) == (1.0, 10.0, 60_000.0)
    for minute in range(1030, 1300):
        later.add(minute * 60.0 + 1, 1.0)
    assert RateHistory.joined([first, later]).slow(0.5, 900.0) == (1.0, 10.0, 60_000.0)  # for hours
    assert first.slow(0.5, 900.0) is None and later.slow(0.5, 900.0) is None and RateHistory().slow(0.5, 900.0) is None


@each("seed", range(20))
def test_minutes_without_steps_are_none(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept are the newest minutes that had steps, each with its time, wherever the gaps are."""
    monkeypatch.setattr(rate_history, "KEPT_MINUTES", 8)
    monkeypatch.setattr(rate_history, "_SPARE_MINUTES", 4)
    chance, history, minutes = random.Random(seed), RateHistory(), [0]
    for _ in range(60):
        history.add(minutes[-1] * 60.0, float(minutes[-1]))
        kept = list(history._minutes)
        assert 8 <= len(kept) <= 12 or kept == minutes
        assert kept == minutes[-len(kept) :] == list(map(int, history._means))
        minutes.append(minutes[-1] + chance.choice((1, 1, 2, 30)))


def test_a_minute_that_was_fast_makes_no_other_slow() -> None:
    """What is usual is the median of the time before, whatever a few minutes were."""
    history = RateHistory()
    for minute in range(120):
        history.add(minute * 60.0, 30.0 if minute % 20 == 10 else 10.0)
    assert history.slow(0.5, 900.0) is None
