"""The exporter's pages as clients see them: formats, checks, passwords, TLS, and clients that say nothing."""

from __future__ import annotations

import base64
import http.client
import os
import re
import shutil
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from supervisor_core.base.errors import OptionsError
from supervisor_core.metrics.exporter import Exporter
from supervisor_core.metrics.web import Web
from supervisor_core.metrics.web_config import WebAccess
from supervisor_core.run.watch.logdir_watch import LogdirWatch

PASSWORD = "correct horse"
TLS = "tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n"


@pytest.fixture
def exporter(tmp_path: Path, writing, clock) -> Exporter:
    """An exporter of one run, which has been looked at."""
    writing.RunFile(tmp_path / "logs" / "a").ready().beat(clock.now, steps=5)
    made = Exporter([LogdirWatch(str(tmp_path / "logs"), clock=clock)], clock=clock)
    made.refresh()
    return made


@pytest.fixture
def web(exporter: Exporter) -> Iterator[Web]:
    """Its pages, on a free port."""
    with Web(exporter, ":0") as serving:
        yield serving


@pytest.fixture
def guarded(exporter: Exporter, tmp_path: Path, certificates) -> Iterator[Callable[..., Web]]:
    """Returns a function that serves the pages under a web configuration, beside its certificates."""
    for file in certificates.directory.iterdir():
        shutil.copy(file, tmp_path)
    made: list[Web] = []

    def serve(text: str) -> Web:
        path = tmp_path / "web.yml"
        path.write_text(text)
        web = Web(exporter, ":0", access=WebAccess(str(path)), client_timeout_secs=600.0)
        web.start()
        made.append(web)
        return web

    yield serve
    for web in made:
        web.close()


def trusting(certificates, *own: str) -> ssl.SSLContext:
    """A client that trusts the server's certificate, with one of its own if asked."""
    context = ssl.create_default_context(cafile=str(certificates.directory / "server.crt"))
    for name in own:
        context.load_cert_chain(certificates.directory / f"{name}.crt", certificates.directory / f"{name}.key")
    return context


def test_checks(tmp_path: Path, ask) -> None:
    """Alive from the first moment; ready once the runs have been looked at."""
    exporter = Exporter([LogdirWatch(str(tmp_path))])
    with Web(exporter, ":0") as web:
        assert (ask(web, "/-/healthy").status, ask(web, "/-/ready").status) == (200, 503)
        assert ask(web, "/-/ready").body.startswith(b"not ready: ")
        exporter.refresh()
        assert (ask(web, "/-/ready").status, ask(web, "/-/ready").body) == (200, b"ready\n")


@pytest.mark.parametrize("path", ["/metrics", "/custom/metrics", "/a&b"])
def test_the_front_page_leads_on(exporter: Exporter, ask, path: str) -> None:
    """Every link of the landing page leads to something, wherever the metrics are."""
    with Web(exporter, ":0", telemetry_path=path) as web:
        page = ask(web, "/")
        links = [link.replace("&amp;", "&") for link in re.findall(r'href="([^"]+)"', page.body.decode())]
        assert links == [path, "/alerts", "/-/healthy", "/-/ready"]
        assert [ask(web, link).status for link in links] == [200, 200, 200, 200]
        assert web.url == f"http://{web.address}{path}"


def test_the_metrics_may_be_the_front_page(exporter: Exporter, ask) -> None:
    """Served at /, the metrics take the landing page's place."""
    with Web(exporter, ":0", telemetry_path="/") as web:
        assert b"supervisor_global_step" in ask(web, "/").body


def test_a_bad_address_is_the_callers_error(exporter: Exporter) -> None:
    """What is no address is refused; one in use is the system's error."""
    with pytest.raises(OptionsError, match="metrics address is 'nonsense'"):
        Web(exporter, "nonsense")
    with Web(exporter, ":0") as web, pytest.raises(OSError, match="in use"):
        Web(exporter, web.address)


def test_a_password_is_asked_for(guarded, ask, password_hash: str) -> None:
    """With users configured every page asks for a password, says so, and lets the right one in."""
    web = guarded(f"basic_auth_users:\n  ann: {password_hash}\n")
    right = "Basic " + base64.b64encode(f"ann:{PASSWORD}".encode()).decode()
    wrong = "Basic " + base64.b64encode(b"ann:wrong").decode()
    for path in ("/metrics", "/-/healthy", "/-/ready", "/", "/nothing"):
        refused = ask(web, path)
        assert refused.status == 401
        assert refused.headers["WWW-Authenticate"].startswith('Basic realm="')
        assert b"supervisor" not in refused.body
        assert ask(web, path, Authorization=wrong).status == 401
        assert ask(web, path, Authorization=right).status == (404 if path == "/nothing" else 200)


def test_a_clients_certificate_is_verified(guarded, ask, certificates) -> None:
    """Where one is required, only a client with a certificate of that authority is served."""
    web = guarded(TLS + "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: client.crt\n")
    assert ask(web, context=trusting(certificates, "client")).status == 200
    for own in ((), ("server",)):
        with pytest.raises((ssl.SSLError, ConnectionError, http.client.RemoteDisconnected)):
            ask(web, context=trusting(certificates, *own))


def test_a_new_certificate_needs_no_restart(guarded, ask, certificates, tmp_path: Path) -> None:
    """A connection after the certificate was replaced gets the new one."""
    web = guarded(TLS)
    assert web.url.startswith("https://127.0.0.1:")
    assert b"supervisor_global_step" in ask(web, context=trusting(certificates)).body
    for kind in ("crt", "key"):
        shutil.copy(certificates.directory / f"client.{kind}", tmp_path / f"server.{kind}")
        os.utime(tmp_path / f"server.{kind}", (3, 3))  # it may be as long as the one before, and as old by the clock
    with pytest.raises(ssl.SSLCertVerificationError):
        ask(web, context=trusting(certificates))
    context = ssl.create_default_context(cafile=str(certificates.directory / "client.crt"))
    assert ask(web, context=context).status == 200
