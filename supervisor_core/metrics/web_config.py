"""`WebAccess`: TLS, passwords and headers from ``--web.config.file``, in the format of Prometheus's exporter-toolkit.

docs/exporter.md says what of the format is supported. A bcrypt check takes a tenth of a second and more, by design. So
a password that was right once is remembered, as a keyed hash under a key of this process. Everyone else, known user or
not, waits for one check of the same cost; one runs at a time, so guesses delay nobody whose password was right before.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import os
import re
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from supervisor_core.base.errors import OptionsError
from supervisor_core.base.log import command_line, printable

_LOG = logging.getLogger("supervisor_core")

MAX_BYTES = 1 << 20
MAX_WAITING = 32
"""How many requests may wait for a check of their password; at a quarter of a second each, 8 s for the last one."""
RETRY_SECS = 5
_HASH = re.compile(r"\$2[aby]\$(0[4-9]|[12][0-9]|3[01])\$[./A-Za-z0-9]{53}")
_UNKNOWN_USERS = "QOauhQNbBCuQDKes6eFzPeMqBSjb7Mr5DUmpZ/VcEd00UAV/LDeSi"
"""Salt and digest of a hash that is no user's."""
_REMEMBERED = 100
_BCRYPT_BYTES = 72
"""What bcrypt uses of a password; longer ones count by their beginning, as in every other exporter."""
_HEADERS = (
    "Content-Security-Policy",
    "Strict-Transport-Security",
    "X-Content-Type-Options",
    "X-Frame-Options",
    "X-XSS-Protection",
)
_FILES = ("cert_file", "key_file", "client_ca_file")
_Version = Literal["TLS10", "TLS11", "TLS12", "TLS13"]
_VERIFY = {"VerifyClientCertIfGiven": ssl.CERT_OPTIONAL, "RequireAndVerifyClientCert": ssl.CERT_REQUIRED}


class _Tls(msgspec.Struct, forbid_unknown_fields=True):
    cert_file: str = ""
    key_file: str = ""
    client_ca_file: str = ""
    client_auth_type: Literal[
        "NoClientCert", "RequestClientCert", "VerifyClientCertIfGiven", "RequireAndVerifyClientCert"
    ] = "NoClientCert"
    min_version: _Version = "TLS12"
    max_version: _Version = "TLS13"

    def context(self) -> ssl.SSLContext:
        """Return a server's context; OptionsError, in one line, if something cannot be used."""
        if not self.cert_file or not self.key_file:
            raise OptionsError(f"tls_server_config.{'key_file' if self.cert_file else 'cert_file'} is missing")
        if self.client_ca_file and self.client_auth_type == "NoClientCert":
            raise OptionsError("tls_server_config.client_ca_file is given, but client_auth_type asks for none")
        if self.min_version > self.max_version:
            raise OptionsError(f"tls_server_config.min_version is {self.min_version}, above {self.max_version}")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version, context.maximum_version = (
            ssl.TLSVersion[f"TLSv1_{version[-1]}" if version != "TLS10" else "TLSv1"]
            for version in (self.min_version, self.max_version)
        )
        for name in _FILES:
            if path := getattr(self, name):
                with _explained(f"{path} cannot be read"):
                    open(path, "rb").close()
        with _explained(f"{self.cert_file} and {self.key_file} are no certificate and its key in PEM"):
            # The empty password: a key that needs one is an error, not a question on the terminal.
            context.load_cert_chain(self.cert_file, self.key_file, password=lambda: "")
        context.verify_mode = _VERIFY.get(self.client_auth_type, ssl.CERT_NONE)
        if self.client_ca_file:
            with _explained(f"{self.client_ca_file} holds no certificates in PEM"):
                context.load_verify_locations(self.client_ca_file)
        elif context.verify_mode != ssl.CERT_NONE:
            context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
        return context


class _Http(msgspec.Struct, forbid_unknown_fields=True):
    http2: bool = False  # there is no HTTP/2 here to switch off
    headers: dict[str, str] = {}


class _File(msgspec.Struct, forbid_unknown_fields=True):
    tls_server_config: _Tls | None = None
    http_server_config: _Http | None = None
    basic_auth_users: dict[str, str] | None = None


@contextmanager
def _explained(what: str) -> Iterator[None]:
    """Raise errors of files and of OpenSSL as what they mean, with their cause, in one line."""
    try:
        yield
    except (OSError, ValueError) as error:
        reason = str(getattr(error, "reason", None) or "").lower().replace("_", " ")  # OpenSSL's: KEY_VALUES_MISMATCH
        raise OptionsError(f"{what}: {reason or getattr(error, 'strerror', None) or error}") from error


def _parsed(path: str) -> _File:
    """Return what a file says; OptionsError, in one line that shows no password, if it cannot be used."""
    import yaml

    class Loader(yaml.SafeLoader):
        """Refuses a key that is there twice: which of two passwords counts would be a matter of luck."""

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            mapping = super().construct_mapping(node, deep)
            if len(mapping) < len(node.value):
                raise yaml.constructor.ConstructorError(None, None, "a key is there twice", node.start_mark)
            return mapping

    with open(path, "rb") as file:
        text = file.read(MAX_BYTES + 1)
    if len(text) > MAX_BYTES:
        raise OptionsError(f"it is longer than {MAX_BYTES:,} bytes")
    try:
        found = msgspec.convert(yaml.load(text, Loader) or {}, _File)
    except msgspec.ValidationError as error:
        raise OptionsError(f"{printable(str(error))[:300]}; see docs/exporter.md") from error
    except Exception as error:  # ill-formed numbers and dates raise what the parsing of their parts raises
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
        said = getattr(error, "problem", None) or type(error).__name__
        raise OptionsError(printable(f"{where}it is no YAML: {said}")[:300]) from error
    headers = {} if found.http_server_config is None else found.http_server_config.headers
    for name, value in headers.items():
        if name not in _HEADERS or not (value.isascii() and value.isprintable()):
            raise OptionsError(f"the header {name[:100]!r} is not one of {', '.join(_HEADERS)}, in printable ASCII")
    return found


@dataclass(frozen=True)
class Rules:
    """What is in force."""

    auth: BasicAuth
    headers: Mapping[str, str]
    """What is added to every answer."""
    context: ssl.SSLContext | None
    """What the next connection speaks TLS with; None for plain HTTP."""


class WebAccess:
    """Who may ask, over what, and with which headers they are answered; used by many threads.

    Each question costs a look at the files' dates. A change that cannot be used is logged, once, and what was in force
    before stays so. Whether TLS is spoken at all is decided at the start.

    Args:
        path: the file; None for plain HTTP, without passwords.

    Raises:
        OptionsError: in one line, what about the file cannot be used.
    """

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._stamps: dict[str, object] = {}
        self._rules = Rules(BasicAuth({}), {}, None)
        if path is not None:
            try:
                self._rules = self._read(path)
            except OSError as error:
                raise OptionsError(f"The web configuration {path} cannot be read: {error.strerror}.") from error
            except OptionsError as error:
                raise OptionsError(f"The web configuration {path} cannot be used: {error}.") from error
        self.tls = self._rules.context is not None
        """Whether TLS is spoken."""

    def rules(self) -> Rules:
        """Return what is in force now."""
        with self._lock:
            if self._path is not None and any(_stamp(path) != stamp for path, stamp in self._stamps.items()):
                try:
                    rules = self._read(self._path)
                    if (rules.context is not None) != self.tls:
                        raise OptionsError("TLS is switched on or off by a restart only")
                    self._rules = rules
                    _LOG.info("The web configuration %s has changed and is in force", self._path)
                except (OSError, OptionsError) as error:
                    text = "The web configuration %s has changed and cannot be used, the old one stays: %s"
                    _LOG.error(text, self._path, error)
            return self._rules

    def _read(self, path: str) -> Rules:
        # Before the files are read: a change meanwhile is seen.
        self._stamps = {name: _stamp(name) for name in (*self._stamps, path)}
        found = _parsed(path)
        tls, http = found.tls_server_config, found.http_server_config
        for name in _FILES:
            if tls is not None and (given := getattr(tls, name)):
                setattr(tls, name, os.path.join(os.path.dirname(path), given))
        files = [getattr(tls, name) for name in _FILES] if tls is not None else []
        self._stamps = {path: self._stamps[path], **{file: _stamp(file) for file in files if file}}
        auth = BasicAuth(found.basic_auth_users or {})
        return Rules(auth, {} if http is None else http.headers, None if tls is None else tls.context())


def _stamp(path: str) -> object:
    """Return what changes with a file; the error number if it cannot be looked at."""
    try:
        status = os.stat(path)
    except OSError as error:
        return error.errno
    except ValueError:  # a path with NUL
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


class TooManyWaitError(Exception):
    """The password was not checked: too many others wait for that. It may be sent again in `RETRY_SECS`."""


class BasicAuth:
    """Checks ``Authorization`` headers; used by many threads.

    Args:
        users: user name -> bcrypt hash.

    Raises:
        OptionsError: if a hash is not valid.

    Example:
        >>> auth = BasicAuth({"prometheus": "$2b$04$S0zX7iW0vcJ9HIf9an1.F.7s.jcDQfNiph64mtcovReKse7dDOaW6"})
        >>> auth.admits("Basic cHJvbWV0aGV1czp4"), auth.admits("Basic cHJvbWV0aGV1czp5"), auth.admits(None)
        (True, False, False)
    """

    def __init__(self, users: Mapping[str, str]) -> None:
        for user, known in users.items():
            if not _HASH.fullmatch(known):
                raise OptionsError(
                    f"the password of user {user[:100]!r} is not a bcrypt hash ($2b$12$ and 53 more characters); "
                    f"`{command_line('htpasswd', '-nBC', '12', '--', user[:100])}` writes one"
                )
        self._users = {user.encode("utf-8", "surrogatepass"): known.encode() for user, known in users.items()}
        cost = max((known[4:6] for known in users.values()), default="10")
        self._unknown_user = f"$2b${cost}${_UNKNOWN_USERS}".encode()
        self._key = os.urandom(32)
        self._remembered: dict[bytes, None] = {}
        self._waiting, self._checking = threading.Semaphore(MAX_WAITING), threading.Lock()

    def admits(self, authorization: str | None) -> bool:
        """Return whether the header's user and password are right; always, if no users are configured.

        Args:
            authorization: the header, or None.

        Raises:
            TooManyWaitError: if it was not checked, because too many wait for that.
        """
        if not self._users:
            return True
        scheme, _, encoded = (authorization or "").partition(" ")
        try:
            user, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
        except ValueError:  # no base64, or letters that are not ASCII
            return False
        if not colon or scheme.lower() != "basic":
            return False
        known = self._users.get(user)
        mark = hmac.digest(self._key, b"%d:%b%b%b" % (len(user), user, known or b"", password), hashlib.sha256)
        if mark in self._remembered:
            return True
        if not self._waiting.acquire(blocking=False):
            raise TooManyWaitError
        try:
            with self._checking:
                is_right = mark in self._remembered or self._check(password, known or self._unknown_user)
        finally:
            self._waiting.release()
        if not is_right or known is None:
            return False
        self._remembered[mark] = None
        while len(self._remembered) > _REMEMBERED:
            self._remembered.pop(next(iter(self._remembered)), None)
        return True

    @staticmethod
    def _check(password: bytes, known: bytes) -> Any:
        import bcrypt

        try:
            return bcrypt.checkpw(password[:_BCRYPT_BYTES], known)
        except ValueError:  # no password that bcrypt takes
            return False
