"""The server from start to close: addresses that cannot be had, scrapes counted and waited for, and the end."""

from __future__ import annotations

import http.client
import logging
import os
import re
import threading
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.base.errors import OptionsError
from supervisor_core.metrics import listener
from supervisor_core.metrics.collector import RunCollector
from supervisor_core.metrics.server import MetricsServer
from supervisor_core.run.status import RunStatus

EXPECTED = (Path(__file__).parent / "expected" / "running.prom").read_bytes()


class Held:
    """A source that waits, in the midst of a scrape, until it is let go."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.go = threading.Event()

    def __call__(self) -> list[RunStatus]:
        self.entered.set()
        assert self.go.wait(60)
        return []


def test_only_this_machine_is_served_by_default(server: MetricsServer) -> None:
    """An empty host is 127.0.0.1; port 0 becomes a real one."""
    assert re.fullmatch(r"127\.0\.0\.1:[1-9][0-9]*", server.address or "")
    assert server.url == f"http://{server.address}/metrics"


def test_ipv6(talk, collector: RunCollector) -> None:
    """An IPv6 address is served, and shown so that it can be pasted into a URL."""
    with MetricsServer(collector, "[::1]:0") as server:
        if server.address is None:
            pytest.skip("this machine has no IPv6")
        assert server.address.startswith("[::1]:")
        assert talk.ask(server).body == EXPECTED


def test_a_bad_address_is_the_callers_error(collector: RunCollector) -> None:
    """What is no address at all is refused when the server is made."""
    with pytest.raises(OptionsError, match="metrics address is 'nonsense'"):
        MetricsServer(collector, "nonsense")


def test_a_port_in_use_stops_nothing(
    talk, server: MetricsServer, collector: RunCollector, caplog: pytest.LogCaptureFixture
) -> None:
    """Where somebody listens already nothing is served, nothing raised, and the log says where and what to do."""
    assert server.address is not None
    second = MetricsServer(collector, server.address)
    assert not second.start()
    assert (second.address, second.url, second.scrapes) == (None, None, 0)
    assert second.wait_for_scrapes(1, timeout_secs=60) is False
    second.close()
    assert talk.ask(server).body == EXPECTED
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert f"{server.address} is in use already" in record.getMessage()
    assert "Choose another port in the metrics address, or port 0" in record.getMessage()


@pytest.mark.parametrize(
    "address", ["192.0.2.1:0", f"{'x' * 64}.example:0"], ids=["not of this machine", "no host name"]
)
def test_an_address_that_cannot_be_had_stops_nothing(
    collector: RunCollector, caplog: pytest.LogCaptureFixture, address: str
) -> None:
    """Any other reason not to listen is logged too, with the address."""
    server = MetricsServer(collector, address)
    assert not server.start()
    assert f"cannot listen on {address}" in caplog.text
    assert "Choose an address of this machine" in caplog.text


def test_no_thread_to_be_had_stops_nothing(
    collector: RunCollector, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that may not start threads is not served, trains on, and leaves the port free."""
    opened = []

    def start(self: listener.Listener) -> None:
        opened.append(self)
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(listener.Listener, "start", start)
    server = MetricsServer(collector, ":0")
    assert not server.start()
    assert server.address is None
    assert "cannot start a thread: can't start new thread" in caplog.text
    assert opened[0].socket.fileno() == -1


def test_scrapes_are_counted(talk, server: MetricsServer, clock) -> None:
    """What counts is `/metrics` served whole, and nothing else; the time of the last one is kept."""
    assert server.scrapes == 0
    talk.ask(server)
    talk.ask(server)
    talk.ask(server, "/-/healthy")
    talk.ask(server, method="HEAD")
    talk.ask(server, method="POST")
    server.close()  # every answer has been counted then
    assert server.scrapes == 2


class Announcing(threading.Condition):
    """A condition that sets an event when a thread begins to wait for it."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting = threading.Event()

    def wait_for(self, *args: Any) -> Any:
        self.waiting.set()
        return super().wait_for(*args)


def test_scrapes_that_began_before_the_wait_do_not_count(talk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scrape under way may hold what was true before: only those that begin later are waited for."""
    scraped, source = Announcing(), Held()
    with MetricsServer(RunCollector(source), ":0") as server:
        monkeypatch.setattr(server, "_scraped", scraped)
        early = talk.in_thread(lambda: talk.ask(server))
        assert source.entered.wait(60)
        enough = talk.in_thread(lambda: server.wait_for_scrapes(2, timeout_secs=600))
        assert scraped.waiting.wait(60)
        source.go.set()
        early()
        talk.ask(server)
        talk.wait_until(lambda: server.scrapes == 2)  # a scrape counts once it is answered
        server.close()
        assert enough() is False


@pytest.mark.parametrize(
    ("names", "is_enough"), [(["often"] * 5, False), (["often", "often", "rarely", "rarely"], True)]
)
def test_each_scraper_is_waited_for(
    talk, server: MetricsServer, monkeypatch: pytest.MonkeyPatch, names: list[str], is_enough: bool
) -> None:
    """Scrapes by one of a pair are not enough where the other one scrapes more rarely."""
    for name in ("often", "rarely"):
        talk.ask(server, **{"User-Agent": name})
    talk.wait_until(lambda: len(server._scrapers) == 2)  # a scrape counts once it is answered
    scraped = Announcing()
    monkeypatch.setattr(server, "_scraped", scraped)
    enough = talk.in_thread(lambda: server.wait_for_scrapes(2, timeout_secs=600))
    assert scraped.waiting.wait(60)
    for name in names:
        talk.ask(server, **{"User-Agent": name})
    if not is_enough:
        server.close()
    assert enough() is is_enough


def test_scrapers_by_thousands_of_names_take_little_memory(talk, server: MetricsServer) -> None:
    """Each user of the machine may ask, by names of kilobytes: those were kept for minutes, in the training."""
    for number in range(300):
        talk.ask(server, **{"User-Agent": f"{number}{'a' * 20_000}"})
    talk.wait_until(lambda: server.scrapes == 300)
    assert len(server._scrapers) <= 100
    assert len(repr(server._scrapers)) < 10_000
    talk.ask(server, **{"User-Agent": "the newest"})
    talk.wait_until(lambda: server.scrapes == 301)
    assert len(server._scrapers) <= 100


def test_waiting_ends_when_nothing_is_served_any_more(
    talk, server: MetricsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closing the server ends the wait, at once and with False."""
    scraped = Announcing()
    monkeypatch.setattr(server, "_scraped", scraped)
    enough = talk.in_thread(lambda: server.wait_for_scrapes(1, timeout_secs=600))
    assert scraped.waiting.wait(60)
    server.close()
    assert enough() is False


def test_waiting_ends_in_time(server: MetricsServer) -> None:
    """Without a scrape the wait ends after the time allowed."""
    assert server.wait_for_scrapes(1, timeout_secs=0.01) is False


def test_close_frees_the_port(talk, collector: RunCollector) -> None:
    """After close no client is connected, none can connect, and the same port can be served again at once."""
    server = MetricsServer(collector, ":0")
    assert server.start()
    assert server.start()
    address = server.address
    assert address is not None
    idle = talk.connect(server)
    talk.ask(server)  # leaves the port in TIME_WAIT, and proves that the idle caller was accepted before
    server.close()
    server.close()
    assert idle.recv(1) == b""
    idle.close()
    assert server.address is None
    with pytest.raises(ConnectionRefusedError):
        http.client.HTTPConnection(address).connect()
    with MetricsServer(collector, address) as again:
        assert again.address == address
        assert talk.ask(again).body == EXPECTED


def test_close_frees_the_port_from_copies_too(server: MetricsServer) -> None:
    """The port is free though another process has a copy of the socket, from a fork that Python knew nothing of."""
    address = server.address
    assert address is not None and server._listener is not None
    copy = os.dup(server._listener.fileno())
    server.close()
    with pytest.raises(ConnectionRefusedError):
        http.client.HTTPConnection(address).connect()
    os.close(copy)


def test_it_can_be_started_again(talk, collector: RunCollector) -> None:
    """One server object serves session after session."""
    server = MetricsServer(collector, ":0")
    for _ in range(2):
        assert server.start()
        assert talk.ask(server).body == EXPECTED
        server.close()


def test_close_lets_an_answer_end(talk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scrape under way when the server closes is answered in full: it may be the one that has the final state."""
    monkeypatch.setattr(listener, "_CLOSE_SECS", 60.0)
    source = Held()
    with MetricsServer(RunCollector(source), ":0") as server:
        answer = talk.in_thread(lambda: talk.ask(server))
        assert source.entered.wait(60)
        idle = talk.connect(server)
        talk.ask(server, "/-/healthy")  # proves that the idle caller was accepted
        closed = talk.in_thread(server.close)
        assert idle.recv(1) == b""  # by now it hangs up
        idle.close()
        source.go.set()
        closed()
        assert b"supervisor_scrape_success 1.0" in answer().body


def test_close_waits_for_no_straggler(talk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scrape that hangs in its source does not keep close from returning."""
    monkeypatch.setattr(listener, "_CLOSE_SECS", 0.01)
    source = Held()
    with MetricsServer(RunCollector(source), ":0") as server:
        connection = talk.connect(server)
        connection.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert source.entered.wait(60)
        server.close()
        assert connection.recv(1) == b""
        connection.close()
        source.go.set()
