"""Sessions as rows: they sum to the run's goodput, whole and cut by any window."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.goodput import Script
from supervisor_core.run.judge.fleet_report import SessionRow, session_rows
from supervisor_core.run.model.run import Run
from tests.story.fleet import BEGAN, DAY, ScriptedFleet

RunOf = Callable[..., Run]
T0 = 1_700_000_000.0
WASTED, DOWNTIME = "wasted_progress_from_disruption", "infrastructure_recovery_from_disruption"


def summed(rows: list[SessionRow]) -> Counter[str]:
    """Return the seconds of some rows by bucket."""
    found: Counter[str] = Counter()
    for row in rows:
        found.update(row.secs)
    return found


@pytest.fixture(scope="module")
def runs(trainer: Any) -> list[Run]:
    """Runs of days that were killed, preempted, hung, continued and given up."""
    return ScriptedFleet(trainer, seed=3, runs=12).runs


def check(run: Run) -> None:
    """Check that the rows of a run sum to its goodput, bucket by bucket."""
    rows = session_rows(run)
    assert [row.session.id for row in rows] == [session.id for session in run.sessions]
    found = summed(rows)
    for bucket, secs in run.goodput.secs.items():
        assert found[bucket] == pytest.approx(secs, abs=1e-3), bucket
    assert sum(row.wall_secs for row in rows) == pytest.approx(run.goodput.wall_secs)


def test_rows_sum_to_the_goodput_of_the_run(runs: list[Run]) -> None:
    """Also what was wasted and what is at risk, which is with the session that lost it."""
    assert sum(len(run.sessions) for run in runs) > 30
    for run in runs:
        check(run)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(5, 15))
def test_rows_of_a_run_with_everything_in_it(seed: int) -> None:
    """Killed in any phase, frozen, hung, with a full disk, overlapping clocks."""
    check(Script(seed, peer=False).run())


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_windows_side_by_side_sum_to_the_whole(runs: list[Run], data: st.DataObject) -> None:
    """Whatever is cut where: no second is lost, none is counted twice, and each end is in one window."""
    run = data.draw(st.sampled_from(runs))
    cuts = data.draw(st.lists(st.floats(BEGAN, BEGAN + 3 * DAY), min_size=1, max_size=4))
    bounds = [-math.inf, *sorted(cuts), math.inf]
    parts = [row for since, until in itertools.pairwise(bounds) for row in session_rows(run, since, until)]
    whole = session_rows(run)
    for bucket, secs in summed(whole).items():
        assert summed(parts)[bucket] == pytest.approx(secs, abs=1e-3), bucket
    assert sum(row.alive_secs for row in parts) == pytest.approx(sum(row.alive_secs for row in whole))
    assert sum(row.is_failure for row in parts) == sum(row.is_failure for row in whole)


def test_a_window_has_what_happened_in_it(trainer: Any, run_of: RunOf) -> None:
    """Start-up comes first, a stall is where it was, lost steps are the last ones, downtime comes after the end."""
    first = trainer("a").spend(60).ready().train(1000)
    since = first.now
    first.spend(700, moving=False).stall("begin", since)
    first.enter("training").train(1000).save().train(200)
    second = trainer("b", first.now + 300, attempt=2).spend(10).ready(2000, previous_outcome="lost").train(500).stop()
    run = run_of(first, second)

    def within(begin: float, end: float) -> dict[str, float]:
        found = summed(session_rows(run, begin, end))  # a save of half a second is somewhere
        return {name: pytest.approx(secs, abs=8) for name, secs in found.items() if secs > 0.5}

    assert within(T0, T0 + 60) == {"program_startup": 60}
    assert within(T0 + 100, T0 + 1000) == {"productive": 900}
    assert within(since + 100, since + 600) == {"stall": 500}
    assert within(first.now - 150, first.now - 50) == {WASTED: 100}
    assert within(first.now + 50, first.now + 250) == {DOWNTIME: 200}
    assert within(second.now + 1, second.now + 1e6) == {}


def test_who_failed_where_and_why(trainer: Any, run_of: RunOf) -> None:
    """A row has the host of its session; a loop of crashes without progress counts once, planned ends never."""
    first = trainer("a").ready(host="node-1", device_count=8, labels={"team": "vision"}).train(100).save()
    sessions = [first]
    for number, restored, steps in ((2, 100, 0), (3, 100, 0), (4, 100, 50)):
        before = sessions[-1]
        later = trainer(f"{number}", before.now + 30, attempt=number)
        sessions.append(later.ready(restored, host=f"node-{number}").train(steps).spend(5).stop("error"))
    last = trainer("z", sessions[-1].now + 30, attempt=5).ready(100, host="node-5").train(100).stop("requested")
    rows = session_rows(run_of(*sessions, last))
    assert [(row.host, row.reason, row.is_failure) for row in rows] == [
        ("node-1", "lost", True),
        ("node-2", "error", False),
        ("node-3", "error", False),
        ("node-4", "error", True),
        ("node-5", None, False),
    ]
    assert {row.devices for row in rows} == {8} and rows[0].labels == {"team": "vision"}


def test_a_session_that_died_before_its_record_has_the_host_of_its_file(trainer: Any, run_of: RunOf) -> None:
    """The name of an events file has the host."""
    died = trainer("a").spend(30)
    died.file.path = "/run/events.out.tfevents.1700000000.node-7.example.4711.0001"
    (row,) = session_rows(run_of(died, now=died.now + 3600))
    assert (row.host, row.reason, row.is_failure) == ("node-7.example", "lost", True)


def test_a_live_run_counts_until_now(trainer: Any, run_of: RunOf) -> None:
    """The time since its last event is in its row; an end after the window is none in it."""
    live = trainer("a").spend(10).ready().train(100)
    (row,) = session_rows(run_of(live, now=live.now + 8))
    assert row.wall_secs == pytest.approx(118)
    ended = trainer("a").spend(10).ready().train(100).stop("error")
    (row,) = session_rows(run_of(ended), until=ended.now - 50)
    assert (row.reason, row.wall_secs) == (None, pytest.approx(60))


def test_another_writer_s_time_is_unknown(events_file: Any, run_of: RunOf) -> None:
    """It is in no bucket, and it is not lost either."""
    run = run_of(events_file("/run/events.out.tfevents.1700000000.host").scalars("loss", range(100), T0))
    (row,) = session_rows(run)
    assert row.secs == {} and row.unknown_secs == pytest.approx(run.goodput.wall_secs) and row.unknown_secs > 90
