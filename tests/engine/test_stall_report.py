"""What is reported of a stall: its place, and a second look at the stacks."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.base.clock import SYSTEM_CLOCK
from supervisor_core.engine.stalls import SECOND_LOOK_SECS, StallReading, StallReport, main_thread_runnable_secs
from supervisor_core.run.status import StallStatus

INNER = "/usr/lib/python3.11/queue.py:171 Queue.get"
WAITS = {"MainThread": ("/x/train.py:88 main", "/x/input.py:12 next_batch", INNER), "other": ("/x/a.py:1 f",)}
ELSEWHERE = {"MainThread": ("/x/train.py:88 main", "/x/input.py:14 next_batch"), "other": ("/x/a.py:1 f",)}


class Records(list[Any]):
    """Takes records in place of an events file."""

    dropped, error = 0, None

    def write(self, record: Any, step: int | None = None, **how: Any) -> None:
        self.append(record)


def the_report(
    clock: Any, *looks: Mapping[str, Any], share: float | None = None
) -> tuple[StallReport, Records, list[Any]]:
    """A report whose looks at the stacks give these, with what it writes and passes on. The main thread runs for this
    share of the time; None: that is not known."""
    records, texts, stacks = Records(), [], iter(looks)
    report = StallReport(
        "s1",
        records,
        clock,
        stacks=lambda: next(stacks),
        on_stacks=lambda title, found: texts.append((title, found)),
        runnable_secs=lambda clock: None if share is None else share * clock.monotonic(),
    )
    return report, records, texts


def reading(clock: Any, state: Any, secs: float, step: int = 5) -> StallReading:
    """A stall that has lasted for some seconds."""
    since = clock.now - secs
    return StallReading(state=state, since=since, secs=secs, timeout_secs=20.0, phase="training", step=step)


def begin(report: StallReport, clock: Any) -> None:
    """Let a stall begin."""
    report.begin(reading(clock, "begin", 30.0))


def go_on(report: StallReport, clock: Any, secs: float) -> None:
    """Let it last."""
    clock.advance(secs)
    report.goes_on(reading(clock, "lasts", 30.0 + secs))


SAME, OTHER = "the same frames twice", "other frames than before"


@pytest.mark.parametrize(
    ("second", "same", "said"),
    [
        (WAITS, True, f"MainThread is at input.py:12 in next_batch: {SAME}"),
        (WAITS | {"other": ()}, True, f"MainThread is at input.py:12 in next_batch: {SAME}"),
        (ELSEWHERE, False, f"MainThread is at input.py:14 in next_batch: {OTHER}"),
        ({"other": ()}, False, f"MainThread: {OTHER}"),
    ],
)
def test_a_second_look_says_whether_the_frames_are_the_same(
    second: Any, same: bool, said: str, clock: Any, caplog: Any
) -> None:
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
    assert "stuck" not in caplog.text


@pytest.mark.parametrize(
    ("share", "activity", "said"),
    [
        (1.0, "busy", "MainThread is busy at"),
        (0.5, "busy", "MainThread is busy at"),
        (0.3, None, "MainThread is at"),
        (0.05, "waits", "MainThread waits at"),
        (0.0, "waits", "MainThread waits at"),
        (None, None, "MainThread is at"),
    ],
)
def test_the_second_look_says_whether_the_thread_was_busy(
    share: float | None, activity: str | None, said: str, clock: Any, caplog: Any
) -> None:
    """By the time for which it could run: an evaluation computes, a full queue waits. In between nothing is said."""
    report, records, texts = the_report(clock, WAITS, WAITS, share=share)
    begin(report, clock)
    go_on(report, clock, SECOND_LOOK_SECS)
    assert (records[1].same_frames, records[1].activity) == (True, activity)
    assert report.status is not None and report.status.activity == activity
    assert f"{said} input.py:12 in next_batch: {SAME}" in caplog.text and said in texts[1][0]


@pytest.mark.parametrize(
    ("second", "share", "secs", "recorded"),
    [(WAITS, 0.0, 60.0, (True, None)), (ELSEWHERE, 1.0, SECOND_LOOK_SECS, (False, "busy"))],
    ids=["after a pause", "elsewhere"],
)
def test_what_a_thread_did_is_not_shown(second: Any, share: float, secs: float, recorded: Any, clock: Any) -> None:
    """The process was stopped for most of the time between the looks: its thread neither ran nor waited then. A thread
    that has moved is not shown where it was: the record says what it did, a scrape only where the stall began."""
    report, records, _ = the_report(clock, WAITS, second, share=share)
    begin(report, clock)
    go_on(report, clock, secs)
    assert (records[1].same_frames, records[1].activity) == recorded
    assert report.status is not None and report.status.activity is None


def test_a_thread_that_waits_for_a_processor_is_ready_to_run(tmp_path: Path, clock: Any) -> None:
    """On a busy machine one that computes runs for a small part of the time. Without the kernel's statistics its CPU
    time counts; of an injected clock nothing is known."""
    path = tmp_path / "self" / "task" / str(os.getpid()) / "schedstat"
    path.parent.mkdir(parents=True)
    path.write_text("1500000000 2500000000 77\n")
    assert main_thread_runnable_secs(SYSTEM_CLOCK, str(tmp_path)) == 4.0
    for text in ("0 0 0\n", "", "x y z\n"):
        path.write_text(text)
        found = main_thread_runnable_secs(SYSTEM_CLOCK, str(tmp_path))
        assert found is None or 0 < found != 4.0
    assert main_thread_runnable_secs(clock, str(tmp_path)) is None


def test_the_place_is_the_program_s_innermost_line(clock: Any) -> None:
    """Records have it as in the stack, a scrape and the log without directories; after the end there is none."""
    report, records, _ = the_report(clock, WAITS)
    assert report.status is None
    begin(report, clock)
    assert report.status == StallStatus(phase="training", thread="MainThread", location="input.py:12 in next_batch")
    report.end(reading(clock, "end", 40.0, step=6))
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
    report.end(reading(clock, "end", 35.0, step=6))
    clock.advance(1)
    begin(report, clock)
    go_on(report, clock, SECOND_LOOK_SECS - 1)
    assert [record.state for record in records] == ["begin", "end", "begin"]
