"""Files of several processes in one directory, whose clocks differ: the run is what the process writes that lives."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.run.judge.findings import findings
from supervisor_core.run.watch.logdir_watch import LogdirWatch
from tests.story.run_file import RunFile
from tests.story.session import Scripted

MINUTE, HOUR, YEAR = 60.0, 3600.0, 365 * 86400.0
NAN = b"\0\0\xc0\x7f"

Said = tuple[str, int | None, int, bool]
"""State, step, number of sessions, whether a loss that is not finite is a finding."""


class Machine:
    """A directory in which two programs write, each by its clock; ``clock`` is that of the reader.

    Args:
        earlier: by how much the clock of the first one is ahead.
        live: the same of the second.
        mtime: how the first one's file is dated: as it was written, not at all, or by this difference.
    """

    def __init__(self, directory: Path, clock: Any, earlier: float, live: float, mtime: float | None = 0.0) -> None:
        self.directory, self.clock, self.mtime = directory, clock, mtime
        self.live_ahead = live
        old = RunFile(directory, clock.now + earlier - 2 * HOUR)
        for step in range(100):
            old.scalar("loss", step, clock.now + earlier - 2 * HOUR + step * 36.0)
        self._written(old.path, clock.now - HOUR + (mtime or 0.0))
        self.file = RunFile(directory, clock.now + live - 10 * MINUTE)
        self.file.path = self.file.path.rename(directory / f"{self.file.path.name}.1")
        for step in range(50):
            self.file.scalar("loss", step, clock.now + live - 10 * MINUTE + 12 * step)
        self.step = 49
        self.go_on(0.0)

    def go_on(self, secs: float = 30.0) -> None:
        """The second program writes a loss that is not finite."""
        self.clock.now += secs
        self.step += 1
        self.file.scalar("loss", self.step, self.clock.now + self.live_ahead, NAN)
        self._written(self.file.path, self.clock.now)

    def _written(self, path: Path, at: float) -> None:
        os.utime(path, (0.0, 0.0) if self.mtime is None else (at, at))


def look(watch: LogdirWatch, clock: Any) -> Said:
    """What is said of the run at one look."""
    found = watch.refresh().runs["."]
    kinds = {finding.kind for finding in findings(found, clock.now)}
    return found.run.state, found.run.step, len(found.run.sessions), "loss_not_finite" in kinds


CLOCKS = {
    "the first was ten minutes ahead": (HOUR + 10 * MINUTE, 0.0),
    "the first was a year ahead": (YEAR, 0.0),
    "the second is behind": (0.0, -40 * MINUTE),
    "the second is far behind": (0.0, -90 * MINUTE),
    "the second is a year behind": (0.0, -YEAR),
    "both are ahead": (YEAR, HOUR),
    "one ahead, one behind": (HOUR, -10 * MINUTE),
    "no clock is wrong": (0.0, 0.0),
}


@pytest.mark.parametrize("mtime", [0.0, YEAR], ids=["", "planted"])
@pytest.mark.parametrize("clocks", CLOCKS.values(), ids=CLOCKS)
def test_what_lives_is_the_run(tmp_path: Path, clock: Any, clocks: tuple[float, float], mtime: float) -> None:
    """Its step and its NaN, at the first look as at all others. An earlier file may also be dated in the future."""
    earlier, live = clocks
    machine = Machine(tmp_path, clock, max(earlier, mtime), live, mtime)
    watch = LogdirWatch(str(tmp_path), clock=clock)
    for _ in range(4):
        assert look(watch, clock)[1:] == look(LogdirWatch(str(tmp_path), clock=clock), clock)[1:]
        said = look(watch, clock)
        assert said[1:] == (machine.step, 2, True)
        assert said[0] == "running" or (live < -HOUR and machine.step == 50), "one look may take it for a copy"
        machine.go_on()


@pytest.mark.parametrize("clocks", CLOCKS.values(), ids=CLOCKS)
def test_without_times_of_files_the_one_that_grows_is_the_run(
    tmp_path: Path, clock: Any, clocks: tuple[float, float]
) -> None:
    """As some stores have none: from the second look on."""
    machine = Machine(tmp_path, clock, *clocks, mtime=None)
    watch = LogdirWatch(str(tmp_path), clock=clock)
    look(watch, clock)
    for _ in range(3):
        machine.go_on()
        assert look(watch, clock) == ("running", machine.step, 2, True)


def test_it_is_over_by_the_reader_s_clock(tmp_path: Path, clock: Any) -> None:
    """Ten minutes after its last event, whatever the other file's clock was."""
    machine = Machine(tmp_path, clock, YEAR, 0.0)
    watch = LogdirWatch(str(tmp_path), clock=clock)
    clock.now += 599
    assert look(watch, clock)[:2] == ("running", machine.step)
    clock.now += 2
    assert look(watch, clock)[:2] == ("unknown", machine.step)
    run = watch.refresh().runs["."].run
    assert (run.last_event_at or 0.0) <= clock.now and (run.sessions[0].ended_at or 0.0) <= clock.now - HOUR
    assert run.restarts[0].downtime_secs == pytest.approx(50 * MINUTE, abs=60.0)


@pytest.mark.parametrize("first", ["train", "eval"])
def test_two_that_write_at_the_same_time_are_one_session(tmp_path: Path, clock: Any, first: str) -> None:
    """A training and its evaluation, whichever is looked at first, and whichever grows."""
    begun = clock.now
    files = {}
    for name in dict.fromkeys((first, "train", "eval")):
        files[name] = RunFile(tmp_path, begun)
        files[name].path = files[name].path.rename(tmp_path / f"{files[name].path.name}.{name}")
    watch = LogdirWatch(str(tmp_path), clock=clock)
    for step in range(20):
        clock.now += 30
        files["train"].scalar("loss", step, clock.now)
        os.utime(files["train"].path, (clock.now, clock.now))
        if step % 7 == 3:
            files["eval"].scalar("accuracy", step, clock.now)
            os.utime(files["eval"].path, (clock.now, clock.now))
        assert look(watch, clock) == ("running", step, 1, False)


def test_a_copy_without_its_times_is_in_the_order_of_its_events(tmp_path: Path, clock: Any) -> None:
    """All files of a copy were written at nearly the same time."""
    train = RunFile(tmp_path / "run", clock.now - 9 * HOUR)
    for step in range(100):
        train.scalar("loss", step, clock.now - 9 * HOUR + 100 * step)
    beside = RunFile(tmp_path / "run", clock.now - 8 * HOUR).scalar("accuracy", 3, clock.now - 8 * HOUR)
    for at, path in zip((-20 * MINUTE, -10 * MINUTE), (train.path, beside.path), strict=True):
        shutil.copy(path, tmp_path)
        os.utime(tmp_path / path.name, (clock.now + at, clock.now + at))
    assert look(LogdirWatch(str(tmp_path), include=r"^\.$", clock=clock), clock)[1:3] == (99, 1)


def test_a_loss_beside_the_session_by_a_clock_that_is_ahead(tmp_path: Path, clock: Any) -> None:
    """The clock of its writer is corrected once: the loss is of the session, which is younger than the difference."""
    session = Scripted(tmp_path, clock.now - 10 * MINUTE).train(10 * MINUTE - 5)
    for name, ahead, tag, value in (("own", HOUR, "train/loss", NAN), ("other", 0.0, "eval/accuracy", None)):
        file = RunFile(tmp_path, clock.now + ahead - 5 * MINUTE)
        file.path = file.path.rename(tmp_path / f"events.out.tfevents.1.{name}")
        for step in range(20):
            at = clock.now + ahead - 5 * MINUTE + 14 * step
            file.scalar(tag, step, at, *(() if value is None else (value,)))
        os.utime(file.path, (clock.now, clock.now - (1.0 if ahead else 0.0)))
    session.flush()
    assert look(LogdirWatch(str(tmp_path), clock=clock), clock)[-1]
