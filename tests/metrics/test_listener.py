"""Clients that are silent, slow, many or confused, over real sockets."""

from __future__ import annotations

import contextlib
import io
import socket
import ssl
import threading
from pathlib import Path

import pytest

from supervisor_core.metrics import listener
from supervisor_core.metrics.collector import RunCollector
from supervisor_core.metrics.server import MetricsServer
from supervisor_core.run.status import RunStatus

EXPECTED = (Path(__file__).parent / "expected" / "running.prom").read_bytes()


def test_requests_make_no_noise(talk, server: MetricsServer, capfd: pytest.CaptureFixture[str]) -> None:
    """Neither good nor bad requests print anything: the terminal is the training's. What is none gets a status."""
    talk.ask(server)
    talk.ask(server, "/nothing")
    talk.ask(server, method="POST")
    for garbage in (b"\x16\x03\x01\x02\x00\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b""):
        with talk.connect(server) as caller:
            caller.sendall(garbage)
            caller.shutdown(socket.SHUT_WR)
            answer = talk.rest(caller)
            assert not garbage or answer.startswith((b"HTTP/1.0 400 ", b"HTTP/1.0 505 ")), answer
    assert capfd.readouterr() == ("", "")


def test_a_context_that_cannot_be_made_costs_one_connection(talk, listening) -> None:
    """Where the context of a connection raises, that one is closed, and the next one is accepted."""
    asked = threading.Semaphore(0)

    def broken() -> ssl.SSLContext:
        asked.release()
        raise ValueError("no such date")

    def never(request: listener.Environ) -> listener.Response:
        raise AssertionError(request)

    server = listening(never, ssl_context=broken)
    for _ in range(2):
        with talk.connect(server) as caller:
            assert talk.rest(caller) == b""
        assert asked.acquire(timeout=60)


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
def test_a_client_that_says_little_delays_no_scrape(talk, server: MetricsServer, said: bytes) -> None:
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


def test_a_request_is_no_longer_than_allowed(talk, server: MetricsServer) -> None:
    """However many headers it has, and however long they are, it takes no more memory than that."""
    for head in (
        b"GET /" + b"x" * 2 * listener.MAX_HEAD_BYTES,
        b"GET / HTTP/1.1\r\n" + b"a: %b\r\n" % (b"x" * 900) * 40,
    ):
        with talk.connect(server) as caller:
            caller.sendall(head + b"\r\n\r\n")
            assert talk.rest(caller).startswith(b"HTTP/1.0 431 ")


def test_a_request_has_one_deadline(talk, collector: RunCollector) -> None:
    """A client that sends a byte now and then is hung up on like one that is silent."""
    with MetricsServer(collector, ":0", client_timeout_secs=0.1) as server, talk.connect(server) as caller:
        caller.settimeout(0.01)
        caller.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
        for _ in range(2_000):
            try:
                assert caller.recv(1) == b""
                break
            except ConnectionError:
                break
            except TimeoutError:
                with contextlib.suppress(ConnectionError):
                    caller.sendall(b"x")
        else:
            pytest.fail("it was not hung up on")


def test_a_slow_reader_is_hung_up_on(talk, listening, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the time for an answer nothing more is sent, though the client takes some of it all the time."""
    monkeypatch.setattr(listener, "ANSWER_SECS", 0.01)
    server = listening(lambda environ: listener.Response(status=200, body=bytes(64 << 20)))
    with talk.connect(server) as caller:
        caller.sendall(b"GET / HTTP/1.0\r\n\r\n")
        with server._connections_changed:
            assert server._connections_changed.wait_for(lambda: not server._deadlines, 60)
        assert len(talk.rest(caller)) < 64 << 20


def test_who_is_being_answered_is_cut_last(talk, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many clients connect and say nothing meanwhile, the answer comes."""
    monkeypatch.setattr(listener, "MAX_CONNECTIONS", 4)
    asked, go_on = threading.Event(), threading.Event()

    def source() -> list[RunStatus]:
        asked.set()
        go_on.wait(60)
        return []

    with MetricsServer(RunCollector(source), ":0") as server:
        result = talk.in_thread(lambda: talk.ask(server))
        assert asked.wait(60)
        callers = [talk.connect(server) for _ in range(12)]
        assert [caller.recv(1) for caller in callers[:9]] == [b""] * 9
        go_on.set()
        assert b"scrape_success 1.0" in result().body
        for caller in callers:
            caller.close()


def test_what_reads_a_request_closes_its_stream() -> None:
    """Otherwise the connection stays open until the garbage collector finds it."""
    stream = io.BytesIO()
    listener._Head(stream).close()
    assert stream.closed
