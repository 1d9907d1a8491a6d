"""A trainer that forks, as data loaders do, and then dies."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import urllib.request

import pytest

TRAINER = """
import os, sys
from supervisor_core.metrics.collector import RunCollector
from supervisor_core.metrics.server import MetricsServer

server = MetricsServer(RunCollector(lambda: []), ":0")
assert server.start()
print(server.address, flush=True)
sys.stdin.readline()  # until the test has connected
with server._scraped:  # as a scrape in another thread may hold it at the moment of the fork
    child = os.fork()
if child == 0:
    print(server.address, server.scrapes, server.wait_for_scrapes(1, 600.0), flush=True)
    server.close()
sys.stdin.readline()  # the parent until it is killed, the child until the test is over
print("the child ends")
"""


def test_a_forked_child_lets_go() -> None:
    """When the trainer is killed its port is refused and its clients are cut, though a forked worker lives on.

    In the child nothing is served, nothing is waited for and nothing is locked.
    """
    trainer = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", TRAINER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert trainer.stdin is not None and trainer.stdout is not None
    with trainer.stdin, trainer.stdout:
        address = trainer.stdout.readline().strip()
        host, _, port = address.rpartition(":")
        idle = socket.create_connection((host, int(port)))
        urllib.request.urlopen(f"http://{address}/metrics").close()  # proves that the idle client was accepted
        trainer.stdin.write("go on\n")
        trainer.stdin.flush()
        in_child = trainer.stdout.readline().split()
        urllib.request.urlopen(f"http://{address}/metrics").close()  # the parent serves on
        trainer.send_signal(signal.SIGKILL)
        assert trainer.wait() == -signal.SIGKILL
        assert in_child == ["None", "0", "False"]
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, int(port)))
        with idle:
            assert read(idle) == b""
        trainer.stdin.close()  # the child, which has lived until here, ends
        assert trainer.stdout.read() == "the child ends\n"


def read(connection: socket.socket) -> bytes:
    """Return what comes until the connection ends or breaks."""
    try:
        return connection.recv(1)
    except ConnectionResetError:
        return b""
