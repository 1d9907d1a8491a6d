"""`WebAccess`: who may ask, over what: a web configuration in force, read again when one of its files has changed.

Users are known by bcrypt hashes of their passwords. A bcrypt check takes a tenth of a second and more, by design. So a
password that was right once is remembered, as a keyed hash under a key of this process, and checked by that from then
on. Everyone else, known user or not, waits for one check of the same cost. One check runs at a time, and few wait for
theirs, fewer still of one client: a flood of wrong passwords costs neither threads nor those who are remembered.
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
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from supervisor_core.errors import OptionsError
from supervisor_core.log import command_line
from supervisor_core.metrics.web_config import read_web_config, tls_context

_LOG = logging.getLogger("supervisor_core")


@dataclass(frozen=True)
class Rules:
    """What is in force."""

    auth: BasicAuth
    headers: Mapping[str, str]
    """What is added to every answer."""
    context: ssl.SSLContext | None
    """What the next connection speaks TLS with; None for plain HTTP."""


class WebAccess:
    """Who may ask, over what, and with which headers they are answered; from many threads at once.

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
        # The dates are taken before the contents: what changes in between is read once more, not missed.
        before = self._stamps = {watched: _stamp(watched) for watched in self._stamps or [path]}
        config = read_web_config(path)
        self._stamps = {watched: before.get(watched) or _stamp(watched) for watched in (path, *config.files)}
        return Rules(BasicAuth(config.users), config.headers, tls_context(config.tls) if config.tls else None)


def _stamp(path: str) -> object:
    try:
        status = os.stat(path)
    except OSError as error:
        return error.errno
    return status.st_mtime_ns, status.st_size, status.st_ino


_HASH = re.compile(r"\$2[aby]\$(0[4-9]|[12][0-9]|3[01])\$[./A-Za-z0-9]{53}")
_UNKNOWN_USERS = "QOauhQNbBCuQDKes6eFzPeMqBSjb7Mr5DUmpZ/VcEd00UAV/LDeSi"
"""Salt and digest of a hash that is no user's."""

_REMEMBERED = 100
MAX_WAITING = 32
"""How many requests may wait for a check of their password; at a quarter of a second each, 8 s for the last one."""
MAX_WAITING_PER_CLIENT = 8
"""How many of them may come from one address, so that one client's flood leaves room for others."""
RETRY_SECS = 5
_BCRYPT_BYTES = 72
"""What bcrypt uses of a password; longer ones count by their beginning, as in every other exporter."""


class TooManyWaitError(Exception):
    """The password was not checked: too many others wait for that. It may be sent again in `RETRY_SECS`."""


class BasicAuth:
    """Checks ``Authorization`` headers; may be asked from many threads at once.

    Args:
        users: user name -> bcrypt hash.

    Raises:
        OptionsError: if a hash is none.

    Example:
        >>> auth = BasicAuth({"prometheus": "$2b$04$S0zX7iW0vcJ9HIf9an1.F.7s.jcDQfNiph64mtcovReKse7dDOaW6"})
        >>> auth.admits("Basic cHJvbWV0aGV1czp4"), auth.admits("Basic cHJvbWV0aGV1czp5"), auth.admits(None)
        (True, False, False)
    """

    def __init__(self, users: Mapping[str, str]) -> None:
        for user, known in users.items():
            if not _HASH.fullmatch(known):
                raise OptionsError(
                    f"the password of user {user!r} is not a bcrypt hash ($2b$12$ and 53 more characters); "
                    f"`{command_line('htpasswd', '-nBC', '12', '--', user)}` writes one"
                )
        self._users = {user.encode(): known.encode() for user, known in users.items()}
        cost = max((known[4:6] for known in users.values()), default="10")
        self._unknown_user = f"$2b${cost}${_UNKNOWN_USERS}".encode()
        self._key = os.urandom(32)
        self._remembered: dict[bytes, None] = {}
        self._waiting: Counter[str] = Counter()
        self._waiting_lock = threading.Lock()
        self._checking = threading.Lock()

    def admits(
        self, authorization: str | None, *, client: str = "", is_gone: Callable[[], bool] = lambda: False
    ) -> bool:
        """Return whether the header's user and password are right; always, where no users are configured.

        Args:
            authorization: the header; None where there is none.
            client: the address that it came from.
            is_gone: whether the client has hung up; nothing is checked then.

        Raises:
            TooManyWaitError: if too many wait for a check already.
        """
        if not self._users:
            return True
        credentials = _credentials(authorization)
        if credentials is None:
            return False
        user, password = credentials
        known = self._users.get(user)
        mark = hmac.digest(self._key, b"%d:%b%b%b" % (len(user), user, known or b"", password), hashlib.sha256)
        if mark in self._remembered:
            return True
        import bcrypt

        with self._turn(client):
            if mark in self._remembered:  # by another request, while this one waited
                return True
            if is_gone():
                return False
            try:
                matches = bcrypt.checkpw(password[:_BCRYPT_BYTES], known or self._unknown_user)
            except ValueError:  # no password that bcrypt takes
                return False
            if not matches or known is None:
                return False
            self._remembered[mark] = None
            if len(self._remembered) > _REMEMBERED:
                del self._remembered[next(iter(self._remembered))]
            return True

    @contextmanager
    def _turn(self, client: str) -> Iterator[None]:
        """Wait for the one check at a time: guessing must not take every core from those who are right."""
        with self._waiting_lock:
            if self._waiting.total() >= MAX_WAITING or self._waiting[client] >= MAX_WAITING_PER_CLIENT:
                raise TooManyWaitError
            self._waiting[client] += 1
        try:
            with self._checking:
                yield
        finally:
            with self._waiting_lock:
                self._waiting -= Counter([client])  # which drops a client without any


def _credentials(authorization: str | None) -> tuple[bytes, bytes] | None:
    scheme, _, encoded = (authorization or "").partition(" ")
    try:
        user, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
    except ValueError:  # no base64, or letters that are not ASCII
        return None
    return (user, password) if colon and scheme.lower() == "basic" else None
