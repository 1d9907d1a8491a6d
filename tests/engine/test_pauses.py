"""Why no Python code ran for a while: from counters, and of real pauses."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from supervisor_core.engine.progress import Evidence, PauseWitness, cause_of

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="the counters are Linux's")
INTERVAL_SECS = 0.005


@pytest.mark.parametrize(
    ("ran_secs", "switches", "cause"),
    [(9.0, 0, "interpreter_blocked"), (0.0, 1900, "interpreter_blocked"), (0.1, 3, "stopped"), (0.1, None, None)],
    ids=["computing", "sleeping with the lock", "stopped", "no thread count"],
)
def test_the_counters_show_the_cause(ran_secs, switches, cause) -> None:
    """What moved in the ten seconds: this process, its waiting thread, or nothing."""
    before = Evidence(ran_secs=7.0, switches=40)
    after = Evidence(ran_secs=7.0 + ran_secs, switches=None if switches is None else 40 + switches)
    assert cause_of(10.0, before, after, INTERVAL_SECS) == cause


@LINUX
def test_native_code_that_holds_the_lock_is_seen_from_the_thread_that_waits() -> None:
    """It sleeps, so that no CPU time shows it, and another thread wants to run Python code meanwhile; longer than is
    said, since on a busy machine that thread wakes less often."""
    witness, sampled, end = PauseWitness(), threading.Event(), threading.Event()

    def monitor() -> None:
        witness.sample()
        sampled.set()
        while not end.wait(0.01):
            continue

    thread = threading.Thread(target=monitor)
    thread.start()
    sampled.wait()
    ctypes.PyDLL(None).sleep(2)
    cause = witness.cause(0.5)
    end.set()
    thread.join()
    assert cause == "interpreter_blocked"


STOPPED = """
import sys, threading
from supervisor_core.engine.progress import PauseWitness
witness, sampled = PauseWitness(), threading.Event()
def monitor():
    witness.sample()
    sampled.set()
    threading.Event().wait()
threading.Thread(target=monitor, daemon=True).start()
sampled.wait()
print("sampled", flush=True)
print(witness.cause(float(sys.stdin.readline())), flush=True)
"""


@LINUX
def test_a_stopped_process() -> None:
    """SIGSTOP, for half a second, until SIGCONT."""
    with subprocess.Popen(
        [sys.executable, "-c", STOPPED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == "sampled\n"
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        since = time.monotonic()
        threading.Event().wait(0.5)
        process.send_signal(signal.SIGCONT)
        process.stdin.write(f"{min(time.monotonic() - since, 10.0)}\n")
        process.stdin.flush()
        assert process.stdout.readline() == "stopped\n"
