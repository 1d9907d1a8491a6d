"""When a session counts as stalled."""

from __future__ import annotations

import pytest

from supervisor_core.engine.monitor import StallDetector, is_stalled


@pytest.mark.parametrize(("age", "timeout", "stalled"), [(10, 10, False), (10.1, 10, True), (1e9, None, False)])
def test_a_stall_is_longer_than_the_budget(age: float, timeout: float | None, stalled: bool) -> None:
    """At the budget is in time; a phase without one cannot stall."""
    assert is_stalled(age, timeout) is stalled


def test_a_stall_begins_once_and_ends_once() -> None:
    """However often one looks: one beginning, one end, and the whole time between two steps in it."""
    watch = StallDetector()
    readings = [(100.0, 5.0), (111.0, 11.0), (120.0, 20.0), (130.0, 1.0), (140.0, 2.0)]
    changes = [watch.look(now, age, 10.0) for now, age in readings]
    assert [change and (change.state, change.since, change.secs) for change in changes] == [
        None,
        ("begin", 100.0, 11.0),
        None,
        ("end", 100.0, 29.0),
        None,
    ]
