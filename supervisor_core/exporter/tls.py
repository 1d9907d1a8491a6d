"""`tls_context`: what a web configuration says about TLS, in the terms of Python's ssl module."""

from __future__ import annotations

import logging
import ssl

from supervisor_core.errors import OptionsError
from supervisor_core.exporter.web_config import CURVES, TlsConfig

_LOG = logging.getLogger("supervisor_core")

_VERSIONS = {
    "TLS10": ssl.TLSVersion.TLSv1,
    "TLS11": ssl.TLSVersion.TLSv1_1,
    "TLS12": ssl.TLSVersion.TLSv1_2,
    "TLS13": ssl.TLSVersion.TLSv1_3,
}
_CLIENT_CERTIFICATES = {
    "NoClientCert": ssl.CERT_NONE,
    "RequestClientCert": ssl.CERT_NONE,  # one that is asked for and not looked at changes nothing
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}

_AES = ("AES_128_CBC_SHA", "AES_256_CBC_SHA", "AES_128_GCM_SHA256", "AES_256_GCM_SHA384")
_MODERN_CIPHERS = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
"""Those of TLS 1.3, which are always on offer with it."""


def _openssl_cipher(suite: str) -> str:
    return suite.replace("CBC_", "").replace("AES_", "AES").replace("_", "-")


CIPHERS = {
    **{f"TLS_RSA_WITH_{suite}": _openssl_cipher(suite) for suite in _AES},
    **{
        f"TLS_ECDHE_{key}_WITH_{suite}": f"ECDHE-{key}-{_openssl_cipher(suite)}"
        for key in ("RSA", "ECDSA")
        for suite in _AES
    },
    **{f"TLS_ECDHE_{key}_WITH_CHACHA20_POLY1305_SHA256": f"ECDHE-{key}-CHACHA20-POLY1305" for key in ("RSA", "ECDSA")},
}
"""Cipher suites up to TLS 1.2: by their IANA names -> as OpenSSL calls them."""


def tls_context(config: TlsConfig) -> ssl.SSLContext:
    """Return a server's context.

    Raises:
        OptionsError: in one line, what cannot be used: a file, a cipher suite, a curve.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[config.min_version]
    context.maximum_version = _VERSIONS[config.max_version]
    if config.prefer_server_cipher_suites:
        context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    else:
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    _load(context, config)
    if config.cipher_suites:
        _choose_ciphers(context, config)
    if config.curve_preferences:
        _choose_curves(context, config.curve_preferences)
    context.verify_mode = _CLIENT_CERTIFICATES[config.client_auth_type]
    return context


def _load(context: ssl.SSLContext, config: TlsConfig) -> None:
    for path in (config.cert_file, config.key_file, config.client_ca_file):
        if path:
            _check_readable(path)
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
        elif config.client_auth_type in ("VerifyClientCertIfGiven", "RequireAndVerifyClientCert"):
            context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
    except (OSError, ValueError) as error:
        raise OptionsError(f"{config.client_ca_file} holds no certificates in PEM: {_reason(error)}") from error


def _check_readable(path: str) -> None:
    try:
        with open(path, "rb"):
            pass
    except OSError as error:
        raise OptionsError(f"{path} cannot be read: {error.strerror}") from error


def _choose_ciphers(context: ssl.SSLContext, config: TlsConfig) -> None:
    unknown = [name for name in config.cipher_suites if name not in CIPHERS and name not in _MODERN_CIPHERS]
    if unknown:
        raise OptionsError(f"tls_server_config.cipher_suites has {unknown[0]!r}; expected some of {', '.join(CIPHERS)}")
    chosen = [CIPHERS[name] for name in config.cipher_suites if name in CIPHERS]
    if not chosen:
        if config.max_version != "TLS13":
            raise OptionsError(f"tls_server_config.cipher_suites has none that {config.max_version} knows")
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        return
    try:
        context.set_ciphers(":".join(chosen))
    except ssl.SSLError as error:
        raise OptionsError(f"tls_server_config.cipher_suites: this OpenSSL has none of {', '.join(chosen)}") from error


def _choose_curves(context: ssl.SSLContext, names: tuple[str, ...]) -> None:
    if len(names) > 1:
        _LOG.info("Web configuration: of curve_preferences only a single curve can be chosen here; all are on offer")
        return
    try:
        context.set_ecdh_curve(CURVES[names[0]])
    except (ssl.SSLError, ValueError) as error:
        raise OptionsError(
            f"tls_server_config.curve_preferences: this Python cannot choose {names[0]} alone; leave it out"
        ) from error


def _reason(error: Exception) -> str:
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
    return str(reason).replace("_", " ").lower()
