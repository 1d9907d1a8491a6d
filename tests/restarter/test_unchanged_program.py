"""A program that knows nothing of this project, under ``tb-supervisor run``: where it hangs, and that it was killed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.metrics.page import run_status
from supervisor_core.run.model.run import Run
from supervisor_core.run.watch.logdir_watch import LogdirWatch

PROGRAM = """
import os, sys, threading
from supervisor_core.events.writer import EventsWriter
def evaluate():
    threading.Event().wait()  # line 5
with EventsWriter(sys.argv[1]) as writer:
    for step in range(20):
        writer.scalar("loss", 0.5, step=step)
    writer.flush()
    print("hangs", flush=True)
    evaluate()
"""
LINE = "program.py:5 in evaluate"
LONGEST_SECS = 60.0

Wait = Callable[[Callable[[Run], object]], Run]


@pytest.fixture
def wait(tmp_path: Path) -> Wait:
    """Returns a function that returns the run as soon as something is true of it."""
    watch, pause = LogdirWatch(str(tmp_path / "logs")), threading.Event()

    def run_when(is_true: Callable[[Run], object]) -> Run:
        until = time.monotonic() + LONGEST_SECS
        while True:
            found = watch.refresh().runs.get(".")
            if found is not None and is_true(found.run):
                return found.run
            assert time.monotonic() < until, found and (found.run.state, found.run.launches, found.run.stalls)
            pause.wait(0.05)

    return run_when


def start(restarter: Callable[..., Any], directory: Path, *options: str) -> Any:
    """The program under its restarter, once it writes nothing more."""
    logs = str(directory / "logs")
    running = restarter(PROGRAM, *options, "--max-backoff", "1ms", arguments=(logs,), is_isolated=False)
    assert running.line() == ["hangs"]
    return running


def test_a_hang_is_shown_with_its_line_and_then_ended(
    restarter: Callable[..., Any], tmp_path: Path, wait: Wait
) -> None:
    """In the model and the metrics, while it lasts; afterwards it is still there, and the launch says the line, too."""
    running = start(restarter, tmp_path, "--hang-timeout", "1s")
    run = wait(lambda run: run.state == "stalled")
    (stall,) = run.stalls
    assert (stall.session, stall.until, stall.step, stall.phase) == (run.sessions[0].id, None, 19, "training")
    assert stall.location == f"{tmp_path}/program.py:5 evaluate" and stall.location in stall.stacks["MainThread"]
    status = run_status(run, time.time())
    assert (status.active, status.stalled, status.steps_per_sec, status.session.progress_timeout_secs) == (
        True,
        True,
        0,
        1,
    )
    assert status.stall is not None and status.stall.location == LINE
    assert running.line() == ["hangs"]  # the second launch
    run = wait(lambda run: run.launches[0].ended_at is not None)
    assert run.launches[0].cause == "hang" and LINE in (run.launches[0].text or "")
    assert run.stalls[0].until == run.launches[0].ended_at and run.stalls[0].activity == "waits"
    assert f" (hang timeout 1 s), MainThread is at {LINE}" in running.log
    assert "has no new events for 1s" in running.log.splitlines()[0]
