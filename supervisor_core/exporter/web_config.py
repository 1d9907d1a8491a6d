"""TLS and passwords of the exporter, from a file that is read strictly, and what it means in terms of Python's ssl.

The format is that of Prometheus's exporter-toolkit; ``promtool check web-config`` reads it too. docs/exporter.md says
what of it is supported and what is refused.
"""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from supervisor_core.errors import OptionsError

_LOG = logging.getLogger("supervisor_core")

MAX_BYTES = 1 << 20
"""Of a web configuration."""
_NAMED_KEYS = 5

_SSL_VERSIONS = {
    "TLS10": ssl.TLSVersion.TLSv1,
    "TLS11": ssl.TLSVersion.TLSv1_1,
    "TLS12": ssl.TLSVersion.TLSv1_2,
    "TLS13": ssl.TLSVersion.TLSv1_3,
}
VERSIONS = tuple(_SSL_VERSIONS)
CURVES = {"CurveP256": "prime256v1", "CurveP384": "secp384r1", "CurveP521": "secp521r1", "X25519": "X25519"}
"""As the file calls them -> as OpenSSL does."""

_VERIFY_MODES = {
    "NoClientCert": ssl.CERT_NONE,
    "RequestClientCert": ssl.CERT_NONE,  # one that is asked for and not looked at changes nothing
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
CLIENT_AUTH_TYPES = tuple(_VERIFY_MODES)
_UNVERIFIED = ("RequireAnyClientCert", "RequireClientCert")

_AES = ("AES_128_CBC_SHA", "AES_256_CBC_SHA", "AES_128_GCM_SHA256", "AES_256_GCM_SHA384")
_CHACHA = "CHACHA20_POLY1305_SHA256"


def _openssl_name(keys: str, suite: str) -> str:
    cipher = "CHACHA20-POLY1305" if suite == _CHACHA else suite.replace("CBC_", "").replace("AES_", "AES")
    return f"{'' if keys == 'RSA' else f'{keys}-'}{cipher}".replace("_", "-")


CIPHERS = {
    f"TLS_{keys}_WITH_{suite}": _openssl_name(keys, suite)
    for keys in ("RSA", "ECDHE_RSA", "ECDHE_ECDSA")
    for suite in (_AES if keys == "RSA" else (*_AES, _CHACHA))
}
"""Cipher suites up to TLS 1.2: by their IANA names -> as OpenSSL calls them."""
_MODERN_CIPHERS = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", f"TLS_{_CHACHA}")
"""Those of TLS 1.3, which are always on offer with it."""

HEADERS: Mapping[str, tuple[str, ...]] = {
    "Content-Security-Policy": (),
    "Strict-Transport-Security": (),
    "X-Content-Type-Options": ("nosniff",),
    "X-Frame-Options": ("deny", "sameorigin"),
    "X-XSS-Protection": (),
}
"""What may be added to every answer -> the values that it may have; none named: any."""

_STRINGS = {str: str}
_SCHEMA: Mapping[Any, Any] = {
    "tls_server_config": {
        "cert_file": str,
        "key_file": str,
        "client_auth_type": (*CLIENT_AUTH_TYPES, *_UNVERIFIED),
        "client_ca_file": str,
        "min_version": VERSIONS,
        "max_version": VERSIONS,
        "cipher_suites": list,
        "prefer_server_cipher_suites": bool,
        "curve_preferences": list,
    },
    "http_server_config": {"http2": bool, "headers": _STRINGS},  # http2: there is no HTTP/2 here to switch off
    "basic_auth_users": _STRINGS,
}
"""The keys of the file: a type, words to choose from, or further keys."""
_KINDS: Mapping[type, str] = {str: "a string", bool: "true or false", list: "a list"}


@dataclass(frozen=True, kw_only=True)
class TlsConfig:
    """The section ``tls_server_config``, with absolute paths."""

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

    def context(self) -> ssl.SSLContext:
        """Return a server's context.

        Raises:
            OptionsError: in one line, what cannot be used: a file, a cipher suite, a curve.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = _SSL_VERSIONS[self.min_version]
        context.maximum_version = _SSL_VERSIONS[self.max_version]
        if self.prefer_server_cipher_suites:
            context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
        else:
            context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
        _load(context, self)
        _choose_ciphers(context, self)
        _choose_curves(context, self.curve_preferences)
        context.verify_mode = _VERIFY_MODES[self.client_auth_type]
        return context


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
        text = file.read(MAX_BYTES + 1)
    if len(text) > MAX_BYTES:
        raise OptionsError(f"it is longer than {MAX_BYTES:,} bytes")
    content = _checked(_parse(text), _SCHEMA, "")
    headers = content["http_server_config"].get("headers", {})
    for name, value in headers.items():
        _check_header(name, value)
    tls = _tls(content["tls_server_config"], os.path.dirname(path))
    return WebConfig(tls=tls, users=content["basic_auth_users"], headers=headers)


def _parse(text: bytes) -> Any:
    import yaml

    class Loader(yaml.SafeLoader):
        """Refuses a key that is there twice: which of two passwords counts would be a matter of luck."""

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            mapping = super().construct_mapping(node, deep)
            if len(mapping) < len(node.value):
                raise yaml.constructor.ConstructorError(None, None, "a key is there twice", node.start_mark)
            return mapping

        def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> Any:
            value = super().construct_scalar(node)
            if isinstance(value, str) and ("\0" in value or not _is_text(value)):
                raise yaml.constructor.ConstructorError(None, None, "a NUL or half a character", node.start_mark)
            return value

    try:
        return yaml.load(text, Loader)
    except Exception as error:  # ill-formed numbers and dates raise what the parsing of their parts raises
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
        raise OptionsError(f"{where}it is no YAML: {problem or ' '.join(str(error).split())}") from error


def _checked(value: Any, schema: Any, name: str) -> Any:
    """Return a value of the file, without the keys that are given nothing; every section is there, if empty."""
    if isinstance(schema, Mapping):
        value = {} if value is None else value
        if not isinstance(value, dict):
            raise OptionsError(f"{name or 'the file'} is {_shown(value)}; expected keys and values")
        if schema is _STRINGS:
            for key, text in value.items():
                if not isinstance(key, str) or not isinstance(text, str):
                    raise OptionsError(
                        f"{name} has a name or a value that is no string ({_shown(key)}); write it in quotes"
                    )
            return value
        prefix = f"{name}." if name else ""
        if strangers := [key for key in value if key not in schema]:
            unknown = ", ".join(f"{prefix}{_named(key)}" for key in strangers[:_NAMED_KEYS])
            raise OptionsError(f"unknown: {unknown}; docs/exporter.md lists the known keys")
        return {
            key: _checked(value.get(key), kind, f"{prefix}{key}")
            for key, kind in schema.items()
            if isinstance(kind, Mapping) or value.get(key) not in (None, "")
        }
    if isinstance(schema, tuple):
        if value not in schema:
            raise OptionsError(f"{name} is {_shown(value)}; expected one of {', '.join(schema)}")
    elif not isinstance(value, schema):
        raise OptionsError(f"{name} is {_shown(value)}; expected {_KINDS[schema]}")
    elif schema is list and (strange := [item for item in value if not isinstance(item, str)]):
        raise OptionsError(f"{name} holds {_shown(strange[0])}; expected strings")
    return value


def _shown(value: Any) -> str:
    return f"a {type(value).__name__}" if isinstance(value, (dict, list)) else repr(value)


def _named(key: Any) -> str:
    return key if isinstance(key, str) and key.isprintable() else repr(key)


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _tls(values: dict[str, Any], directory: str) -> TlsConfig | None:
    if not values:
        return None
    for key in ("cert_file", "key_file"):
        if key not in values:
            raise OptionsError(f"tls_server_config.{key} is missing")
    for key in ("cert_file", "key_file", "client_ca_file"):
        if key in values:
            values[key] = os.path.join(directory, values[key])
    lists: dict[str, Any] = {key: tuple(value) for key, value in values.items() if isinstance(value, list)}
    config = TlsConfig(**values | lists)
    kind = config.client_auth_type
    if kind in _UNVERIFIED:
        raise OptionsError(
            f"tls_server_config.client_auth_type is {kind!r}: a certificate that is not verified keeps no one out, and "
            "it cannot be asked for here; write RequireAndVerifyClientCert and a client_ca_file"
        )
    if config.client_ca_file and kind == "NoClientCert":
        raise OptionsError("tls_server_config.client_ca_file is given, but client_auth_type asks for no certificate")
    if VERSIONS.index(config.min_version) > VERSIONS.index(config.max_version):
        raise OptionsError(
            f"tls_server_config.min_version is {config.min_version!r}, above max_version, {config.max_version!r}"
        )
    for key, given, known in (
        ("curve_preferences", config.curve_preferences, CURVES),
        ("cipher_suites", config.cipher_suites, {**CIPHERS, **dict.fromkeys(_MODERN_CIPHERS)}),
    ):
        for name in given:
            if name not in known:
                raise OptionsError(f"tls_server_config.{key} has {name!r}; expected some of {', '.join(known)}")
    return config


def _check_header(name: str, value: str) -> None:
    if name not in HEADERS:
        raise OptionsError(f"http_server_config.headers has {name!r}; expected some of {', '.join(HEADERS)}")
    if HEADERS[name] and value.lower() not in HEADERS[name]:
        raise OptionsError(f"http_server_config.headers: {name} is {value!r}; expected {' or '.join(HEADERS[name])}")
    if not value.isprintable() or not value.isascii():
        raise OptionsError(f"http_server_config.headers: {name} has characters that a header cannot hold")


def _load(context: ssl.SSLContext, config: TlsConfig) -> None:
    for path in (config.cert_file, config.key_file, config.client_ca_file):
        if path:
            try:
                open(path, "rb").close()
            except OSError as error:
                raise OptionsError(f"{path} cannot be read: {error.strerror}") from error
    try:
        # The empty password: a key that needs one is an error, not a question on the terminal.
        context.load_cert_chain(config.cert_file, config.key_file, password=lambda: "")
    except (OSError, ValueError) as error:
        raise OptionsError(
            f"{config.cert_file} and {config.key_file} are no certificate and its key in PEM: {_reason(error)}"
        ) from error
    try:
        if config.client_ca_file:
            context.load_verify_locations(config.client_ca_file)
        elif _VERIFY_MODES[config.client_auth_type] != ssl.CERT_NONE:
            context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
    except (OSError, ValueError) as error:
        raise OptionsError(f"{config.client_ca_file} holds no certificates in PEM: {_reason(error)}") from error


def _choose_ciphers(context: ssl.SSLContext, config: TlsConfig) -> None:
    chosen = [CIPHERS[name] for name in config.cipher_suites if name in CIPHERS]
    if chosen:
        try:
            context.set_ciphers(":".join(chosen))
        except ssl.SSLError as error:
            raise OptionsError(
                f"tls_server_config.cipher_suites: this OpenSSL has none of {', '.join(chosen)}"
            ) from error
    elif config.cipher_suites:
        if config.max_version != "TLS13":
            raise OptionsError(f"tls_server_config.cipher_suites has none that {config.max_version} knows")
        context.minimum_version = ssl.TLSVersion.TLSv1_3


def _choose_curves(context: ssl.SSLContext, names: tuple[str, ...]) -> None:
    if len(names) > 1:
        _LOG.info("Web configuration: of curve_preferences only a single curve can be chosen here; all are on offer")
    elif names:
        try:
            context.set_ecdh_curve(CURVES[names[0]])
        except (ssl.SSLError, ValueError) as error:
            raise OptionsError(
                f"tls_server_config.curve_preferences: this Python cannot choose {names[0]} alone; leave it out"
            ) from error


def _reason(error: Exception) -> str:
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
    return str(reason).replace("_", " ").lower()
