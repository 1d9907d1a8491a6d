"""Clients that are silent, slow, many or confused, over real sockets."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from supervisor_core.metrics import listener
from supervisor_core.metrics.collector import RunCollector
from supervisor_core.metrics.server import MetricsServer
from supervisor_core.run.status import RunStatus

EXPECTED = (Path(__file__).parent / "expected" / "running.prom").read_bytes()


def test_requests_make_no_noise(talk, server: MetricsServer, capfd: pytest.CaptureFixture[str]) -> None:
    """Neither good nor bad requests print anything: the terminal is the training's."""
    talk.ask(server)
    talk.ask(server, "/nothing")
    talk.ask(server, method="POST")
    for garbage in (b"\x16\x03\x01\x02\x00\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b""):
        with talk.connect(server) as caller:
            caller.sendall(garbage)
            caller.shutdown(socket.SHUT_WR)
            while caller.recv(4096):
                pass
    assert capfd.readouterr() == ("", "")


def test_scrapes_run_beside_each_other(talk, clock) -> None:
    """A scrape does not wait for another: four are inside the source at once."""
    meeting = threading.Barrier(4)

    def source() -> list[RunStatus]:
        meeting.wait(60)
        return []

    with MetricsServer(RunCollector(source), ":0") as server:
        results = [talk.in_thread(lambda: talk.ask(server)) for _ in range(4)]
        assert [b"scrape_success 1.0" in result().body for result in results] == [True] * 4


@pytest.mark.parametrize("said", [b"", b"GET /metr", b"GET /metrics HTTP/1.1\r\nHost: x\r\n"])
def test_a_client_that_says_little_holds_up_nobody(talk, server: MetricsServer, said: bytes) -> None:
    """Connections over which nothing, or half a request, was said do not delay a scrape."""
    callers = [talk.connect(server) for _ in range(8)]
    for caller in callers:
        caller.sendall(said)
    assert talk.ask(server).body == EXPECTED
    for caller in callers:
        caller.close()


def test_a_silent_client_is_hung_up_on(talk, collector: RunCollector, capfd: pytest.CaptureFixture[str]) -> None:
    """After the time allowed the server closes the connection of a client that says nothing."""
    with MetricsServer(collector, ":0", client_timeout_secs=0.01) as server, talk.connect(server) as caller:
        assert caller.recv(1) == b""
    assert capfd.readouterr() == ("", "")


def test_too_many_clients_cost_the_oldest(talk, collector: RunCollector) -> None:
    """However many connections are held open, a scrape finds room: the oldest one is cut."""
    with MetricsServer(collector, ":0", client_timeout_secs=600.0) as server:
        callers = [talk.connect(server) for _ in range(listener.MAX_CONNECTIONS)]
        assert talk.ask(server).body == EXPECTED
        assert callers[0].recv(1) == b""
        for caller in callers:
            caller.close()
