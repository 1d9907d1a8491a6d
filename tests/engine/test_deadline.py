"""How much time is left, what part of an end's time is for what, and the timer that enforces it."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import supervisor_core
from supervisor_core.engine.deadline import NEVER, Deadline, StopDeadline


def test_remaining(clock: Any) -> None:
    """What is left shrinks with the monotonic clock, never below 0, and never above what is asked for."""
    deadline = Deadline.after(25.0, clock)
    assert (deadline.remaining(), deadline.remaining(10.0), deadline.is_over) == (25.0, 10.0, False)
    clock.advance(20.0)
    assert (deadline.remaining(), deadline.remaining(10.0), deadline.is_over) == (5.0, 5.0, False)
    clock.advance(6.0)
    assert (deadline.remaining(), deadline.timeout, deadline.is_over) == (0.0, 0.0, True)


def test_earlier(clock: Any) -> None:
    """What is kept in reserve is taken off."""
    assert Deadline.after(25.0, clock).earlier(2.0).remaining() == 23.0


def test_never() -> None:
    """No deadline is never over, and is a wait that the standard library takes."""
    assert (NEVER.remaining(), NEVER.is_over) == (math.inf, False)
    assert threading.Lock().acquire(timeout=NEVER.timeout)


class Hands:
    """A clock that is set by the test."""

    now = 5000.0

    def wall(self) -> float:
        return 1.7e9 + self.now

    def monotonic(self) -> float:
        return self.now


@pytest.mark.parametrize(("stop_timeout_secs", "lingers"), [(25.0, 21.0), (5.0, 3.0)])
def test_metrics_linger_for_less_than_there_is_for_work(stop_timeout_secs: float, lingers: float) -> None:
    """A process that was scraped, and waits for Prometheus after SIGTERM, has ended before it is taken for one that
    hangs. Without a signal nothing presses."""
    clock = Hands()
    deadline = StopDeadline(stop_timeout_secs, clock)
    assert deadline.linger_secs(30.0) == 30.0
    deadline.signalled(clock.now)
    assert deadline.linger_secs(30.0) == pytest.approx(lingers)
    assert deadline.linger_secs(30.0) < deadline.for_work.remaining() < stop_timeout_secs
    assert deadline.linger_secs(1.0) == 1.0
    clock.now += stop_timeout_secs
    assert deadline.linger_secs(30.0) == 0.0


PREAMBLE = """
import ctypes, os, threading
from supervisor_core.engine.deadline import ExitTimer
from supervisor_core.engine.deadline import NEVER, Deadline

exit_timer = ExitTimer()
"""


def run(script: str) -> tuple[int, str, str]:
    """Run a script; return its exit status and what it wrote."""
    root = str(Path(supervisor_core.__file__).parents[1])
    command = [sys.executable, "-c", PREAMBLE + script]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": root}, capture_output=True, text=True, timeout=100)
    return done.returncode, done.stdout, done.stderr


def test_disarmed() -> None:
    """A process that has disarmed it lives on; so does one whose deadline was over, or never comes."""
    status, out, err = run(
        "exit_timer.arm(Deadline.after(3600.0))\nexit_timer.disarm()\nexit_timer.arm(Deadline.after(-1.0))\n"
        "exit_timer.disarm()\nprint('lives')"
    )
    assert (status, out, err) == (0, "lives\n", "")


def test_forked_child() -> None:
    """A forked child, which has no such timer, may disarm it without waiting for a thread that it does not have."""
    status, out, _ = run(
        "exit_timer.arm(Deadline.after(3600.0))\npid = os.fork()\nexit_timer.disarm()\n"
        "if not pid:\n    os._exit(5)\nprint(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))"
    )
    assert (status, out) == (0, "5\n")
