"""The timer that needs no interpreter lock: each test has a process of its own, which it may end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import supervisor_core

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


def test_native_code_that_holds_the_lock() -> None:
    """At the deadline the process ends with status 1, though no Python code can run, and says where every thread is."""
    status, out, err = run(
        "def hold():\n    exit_timer.arm(Deadline.after(0.5))\n    ctypes.PyDLL(None).sleep(3600)\n"
        "hold()\nprint('not reached')"
    )
    assert (status, out) == (1, "")
    assert "in hold" in err


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
