"""What a browser gets of a training's server: headers that restrict it, and nothing under a name of someone else's."""

from __future__ import annotations

import logging

import pytest

from supervisor_core.metrics.collector import RunCollector
from supervisor_core.metrics.listener import SECURITY_HEADERS
from supervisor_core.metrics.server import MetricsServer

KNOWN = (
    "127.0.0.1",
    "127.0.0.1:9464",
    "10.0.0.7:80",
    "[::1]:9464",
    "[fe80::1]",
    "localhost",
    "LocalHost:1",
    "localhost.:1",
    "run-7.localhost",
    "",
)
STRANGE = (
    "evil.example",
    "evil.example:9464",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "x@127.0.0.1",
    "[::1",
    "a:b:c",
    "\x1b[2J",
)


def raw(talk, server: MetricsServer, *lines: str) -> bytes:
    """What is answered to a request of these lines."""
    with talk.connect(server) as connection:
        connection.sendall("\r\n".join([*lines, "Connection: close", "", ""]).encode("latin-1"))
        return talk.rest(connection)


def headers_of(answer: bytes) -> list[tuple[str, str]]:
    """The headers of an answer."""
    lines = answer.partition(b"\r\n\r\n")[0].decode().split("\r\n")[1:]
    return [(line.partition(": ")[0], line.partition(": ")[2]) for line in lines]


@pytest.mark.parametrize(
    "lines",
    [
        ("GET /metrics HTTP/1.1", "Host: localhost"),
        ("HEAD / HTTP/1.1", "Host: localhost"),
        ("GET / HTTP/1.1", "Host: localhost"),
        ("GET /-/ready HTTP/1.1", "Host: localhost"),
        ("GET /nothing HTTP/1.1", "Host: localhost"),
        ("POST / HTTP/1.1", "Host: localhost"),
        ("GET / HTTP/1.1", "Host: evil.example"),
        ("FROB / HTTP/1.1", "Host: localhost"),
        (f"GET /{'x' * 70_000} HTTP/1.1", "Host: localhost"),
    ],
    ids=lambda lines: f"{lines[0][:20]} {lines[1]}",
)
def test_every_answer_has_the_headers(talk, server: MetricsServer, lines: tuple[str, ...]) -> None:
    """Good or bad, each once: whatever a browser can be made to ask."""
    found = headers_of(raw(talk, server, *lines))
    assert [pair for pair in found if pair[0] in SECURITY_HEADERS] == list(SECURITY_HEADERS.items())


@pytest.mark.parametrize("host", KNOWN)
def test_a_scraper_on_this_machine_is_answered(talk, server: MetricsServer, host: str) -> None:
    """By an address or as localhost, with and without a port."""
    assert raw(talk, server, "GET /-/healthy HTTP/1.1", f"Host: {host}").startswith(b"HTTP/1.0 200 ")


def test_a_scraper_that_sends_no_name_is_answered(talk, server: MetricsServer) -> None:
    """HTTP/1.0 has no such header; no browser leaves it out."""
    assert b" 200 " in raw(talk, server, "GET /-/healthy HTTP/1.0").split(b"\r\n")[0]


@pytest.mark.parametrize("host", STRANGE)
@pytest.mark.parametrize("path", ["/metrics", "/", "/-/healthy"])
def test_a_request_by_a_strange_name_is_refused(talk, server: MetricsServer, host: str, path: str) -> None:
    """On a loopback address: the page of another site, whose name leads here, reads nothing but what to do."""
    answer = raw(talk, server, f"GET {path} HTTP/1.1", f"Host: {host}")
    assert answer.startswith(b"HTTP/1.0 421 ")
    body = answer.partition(b"\r\n\r\n")[2].decode()
    assert "is not allowed. Use an IP address or localhost, or listen on an address of the network." in body
    assert body.endswith("\n") and body[:-1].isprintable()


def test_each_of_several_names_counts(talk, server: MetricsServer) -> None:
    """A second header does not hide the first."""
    lines = ("GET /metrics HTTP/1.1", "Host: localhost", "Host: evil.example")
    assert raw(talk, server, *lines).startswith(b"HTTP/1.0 421 ")


def test_the_refusal_is_logged_once(talk, server: MetricsServer, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever scrapes by a name that is refused sees a status only; the server's log says what to do."""
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            raw(talk, server, "GET /metrics HTTP/1.1", "Host: trainer-0:9464")
    assert [record.getMessage() for record in caplog.records] == [
        "Metrics: requests are refused: The host name trainer-0:9464 is not allowed. "
        "Use an IP address or localhost, or listen on an address of the network."
    ]


def test_on_other_addresses_any_name_is_accepted(talk, collector: RunCollector) -> None:
    """Prometheus scrapes machines by their names."""
    with MetricsServer(collector, "0.0.0.0:0") as server:
        assert b" 200 " in raw(talk, server, "GET /metrics HTTP/1.1", "Host: trainer-0.example.org:9464")[:20]
