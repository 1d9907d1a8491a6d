"""The web configuration, read as strictly as Prometheus reads it: promtool is the judge where it is at hand."""

from __future__ import annotations

import os
import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from supervisor_core.base.errors import OptionsError
from supervisor_core.metrics.web_config import WebAccess

TLS = "tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n"
HASH = "$2b$04$S0zX7iW0vcJ9HIf9an1.F.7s.jcDQfNiph64mtcovReKse7dDOaW6"

GOOD = {
    "nothing": "",
    "empty sections": "tls_server_config:\nbasic_auth_users:\n",
    "tls": TLS,
    "versions": TLS + "  min_version: TLS13\n",
    "a client's certificate": TLS + "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: client.crt\n",
    "a client's certificate if given": TLS
    + "  client_auth_type: VerifyClientCertIfGiven\n  client_ca_file: client.crt\n",
    "users": f"basic_auth_users:\n  ann: {HASH}\n  'bob: x': {HASH}\n",
}

BAD = {
    "no yaml": ("a: [", "no YAML"),
    "not a mapping": ("- a\n", "Expected `object`, got `array`"),
    "unknown section": ("tls: {}\n", "unknown field `tls`"),
    "unknown key": (TLS + "  certfile: x\n", "unknown field `certfile` - at `..tls_server_config`"),
    "a key twice": (f"basic_auth_users:\n  ann: {HASH}\n  ann: {HASH}\n", "line 2, column 3: .*a key is there twice"),
    "no key file": ("tls_server_config:\n  cert_file: server.crt\n", "missing required field `key_file`"),
    "no cert file": ("tls_server_config:\n  key_file: server.key\n", "missing required field `cert_file`"),
    "a missing file": (TLS.replace("server.crt", "no.crt"), "no.crt cannot be read: No such file"),
    "no certificate": (TLS.replace("server.crt", "web.yml"), "no certificate and its key"),
    "another's key": (TLS.replace("server.key", "client.key"), "no certificate and its key"),
    "unknown version": (TLS + "  min_version: TLS14\n", "Invalid enum value 'TLS14' - at .*min_version`"),
    "unknown client auth": (TLS + "  client_auth_type: Maybe\n", "Invalid enum value 'Maybe'"),
    "an authority for nothing": (TLS + "  client_ca_file: client.crt\n", "need each other"),
    "a password in the clear": ("basic_auth_users:\n  ann: secret\n", "user 'ann' is not a bcrypt hash"),
    "an empty text for users": ('basic_auth_users: ""\n', "Expected `object"),
    "an empty hash": ('basic_auth_users: {ann: ""}\n', "user 'ann' is not a bcrypt hash"),
}

STRICTER = {
    "other keys": ("http_server_config:\n  http2: false\n", "unknown field `http_server_config`"),
    "an old version": (TLS + "  min_version: TLS10\n", "Invalid enum value 'TLS10'"),
    "a certificate of nobody's": (TLS + "  client_auth_type: RequireAndVerifyClientCert\n", "need each other"),
    "any certificate": (
        TLS + "  client_auth_type: RequireAnyClientCert\n",
        "Invalid enum value 'RequireAnyClientCert'",
    ),
    "a number for a name": (f"basic_auth_users:\n  1: {HASH}\n", "Expected `str`, got `int`"),
    "a password that is a number": ("basic_auth_users:\n  ann: 12345\n", "Expected `str`, got `int`"),
}
"""What Prometheus takes and what cannot work, or not here."""


@pytest.fixture
def written(tmp_path: Path, certificates):
    """Returns a function that writes a web configuration beside its certificates."""
    for file in certificates.directory.iterdir():
        shutil.copy(file, tmp_path)

    def write(text: str) -> str:
        path = tmp_path / "web.yml"
        path.write_text(text)
        return str(path)

    return write


def promtool_takes(path: str) -> bool | None:
    """What promtool thinks of a file; None where there is no promtool."""
    promtool = shutil.which("promtool")
    if promtool is None:
        assert os.environ.get("CI") != "true", "promtool is missing (Debian: apt-get install prometheus)"
        return None
    done = subprocess.run([promtool, "check", "web-config", path], capture_output=True, check=False)
    return done.returncode == 0


@pytest.mark.parametrize("text", GOOD.values(), ids=GOOD)
def test_what_prometheus_takes(written, text: str) -> None:
    """Configurations that Prometheus takes are taken."""
    path = written(text)
    assert WebAccess(path).tls == text.startswith(TLS)
    assert promtool_takes(path) in (True, None)


@pytest.mark.parametrize(("text", "said"), BAD.values(), ids=BAD)
def test_what_prometheus_refuses(written, text: str, said: str) -> None:
    """Configurations that Prometheus refuses are refused, in one line that names the file and the cause."""
    path = written(text)
    with pytest.raises(OptionsError, match=said) as caught:
        WebAccess(path)
    assert str(caught.value).startswith(f"The web configuration {path} cannot be used: ")
    assert "\n" not in str(caught.value)
    assert promtool_takes(path) in (False, None)


@pytest.mark.parametrize(("text", "said"), STRICTER.values(), ids=STRICTER)
def test_what_cannot_work(written, text: str, said: str) -> None:
    """What could not be done as it says is refused, rather than done otherwise."""
    with pytest.raises(OptionsError, match=said):
        WebAccess(written(text))


ODD = {
    "a date that is none": "a: 2001-99-99",
    "a zone that is none": "a: 2001-01-01T00:00:00+99:99",
    "a long number": f"a: {'9' * 5_000}",
    "a number without digits": "a: 0x_",
    "an empty number": "a: !!int ''",
    "no truth": "a: !!bool x",
    "a tag for code": "a: !!python/object/apply:os.system [id]",
    "aliases of aliases": "".join(
        f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9 if level else ['x'])}]\n" for level in range(12)
    ),
    "mappings merged again and again": "a0: &a0 {k: v}\n"
    + "".join(f"a{level}: &a{level}\n  <<: [{', '.join([f'*a{level - 1}'] * 9)}]\n" for level in range(1, 12)),
    "what holds itself": "basic_auth_users: &a {b: *a}",
    "nested deep": f"a: {'[' * 600}",
    "not UTF-8": b"basic_auth_users: {\xe9: x}",
    "half a character": 'basic_auth_users: {"\\ud800": x}',
    "a path with NUL": 'tls_server_config: {cert_file: "a\\0b", key_file: k}',
    "a long word": f"tls_server_config: {{min_version: {'x' * 1_000}}}",
    "a long number for a word": f"tls_server_config: {{min_version: 0x{'f' * 5_000}}}",
    "aliases of aliases for a path": "tls_server_config: {cert_file: ["
    + ", ".join(f"&a{level} [{', '.join([f'*a{level - 1}'] * 9 if level else ['x'])}]" for level in range(12))
    + "]}",
    "many keys": "".join(f"k{number}: v\n" for number in range(2_000)),
    "a key of controls": '"\\e[31m\\n": x',
    "very long": f"a: {'x' * (1 << 20)}",
}


@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
def test_whatever_it_holds_is_refused_in_one_line(tmp_path: Path, text: str | bytes) -> None:
    """With the one error that callers expect, which is short and can be printed."""
    (tmp_path / "web.yml").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(OptionsError) as raised:
        WebAccess(str(tmp_path / "web.yml"))
    said = str(raised.value)
    assert len(said) < 500 and said.isprintable()


def test_a_missing_file(tmp_path: Path) -> None:
    """A configuration that is not there is said in one line."""
    with pytest.raises(OptionsError, match=r"cannot be used: .*web\.yml cannot be read: No such file or directory\.$"):
        WebAccess(str(tmp_path / "web.yml"))


def test_the_defaults_are_prometheus_own(written) -> None:
    """Without further words it is TLS 1.2 or newer, and no client certificate. Paths are relative to the file."""
    context = WebAccess(written(TLS)).rules().context
    assert context is not None
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert context.verify_mode == ssl.CERT_NONE
