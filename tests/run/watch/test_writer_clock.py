"""The clock of the training's machine is wrong: whether it is silent is judged by the clock of who reads."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.metrics.page import run_status
from supervisor_core.run.judge.findings import findings
from supervisor_core.run.model.snapshot import WatchedRun
from supervisor_core.run.watch.logdir_watch import LogdirWatch

MINUTE = 60.0
SKEWS = [-10 * MINUTE, 10 * MINUTE]


class Trainer:
    """A trainer whose clock is ahead of the reader's, and whose files lie on a server with a clock of its own."""

    def __init__(self, logdir: Path, writing: Any, clock: Any, ahead: float, server_ahead: float | None) -> None:
        self._logdir, self._clock, self._ahead, self._server_ahead = logdir, clock, ahead, server_ahead
        self.file = writing.RunFile(logdir, clock.now + ahead - 100.0).ready()
        self.beat(0.0)

    def beat(self, later: float = 10.0) -> None:
        """Write a heartbeat, some seconds later."""
        self._clock.now += later
        self.file.beat(self._clock.now + self._ahead, steps=int(self._clock.now) % 1000)
        self._written(self.file.path)

    def live(self, later: float = 10.0) -> None:
        """Write the liveness file; the disk has no room for events, or their writer hangs."""
        self._clock.now += later
        self._written(self.file.lives(self._clock.now + self._ahead, steps=7))

    def _written(self, path: Path) -> None:
        if self._server_ahead is not None:
            os.utime(path, (self._clock.now + self._server_ahead,) * 2)


Make = Callable[..., Trainer]


@pytest.fixture
def trainer(tmp_path: Path, writing: Any, clock: Any) -> Make:
    """Returns a function that makes a trainer, by the clocks of its machine and of the file server."""

    def make(ahead: float, server_ahead: float | None = 0.0) -> Trainer:
        return Trainer(tmp_path / "run", writing, clock, ahead, server_ahead)

    return make


@pytest.fixture
def watch(tmp_path: Path, clock: Any) -> Callable[[], Callable[[], WatchedRun]]:
    """Returns a function that makes a reader; that returns the run at each call."""

    def make() -> Callable[[], WatchedRun]:
        logdir = LogdirWatch(str(tmp_path), clock=clock)
        return lambda: logdir.refresh().runs["run"]

    return make


@pytest.mark.parametrize("ahead", SKEWS)
def test_one_look_tells_by_when_the_file_was_written(trainer: Make, watch: Any, clock: Any, ahead: float) -> None:
    """As `inspect` looks: it runs, and half a minute after its death it is lost."""
    trainer(ahead)
    clock.now += 5
    found = watch()()
    assert (found.run.state, found.run.clock_skew_secs) == ("running", ahead)
    clock.now += 60
    assert watch()().run.state == "lost"


@pytest.mark.parametrize("ahead", SKEWS)
@pytest.mark.parametrize("server_ahead", [None, -20 * MINUTE, 20 * MINUTE])
def test_without_the_server_s_clock_two_looks_tell(
    trainer: Make, watch: Any, clock: Any, ahead: float, server_ahead: float | None
) -> None:
    """Whose clock is wrong, or who does not say when a file was written: what goes on, runs; what does not is lost."""
    writer, look = trainer(ahead, server_ahead), watch()
    look()
    for _ in range(3):
        writer.beat()
        found = look()
    assert (found.run.state, found.run.clock_skew_secs) == ("running", ahead)
    clock.now += 29
    assert look().run.state == "running"
    clock.now += 2
    assert look().run.state == "lost"


@pytest.mark.parametrize("ahead", SKEWS)
def test_a_death_before_the_first_look_is_dated_by_the_reader_s_clock(
    trainer: Make, watch: Any, clock: Any, ahead: float
) -> None:
    """A minute ago, not ten more or less."""
    trainer(ahead)
    clock.now += 60
    found = watch()()
    lost = findings(found, clock.now)[0]
    assert (found.run.state, found.run.clock_skew_secs) == ("lost", ahead)
    assert lost.kind == "lost" and clock.now - lost.since == pytest.approx(60.0, abs=5.0)


@pytest.mark.parametrize("mtime_ahead", [0.0, None])
def test_another_writer_is_judged_by_what_advances(
    tmp_path: Path, writing: Any, watch: Any, clock: Any, mtime_ahead: float | None
) -> None:
    """Its events are dated a year ahead, the first one further: when it was written counts."""
    year = 365 * 86400.0
    file = writing.RunFile(tmp_path / "run", clock.now + year).scalar("loss", 0, clock.now + 2 * year)
    look = watch()

    def seen() -> tuple[str, bool]:
        if mtime_ahead is not None:
            os.utime(file.path, (written + mtime_ahead,) * 2)
        found = look()
        return found.run.state, (found.run.clock_skew_secs or 0.0) > year / 2

    written = clock.now
    seen()
    for step in range(1, 9):
        clock.now += 60
        written = clock.now
        file.scalar("loss", step, clock.now + year)
        assert seen() == ("running", True)
    clock.now += 599
    assert seen() == ("running", True)
    clock.now += 2
    assert seen()[0] == "unknown"


def test_a_dead_run_whose_clock_was_ahead_is_lost_after_as_long_as_any_other(
    trainer: Make, watch: Any, clock: Any
) -> None:
    """Its newest event is ten minutes in the future for whoever begins to look now."""
    trainer(10 * MINUTE, None)
    look = watch()
    assert look().run.state == "running"
    clock.now += 31
    assert look().run.state == "lost"


@pytest.mark.parametrize("ahead", SKEWS)
@pytest.mark.parametrize("server_ahead", [0.0, None])
def test_a_liveness_file_is_judged_by_the_same_clock(
    trainer: Make, watch: Any, clock: Any, ahead: float, server_ahead: float | None
) -> None:
    """While it cannot write events, the file that is replaced shows that it lives; without that it is lost."""
    writer, look = trainer(ahead, server_ahead), watch()
    look()
    writer.beat()
    look()
    for _ in range(20):
        writer.live()
        found = look()
    assert (found.run.state, found.run.clock_skew_secs) == ("running", ahead)
    clock.now += 31
    assert look().run.state == "lost"


def test_a_clock_that_is_set_right_is_right_at_once(trainer: Make, watch: Any, clock: Any) -> None:
    """And it runs all the time."""
    writer, look = trainer(-10 * MINUTE), watch()
    look()
    writer._ahead = 0.0
    for _ in range(3):
        writer.beat()
        assert look().run.state == "running"
    assert look().run.clock_skew_secs == 0.0


def test_what_arrives_late_is_no_wrong_clock(trainer: Make, watch: Any, clock: Any) -> None:
    """A mirror that is renewed every minute, with or without the times of the files."""
    for server_ahead in (None, -40.0):
        writer, look = trainer(-40.0, server_ahead), watch()
        look()
        for _ in range(3):
            writer.beat(60.0)
            assert look().run.clock_skew_secs in (None, 0.0)


def test_a_file_that_was_copied_long_after_is_no_wrong_clock(trainer: Make, watch: Any, clock: Any) -> None:
    """A run that died a day ago, copied just now without its times, is lost."""
    trainer(-1440 * MINUTE)
    assert watch()().run.state == "lost"


@pytest.mark.parametrize("ahead", SKEWS)
def test_a_wrong_clock_is_said_and_corrected(trainer: Make, watch: Any, clock: Any, ahead: float) -> None:
    """By a finding; the exporter serves all times by its own clock, and the difference."""
    trainer(ahead)
    clock.now += 5
    found = watch()()
    [said] = [item for item in findings(found, clock.now) if item.kind == "clock_skew"]
    assert f"is 10 min {'ahead of' if ahead > 0 else 'behind'} this machine's" in said.text
    status = run_status(found.run, clock.now)
    assert status.clock_skew_secs == ahead
    assert status.session_seen_at == status.session.last_progress_at == clock.now - 5
    assert status.session is not None and status.session.started_at == clock.now - 105


def test_an_events_file_that_a_full_disk_touches_is_no_wrong_clock(trainer: Make, watch: Any, clock: Any) -> None:
    """Each failed write changes the file's time, and nothing in it: the liveness file tells the clock."""
    writer = trainer(0.0)
    writer.live(10 * MINUTE)
    os.utime(writer.file.path, (clock.now, clock.now))
    found = watch()()
    assert (found.run.state, found.run.clock_skew_secs) == ("running", 0.0)
