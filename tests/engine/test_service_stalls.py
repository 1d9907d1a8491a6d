"""Services whose tick does not end."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor_core.engine.service_stalls import ServiceStalls
from supervisor_core.engine.stall_report import StallReport
from supervisor_core.events.telemetry import StallRecord, ThreadStatus
from supervisor_core.options import Options


def ticking(secs: float | None, *, ticks: int = 1, last_tick_secs: float | None = None) -> ThreadStatus:
    """The checkpoint service, in a tick or between two."""
    state: Any = "idle" if secs is None else "ticking"
    return ThreadStatus(name="checkpoint", state=state, ticks=ticks, last_tick_secs=last_tick_secs, ticking_secs=secs)


def test_a_tick_that_does_not_end_is_found_once_and_so_is_its_end() -> None:
    """Until ticks have ended the budget is that of a save; the end has the whole duration."""
    stalls = ServiceStalls(Options())
    found = [stalls.look([ticking(secs)]) for secs in (1.0, 1800.0, 1801.0, 2000.0)]
    assert [[(each.state, each.secs, each.timeout_secs) for each in look] for look in found] == [
        [],
        [],
        [("begin", 1801.0, 1800.0)],
        [],
    ]
    (end,) = stalls.look([ticking(None, last_tick_secs=2001.0)])
    assert (end.service, end.state, end.secs) == ("checkpoint", "end", 2001.0)
    assert stalls.look([ticking(5.0, ticks=2, last_tick_secs=2001.0)]) == []


@pytest.mark.parametrize(
    ("tick_secs", "options", "budget_secs"),
    [
        (2.0, Options(), 60.0),
        (100.0, Options(), 500.0),
        (100.0, Options(stall_timeout_secs={"checkpointing": 30.0}), 30.0),
    ],
    ids=["the floor", "learned", "given"],
)
def test_the_budget_of_a_tick_is_learned(tick_secs, options, budget_secs) -> None:
    """From three ticks on, if the options do not give one."""
    stalls = ServiceStalls(options)
    for ticks in (1, 2, 3):
        assert stalls.look([ticking(None, ticks=ticks, last_tick_secs=tick_secs)]) == []
    assert stalls.look([ticking(budget_secs, ticks=4, last_tick_secs=tick_secs)]) == []
    (begin,) = stalls.look([ticking(budget_secs + 1, ticks=4, last_tick_secs=tick_secs)])
    assert begin.timeout_secs == budget_secs


def test_a_service_that_waits_for_work_has_no_budget() -> None:
    """Nothing says for how long it may wait."""
    assert ServiceStalls(Options()).look([ThreadStatus(name="loop", state="ticking", ticks=1)]) == []


def test_it_is_recorded_with_the_service_s_own_line(clock) -> None:
    """And the stacks of all threads, once."""
    records: list[StallRecord] = []

    class Sink:
        dropped, error = 0, None

        def write(self, record: Any, step: int | None = None, **how: Any) -> None:
            records.append(record)

    stacks = {"MainThread": ("train.py:88 step",), "checkpoint": ("train.py:9 loop", "disk.py:12 write")}
    looks: list[str] = []
    report = StallReport("s1", Sink(), clock, stacks=lambda: stacks, on_stacks=lambda title, _: looks.append(title))
    stalls = ServiceStalls(Options())
    for look in ([ticking(1900.0)], [ticking(None, last_tick_secs=2000.0)]):
        for stall in stalls.look(look):
            report.service(stall, phase="training", step=7)
    begin, end = records
    assert (begin.state, begin.service, begin.thread, begin.location) == (
        "begin",
        "checkpoint",
        "checkpoint",
        "disk.py:12 write",
    )
    assert (begin.since, begin.secs, begin.stacks) == (clock.wall() - 1900.0, 1900.0, stacks)
    assert (end.state, end.service, end.secs, end.stacks) == ("end", "checkpoint", 2000.0, {})
    assert report.status is None and len(looks) == 1
