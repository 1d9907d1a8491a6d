"""`WebConfig`: the file by which every exporter is told about TLS and passwords, read strictly.

The format is that of Prometheus's exporter-toolkit; ``promtool check web-config`` reads it too. docs/exporter.md says
what of it is done and what is refused.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from supervisor_core.errors import OptionsError

VERSIONS = ("TLS10", "TLS11", "TLS12", "TLS13")
CURVES = {"CurveP256": "prime256v1", "CurveP384": "secp384r1", "CurveP521": "secp521r1", "X25519": "X25519"}
"""As the file calls them -> as OpenSSL does."""

CLIENT_AUTH_TYPES = ("NoClientCert", "RequestClientCert", "VerifyClientCertIfGiven", "RequireAndVerifyClientCert")
_UNVERIFIED = ("RequireAnyClientCert", "RequireClientCert")

HEADERS: Mapping[str, tuple[str, ...]] = {
    "Content-Security-Policy": (),
    "Strict-Transport-Security": (),
    "X-Content-Type-Options": ("nosniff",),
    "X-Frame-Options": ("deny", "sameorigin"),
    "X-XSS-Protection": (),
}
"""What may be added to every answer -> the values that it may have; none named: any."""


@dataclass(frozen=True, kw_only=True)
class TlsConfig:
    """The section ``tls_server_config``; paths are relative to the file's directory no more."""

    cert_file: str
    key_file: str
    client_auth_type: str = "NoClientCert"
    client_ca_file: str | None = None
    min_version: str = "TLS12"
    max_version: str = "TLS13"
    cipher_suites: tuple[str, ...] = ()
    """By their IANA names; empty for OpenSSL's own choice."""
    prefer_server_cipher_suites: bool = True
    curve_preferences: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class WebConfig:
    """The whole file."""

    tls: TlsConfig | None = None
    """None: plain HTTP."""
    users: Mapping[str, str] = field(default_factory=dict)
    """User name -> bcrypt hash; empty: no password is asked."""
    headers: Mapping[str, str] = field(default_factory=dict)


def read_web_config(path: str) -> WebConfig:
    """Return what a file says.

    Raises:
        OptionsError: in one line, what about it cannot be used.
        OSError: if the file cannot be read.
    """
    with open(path, "rb") as file:
        text = file.read()
    top = _Section(_parse(text), "")
    web = top.section("http_server_config")
    tls = top.section("tls_server_config")
    users = top.mapping_of_strings("basic_auth_users")
    top.finish()
    web.take("http2", bool)  # there is no HTTP/2 here to switch off
    headers = web.mapping_of_strings("headers")
    web.finish()
    for name, value in headers.items():
        _check_header(name, value)
    return WebConfig(tls=_tls(tls, os.path.dirname(path)), users=users, headers=headers)


def _parse(text: bytes) -> Any:
    import yaml

    class Loader(yaml.SafeLoader):
        """Refuses a key that is there twice: which of two passwords counts is no matter of luck."""

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            mapping = super().construct_mapping(node, deep)
            if len(mapping) < len(node.value):
                raise yaml.constructor.ConstructorError(None, None, "a key is there twice", node.start_mark)
            return mapping

    try:
        return yaml.load(text, Loader)
    except (yaml.YAMLError, UnicodeError, RecursionError) as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
        raise OptionsError(f"{where}it is no YAML: {problem or ' '.join(str(error).split())}") from error


class _Section:
    """A mapping of the file, from which each key is taken once; what is left over is unknown."""

    def __init__(self, values: Any, name: str) -> None:
        self._prefix = f"{name}." if name else ""
        if values is None:
            values = {}
        if not isinstance(values, dict):
            raise OptionsError(f"{name or 'the file'} is {_shown(values)}; expected keys and values")
        self._values = dict(values)

    @property
    def keys(self) -> list[Any]:
        return list(self._values)

    def section(self, key: str) -> _Section:
        return _Section(self._values.pop(key, None), f"{self._prefix}{key}")

    def take(self, key: str, kind: type) -> Any:
        value = self._values.pop(key, None)
        if value is not None and not isinstance(value, kind):
            raise OptionsError(f"{self._prefix}{key} is {_shown(value)}; expected {_KINDS[kind]}")
        return value

    def choice(self, key: str, choices: tuple[str, ...], default: str) -> str:
        value: str = self.take(key, str) or default
        if value not in choices:
            raise OptionsError(f"{self._prefix}{key} is {value!r}; expected one of {', '.join(choices)}")
        return value

    def strings(self, key: str) -> tuple[str, ...]:
        values = self.take(key, list) or []
        for value in values:
            if not isinstance(value, str):
                raise OptionsError(f"{self._prefix}{key} holds {_shown(value)}; expected strings")
        return tuple(values)

    def mapping_of_strings(self, key: str) -> dict[str, str]:
        values: dict[Any, Any] = self.take(key, dict) or {}
        for name, value in values.items():
            if not isinstance(name, str) or not isinstance(value, str):
                raise OptionsError(
                    f"{self._prefix}{key} has a name or a value that is no string ({_shown(name)}); write it in quotes"
                )
        return values

    def finish(self) -> None:
        if self._values:
            unknown = ", ".join(f"{self._prefix}{key}" for key in self._values)
            raise OptionsError(f"unknown: {unknown}; docs/exporter.md lists the known keys")


_KINDS: dict[type, str] = {str: "a string", bool: "true or false", list: "a list", dict: "keys and values"}


def _shown(value: Any) -> str:
    return f"a {type(value).__name__}" if isinstance(value, (dict, list)) else repr(value)


def _tls(section: _Section, directory: str) -> TlsConfig | None:
    if not section.keys:
        return None
    cert, key = section.take("cert_file", str), section.take("key_file", str)
    if not cert or not key:
        missing = "cert_file" if not cert else "key_file"
        raise OptionsError(f"tls_server_config.{missing} is missing")
    authority = section.take("client_ca_file", str) or None
    prefer = section.take("prefer_server_cipher_suites", bool)
    kind = section.choice("client_auth_type", (*CLIENT_AUTH_TYPES, *_UNVERIFIED), "NoClientCert")
    config = TlsConfig(
        cert_file=os.path.join(directory, cert),
        key_file=os.path.join(directory, key),
        client_auth_type=kind,
        client_ca_file=os.path.join(directory, authority) if authority else None,
        min_version=section.choice("min_version", VERSIONS, "TLS12"),
        max_version=section.choice("max_version", VERSIONS, "TLS13"),
        cipher_suites=section.strings("cipher_suites"),
        prefer_server_cipher_suites=prefer is not False,
        curve_preferences=section.strings("curve_preferences"),
    )
    section.finish()
    if kind in _UNVERIFIED:
        raise OptionsError(
            f"tls_server_config.client_auth_type is {kind!r}: a certificate that nobody verifies keeps nobody out, and "
            "it cannot be asked for here; write RequireAndVerifyClientCert and a client_ca_file"
        )
    if authority and kind == "NoClientCert":
        raise OptionsError("tls_server_config.client_ca_file is given, but client_auth_type asks for no certificate")
    if VERSIONS.index(config.min_version) > VERSIONS.index(config.max_version):
        raise OptionsError(
            f"tls_server_config.min_version is {config.min_version!r}, above max_version, {config.max_version!r}"
        )
    for name in config.curve_preferences:
        if name not in CURVES:
            raise OptionsError(
                f"tls_server_config.curve_preferences has {name!r}; expected some of {', '.join(CURVES)}"
            )
    return config


def _check_header(name: str, value: str) -> None:
    if name not in HEADERS:
        raise OptionsError(f"http_server_config.headers has {name!r}; expected some of {', '.join(HEADERS)}")
    if HEADERS[name] and value.lower() not in HEADERS[name]:
        raise OptionsError(f"http_server_config.headers: {name} is {value!r}; expected {' or '.join(HEADERS[name])}")
    if not value.isprintable() or not value.isascii():
        raise OptionsError(f"http_server_config.headers: {name} has characters that a header cannot hold")
