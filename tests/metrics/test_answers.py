"""What the server answers, asked over real sockets."""

from __future__ import annotations

import gzip
import logging
import re
import threading
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics_latest

from supervisor_core.metrics.collector import RunCollector
from supervisor_core.metrics.server import MetricsServer

EXPECTED = (Path(__file__).parent / "expected" / "running.prom").read_bytes()
PROMETHEUS_2 = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,text/plain;version=1.0.0;"
    "escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


def test_metrics_come_as_text(talk, server: MetricsServer) -> None:
    """Who asks for nothing in particular gets the text format 0.0.4, byte for byte."""
    answer = talk.ask(server)
    assert (answer.status, answer.body) == (200, EXPECTED)
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert answer.headers["Content-Length"] == str(len(EXPECTED))


def test_a_query_changes_nothing(talk, server: MetricsServer) -> None:
    """The path alone says what is asked for."""
    assert talk.ask(server, "/metrics?debug=1").body == EXPECTED


@pytest.mark.parametrize("accept", [PROMETHEUS_2, PROMETHEUS_3], ids=["prometheus 2", "prometheus 3"])
def test_prometheus_gets_openmetrics(talk, server: MetricsServer, collector: RunCollector, accept: str) -> None:
    """Prometheus, of either generation, gets OpenMetrics 1.0, exactly as the library writes it."""
    answer = talk.ask(server, Accept=accept)
    assert answer.body == openmetrics_latest(collector)
    assert answer.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0; charset=utf-8")


@pytest.mark.parametrize("accept", ["application/openmetrics-text;version=abc", "text/plain;version=1.x", ";;,=", ","])
def test_a_wish_that_makes_no_sense(talk, server: MetricsServer, accept: str) -> None:
    """An ``Accept`` header that makes no sense is answered in text format 0.0.4; the connection stays open."""
    answer = talk.ask(server, Accept=accept)
    assert (answer.status, answer.body) == (200, EXPECTED)
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"


def test_gzip_for_those_who_accept_it(talk, server: MetricsServer) -> None:
    """A body is compressed only for a client that says it can read that."""
    answer = talk.ask(server, Accept_Encoding="gzip")
    assert answer.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(answer.body) == EXPECTED
    assert "Content-Encoding" not in talk.ask(server, Accept_Encoding="identity").headers


def test_a_users_registry_is_escaped_as_asked(talk, collector: RunCollector) -> None:
    """Names of a user's own that need escaping are escaped for a caller which has not said that it reads them raw."""
    registry = CollectorRegistry()
    registry.register(collector)
    try:
        Gauge("users.own", "A name with a dot.", registry=registry)
    except ValueError:
        pytest.skip("this prometheus_client takes no name that needs escaping")
    with MetricsServer(registry, ":0") as server:
        assert b"\nusers_own 0.0\n" in talk.ask(server, Accept=PROMETHEUS_2).body
        assert b'\n{"users.own"} 0.0\n' in talk.ask(server, Accept=PROMETHEUS_3).body


def test_healthy_means_it_answers(talk, server: MetricsServer) -> None:
    """The health check is 200 whatever the run does."""
    answer = talk.ask(server, "/-/healthy")
    assert (answer.status, answer.body) == (200, b"healthy\n")


def test_ready_when_the_run_is(talk, collector: RunCollector) -> None:
    """The readiness check is 503, with the reason, until the run is under way."""
    under_way = threading.Event()
    with MetricsServer(collector, ":0", ready=under_way.is_set) as server:
        before = talk.ask(server, "/-/ready")
        under_way.set()
        after = talk.ask(server, "/-/ready")
    assert (before.status, after.status, after.body) == (503, 200, b"ready\n")
    assert before.body.startswith(b"not ready: the run is not training yet")


def test_a_failing_readiness_check_means_not_ready(talk, collector: RunCollector) -> None:
    """A readiness that cannot be found out is none, and the answer says why."""

    def ready() -> bool:
        raise RuntimeError("session gone")

    with MetricsServer(collector, ":0", ready=ready) as server:
        answer = talk.ask(server, "/-/ready")
    assert (answer.status, answer.body) == (
        503,
        b"not ready: it could not be found out: RuntimeError('session gone')\n",
    )


def test_the_front_page_leads_on(talk, server: MetricsServer) -> None:
    """Every link of the landing page leads to something."""
    page = talk.ask(server, "/")
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    links = re.findall(r'href="([^"]+)"', page.body.decode())
    assert links == ["metrics", "-/healthy", "-/ready"]
    assert [talk.ask(server, f"/{link}").status for link in links] == [200, 200, 200]


@pytest.mark.parametrize("path", ["/metrics/", "/favicon.ico", "/../etc/passwd", "/-/"])
def test_there_is_nothing_else(talk, server: MetricsServer, path: str) -> None:
    """Any other path is 404 and names those that exist."""
    answer = talk.ask(server, path)
    assert (answer.status, answer.body) == (404, b"nothing here; see /metrics, /-/healthy and /-/ready\n")


@pytest.mark.parametrize("path", ["/metrics", "/-/healthy", "/", "/nothing"])
def test_head_is_get_without_the_body(talk, server: MetricsServer, path: str) -> None:
    """HEAD answers with the status and the headers of GET, and no body."""
    get, head = talk.ask(server, path), talk.ask(server, path, "HEAD")
    assert (head.status, head.body) == (get.status, b"")
    assert head.headers["Content-Length"] == get.headers["Content-Length"]


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
def test_nothing_can_be_changed(talk, server: MetricsServer, method: str) -> None:
    """Other methods are refused with 405 and the ones allowed, wherever they are tried."""
    for path in ("/metrics", "/nothing"):
        answer = talk.ask(server, path, method, b"x" if method == "POST" else None)
        assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD")
        assert answer.body == f"{method} is not allowed here; use GET or HEAD.\n".encode()


def test_a_failing_collector_is_said_and_does_not_count(talk, caplog: pytest.LogCaptureFixture) -> None:
    """Where a user's own collector breaks the whole registry, the answer is 500 with the cause, logged once."""

    class Broken:
        def collect(self) -> Any:
            raise RuntimeError("users own")

    with MetricsServer(Broken(), ":0") as server:
        answers = [talk.ask(server), talk.ask(server)]
        assert [answer.status for answer in answers] == [500, 500]
        assert answers[0].body == b"nothing can be exported: RuntimeError('users own')\n"
        assert server.scrapes == 0
        assert len([record for record in caplog.records if record.levelno == logging.ERROR]) == 1
