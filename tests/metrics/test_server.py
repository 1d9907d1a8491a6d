"""The server, asked over real sockets."""

from __future__ import annotations

import gzip
import http.client
import logging
import os
import re
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics_latest

from supervisor_core.errors import OptionsError
from supervisor_core.metrics import listener
from supervisor_core.metrics.collector import RunCollector
from supervisor_core.metrics.server import MetricsServer
from supervisor_core.run.status import RunStatus

EXPECTED = (Path(__file__).parent / "expected" / "running.prom").read_bytes()
PROMETHEUS_2 = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,text/plain;version=1.0.0;"
    "escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


def ask(
    server: MetricsServer, path: str = "/metrics", method: str = "GET", body: bytes | None = None, **headers: str
) -> Answer:
    """Return what the server answers; header names with underscores for dashes."""
    assert server.address is not None
    connection = http.client.HTTPConnection(server.address)
    try:
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        response = connection.getresponse()
        return Answer(response.status, dict(response.getheaders()), response.read())
    finally:
        connection.close()


def connect(server: MetricsServer) -> socket.socket:
    """Return a connection over which nothing has been said."""
    assert server.address is not None
    host, _, port = server.address.rpartition(":")
    return socket.create_connection((host, int(port)))


def in_thread(call: Callable[[], Any]) -> Callable[[], Any]:
    """Begin a call in a thread; return what waits for its result."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(call()), daemon=True)
    thread.start()

    def result() -> Any:
        thread.join()
        return results[0]

    return result


@pytest.fixture
def collector(running: RunStatus, clock) -> RunCollector:
    """A collector of the running run, whose scrape is `EXPECTED`."""
    return RunCollector(lambda: [running], clock=clock)


@pytest.fixture
def server(collector: RunCollector, clock) -> Iterator[MetricsServer]:
    """A server of that collector, on a free port."""
    with MetricsServer(collector, ":0", clock=clock) as serving:
        yield serving


class Held:
    """A source that waits, in the midst of a scrape, until it is let go."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.go = threading.Event()

    def __call__(self) -> list[RunStatus]:
        self.entered.set()
        assert self.go.wait(60)
        return []


def test_metrics_come_as_text(server: MetricsServer) -> None:
    """Who asks for nothing in particular gets the text format 0.0.4, byte for byte."""
    answer = ask(server)
    assert (answer.status, answer.body) == (200, EXPECTED)
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert answer.headers["Content-Length"] == str(len(EXPECTED))


def test_a_query_changes_nothing(server: MetricsServer) -> None:
    """The path alone says what is asked for."""
    assert ask(server, "/metrics?debug=1").body == EXPECTED


@pytest.mark.parametrize("accept", [PROMETHEUS_2, PROMETHEUS_3], ids=["prometheus 2", "prometheus 3"])
def test_prometheus_gets_openmetrics(server: MetricsServer, collector: RunCollector, accept: str) -> None:
    """Prometheus, of either generation, gets OpenMetrics 1.0, exactly as the library writes it."""
    answer = ask(server, Accept=accept)
    assert answer.body == openmetrics_latest(collector)
    assert answer.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0; charset=utf-8")


def test_gzip_for_those_who_accept_it(server: MetricsServer) -> None:
    """A body is compressed only for a client that says it can read that."""
    answer = ask(server, Accept_Encoding="gzip")
    assert answer.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(answer.body) == EXPECTED
    assert "Content-Encoding" not in ask(server, Accept_Encoding="identity").headers


def test_a_users_registry_is_escaped_as_asked(collector: RunCollector) -> None:
    """Names of a user's own that need escaping are escaped for a client which has not said that it reads them raw."""
    registry = CollectorRegistry()
    registry.register(collector)
    try:
        Gauge("users.own", "A name with a dot.", registry=registry)
    except ValueError:
        pytest.skip("this prometheus_client takes no name that needs escaping")
    with MetricsServer(registry, ":0") as server:
        assert b"\nusers_own 0.0\n" in ask(server, Accept=PROMETHEUS_2).body
        assert b'\n{"users.own"} 0.0\n' in ask(server, Accept=PROMETHEUS_3).body


def test_healthy_means_it_answers(server: MetricsServer) -> None:
    """The health check is 200 whatever the run does."""
    assert ask(server, "/-/healthy") == Answer(200, {**ask(server, "/-/healthy").headers}, b"healthy\n")


def test_ready_when_the_run_is(collector: RunCollector) -> None:
    """The readiness check is 503, with the reason, until the run is under way."""
    under_way = threading.Event()
    with MetricsServer(collector, ":0", ready=under_way.is_set) as server:
        before = ask(server, "/-/ready")
        under_way.set()
        after = ask(server, "/-/ready")
    assert (before.status, after.status, after.body) == (503, 200, b"ready\n")
    assert before.body.startswith(b"not ready: the run is not training yet")


def test_ready_cannot_be_told(collector: RunCollector) -> None:
    """A readiness that cannot be found out is none, and the answer says why."""

    def ready() -> bool:
        raise RuntimeError("session gone")

    with MetricsServer(collector, ":0", ready=ready) as server:
        answer = ask(server, "/-/ready")
    assert (answer.status, answer.body) == (
        503,
        b"not ready: it could not be found out: RuntimeError('session gone')\n",
    )


def test_the_front_page_leads_on(server: MetricsServer) -> None:
    """Every link of the landing page leads to something."""
    page = ask(server, "/")
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    links = re.findall(r'href="([^"]+)"', page.body.decode())
    assert links == ["metrics", "-/healthy", "-/ready"]
    assert [ask(server, f"/{link}").status for link in links] == [200, 200, 200]


@pytest.mark.parametrize("path", ["/metrics/", "/favicon.ico", "/../etc/passwd", "/-/"])
def test_there_is_nothing_else(server: MetricsServer, path: str) -> None:
    """Any other path is 404 and names those that exist."""
    answer = ask(server, path)
    assert (answer.status, answer.body) == (404, b"nothing here; see /metrics, /-/healthy and /-/ready\n")


@pytest.mark.parametrize("path", ["/metrics", "/-/healthy", "/", "/nothing"])
def test_head_is_get_without_the_body(server: MetricsServer, path: str) -> None:
    """HEAD answers with the status and the headers of GET, and no body."""
    get, head = ask(server, path), ask(server, path, "HEAD")
    assert (head.status, head.body) == (get.status, b"")
    assert head.headers["Content-Length"] == get.headers["Content-Length"]


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
def test_nothing_can_be_changed(server: MetricsServer, method: str) -> None:
    """Other methods are refused with 405 and the ones allowed, wherever they are tried."""
    for path in ("/metrics", "/nothing"):
        answer = ask(server, path, method, b"x" if method == "POST" else None)
        assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD")
        assert answer.body == f"{method} is not allowed here; use GET or HEAD.\n".encode()


def test_requests_make_no_noise(server: MetricsServer, capfd: pytest.CaptureFixture[str]) -> None:
    """Neither good nor bad requests print anything: the terminal is the training's."""
    ask(server)
    ask(server, "/nothing")
    ask(server, method="POST")
    for garbage in (b"\x16\x03\x01\x02\x00\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b""):
        with connect(server) as client:
            client.sendall(garbage)
            client.shutdown(socket.SHUT_WR)
            while client.recv(4096):
                pass
    assert capfd.readouterr() == ("", "")


def test_only_this_machine_is_served_unless_told_otherwise(server: MetricsServer) -> None:
    """An empty host is 127.0.0.1; port 0 becomes a real one."""
    assert re.fullmatch(r"127\.0\.0\.1:[1-9][0-9]*", server.address or "")
    assert server.url == f"http://{server.address}/metrics"


def test_ipv6(collector: RunCollector) -> None:
    """An IPv6 address is served, and shown so that it can be pasted into a URL."""
    with MetricsServer(collector, "[::1]:0") as server:
        if server.address is None:
            pytest.skip("this machine has no IPv6")
        assert server.address.startswith("[::1]:")
        assert ask(server).body == EXPECTED


def test_a_bad_address_is_the_callers_error(collector: RunCollector) -> None:
    """What is no address at all is refused when the server is made."""
    with pytest.raises(OptionsError, match="metrics address is 'nonsense'"):
        MetricsServer(collector, "nonsense")


def test_a_port_in_use_stops_nothing(
    server: MetricsServer, collector: RunCollector, caplog: pytest.LogCaptureFixture
) -> None:
    """Where somebody listens already nothing is served, nothing raised, and the log says where and what to do."""
    assert server.address is not None
    second = MetricsServer(collector, server.address)
    assert not second.start()
    assert (second.address, second.url, second.scrapes, second.last_scrape_at) == (None, None, 0, None)
    assert second.wait_for_scrapes(1, timeout_secs=60) is False
    second.close()
    assert ask(server).body == EXPECTED
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
    assert "no thread could be started: can't start new thread" in caplog.text
    assert opened[0].socket.fileno() == -1


def test_scrapes_run_beside_each_other(clock) -> None:
    """A scrape does not wait for another: four are inside the source at once."""
    meeting = threading.Barrier(4)

    def source() -> list[RunStatus]:
        meeting.wait(60)
        return []

    with MetricsServer(RunCollector(source), ":0") as server:
        results = [in_thread(lambda: ask(server)) for _ in range(4)]
        assert [b"scrape_success 1.0" in result().body for result in results] == [True] * 4


@pytest.mark.parametrize("said", [b"", b"GET /metr", b"GET /metrics HTTP/1.1\r\nHost: x\r\n"])
def test_a_client_that_says_little_holds_up_nobody(server: MetricsServer, said: bytes) -> None:
    """Connections over which nothing, or half a request, was said do not delay a scrape."""
    clients = [connect(server) for _ in range(8)]
    for client in clients:
        client.sendall(said)
    assert ask(server).body == EXPECTED
    for client in clients:
        client.close()


def test_a_silent_client_is_hung_up_on(collector: RunCollector, capfd: pytest.CaptureFixture[str]) -> None:
    """After the time allowed the server closes the connection of a client that says nothing."""
    with MetricsServer(collector, ":0", client_timeout_secs=0.01) as server, connect(server) as client:
        assert client.recv(1) == b""
    assert capfd.readouterr() == ("", "")


def test_too_many_clients_cost_the_oldest(collector: RunCollector) -> None:
    """However many connections are held open, a scrape finds room: the oldest one is cut."""
    with MetricsServer(collector, ":0", client_timeout_secs=600.0) as server:
        clients = [connect(server) for _ in range(listener.MAX_CONNECTIONS)]
        assert ask(server).body == EXPECTED
        assert clients[0].recv(1) == b""
        for client in clients:
            client.close()


def test_scrapes_are_counted(server: MetricsServer, clock) -> None:
    """What counts is `/metrics` served whole, and nothing else; when it was last is told."""
    assert (server.scrapes, server.last_scrape_at) == (0, None)
    ask(server)
    ask(server)
    ask(server, "/-/healthy")
    ask(server, method="HEAD")
    ask(server, method="POST")
    server.close()  # every answer has been counted then
    assert (server.scrapes, server.last_scrape_at) == (2, clock.now)


class Announcing(threading.Condition):
    """A condition that tells when somebody begins to wait for it."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting = threading.Event()

    def wait_for(self, *args: Any) -> Any:
        self.waiting.set()
        return super().wait_for(*args)


def test_scrapes_that_began_before_the_wait_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scrape under way may hold what was true before: only those that begin later are waited for."""
    scraped, source = Announcing(), Held()
    with MetricsServer(RunCollector(source), ":0") as server:
        monkeypatch.setattr(server, "_scraped", scraped)
        early = in_thread(lambda: ask(server))
        assert source.entered.wait(60)
        enough = in_thread(lambda: server.wait_for_scrapes(2, timeout_secs=600))
        assert scraped.waiting.wait(60)
        source.go.set()
        early()
        ask(server)
        server.close()
        assert server.scrapes == 2
        assert enough() is False


def test_waiting_ends_with_enough_scrapes(server: MetricsServer) -> None:
    """The wait is over, and says so, as soon as there were as many scrapes as asked for."""
    done = threading.Event()
    enough = in_thread(lambda: (server.wait_for_scrapes(2, timeout_secs=60), done.set())[0])
    while not done.is_set():
        ask(server)
    assert enough() is True


def test_waiting_ends_when_nothing_is_served_any_more(server: MetricsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing the server ends the wait, at once and with False."""
    scraped = Announcing()
    monkeypatch.setattr(server, "_scraped", scraped)
    enough = in_thread(lambda: server.wait_for_scrapes(1, timeout_secs=600))
    assert scraped.waiting.wait(60)
    server.close()
    assert enough() is False


def test_waiting_ends_in_time(server: MetricsServer) -> None:
    """When nobody scrapes the wait is given up after the time allowed."""
    assert server.wait_for_scrapes(1, timeout_secs=0.01) is False


def test_a_failing_collector_is_said_and_does_not_count(caplog: pytest.LogCaptureFixture) -> None:
    """Where a user's own collector breaks the whole registry, the answer is 500 with the cause, logged once."""

    class Broken:
        def collect(self) -> Any:
            raise RuntimeError("users own")

    with MetricsServer(Broken(), ":0") as server:
        answers = [ask(server), ask(server)]
        assert [answer.status for answer in answers] == [500, 500]
        assert answers[0].body == b"nothing can be exported: RuntimeError('users own')\n"
        assert server.scrapes == 0
        assert len([record for record in caplog.records if record.levelno == logging.ERROR]) == 1


def test_close_frees_the_port(collector: RunCollector) -> None:
    """After close nobody is connected, nobody can connect, and the same port can be served again at once."""
    server = MetricsServer(collector, ":0")
    assert server.start()
    assert server.start()
    address = server.address
    assert address is not None
    idle = connect(server)
    ask(server)  # leaves the port in TIME_WAIT, and proves that the idle client was accepted before
    server.close()
    server.close()
    assert idle.recv(1) == b""
    idle.close()
    assert server.address is None
    with pytest.raises(ConnectionRefusedError):
        http.client.HTTPConnection(address).connect()
    with MetricsServer(collector, address) as again:
        assert again.address == address
        assert ask(again).body == EXPECTED


def test_close_frees_the_port_from_copies_too(server: MetricsServer) -> None:
    """The port is free though another process has a copy of the socket, from a fork that Python knew nothing of."""
    address = server.address
    assert address is not None and server._listener is not None
    copy = os.dup(server._listener.fileno())
    server.close()
    with pytest.raises(ConnectionRefusedError):
        http.client.HTTPConnection(address).connect()
    os.close(copy)


def test_it_can_be_started_again(collector: RunCollector) -> None:
    """One server object serves session after session."""
    server = MetricsServer(collector, ":0")
    for _ in range(2):
        assert server.start()
        assert ask(server).body == EXPECTED
        server.close()


def test_close_lets_an_answer_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scrape under way when the server closes is answered in full: it may be the one that tells of the stop."""
    monkeypatch.setattr(listener, "_CLOSE_SECS", 60.0)
    source = Held()
    with MetricsServer(RunCollector(source), ":0") as server:
        answer = in_thread(lambda: ask(server))
        assert source.entered.wait(60)
        idle = connect(server)
        ask(server, "/-/healthy")  # proves that the idle client was accepted
        closed = in_thread(server.close)
        assert idle.recv(1) == b""  # by now it hangs up
        idle.close()
        source.go.set()
        closed()
        assert b"supervisor_scrape_success 1.0" in answer().body


def test_close_waits_for_no_straggler(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scrape that hangs in its source does not keep close from returning."""
    monkeypatch.setattr(listener, "_CLOSE_SECS", 0.01)
    source = Held()
    with MetricsServer(RunCollector(source), ":0") as server:
        connection = connect(server)
        connection.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert source.entered.wait(60)
        server.close()
        assert connection.recv(1) == b""
        connection.close()
        source.go.set()
