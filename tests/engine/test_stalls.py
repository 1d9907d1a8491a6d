"""Which stalls there are, of a session and of services whose tick does not end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from supervisor_core.base.options import Options
from supervisor_core.engine.progress import Progress, ProgressSnapshot
from supervisor_core.engine.stalls import ServiceStalls, StallDetector, StallReport
from supervisor_core.events.telemetry import StallRecord, ThreadStatus


def progress(age_secs: float = 0.0, timeout_secs: float | None = 10.0) -> ProgressSnapshot:
    """The progress of a session in which the last one was some seconds ago."""
    return replace(Progress().snapshot(), progress_age_secs=age_secs, progress_timeout_secs=timeout_secs, global_step=7)


def ticking(secs: float | None, *, ticks: int = 1, last_tick_secs: float | None = None) -> ThreadStatus:
    """The checkpoint service, in a tick or between two."""
    state: Any = "idle" if secs is None else "ticking"
    return ThreadStatus(name="checkpoint", state=state, ticks=ticks, last_tick_secs=last_tick_secs, ticking_secs=secs)


def found(stalls: ServiceStalls, status: ThreadStatus) -> list[tuple[str, float, float | None]]:
    """What a check of one service finds."""
    return [(each.state, each.secs, each.timeout_secs) for each in stalls.check([status], 5000.0, progress())]


@pytest.mark.parametrize(("age", "timeout", "stalled"), [(10, 10, False), (10.1, 10, True), (1e9, None, False)])
def test_a_stall_is_longer_than_the_hang_timeout(age: float, timeout: float | None, stalled: bool) -> None:
    """At the hang timeout is in time; a phase without one cannot stall."""
    detector = StallDetector()
    assert (detector.check(1e9, progress(age, timeout)) is not None) == detector.stalled == stalled


def test_a_stall_begins_once_and_ends_once() -> None:
    """However often it is checked: one beginning, one end, and the whole time between two steps in it."""
    detector = StallDetector()
    readings = [(100.0, 5.0), (111.0, 11.0), (120.0, 20.0), (130.0, 1.0), (140.0, 2.0)]
    changes = [detector.check(now, progress(age)) for now, age in readings]
    assert [change and (change.state, change.since, change.secs) for change in changes] == [
        None,
        ("begin", 100.0, 11.0),
        ("lasts", 100.0, 20.0),
        ("end", 100.0, 29.0),
        None,
    ]


def test_a_tick_that_does_not_end_is_found_once_and_so_is_its_end() -> None:
    """Until ticks have ended the hang timeout is that of a save; the end has the whole duration."""
    stalls = ServiceStalls(Options())
    assert [found(stalls, ticking(secs)) for secs in (1.0, 1800.0, 1801.0, 2000.0)] == [
        [],
        [],
        [("begin", 1801.0, 1800.0)],
        [],
    ]
    assert found(stalls, ticking(None, last_tick_secs=2001.0)) == [("end", 2001.0, 1800.0)]
    assert found(stalls, ticking(5.0, ticks=2, last_tick_secs=2001.0)) == []


@pytest.mark.parametrize(
    ("tick_secs", "options", "hang_timeout_secs"),
    [
        (2.0, Options(), 60.0),
        (100.0, Options(), 500.0),
        (100.0, Options(hang_timeout_secs={"checkpointing": 30.0}), 30.0),
    ],
    ids=["the floor", "learned", "given"],
)
def test_the_hang_timeout_of_a_tick_is_learned(tick_secs, options, hang_timeout_secs) -> None:
    """From three ticks on, if the options do not give one."""
    stalls = ServiceStalls(options)
    for ticks in (1, 2, 3):
        assert found(stalls, ticking(None, ticks=ticks, last_tick_secs=tick_secs)) == []
    assert found(stalls, ticking(hang_timeout_secs, ticks=4, last_tick_secs=tick_secs)) == []
    begin = found(stalls, ticking(hang_timeout_secs + 1, ticks=4, last_tick_secs=tick_secs))
    assert begin == [("begin", hang_timeout_secs + 1, hang_timeout_secs)]


def test_a_service_that_waits_for_work_has_no_hang_timeout() -> None:
    """Nothing says for how long it may wait."""
    assert found(ServiceStalls(Options()), ThreadStatus(name="loop", state="ticking", ticks=1)) == []


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
    for status in (ticking(1900.0), ticking(None, last_tick_secs=2000.0)):
        for stall in stalls.check([status], clock.now, progress()):
            report.service(stall)
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
