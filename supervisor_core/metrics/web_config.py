"""The exporter's web configuration: a file in the format of Prometheus's exporter-toolkit, read as strictly as there.

``promtool check web-config`` reads it too; docs/exporter.md says what of it is supported and what is refused.
"""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from supervisor_core.errors import OptionsError

_LOG = logging.getLogger("supervisor_core")

MAX_BYTES = 1 << 20
VERSIONS = {
    "TLS10": ssl.TLSVersion.TLSv1,
    "TLS11": ssl.TLSVersion.TLSv1_1,
    "TLS12": ssl.TLSVersion.TLSv1_2,
    "TLS13": ssl.TLSVersion.TLSv1_3,
}
CLIENT_AUTH_TYPES = {
    "NoClientCert": ssl.CERT_NONE,
    "RequestClientCert": ssl.CERT_NONE,  # a certificate that is requested and not verified changes nothing
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
CURVES = {"CurveP256": "prime256v1", "CurveP384": "secp384r1", "CurveP521": "secp521r1", "X25519": "X25519"}
_SUITES = {
    "AES_128_CBC_SHA": "AES128-SHA",
    "AES_256_CBC_SHA": "AES256-SHA",
    "AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "CHACHA20_POLY1305_SHA256": "CHACHA20-POLY1305",
}
CIPHERS = {
    f"TLS_{keys}_WITH_{suite}": name if keys == "RSA" else f"{keys.replace('_', '-')}-{name}"
    for keys in ("RSA", "ECDHE_RSA", "ECDHE_ECDSA")
    for suite, name in _SUITES.items()
    if (keys, name) != ("RSA", "CHACHA20-POLY1305")
}
"""Cipher suites up to TLS 1.2: IANA's name -> OpenSSL's."""
_TLS13_CIPHERS = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
"""Those of TLS 1.3, which are always on offer with it."""


def _one_of(*names: str) -> tuple[str, Callable[[Any], bool]]:
    return f"one of {', '.join(names)}", lambda value: value in names


def _in_any_case(*names: str) -> tuple[str, Callable[[Any], bool]]:
    return " or ".join(names), lambda value: isinstance(value, str) and value.lower() in names


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value.isprintable()


_TEXT = ("printable text; write it in quotes", _is_text)
_ASCII = ("printable ASCII text; write it in quotes", lambda value: _is_text(value) and value.isascii())
_FLAG = ("true or false", lambda value: isinstance(value, bool))
_USERS = (  # whose values are never shown: they may be passwords in the clear
    "names and bcrypt hashes; write them in quotes",
    lambda value: isinstance(value, dict) and all(map(_is_text, [*value, *value.values()])),
)
SCHEMA: Mapping[str, Any] = {
    "tls_server_config": {
        "cert_file": _TEXT,
        "key_file": _TEXT,
        "client_ca_file": _TEXT,
        "client_auth_type": _one_of(*CLIENT_AUTH_TYPES),
        "min_version": _one_of(*VERSIONS),
        "max_version": _one_of(*VERSIONS),
        "cipher_suites": [_one_of(*CIPHERS, *_TLS13_CIPHERS)],
        "prefer_server_cipher_suites": _FLAG,
        "curve_preferences": [_one_of(*CURVES)],
    },
    "http_server_config": {
        "http2": _FLAG,  # there is no HTTP/2 here to switch off
        "headers": {
            "Content-Security-Policy": _ASCII,
            "Strict-Transport-Security": _ASCII,
            "X-Content-Type-Options": _in_any_case("nosniff"),
            "X-Frame-Options": _in_any_case("deny", "sameorigin"),
            "X-XSS-Protection": _ASCII,
        },
    },
    "basic_auth_users": _USERS,
}
"""Key -> what its value is: a section, a list, or what is expected and the function that says whether it is that."""


@dataclass(frozen=True, kw_only=True)
class WebConfig:
    """What a file says; `tls_context` makes a context of ``tls``."""

    tls: Mapping[str, Any]
    """The section ``tls_server_config``, with absolute paths; empty for plain HTTP."""
    users: Mapping[str, str]
    """User name -> bcrypt hash; empty: no password is needed."""
    headers: Mapping[str, str]
    """What is added to every answer."""

    @property
    def files(self) -> list[str]:
        """The paths of certificates and keys."""
        return [self.tls[key] for key in ("cert_file", "key_file", "client_ca_file") if key in self.tls]


def read_web_config(path: str) -> WebConfig:
    """Return what a file says.

    Raises:
        OptionsError: in one line, what about it cannot be used.
        OSError: if the file cannot be read.
    """
    with open(path, "rb") as file:
        text = file.read(MAX_BYTES + 1)
    if len(text) > MAX_BYTES:
        raise OptionsError(f"it is longer than {MAX_BYTES:,} bytes")
    content = _checked(_parse(text), SCHEMA, "")
    tls = content.get("tls_server_config", {})
    for key in tls.keys() & {"cert_file", "key_file", "client_ca_file"}:
        tls[key] = os.path.join(os.path.dirname(path), tls[key])
    headers = content.get("http_server_config", {}).get("headers", {})
    return WebConfig(tls=tls, users=content.get("basic_auth_users", {}), headers=headers)


def _parse(text: bytes) -> Any:
    import yaml

    class Loader(yaml.SafeLoader):
        """Refuses a key that is there twice: which of two passwords counts would be a matter of luck."""

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            mapping = super().construct_mapping(node, deep)
            if len(mapping) < len(node.value):
                raise yaml.constructor.ConstructorError(None, None, "a key is there twice", node.start_mark)
            return mapping

    try:
        return yaml.load(text, Loader)
    except Exception as error:  # ill-formed numbers and dates raise what the parsing of their parts raises
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
        raise OptionsError(f"{where}it is no YAML: {problem or ' '.join(str(error).split())}") from error


def _checked(value: Any, kind: Any, name: str) -> Any:
    """Return a value of the file, sections without the keys that have no value."""
    if isinstance(kind, dict):
        _expect(value is None or isinstance(value, dict), value, name or "the file", "keys and values")
        for key in value or ():
            if key not in kind:
                raise OptionsError(f"{name or 'the file'} has the unknown key {_shown(key)}; see docs/exporter.md")
        given = {key: item for key, item in (value or {}).items() if item is not None and not (name and item == "")}
        return {key: _checked(item, kind[key], f"{name}.{key}" if name else key) for key, item in given.items()}
    if isinstance(kind, list):
        _expect(isinstance(value, list), value, name, "a list")
        return [_checked(item, kind[0], f"an item of {name}") for item in value]
    expected, holds = kind
    _expect(holds(value), value, name, expected)
    return value


def _expect(holds: bool, value: object, name: str, expected: str) -> None:
    if not holds:
        raise OptionsError(f"{name} is {_shown(value)}; expected {expected}")


def _shown(value: object) -> str:
    """Return what a line can hold of a value: a string, or the type of anything else."""
    return repr(value[:100]) if isinstance(value, str) else f"of type {type(value).__name__}"


def tls_context(tls: Mapping[str, Any]) -> ssl.SSLContext:
    """Return a server's context for a section ``tls_server_config``.

    Raises:
        OptionsError: in one line, what cannot be used: a file, a cipher suite, a curve.
    """
    for key in ("cert_file", "key_file"):
        if key not in tls:
            raise OptionsError(f"tls_server_config.{key} is missing")
    authorities, kind = tls.get("client_ca_file"), tls.get("client_auth_type", "NoClientCert")
    if authorities and kind == "NoClientCert":
        raise OptionsError("tls_server_config.client_ca_file is given, but client_auth_type asks for no certificate")
    lowest, highest = tls.get("min_version", "TLS12"), tls.get("max_version", "TLS13")
    if VERSIONS[lowest] > VERSIONS[highest]:
        raise OptionsError(f"tls_server_config.min_version is {lowest!r}, above max_version, {highest!r}")

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version, context.maximum_version = VERSIONS[lowest], VERSIONS[highest]
    if tls.get("prefer_server_cipher_suites", True):
        context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    else:
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    for path in (tls["cert_file"], tls["key_file"], authorities):
        if path:
            with _explained(f"{path} cannot be read"):
                open(path, "rb").close()
    with _explained(f"{tls['cert_file']} and {tls['key_file']} are no certificate and its key in PEM"):
        # The empty password: a key that needs one is an error, not a question on the terminal.
        context.load_cert_chain(tls["cert_file"], tls["key_file"], password=lambda: "")
    if authorities:
        with _explained(f"{authorities} holds no certificates in PEM"):
            context.load_verify_locations(authorities)
    elif CLIENT_AUTH_TYPES[kind] != ssl.CERT_NONE:
        context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
    context.verify_mode = CLIENT_AUTH_TYPES[kind]

    _choose_ciphers(context, tls, highest)
    return context


def _choose_ciphers(context: ssl.SSLContext, tls: Mapping[str, Any], highest: str) -> None:
    """Have a context offer only the cipher suites and the curve that a section names."""
    suites, curves = tls.get("cipher_suites", []), tls.get("curve_preferences", [])
    if chosen := ":".join(CIPHERS[name] for name in suites if name in CIPHERS):
        with _explained(f"tls_server_config.cipher_suites: this OpenSSL has none of {chosen}"):
            context.set_ciphers(chosen)
    elif suites and highest != "TLS13":
        raise OptionsError(f"tls_server_config.cipher_suites has none that {highest} knows")
    elif suites:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    if len(curves) > 1:
        _LOG.info("Web configuration: of curve_preferences only a single curve can be chosen here; all are on offer")
    elif curves:
        with _explained(f"tls_server_config.curve_preferences: this Python cannot choose {curves[0]}; leave it out"):
            context.set_ecdh_curve(CURVES[curves[0]])


@contextmanager
def _explained(what: str) -> Iterator[None]:
    """Raise errors of files and of OpenSSL as what they mean, with their cause, in one line."""
    try:
        yield
    except (OSError, ValueError) as error:
        reason = str(getattr(error, "reason", None) or "").lower().replace("_", " ")  # OpenSSL's: KEY_VALUES_MISMATCH
        raise OptionsError(f"{what}: {reason or getattr(error, 'strerror', None) or error}") from error
