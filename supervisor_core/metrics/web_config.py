"""`WebAccess`: TLS and passwords from ``--web.config.file``, in the format of Prometheus's exporter-toolkit.

docs/exporter.md says what of the format is supported. A bcrypt check takes a tenth of a second and more, by design. So
a password that was right once is remembered, as a keyed hash under a key of this process. Everyone else, known user or
not, waits for one check of the same cost; one runs at a time, so guesses delay nobody whose password was right before.
"""

from __future__ import annotations

import base64
import hmac
import logging
import os
import re
import ssl
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

import msgspec

from supervisor_core.base.errors import OptionsError
from supervisor_core.base.log import command_line, printable

_LOG = logging.getLogger("supervisor_core")
_T = TypeVar("_T")

MAX_WAITING = 32
"""How many requests may wait for a check of their password; at a quarter of a second each, 8 s for the last one."""
RETRY_SECS = 5
_HASH = re.compile(r"\$2[aby]\$(0[4-9]|[12][0-9]|3[01])\$[./A-Za-z0-9]{53}")
_BCRYPT_BYTES = 72
"""What bcrypt uses of a password; longer ones count by their beginning, as in every other exporter."""


class _Tls(msgspec.Struct, forbid_unknown_fields=True):
    cert_file: str
    key_file: str
    client_ca_file: str = ""
    client_auth_type: Literal["NoClientCert", "VerifyClientCertIfGiven", "RequireAndVerifyClientCert"] = "NoClientCert"
    min_version: Literal["TLS12", "TLS13"] = "TLS12"

    def context(self, directory: str) -> ssl.SSLContext:
        """Return a server's context; paths are relative to the directory."""
        if bool(self.client_ca_file) != (self.client_auth_type != "NoClientCert"):
            raise OptionsError("tls_server_config.client_ca_file and client_auth_type need each other")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion[f"TLSv1_{self.min_version[-1]}"]
        cert, key, authority = (os.path.join(directory, name) for name in self.files())
        # The empty password: a key that needs one is an error, not a question on the terminal.
        _explained(f"{cert} and {key} are no certificate and its key in PEM", context.load_cert_chain, cert, key, str)
        if self.client_ca_file:
            if_given = self.client_auth_type == "VerifyClientCertIfGiven"
            context.verify_mode = ssl.CERT_OPTIONAL if if_given else ssl.CERT_REQUIRED
            _explained(f"{authority} holds no certificates in PEM", context.load_verify_locations, authority)
        return context

    def files(self) -> tuple[str, str, str]:
        return self.cert_file, self.key_file, self.client_ca_file


class _File(msgspec.Struct, forbid_unknown_fields=True):
    tls_server_config: _Tls | None = None
    basic_auth_users: dict[str, str] | None = None


def _explained(what: str, call: Callable[..., _T], *args: object) -> _T:
    """Call; raise errors of files and of OpenSSL as what they mean, with their cause, in one line."""
    try:
        return call(*args)
    except (OSError, ValueError) as error:
        reason = str(getattr(error, "reason", None) or "").lower().replace("_", " ")  # OpenSSL's: KEY_VALUES_MISMATCH
        raise OptionsError(f"{what}: {reason or getattr(error, 'strerror', None) or error}") from error


def _parsed(path: str) -> _File:
    """Return what a file says; OptionsError, in one line that shows no password, if it cannot be used."""
    import yaml

    class Loader(yaml.SafeLoader):
        """Refuses a key that is there twice: which of two passwords counts would be a matter of luck."""

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[object, object]:
            mapping: dict[object, object] = super().construct_mapping(node, deep)
            if len(mapping) < len(node.value):
                raise yaml.constructor.ConstructorError(None, None, "a key is there twice", node.start_mark)
            return mapping

    text = _read_bytes(path)
    try:
        return msgspec.convert(yaml.load(text, Loader) or {}, _File)
    except msgspec.ValidationError as error:
        raise OptionsError(f"{printable(str(error))[:300]}; see docs/exporter.md") from error
    except Exception as error:  # ill-formed numbers and dates raise what the parsing of their parts raises
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
        said = getattr(error, "problem", None) or type(error).__name__
        raise OptionsError(printable(f"{where}it is no YAML: {said}")[:300]) from error


class Rules(NamedTuple):
    """What is in force."""

    auth: BasicAuth
    context: ssl.SSLContext | None
    """What the next connection speaks TLS with; None for plain HTTP."""


class WebAccess:
    """Who may ask, and over what; used by many threads.

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
        try:
            self._rules = Rules(BasicAuth({}), None) if path is None else self._read(path)
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
                except OptionsError as error:
                    text = "The web configuration %s has changed and cannot be used, the old one stays: %s"
                    _LOG.error(text, self._path, error)
            return self._rules

    def _read(self, path: str) -> Rules:
        self._stamps = {name: _stamp(name) for name in (*self._stamps, path)}  # first: a change meanwhile is seen
        found, directory = _parsed(path), os.path.dirname(path)
        tls = found.tls_server_config
        files = [os.path.join(directory, name) for name in (tls.files() if tls is not None else ()) if name]
        self._stamps = {path: self._stamps[path], **{file: _stamp(file) for file in files}}
        for file in files:
            _read_bytes(file)
        return Rules(BasicAuth(found.basic_auth_users or {}), None if tls is None else tls.context(directory))


def _read_bytes(path: str) -> bytes:
    return _explained(f"{path} cannot be read", Path(path).read_bytes)


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
                remedy = command_line("htpasswd", "-nBC", "12", "--", user[:100])
                said = f"the password of user {user[:100]!r} is not a bcrypt hash ($2b$12$ and 53 more characters)"
                raise OptionsError(f"{said}; `{remedy}` writes one")
        self._users = {user.encode("utf-8", "surrogatepass"): known.encode() for user, known in users.items()}
        self._key, self._right = os.urandom(32), set[bytes]()
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
        import bcrypt

        scheme, _, encoded = (authorization or "").partition(" ")
        try:
            user, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
        except ValueError:  # no base64, or letters that are not ASCII
            return False
        if not colon or scheme.lower() != "basic":
            return False
        password = password[:_BCRYPT_BYTES]
        if (mark := hmac.digest(self._key, b"%b:%b" % (user, password), "sha256")) in self._right:
            return True
        if not self._waiting.acquire(blocking=False):
            raise TooManyWaitError
        try:
            with self._checking:
                known = self._users.get(user) or next(iter(self._users.values()))  # an unknown user takes as long
                is_right = mark in self._right or (bcrypt.checkpw(password, known) and user in self._users)
        except ValueError:  # no password that bcrypt takes
            return False
        finally:
            self._waiting.release()
        if is_right:
            self._right.add(mark)
        return is_right
