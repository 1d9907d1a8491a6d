"""`RunningTime`: how long a run had run by a moment."""

from __future__ import annotations

import numpy as np

from supervisor_core.run.fold.points import RunningTime
from tests.cases import each
from tests.tb_plugin.conftest import a_session


def running(*stretches: tuple[float | None, float | None]) -> RunningTime:
    """That of sessions from one moment to another."""
    return RunningTime(
        [a_session(f"s{at}", started_at=start, ended_at=end) for at, (start, end) in enumerate(stretches)]
    )


def at(found: RunningTime, *moments: float) -> list[float]:
    """The running times at some moments."""
    return [float(value) for value in found.of(np.array(moments))]


def test_downtime_counts_nothing() -> None:
    """It grows within sessions only, by as much as the wall time does."""
    found = running((100.0, 150.0), (900.0, 910.0), (2000.0, 2100.0))
    assert at(found, 100.0, 125.0, 150.0, 151.0, 899.0, 900.0, 905.0, 1999.0, 2000.0, 2100.0) == [
        *(0.0, 25.0, 50.0, 50.0, 50.0, 50.0, 55.0, 60.0, 60.0, 160.0)
    ]
    assert found.total_secs == 160.0


def test_what_is_outside_of_all_sessions_goes_on() -> None:
    """A moment before the first session is negative; one after the last, of which the end may not be known yet, goes
    on."""
    assert at(running((100.0, 150.0), (200.0, 210.0)), 90.0, 215.0) == [-10.0, 65.0]


def test_sessions_that_overlap_count_once() -> None:
    """Whatever their order, and where one is within another."""
    found = running((200.0, 260.0), (100.0, 220.0), (150.0, 160.0), (260.0, 300.0))
    assert found.total_secs == 200.0
    assert at(found, 210.0, 300.0) == [110.0, 200.0]


def test_a_session_without_an_end_has_no_length() -> None:
    """Nor has one that ended before it started, by a clock that was set."""
    found = running((100.0, None), (300.0, 200.0), (400.0, 410.0))
    assert at(found, 350.0, 405.0) == [0.0, 5.0]
    assert found.total_secs == 10.0


@each("wall", [0.0, -5.0, float("nan"), float("inf"), float("-inf")])
def test_what_is_unknown_is_no_number(wall: float) -> None:
    """A moment that was not recorded has no running time; other moments beside it do."""
    found = at(running((100.0, 150.0)), wall, 110.0)
    assert np.isnan(found[0]) and found[1] == 10.0


def test_without_a_start_nothing_is_known() -> None:
    """Some writers leave every time 0."""
    found = running((None, 50.0), (0.0, 0.0))
    assert found.total_secs is None
    assert np.isnan(at(found, 10.0)).all()
    assert found.of(np.empty(0)).tolist() == []
