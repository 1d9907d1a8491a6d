"""A fleet of 200 with scripted lives, watched: no false message, none missed, and nothing that grows."""

from __future__ import annotations

import gc
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.notify.changes import KnownRun
from supervisor_core.notify.event import Event
from supervisor_core.run.judge.held import HeldRun
from supervisor_core.run.model.snapshot import WatchedRun
from tests.notify.fleet_day import FleetDay

KEPT = (KnownRun, HeldRun, WatchedRun, Event)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_fleet_of_200(tmp_path: Path) -> None:
    """Ten hours of it; `python -m benchmarks --only notify` watches for 10,000 minutes."""
    day, kept = FleetDay(tmp_path, live=20), []

    def count(hours: float) -> None:
        gc.collect()
        kept.append(Counter(type(each) for each in gc.get_objects() if isinstance(each, KEPT)))

    day.run(600, count)
    assert not day.problems and not day.false_runs
    assert day.expected > 120 and day.messages > 100
    most: dict[Any, int] = {kind: max(each[kind] for each in kept) for kind in KEPT}
    assert most[KnownRun] < 200 + 2 * day.live and most[HeldRun] < 400 and most[Event] == 0, most
