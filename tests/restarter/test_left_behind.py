"""A program that ends with status 0 and leaves processes: they are the job, or what is left of one."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.restarter.conftest import assert_last_step_is_saved, run_of, training


def start_script(directory: Path, text: str, *program: str) -> str:
    """A script in which TRAIN is the command of a program."""
    path = directory / "start.sh"
    path.write_text("#!/bin/bash\n" + text.replace("TRAIN", shlex.join(program)))
    path.chmod(0o755)
    return str(path)


def test_a_training_in_the_background_is_the_job(running: Callable[..., Any], tmp_path: Path) -> None:
    """Its processes are named, the launch goes on until it is done, and then it is completed."""
    restarter = running(start_script(tmp_path, "TRAIN &\n", *training(tmp_path, 20, "waits")))
    leader, pid = restarter.leader(), restarter.line()[1]
    while "; launch 1 goes on until all have ended" not in restarter.log:
        assert not restarter.has_line(0.05)
    (tmp_path / "logs" / "go").touch()
    assert restarter.status() == 0, restarter.log
    said = f"Process {leader} ended with status 0 and left 1 process: {pid} {sys.executable} {tmp_path / 'train.py'}"
    assert said in restarter.log
    found = run_of(tmp_path)
    assert [launch.cause for launch in found.launches] == ["completed"]
    assert (found.sessions[-1].outcome, found.sessions[-1].last_step) == ("completed", 20)


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_training_in_the_background_is_stopped_and_saved(
    running: Callable[..., Any], tmp_path: Path, signum: signal.Signals
) -> None:
    """Though it ignores SIGINT, as a shell makes its background do."""
    restarter = running(start_script(tmp_path, "TRAIN &\n", *training(tmp_path)))
    restarter.line()
    restarter.process.send_signal(signum)
    assert restarter.status() == -signum, restarter.log
    assert_last_step_is_saved(tmp_path)
    assert run_of(tmp_path).launches[-1].cause == "stopped"


@pytest.mark.parametrize("helper", ["", "sleep 1000 &\n"])
def test_a_training_in_the_background_that_fails_is_started_again(
    running: Callable[..., Any], tmp_path: Path, helper: str
) -> None:
    """Whatever else the program has left running."""
    script = start_script(tmp_path, f"{helper}TRAIN &\n", *training(tmp_path, 1000, "fails"))
    restarter = running(script, options=["--max-backoff", "1ms", "--no-progress-limit", "1"])
    assert restarter.status() == 93, restarter.log
    launches = run_of(tmp_path).launches
    assert [(launch.cause, launch.exit_code) for launch in launches] == [("error", 1)] * 2  # the first got further
    assert (launches[0].error or "").startswith("RuntimeError at train.py:")
    assert ("the training in the background failed" in restarter.log) is bool(helper)


def test_what_a_training_leaves_is_ended(running: Callable[..., Any], tmp_path: Path) -> None:
    """Its helpers get SIGTERM when the program is done."""
    restarter = running(start_script(tmp_path, "sleep 1000 &\nTRAIN\n", *training(tmp_path, 20)))
    assert restarter.status() == 0, restarter.log
    assert "and left 1 process: " in restarter.log and " sleep 1000; sending SIGTERM, and SIGKILL" in restarter.log
    assert run_of(tmp_path).launches[-1].cause == "completed"


DAEMON = """
import os, sys
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        told = os.open(sys.argv[1], os.O_RDWR)
        print(os.getpid(), flush=True)
        os._exit(int(os.read(told, 1)))
    os._exit(0)
os.wait()
"""


@pytest.mark.parametrize(("status", "cause"), [(0, "completed"), (3, "refused")])
def test_a_daemon_without_a_session_is_awaited(
    running: Callable[..., Any], tmp_path: Path, status: int, cause: str
) -> None:
    """Nothing says whether it trains, so it is not ended; its status is the launch's."""
    told = tmp_path / "told"
    os.mkfifo(told)
    restarter = running(sys.executable, "-c", DAEMON, str(told), options=["--never-restart", "3"])
    pid = restarter.line()[0]
    while f"left 1 process: {pid} " not in restarter.log:
        assert not restarter.has_line(0.05)
    os.write(os.open(told, os.O_WRONLY | os.O_NONBLOCK), str(status).encode())  # raises if the daemon has ended
    assert restarter.status() == (93 if status else 0), restarter.log
    (launch,) = run_of(tmp_path).launches
    assert (launch.cause, launch.exit_code) == (cause, status)
