"""What the exporter's tests share: runs on disk, a clock that stands still, certificates, and ways to ask."""

from __future__ import annotations

import datetime
import http.client
import ipaddress
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import bcrypt
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from supervisor_core.metrics.exporter import Exporter
from supervisor_core.run.watch.logdir_watch import LogdirWatch
from tests.story import run_file

PASSWORD = "correct horse"


@pytest.fixture(scope="session")
def writing(module_at: Callable[[str], ModuleType]) -> ModuleType:
    """The module that writes events files, from the tests of the watch."""
    return run_file


@pytest.fixture
def clock(clock_at: Callable[[float], Any]) -> Any:
    """A clock a hundred seconds after runs begin."""
    return clock_at(1_700_000_100.0)


@pytest.fixture
def exporter_of(clock: Any):
    """Returns a function that makes an exporter of these logdirs, refreshed once."""

    def make(*logdirs: Path, **how) -> Exporter:
        exporter = Exporter([LogdirWatch(str(logdir), clock=clock, **how) for logdir in logdirs], clock=clock)
        exporter.refresh()
        return exporter

    return make


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


def ask_web(
    web: Any,
    path: str = "/metrics",
    method: str = "GET",
    body: bytes | None = None,
    context: ssl.SSLContext | None = None,
    **headers: str,
) -> Answer:
    """Return what a server answers; header names with underscores for dashes."""
    connection = (
        http.client.HTTPConnection(web.address)
        if context is None
        else http.client.HTTPSConnection(web.address, context=context)
    )
    try:
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        response = connection.getresponse()
        return Answer(response.status, dict(response.getheaders()), response.read())
    finally:
        connection.close()


@pytest.fixture
def ask():
    """The function `ask_web`."""
    return ask_web


@pytest.fixture(scope="session")
def password_hash() -> str:
    """A bcrypt hash of `PASSWORD`, as cheap as they come."""
    return bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()


class Certificates:
    """Makes certificates into a directory: ``make(name)`` writes name.crt and name.key."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def make(self, name: str, issuer: str | None = None) -> tuple[str, str]:
        """Return the paths of a new certificate for 127.0.0.1 and its key, signed by itself or by another."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        signer, signed_by = key, subject
        if issuer is not None:
            loaded = serialization.load_pem_private_key((self.directory / f"{issuer}.key").read_bytes(), None)
            assert isinstance(loaded, ec.EllipticCurvePrivateKey)
            signer, signed_by = loaded, x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, issuer)])
        now = datetime.datetime.now(datetime.timezone.utc)
        address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        made = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(signed_by)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.SubjectAlternativeName([address]), critical=False)
            .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
            .sign(signer, hashes.SHA256())
        )
        pem = serialization.Encoding.PEM
        paths = self.directory / f"{name}.crt", self.directory / f"{name}.key"
        paths[0].write_bytes(made.public_bytes(pem))
        paths[1].write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
        return str(paths[0]), str(paths[1])


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """A directory with the certificates server and client, each signed by itself."""
    made = Certificates(tmp_path_factory.mktemp("certificates"))
    for name in ("server", "client"):
        made.make(name)
    return made


def lines_of(body: bytes) -> dict[str, float]:
    """The samples of a scrape: series -> value."""
    rows = [line.rpartition(" ") for line in body.decode().splitlines() if not line.startswith("#")]
    return {series: float(value) for series, _, value in rows}


@pytest.fixture
def samples_of():
    """The function `lines_of`."""
    return lines_of
