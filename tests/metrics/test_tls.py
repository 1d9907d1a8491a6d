"""The server over TLS, with a certificate made here."""

from __future__ import annotations

import ssl
import urllib.request
from collections.abc import Iterator

import pytest

from supervisor_core.metrics.collector import RunCollector
from supervisor_core.metrics.server import MetricsServer

ALERT = b"\x15"
"""The first byte of a TLS alert record: the server may say why it hangs up."""


@pytest.fixture
def server(certificates) -> Iterator[MetricsServer]:
    """A server that speaks TLS and is patient with silent clients."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificates.directory / "server.crt", certificates.directory / "server.key")
    with MetricsServer(RunCollector(lambda: []), ":0", ssl_context=context, client_timeout_secs=600.0) as serving:
        yield serving


def scrape(server: MetricsServer, certificates) -> bytes:
    """Return `/metrics` as a client reads it that trusts this certificate and no other."""
    assert server.url is not None
    context = ssl.create_default_context(cafile=str(certificates.directory / "server.crt"))
    with urllib.request.urlopen(server.url, context=context) as response:
        body: bytes = response.read()
        return body


def test_metrics_over_tls(server: MetricsServer, certificates) -> None:
    """With an SSL context the same metrics are served as HTTPS, and the URL says so."""
    assert (server.url or "").startswith("https://127.0.0.1:")
    assert b"supervisor_scrape_success 1.0\n" in scrape(server, certificates)


def test_an_unfinished_handshake_delays_no_scrape(talk, server: MetricsServer, certificates) -> None:
    """Clients that connect and never shake hands do not delay a scrape."""
    clients = [talk.connect(server) for _ in range(8)]
    clients[0].sendall(b"\x16\x03\x01\x02\x00")  # the beginning of a handshake
    assert b"supervisor_scrape_success 1.0\n" in scrape(server, certificates)
    for client in clients:
        client.close()


def test_close_ends_an_unfinished_handshake(talk, server: MetricsServer, certificates) -> None:
    """Closing hangs up on clients in the midst of a handshake as well."""
    with talk.connect(server) as client:
        scrape(server, certificates)
        server.close()
        assert talk.rest(client)[:1] in (b"", ALERT)


def test_who_speaks_no_tls_is_hung_up_on(
    talk, server: MetricsServer, certificates, capfd: pytest.CaptureFixture[str]
) -> None:
    """Plain HTTP to the TLS port ends that connection, without noise and without harm to the next."""
    with talk.connect(server) as client:
        client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert talk.rest(client)[:1] in (b"", ALERT)
    assert b"supervisor_scrape_success 1.0\n" in scrape(server, certificates)
    assert capfd.readouterr() == ("", "")
