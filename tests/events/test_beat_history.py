"""Which heartbeats a later one sums up, and what is left out of one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from supervisor_core.events.beat_history import FULL_EVERY, LEAST_BEATS, MOST_BEATS, BeatHistoryFold, rounded
from supervisor_core.events.heartbeat_parts import PauseReport
from supervisor_core.events.telemetry import HeartbeatRecord, ThreadStatus

T0 = 1_700_000_000.0


def beat(number: int, **changes: Any) -> HeartbeatRecord:
    """An ordinary heartbeat."""
    usual = HeartbeatRecord(
        session="s",
        phase="training",
        elapsed_secs=10.0 * number,
        step=100 * number,
        steps_per_sec=10.0,
        progress_timeout_secs=300.0,
        activity_secs={"productive": 9.9 * number, "stall": 0.0, "silent": 0.0},
        threads=(ThreadStatus(name="checkpoint", state="idle"),),
    )
    return replace(usual, **changes)


class Written:
    """What a fold makes of heartbeats ten seconds apart."""

    def __init__(self) -> None:
        self.fold = BeatHistoryFold()
        self.number = 0

    def add(self, *, at: float = 0.0, workers_changed: bool = False, **changes: Any) -> HeartbeatRecord:
        """Add one; return what is written."""
        self.number += 1
        one = beat(self.number, **changes)
        wall = T0 + 10.0 * self.number + at
        ends = self.fold.ends_with(one, wall, workers_changed=workers_changed)
        return self.fold.add(one, wall, ends=ends)

    def several(self, count: int) -> list[HeartbeatRecord]:
        """Add ordinary ones."""
        return [self.add() for _ in range(count)]


def test_every_so_often_a_heartbeat_has_what_the_ones_before_amount_to() -> None:
    """The first, and each after 360 more; it is covered by none, and straight lines need two points."""
    found = Written().several(2 * MOST_BEATS + 3)
    assert [number for number, each in enumerate(found) if each.history] == [MOST_BEATS + 1, 2 * MOST_BEATS + 2]
    history = found[MOST_BEATS + 1].history
    assert history is not None
    assert (history.beats, history.first_elapsed_secs, history.last_elapsed_secs) == (MOST_BEATS, 20.0, 3610.0)
    assert history.productive_beats == (0, MOST_BEATS - 1)
    assert len(history.rates) == MOST_BEATS


@pytest.mark.parametrize(
    "changes",
    [
        {"phase": "restoring"},
        {"step": None},
        {"step": 3},
        {"steps_per_sec": None},
        {"elapsed_secs": 5.0},
        {"elapsed_secs": None},
        {"progress_age_secs": 301.0},
        {"activity_secs": {"productive": 1.0, "stall": 7.0, "silent": 0.0}},
        {"activity_secs": {"productive": 1.0, "stall": 0.0, "silent": 7.0}},
        {"pause": PauseReport(cause="stopped", secs=7.0)},
        {"loss_finite": False},
        {"events_dropped": 1},
        {"watchdog_would_act": 1},
        {"watchdog_acted": {"stop": 1}},
        {"threads": ()},
        {"threads": (ThreadStatus(name="checkpoint", state="failed"),)},
        {"threads": (ThreadStatus(name="checkpoint", state="overdue"),)},
        {"threads": (ThreadStatus(name="checkpoint", state="idle", failures=1),)},
        {"threads": (ThreadStatus(name="summary", state="idle"),)},
        {"at": 60.0},
        {"workers_changed": True},
    ],
    ids=lambda changes: "-".join(f"{name}-{value}"[:40] for name, value in changes.items()),
)
def test_a_heartbeat_that_says_something_else_is_covered_by_none(changes: dict[str, Any]) -> None:
    """Whatever a reader has to know of it, it says itself, and in full; the ones before it are summed up."""
    written = Written()
    written.several(LEAST_BEATS + 1)
    found = written.add(**changes)
    assert found.history is not None
    assert found.history.beats == LEAST_BEATS
    assert len(found.threads) == len(changes.get("threads", "1"))


def test_few_heartbeats_are_not_summed_up() -> None:
    """Reading their history would take longer than reading them."""
    written = Written()
    written.several(LEAST_BEATS)
    assert written.add(phase="restoring").history is None


def test_heartbeats_before_one_that_was_not_written_are_not_summed_up() -> None:
    """They are not just before the next one in the file."""
    written = Written()
    written.several(LEAST_BEATS + 5)
    written.fold.reset()
    written.several(2)
    assert written.add(phase="restoring").history is None


def test_a_service_that_has_not_changed_is_left_out() -> None:
    """All are in every thirtieth, and in the first."""
    written = Written()
    found = written.several(FULL_EVERY + 2)
    assert [number for number, each in enumerate(found) if each.threads] == [0, 1, FULL_EVERY + 1]
    ticked = ThreadStatus(name="checkpoint", state="idle", ticks=1, last_tick_at=T0, last_tick_secs=0.1)
    assert written.add(threads=(ticked,)).threads == (ticked,)
    assert written.add(threads=(ticked,)).threads == ()


@pytest.mark.parametrize(
    ("number", "short"),
    [(86409.162663, 86409.163), (0.000312345678, 0.000312346), (0.0, 0.0), (float("inf"), float("inf"))],
)
def test_numbers_are_no_longer_than_what_they_are_good_for(number: float, short: Callable[[], float]) -> None:
    """Thousandths of a second; but what took some time did not take none."""
    assert rounded(beat(1, elapsed_secs=number), (), pace=None, pause=None).elapsed_secs == short
