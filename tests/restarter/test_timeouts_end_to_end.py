"""`tb-supervisor run --hang-timeout --stop-timeout`: the session within has the same two, whichever facade it uses."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SUPERVISE = """
import sys, threading
import supervisor_core
def train(logdir, options):
    pause = threading.Event()
    with supervisor_core.supervise(logdir, save_secs=None, options=options) as run:
        for step in run.steps(1_000_000):
            if step == 2:
                say()
            pause.wait(0.01)
"""
SUPERVISOR = """
import sys, threading
import supervisor_core
import tensorflow.compat.v1 as tf
def train(logdir, options):
    pause = threading.Event()
    with tf.Graph().as_default():
        step = tf.train.create_global_step()
        increment = tf.assign_add(step, 1)
        sv = supervisor_core.Supervisor(logdir=logdir, summary_op=None, options=options)
        with sv.managed_session() as session:
            while not sv.should_stop():
                if session.run(increment) == 3:
                    say()
                pause.wait(0.01)
"""
SAYING = """
from supervisor_core.process.progress_page import pages_in
from supervisor_core.process.runtime_directory import private_directory
def say():
    [page] = [page for page in pages_in((private_directory(),)) if page.is_running]
    print(page.phase, page.hang_timeout_secs, page.act_after_secs, flush=True)
train(sys.argv[1], supervisor_core.Options(**eval(sys.argv[2])))
"""
GIVEN = {"hang_timeout_secs": {"training": 60.0}, "stop_timeout_secs": 5.0}


@pytest.mark.parametrize(
    ("facade", "own", "hang_secs", "act_secs", "stop_secs"),
    [
        (SUPERVISOR, {}, 4321.0, 4321.0, 11),
        (SUPERVISE, GIVEN, 60.0, 60.0, 5),
        (SUPERVISE, {**GIVEN, "hang_action": "abort"}, 60.0, 77.0, 5),
        (SUPERVISE, {"stop_timeout_secs": 60.0}, 4321.0, 4321.0, 11),
    ],
    ids=["the restarter's", "the program's own", "the session acts first", "longer than the restarter waits"],
)
def test_one_value_from_end_to_end(
    running: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    facade: str,
    own: dict[str, Any],
    hang_secs: float,
    act_secs: float,
    stop_secs: int,
) -> None:
    """The page shows the hang timeout by which both judge; a signal is given the stop timeout, the shorter one of two.
    Where the session acts itself (`hang_action`), the restarter acts when the session has had the time for that: 12 s
    and a stop timeout."""
    monkeypatch.setenv("SUPERVISOR_RUNTIME_DIR", str(tmp_path / "memory"))
    command = [sys.executable, "-c", facade + SAYING, str(tmp_path / "logs"), repr(own)]
    restarter = running(*command, options=["--hang-timeout", "4321s", "--stop-timeout", "11s"])
    assert restarter.line() == ["training", str(hang_secs), str(act_secs)], restarter.log
    restarter.process.send_signal(signal.SIGTERM)
    assert restarter.status() == -signal.SIGTERM, restarter.log
    assert "SIGTERM: stopping the program; it has 11 s to exit" in restarter.log
    assert f"SIGTERM: shutting down within {stop_secs} s" in restarter.log
    shortened = "A stop may take 11 s, not Options.stop_timeout_secs (60 s): tb-supervisor run kills this program then."
    assert (shortened in restarter.log) == (own.get("stop_timeout_secs", 0.0) > 11.0)
