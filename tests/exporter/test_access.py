"""The web configuration while it is in force: changes take effect, and mistakes do not."""

from __future__ import annotations

import base64
import logging
import os
import shutil
from pathlib import Path

import pytest

from supervisor_core.metrics import web_config
from supervisor_core.metrics.web_config import WebAccess

PASSWORD = "correct horse"
TLS = "tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n"


@pytest.fixture
def file(tmp_path: Path, certificates) -> Path:
    """A web configuration with one user, beside its certificates."""
    for certificate in certificates.directory.iterdir():
        shutil.copy(certificate, tmp_path)
    return tmp_path / "web.yml"


@pytest.fixture
def write(file: Path, password_hash: str):
    """Returns a function that writes a configuration with this user, at this time."""

    def written(user: str, at: int, more: str = "") -> Path:
        file.write_text(f"{more}basic_auth_users:\n  {user}: {password_hash}\n")
        os.utime(file, (at, at))
        return file

    return written


def admitted(access: WebAccess) -> list[str]:
    """The users that may ask."""
    return [
        user
        for user in ("ann", "bob")
        if access.rules().auth.admits("Basic " + base64.b64encode(f"{user}:{PASSWORD}".encode()).decode())
    ]


def test_nothing_is_asked_without_a_file() -> None:
    """Without a configuration it is plain HTTP, for everybody."""
    access = WebAccess(None)
    assert (access.tls, access.rules().auth.admits(None)) == (False, True)


def test_a_change_takes_effect(write) -> None:
    """A file that has changed is in force for the next question: who is no longer in it is no longer admitted."""
    access = WebAccess(str(write("ann", 1)))
    assert admitted(access) == ["ann"]
    write("bob", 2)
    assert admitted(access) == ["bob"]


def test_a_change_while_the_file_is_read_takes_effect(write, monkeypatch: pytest.MonkeyPatch) -> None:
    """What changes between the reading and the answer is read once more."""
    changes = [lambda: write("bob", 3)]

    parsed = web_config._parsed

    def read(path: str) -> object:
        config = parsed(path)
        if changes:
            changes.pop()()
        return config

    monkeypatch.setattr(web_config, "_parsed", read)
    assert admitted(WebAccess(str(write("ann", 1)))) == ["bob"]


@pytest.mark.parametrize("how", ["nonsense", "gone", "tls", "no date"])
def test_a_mistake_changes_nothing(write, caplog: pytest.LogCaptureFixture, how: str) -> None:
    """A change that cannot be used is logged once, and the old configuration stays, until a good one comes."""
    file = write("ann", 1)
    access = WebAccess(str(file))
    if how == "gone":
        file.unlink()
    else:
        write("bob", 2, {"nonsense": "nonsense: 1\n", "tls": TLS, "no date": "a: 2001-99-99\n"}[how])
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            assert admitted(access) == ["ann"]
        assert [record.levelname for record in caplog.records] == ["ERROR"]
        assert "the old one stays" in caplog.text
        write("bob", 3)
        assert admitted(access) == ["bob"]


def test_a_certificate_may_come_after_the_configuration_that_names_it(write, file: Path, certificates) -> None:
    """A changed configuration that names files which are not there yet is in force as soon as they are."""
    access = WebAccess(str(write("ann", 2, TLS)))
    before = access.rules().context
    write("bob", 3, TLS.replace("server.", "new."))
    assert (access.rules().context is before, admitted(access)) == (True, ["ann"])
    for name in ("crt", "key"):
        shutil.copy(certificates.directory / f"client.{name}", file.parent / f"new.{name}")
    assert access.rules().context is not before
    assert admitted(access) == ["bob"]


def test_half_a_change_of_certificate_is_waited_for(write, file: Path, certificates) -> None:
    """While the certificate is new and its key still old, the old pair stays in force; then the new one is."""
    access = WebAccess(str(write("ann", 2, TLS)))
    before = access.rules().context
    for name, is_new in (("crt", False), ("key", True)):
        shutil.copy(certificates.directory / f"client.{name}", file.parent / f"server.{name}")
        os.utime(file.parent / f"server.{name}", (3, 3))
        assert (access.rules().context is not before) is is_new
