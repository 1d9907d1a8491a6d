"""The web configuration while it is in force: changes take effect, and mistakes do not."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

import pytest

from supervisor_core.metrics import web_config
from supervisor_core.metrics.web_config import WebAccess

ANN = "Basic YW5uOngK"
TLS = "tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n"


@pytest.fixture
def file(tmp_path: Path, certificates) -> Path:
    """A web configuration that adds a header, beside its certificates."""
    for certificate in certificates.directory.iterdir():
        shutil.copy(certificate, tmp_path)
    return write(tmp_path / "web.yml", "max-age=1", 1)


def write(path: Path, value: str, at: int, more: str = "") -> Path:
    """Write a configuration with this header, at this time."""
    path.write_text(f"{more}http_server_config:\n  headers:\n    Strict-Transport-Security: {value}\n")
    os.utime(path, (at, at))
    return path


def test_nothing_is_asked_without_a_file() -> None:
    """Without a configuration it is plain HTTP, for everybody, with no headers added."""
    access = WebAccess(None)
    assert (access.tls, access.rules().auth.admits(None), access.rules().headers) == (False, True, {})


def test_a_change_takes_effect(file: Path, password_hash: str) -> None:
    """A file that has changed is in force for the next question; so is a user that is new in it."""
    access = WebAccess(str(file))
    assert (access.rules().headers, access.rules().auth.admits(None)) == (
        {"Strict-Transport-Security": "max-age=1"},
        True,
    )
    write(file, "max-age=2", 2, f"basic_auth_users:\n  ann: {password_hash}\n")
    assert (access.rules().headers, access.rules().auth.admits(None)) == (
        {"Strict-Transport-Security": "max-age=2"},
        False,
    )


def test_a_change_while_the_file_is_read_takes_effect(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What changes between the reading and the answer is read once more."""
    changes = [lambda: write(file, "max-age=3", 3)]

    parsed = web_config._parsed

    def read(path: str) -> object:
        config = parsed(path)
        if changes:
            changes.pop()()
        return config

    monkeypatch.setattr(web_config, "_parsed", read)
    assert WebAccess(str(file)).rules().headers == {"Strict-Transport-Security": "max-age=3"}


@pytest.mark.parametrize("how", ["nonsense", "gone", "tls", "no date"])
def test_a_mistake_changes_nothing(file: Path, caplog: pytest.LogCaptureFixture, how: str) -> None:
    """A change that cannot be used is logged once, and the old configuration stays, until a good one comes."""
    access = WebAccess(str(file))
    if how == "gone":
        file.unlink()
    else:
        write(file, "max-age=2", 2, {"nonsense": "nonsense: 1\n", "tls": TLS, "no date": "a: 2001-99-99\n"}[how])
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            assert access.rules().headers == {"Strict-Transport-Security": "max-age=1"}
        assert [record.levelname for record in caplog.records] == ["ERROR"]
        assert "the old one stays" in caplog.text
        write(file, "max-age=3", 3)
        assert access.rules().headers == {"Strict-Transport-Security": "max-age=3"}


def test_a_new_certificate_takes_effect(file: Path, certificates) -> None:
    """A certificate or key that is replaced, as by an ACME client, is what the next connection gets."""
    write(file, "max-age=1", 2, TLS)
    access = WebAccess(str(file))
    before = access.rules().context
    assert access.rules().context is before
    for name in ("crt", "key"):
        shutil.copy(certificates.directory / f"client.{name}", file.parent / f"server.{name}")
        os.utime(file.parent / f"server.{name}", (3, 3))
    assert access.rules().context is not before


def test_a_certificate_may_come_after_the_configuration_that_names_it(file: Path, certificates) -> None:
    """A changed configuration that names files which are not there yet is in force as soon as they are."""
    write(file, "max-age=1", 2, TLS)
    access = WebAccess(str(file))
    before = access.rules().context
    write(file, "max-age=2", 3, TLS.replace("server.", "new."))
    assert (access.rules().context is before, access.rules().headers) == (
        True,
        {"Strict-Transport-Security": "max-age=1"},
    )
    for name in ("crt", "key"):
        shutil.copy(certificates.directory / f"client.{name}", file.parent / f"new.{name}")
    assert access.rules().context is not before
    assert access.rules().headers == {"Strict-Transport-Security": "max-age=2"}


def test_half_a_change_of_certificate_is_waited_for(file: Path, certificates) -> None:
    """While the certificate is new and its key still old, the old pair stays in force; then the new one is."""
    write(file, "max-age=1", 2, TLS)
    access = WebAccess(str(file))
    before = access.rules().context
    for name, is_new in (("crt", False), ("key", True)):
        shutil.copy(certificates.directory / f"client.{name}", file.parent / f"server.{name}")
        os.utime(file.parent / f"server.{name}", (3, 3))
        assert (access.rules().context is not before) is is_new
