"""Two chiefs write in one logdir (`Options(exclusive_logdir=False)`): the run is what lives."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.run.judge.findings import findings
from supervisor_core.run.watch.logdir_watch import LogdirWatch
from tests.story.run_file import RunFile


@pytest.mark.parametrize("end", ["completed", None])
def test_the_run_goes_on_while_the_first_chief_does(tmp_path: Path, clock: Any, end: str | None) -> None:
    """When the second one stops, at once; when it is killed, after two minutes. Nothing was rewound."""
    first = RunFile(tmp_path, clock.now - 1000.0, "first").ready()
    second = RunFile(tmp_path, clock.now - 500.0, "second").ready(attempt=2)
    watch = LogdirWatch(str(tmp_path), clock=clock)

    def beat(file: RunFile, steps: int) -> None:
        file.beat(clock.now, steps=steps)
        os.utime(file.path, (clock.now, clock.now))

    beat(first, 900)
    beat(second, 100)
    if end is not None:
        second.stop(clock.now, end)
    for step in range(1000, 2500, 100):
        clock.now += 10.0
        beat(first, step)
        found = watch.refresh().runs["."]
    assert (found.run.state, found.run.step, found.run.sessions[-1].id) == ("running", 2400, "first")
    assert [session.attempt for session in found.run.sessions] == [2, 3]
    assert (found.run.steps_lost, found.run.goodput.secs["wasted_progress_from_disruption"]) == (0, 0.0)
    assert not [each.kind for each in findings(found, clock.now) if each.severity == "page"]
    clock.now += 10.0
    first.stop(clock.now)
    assert watch.refresh().runs["."].run.state == "completed"


def test_a_copy_without_its_times_is_in_the_order_of_its_sessions(tmp_path: Path, clock: Any) -> None:
    """Whichever file was copied last: the one that was killed did not outlive the one that completed."""
    first = RunFile(tmp_path, clock.now - 9000.0, "first").ready().beat(clock.now - 8000.0, steps=900)
    second = RunFile(tmp_path, clock.now - 7000.0, "second").ready(attempt=2)
    second.beat(clock.now - 6000.0, steps=1000).stop(clock.now - 6000.0)
    os.utime(first.path, (clock.now, clock.now))
    os.utime(second.path, (clock.now - 30.0, clock.now - 30.0))
    run = LogdirWatch(str(tmp_path), clock=clock).refresh().runs["."].run
    assert (run.state, run.sessions[-1].id) == ("completed", "second")


def test_a_session_that_followed_is_the_run_however_its_clock_was_set(tmp_path: Path, clock: Any) -> None:
    """The one before was killed, and its clock was ahead."""
    first = RunFile(tmp_path, clock.now + 3600.0, "first").ready()
    first.beat(clock.now + 7200.0, steps=900)
    os.utime(first.path, (clock.now - 600.0, clock.now - 600.0))
    second = RunFile(tmp_path, clock.now - 500.0, "second").ready(attempt=2)
    second.beat(clock.now - 1.0, steps=1000)
    second.stop(clock.now)
    os.utime(second.path, (clock.now, clock.now))
    run = LogdirWatch(str(tmp_path), clock=clock).refresh().runs["."].run
    assert (run.state, run.sessions[-1].id, run.step) == ("completed", "second", 1000)
