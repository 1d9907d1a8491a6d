"""What is reported of a stall: its place, and a second look at the stacks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from supervisor_core.run.status import StallStatus
from supervisor_core.runtime.stall_report import SECOND_LOOK_SECS, StallReport

INNER = "/usr/lib/python3.11/queue.py:171 Queue.get"
WAITS = {"MainThread": ("/x/train.py:88 main", "/x/input.py:12 next_batch", INNER), "other": ("/x/a.py:1 f",)}
ELSEWHERE = {"MainThread": ("/x/train.py:88 main", "/x/input.py:14 next_batch"), "other": ("/x/a.py:1 f",)}


class Records(list[Any]):
    """Takes records in place of an events file."""

    dropped, error = 0, None

    def write(self, record: Any, step: int | None = None, **how: Any) -> None:
        self.append(record)


def the_report(clock: Any, *looks: Mapping[str, Any]) -> tuple[StallReport, Records, list[Any]]:
    """A report whose looks at the stacks give these, with what it writes and passes on."""
    records, texts, stacks = Records(), [], iter(looks)
    report = StallReport(
        "s1", records, clock, stacks=lambda: next(stacks), on_stacks=lambda title, found: texts.append((title, found))
    )
    return report, records, texts


def begin(report: StallReport, clock: Any) -> None:
    """Let a stall begin."""
    report.begin(phase="training", since=clock.now - 30, step=5, secs=30.0, timeout_secs=20.0)


def go_on(report: StallReport, clock: Any, secs: float) -> None:
    """Let it last."""
    clock.advance(secs)
    report.goes_on(since=clock.now - 30, step=5, secs=30.0 + secs, timeout_secs=20.0)


@pytest.mark.parametrize(
    ("second", "same", "said"),
    [
        (WAITS, True, "stuck"),
        (WAITS | {"other": ()}, True, "stuck"),
        (ELSEWHERE, False, "slow"),
        ({"other": ()}, False, "slow"),
    ],
)
def test_a_second_look_tells_stuck_from_slow(second: Any, same: bool, said: str, clock: Any, caplog: Any) -> None:
    """It comes once, after ten seconds; other threads do not count; both looks are passed on."""
    report, records, texts = the_report(clock, WAITS, second)
    begin(report, clock)
    go_on(report, clock, SECOND_LOOK_SECS - 1)
    assert [record.state for record in records] == ["begin"]
    go_on(report, clock, 1.0)
    go_on(report, clock, 600.0)
    first, again = records
    assert (first.state, first.same_frames, first.stacks) == ("begin", None, WAITS)
    assert (again.state, again.same_frames, again.stacks) == ("lasts", same, second)
    assert [found for _, found in texts] == [WAITS, second]
    assert said in caplog.text and said in texts[1][0]


def test_the_place_is_the_program_s_innermost_line(clock: Any) -> None:
    """Records have it as in the stack, a scrape and the log without directories; after the end there is none."""
    report, records, _ = the_report(clock, WAITS)
    assert report.status is None
    begin(report, clock)
    assert report.status == StallStatus(phase="training", thread="MainThread", location="input.py:12 in next_batch")
    report.end(since=clock.now - 30, step=6, secs=40.0, timeout_secs=20.0)
    assert report.status is None
    assert [(each.state, each.thread, each.location) for each in records] == [
        ("begin", "MainThread", "/x/input.py:12 next_batch"),
        ("end", "MainThread", "/x/input.py:12 next_batch"),
    ]
    assert records[1].stacks == {}


def test_a_stall_that_is_over_gets_no_second_look(clock: Any) -> None:
    """Nor does one look belong to the next stall."""
    report, records, _ = the_report(clock, WAITS, ELSEWHERE)
    begin(report, clock)
    clock.advance(5)
    report.end(since=clock.now, step=6, secs=35.0, timeout_secs=20.0)
    clock.advance(1)
    begin(report, clock)
    go_on(report, clock, SECOND_LOOK_SECS - 1)
    assert [record.state for record in records] == ["begin", "end", "begin"]


def test_a_main_thread_that_has_ended_has_no_place(clock: Any) -> None:
    """What is not known is absent."""
    report, records, _ = the_report(clock, {"other": ("/x/a.py:1 f",)})
    begin(report, clock)
    assert report.status == StallStatus(phase="training", thread="MainThread", location=None)
    assert records[0].location is None
