"""When a running program counts as hung, by its progress page or its events files."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.process.page_writer import ProgressPage
from supervisor_core.process.progress_page import PageReading, read_page
from supervisor_core.restarter.hang import (
    BLIND_SECS,
    MOST_TICK_SECS,
    STARTING_SECS,
    EventsSeen,
    HangWatch,
)
from supervisor_core.run.fold.other_writers import LEAST_HANG_TIMEOUT_SECS
from tests.cases import each

LEADER = 4711


@pytest.fixture
def page(tmp_path: Path) -> PageReading:
    """The page of a session in training at step 7, which may take 3 s for a step."""
    writer = ProgressPage.create(tmp_path, session_id="a", pid=LEADER)
    writer.step_is(0, 1)
    writer.update(phase="training", hang_timeout_secs=3.0, act_after_secs=300.0)
    found = read_page(tmp_path / "a.page")
    assert found is not None
    return replace(found, steps=7, step=7)


class Trainer:
    """A program whose page, and whose state, a test changes."""

    def __init__(self, page: PageReading, hang_timeout_secs: float | None = None, **more: Any) -> None:
        self.pages = [page]
        self.is_stopped = False
        self.is_running = True
        self.watch = HangWatch(
            LEADER,
            hang_timeout_secs,
            **more,
            pages=lambda: self.pages,
            is_of=lambda page, leader: page.pid == leader,
            stopped=lambda pid: self.is_stopped,
            running=lambda page: self.is_running,
        )

    def silent(self, ticks: int, secs: float = 1.0, records: int | None = None, usual_secs: float = 0.0) -> Any:
        """The hang after some ticks in which nothing changes."""
        hang = None
        for _ in range(ticks):
            hang = self.watch.tick(
                secs, None if records is None else EventsSeen(records=records, usual_secs=usual_secs)
            )
        return hang


def test_silence_beyond_the_hang_timeout_is_a_hang(page: PageReading) -> None:
    """Counted from the first look at that progress: any change of the page begins it again."""
    trainer = Trainer(page)
    assert trainer.silent(4) is None
    hang = trainer.silent(1)
    assert (hang.phase, hang.secs, hang.hang_timeout_secs) == ("training", 4.0, 3.0)
    assert hang.act_after_secs == 300.0
    assert hang.text == "no progress in phase training for 4 s (hang timeout 3 s)"
    trainer.pages = [replace(page, steps=8)]
    assert trainer.silent(4) is None and trainer.watch.steps == 8


@each("change", [{"hang_timeout_secs": None}, {"ended": True}, {"phase": "stopped"}])
def test_some_pages_cannot_hang(page: PageReading, change: dict[str, Any]) -> None:
    """A phase without a hang timeout, and a session that has ended."""
    assert Trainer(replace(page, **change)).silent(100) is None


def test_a_stopped_program_does_not_hang(page: PageReading) -> None:
    """Someone has stopped it; when it is continued its time begins again."""
    trainer = Trainer(page)
    trainer.silent(3)
    trainer.is_stopped = True
    assert trainer.silent(100) is None
    trainer.is_stopped = False
    assert trainer.silent(3) is None
    assert trainer.silent(1) is not None


def test_time_in_which_the_restarter_did_not_run_does_not_count(page: PageReading) -> None:
    """Of a suspended machine the program did not run either: two such gaps are no hang."""
    trainer = Trainer(page)
    assert trainer.silent(2, secs=86_400.0) is None
    assert MOST_TICK_SECS < 3.0


def test_a_rank_that_waits_for_one_that_evaluates_does_not_hang(page: PageReading) -> None:
    """Its time in training begins when the other one is back there; then, where neither moves, both hang."""
    evaluates = replace(page, session="b", phase="evaluating", hang_timeout_secs=50.0, act_after_secs=100.0)
    trainer = Trainer(page)
    trainer.pages.append(evaluates)
    assert trainer.silent(50) is None
    trains = replace(page, session="b")
    trainer.pages[1] = trains
    assert trainer.silent(3) is None
    assert trainer.silent(2).phase == "training"


def test_one_that_hangs_in_its_evaluation_is_the_hang(page: PageReading) -> None:
    """Alone, until it would be ended for it; the one that waits for it is no worse."""
    evaluates = replace(page, session="b", phase="evaluating", hang_timeout_secs=50.0, act_after_secs=100.0)
    trainer = Trainer(page)
    trainer.pages.append(evaluates)
    for ticks, secs in ((52, 51.0), (49, 100.0)):
        hang = trainer.silent(ticks)
        assert (hang.phase, hang.secs) == ("evaluating", secs)
    assert trainer.silent(10).phase == "evaluating"
    trainer.pages[1] = replace(evaluates, ended=True)
    assert trainer.silent(1).phase == "training"


@each("other", [{}, {"phase": "evaluating", "ended": True}, {"phase": "stopped"}])
def test_a_rank_hangs_while_the_others_train_or_have_ended(page: PageReading, other: dict[str, Any]) -> None:
    """They wait for it in their next step, so that nothing moves."""
    trainer = Trainer(page)
    trainer.pages.append(replace(page, session="b", **other))
    assert trainer.silent(5).phase == "training"


def test_a_program_without_a_page_is_judged_by_its_events(page: PageReading) -> None:
    """While the logdir does not answer nothing is known."""
    trainer = Trainer(page, hang_timeout_secs=3.0, records_before=0)
    trainer.pages = []
    assert (trainer.silent(100, records=None), trainer.watch.timeout_secs) == (None, None)
    assert (trainer.silent(4, records=5), trainer.watch.timeout_secs) == (None, 3.0)
    assert trainer.silent(1, records=5).text == "no events for 4 s (hang timeout 3 s)"
    assert trainer.silent(1, records=6) is None
    trainer.pages = [page]
    assert (trainer.silent(2, records=6), trainer.watch.timeout_secs) == (None, None)


@each("usual_secs, patience", [(60.0, 1.0), (3600.0, 1.0), (60.0, 4.0)])
def test_without_a_timeout_the_rhythm_of_the_events_says_what_is_too_long(
    page: PageReading, usual_secs: float, patience: float
) -> None:
    """Never less than ten minutes, and longer after launches that were ended for their silence."""
    trainer = Trainer(page, patience=patience, records_before=4)
    trainer.pages = []
    timeout_secs = max(LEAST_HANG_TIMEOUT_SECS, usual_secs) * patience
    ticks = int(timeout_secs / MOST_TICK_SECS)
    assert trainer.silent(ticks + 1, MOST_TICK_SECS, 5, usual_secs) is None
    assert trainer.silent(1, MOST_TICK_SECS, 5, usual_secs).act_after_secs == timeout_secs


def test_before_its_first_event_a_program_starts(page: PageReading) -> None:
    """It has the time of that phase. Where there were never events it may write them elsewhere."""
    trainer = Trainer(page, hang_timeout_secs=3.0)
    trainer.pages = []
    ticks = int(STARTING_SECS / MOST_TICK_SECS)
    assert trainer.silent(ticks + 1, MOST_TICK_SECS, 5) is None and not trainer.watch.sees_nothing
    assert trainer.silent(1, MOST_TICK_SECS, 5).hang_timeout_secs == STARTING_SECS
    elsewhere = Trainer(page, hang_timeout_secs=3.0)
    elsewhere.pages = []
    ticks = int(BLIND_SECS / MOST_TICK_SECS)
    assert elsewhere.silent(ticks + 1, MOST_TICK_SECS, 0) is None and not elsewhere.watch.sees_nothing
    assert elsewhere.silent(ticks * 10, MOST_TICK_SECS, 0) is None and elsewhere.watch.sees_nothing


def test_a_page_that_another_process_has_left_is_not_of_the_launch(tmp_path: Path) -> None:
    """It was killed, and a process of the launch has got its process id."""
    ProgressPage.create(tmp_path, session_id="a")
    page = read_page(tmp_path / "a.page")
    assert page is not None and page.process_started_ticks is not None
    assert HangWatch(os.getpid(), pages=lambda: [page]).read() == [page]
    left = replace(page, process_started_ticks=page.process_started_ticks - 1)
    assert HangWatch(os.getpid(), pages=lambda: [left]).read() == []


def test_a_killed_worker_is_no_hang(page: PageReading) -> None:
    """Its page stays for the next session to read; the step in it still counts."""
    trainer = Trainer(page)
    trainer.is_running = False
    assert trainer.silent(100) is None
    assert trainer.watch.step == 7


def test_pages_of_other_programs_do_not_count(page: PageReading) -> None:
    """Another training of the same user on this machine may hang as it likes."""
    trainer = Trainer(replace(page, pid=1234))
    assert trainer.silent(100) is None and trainer.watch.step is None
