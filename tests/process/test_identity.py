"""Whether a process of this machine still runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from supervisor_core.process.identity import is_running


def test_a_process_that_was_reaped_is_gone() -> None:
    """And so is one that cannot be."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert not is_running(process.pid)
    assert not is_running(1 << 80)


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc")
def test_a_process_that_was_not_reaped_is_gone() -> None:
    """A killed child whose parent does not ask for it runs no more, though its id is still taken."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert is_running(process.pid)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not is_running(process.pid)
    process.communicate()


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc")
def test_a_process_whose_first_thread_has_ended_runs() -> None:
    """Its other threads go on."""
    code = """
import ctypes, threading, sys
def rest():
    print("on", flush=True)
    sys.stdin.read()
threading.Thread(target=rest).start()
ctypes.CDLL(None).pthread_exit(None)
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"on\n"
    stat = Path(f"/proc/{process.pid}/stat")
    while stat.read_bytes().rpartition(b")")[2].split()[0] != b"Z":
        assert process.poll() is None
    assert is_running(process.pid)
    process.kill()
    process.communicate()
