"""The server over TLS, with a certificate made here."""

from __future__ import annotations

import datetime
import ipaddress
import socket
import ssl
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from supervisor_core.metrics.collector import RunCollector
from supervisor_core.metrics.server import MetricsServer

ALERT = b"\x15"
"""The first byte of a TLS alert record: the server may say why it hangs up."""


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a self-signed certificate for 127.0.0.1 and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.timezone.utc)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    path.write_bytes(
        made.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return path


@pytest.fixture
def server(certificate: Path) -> Iterator[MetricsServer]:
    """A server that speaks TLS and is patient with silent clients."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    with MetricsServer(RunCollector(lambda: []), ":0", ssl_context=context, client_timeout_secs=600.0) as serving:
        yield serving


def scrape(server: MetricsServer, certificate: Path) -> bytes:
    """Return `/metrics` as a client reads it that trusts this certificate and no other."""
    assert server.url is not None
    context = ssl.create_default_context(cafile=str(certificate))
    with urllib.request.urlopen(server.url, context=context) as response:
        body: bytes = response.read()
        return body


def rest(client: socket.socket) -> bytes:
    """Return what still comes until the server hangs up."""
    heard = b""
    while more := client.recv(4096):
        heard += more
    return heard


def test_metrics_over_tls(server: MetricsServer, certificate: Path) -> None:
    """With an SSL context the same metrics are served as HTTPS, and the URL says so."""
    assert (server.url or "").startswith("https://127.0.0.1:")
    assert b"supervisor_scrape_success 1.0\n" in scrape(server, certificate)


def test_an_unfinished_handshake_delays_no_scrape(talk, server: MetricsServer, certificate: Path) -> None:
    """Clients that connect and never shake hands do not delay a scrape."""
    clients = [talk.connect(server) for _ in range(8)]
    clients[0].sendall(b"\x16\x03\x01\x02\x00")  # the beginning of a handshake
    assert b"supervisor_scrape_success 1.0\n" in scrape(server, certificate)
    for client in clients:
        client.close()


def test_close_ends_an_unfinished_handshake(talk, server: MetricsServer, certificate: Path) -> None:
    """Closing hangs up on clients in the midst of a handshake as well."""
    with talk.connect(server) as client:
        scrape(server, certificate)
        server.close()
        assert rest(client)[:1] in (b"", ALERT)


def test_who_speaks_no_tls_is_hung_up_on(
    talk, server: MetricsServer, certificate: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Plain HTTP to the TLS port ends that connection, without noise and without harm to the next."""
    with talk.connect(server) as client:
        client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert rest(client)[:1] in (b"", ALERT)
    assert b"supervisor_scrape_success 1.0\n" in scrape(server, certificate)
    assert capfd.readouterr() == ("", "")
