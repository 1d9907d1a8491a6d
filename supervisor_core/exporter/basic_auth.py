"""`BasicAuth`: who may scrape, by user names and bcrypt hashes of their passwords.

A bcrypt check takes a tenth of a second and more, by design. So a password that was right once is remembered, not as
it is but as a keyed hash under a key of this process, and checked by that from then on. Everybody else, known user or
not, waits for one check of the same cost. One check runs at a time and few wait for theirs, fewer still of one client:
a flood of wrong passwords costs neither threads nor those who are remembered.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from supervisor_core.errors import OptionsError

_HASH = re.compile(r"\$2[aby]\$(0[4-9]|[12][0-9]|3[01])\$[./A-Za-z0-9]{53}")
_NOBODYS = "QOauhQNbBCuQDKes6eFzPeMqBSjb7Mr5DUmpZ/VcEd00UAV/LDeSi"
"""Salt and digest of a hash that is no user's."""

_REMEMBERED = 100
MAX_WAITING = 32
"""How many requests may wait for a check of their password; at a quarter of a second each, 8 s for the last one."""
MAX_WAITING_PER_CLIENT = 8
"""How many of them may come from one address, so that one client's flood leaves room for others."""
_BCRYPT_BYTES = 72
"""What bcrypt uses of a password; longer ones count by their beginning, as in every other exporter."""


class TooManyWaitError(Exception):
    """The password was not checked: too many others wait for that. It may be sent again in `RETRY_SECS`."""


RETRY_SECS = 5


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
        costs = []
        for user, known in users.items():
            match = _HASH.fullmatch(known)
            if match is None:
                raise OptionsError(
                    f"the password of user {user!r} is not a bcrypt hash ($2b$12$ and 53 more characters); "
                    f"`htpasswd -nBC 12 {user}` writes one"
                )
            costs.append(match[1])
        self._users = {user.encode(): known.encode() for user, known in users.items()}
        self._nobody = f"$2b${max(costs, default='10')}${_NOBODYS}".encode()
        self._key = os.urandom(32)
        self._remembered: dict[bytes, None] = {}
        self._remembered_lock = threading.Lock()
        self._checking = threading.Lock()
        self._waiting: Counter[str] = Counter()
        self._waiting_lock = threading.Lock()

    def admits(
        self, authorization: str | None, *, client: str = "", is_gone: Callable[[], bool] = lambda: False
    ) -> bool:
        """Return whether the header's user and password are right. Without users, everybody's are.

        Args:
            authorization: the header; None where there is none.
            client: the address that it came from.
            is_gone: whether nobody waits for the answer any more; nothing is checked then.

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
        if self._is_remembered(mark):
            return True
        import bcrypt

        with self._turn(client):  # one at a time: guessing must not take every core from those who are right
            if self._is_remembered(mark):  # by another request, while this one waited
                return True
            if is_gone():
                return False
            try:
                matches = bcrypt.checkpw(password[:_BCRYPT_BYTES], known or self._nobody)
            except ValueError:  # a password that bcrypt does not take is nobody's
                matches = False
        if not matches or known is None:
            return False
        with self._remembered_lock:
            self._remembered[mark] = None
            if len(self._remembered) > _REMEMBERED:
                del self._remembered[next(iter(self._remembered))]
        return True

    def _is_remembered(self, mark: bytes) -> bool:
        with self._remembered_lock:
            return mark in self._remembered

    @contextmanager
    def _turn(self, client: str) -> Iterator[None]:
        with self._waiting_lock:
            if self._waiting.total() >= MAX_WAITING or self._waiting[client] >= MAX_WAITING_PER_CLIENT:
                raise TooManyWaitError
            self._waiting[client] += 1
        try:
            with self._checking:
                yield
        finally:
            with self._waiting_lock:
                self._waiting[client] -= 1
                if not self._waiting[client]:
                    del self._waiting[client]


def _credentials(authorization: str | None) -> tuple[bytes, bytes] | None:
    scheme, _, encoded = (authorization or "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
    except (binascii.Error, ValueError):  # ValueError: letters that are not ASCII
        return None
    return (user, password) if colon else None
