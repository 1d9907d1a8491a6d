"""Passwords: who is let in, and what it costs to ask."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator

import bcrypt
import pytest

from supervisor_core.errors import OptionsError
from supervisor_core.metrics import access
from supervisor_core.metrics.access import BasicAuth


def basic(user: str, password: str) -> str:
    """The header of a user and a password."""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def hashed(password: str, cost: int = 4) -> str:
    """A bcrypt hash."""
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(cost)).decode()


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bytes]]:
    """The hashes against which bcrypt was asked to check, in order."""
    asked: list[bytes] = []
    check = bcrypt.checkpw

    def counted(password: bytes, known: bytes) -> bool:
        asked.append(known)
        return check(password, known)

    monkeypatch.setattr(bcrypt, "checkpw", counted)
    yield asked


@pytest.mark.parametrize("password", ["secret", "", "with:colon", "ümläut 模型", "x" * 72])
def test_the_right_password(password: str) -> None:
    """Every password of up to 72 bytes can be used, and only the right one."""
    auth = BasicAuth({"ann": hashed(password)})
    assert auth.admits(basic("ann", password))
    assert not auth.admits(basic("ann", f"{password[:70]}!"))


@pytest.mark.parametrize("prefix", ["$2a$", "$2b$", "$2y$"])
def test_every_kind_of_hash(prefix: str) -> None:
    """The hashes that htpasswd and others write are understood."""
    assert BasicAuth({"ann": prefix + hashed("secret")[4:]}).admits(basic("ann", "secret"))


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Basic",
        "Basic !!!",
        "Basic ü",
        "Basic " + base64.b64encode(b"no colon").decode(),
        "Bearer token",
        basic("bob", "secret"),
        basic("", "secret"),
        basic("ann", ""),
        basic("ann", "\0"),
        basic("ann", "x" * 5000),
        basic("ANN", "secret"),
    ],
)
def test_everybody_else(header: str | None) -> None:
    """Who sends nothing, nonsense, another user or another password is not let in."""
    assert not BasicAuth({"ann": hashed("secret")}).admits(header)


def test_without_users_everybody() -> None:
    """Where no users are configured no password is needed."""
    assert BasicAuth({}).admits(None)


def test_a_right_password_is_checked_once(checks: list[bytes]) -> None:
    """bcrypt's price is paid for the first right answer alone; wrong ones pay each time."""
    auth = BasicAuth({"ann": hashed("secret")})
    assert [auth.admits(basic("ann", "secret")) for _ in range(5)] == [True] * 5
    assert len(checks) == 1
    assert [auth.admits(basic("ann", "wrong")) for _ in range(3)] == [False] * 3
    assert len(checks) == 4


def test_an_unknown_user_costs_the_same(checks: list[bytes]) -> None:
    """For a user who does not exist bcrypt works as long as for one who does."""
    auth = BasicAuth({"ann": hashed("secret", 5)})
    auth.admits(basic("ann", "wrong"))
    auth.admits(basic("bob", "wrong"))
    assert [known[4:6] for known in checks] == [b"05", b"05"]


def test_no_password_is_kept() -> None:
    """What is remembered is not the password."""
    auth = BasicAuth({"ann": hashed("secret")})
    auth.admits(basic("ann", "secret"))
    assert "secret" not in repr(vars(auth))


def test_what_is_remembered_is_bounded(checks: list[bytes]) -> None:
    """One password that bcrypt takes for many, by its first 72 bytes, does not fill the memory."""
    auth = BasicAuth({"ann": hashed("x" * 72)})
    for tail in range(150):
        assert auth.admits(basic("ann", "x" * 72 + str(tail)))
    assert len(auth._remembered) == 100


class Flood:
    """Wrong passwords in threads of their own, of which the first is being checked until `go_on`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.checked: list[bytes] = []
        self.checking, self._going_on = threading.Event(), threading.Event()
        self._threads: list[threading.Thread] = []
        self.admitted: list[bool] = []
        monkeypatch.setattr(bcrypt, "checkpw", self._check)

    def _check(self, password: bytes, known: bytes) -> bool:
        self.checked.append(password)
        self.checking.set()
        assert self._going_on.wait(60)
        return False

    def send(self, auth: BasicAuth, client: str, count: int, *, is_gone: bool = False) -> None:
        """Let a client send some, and return when they wait."""
        before = auth._waiting.total()
        for number in range(count):
            self._threads.append(
                threading.Thread(
                    target=lambda header: self.admitted.append(
                        auth.admits(header, client=client, is_gone=lambda: is_gone)
                    ),
                    args=(basic("ann", f"wrong {number}"),),
                )
            )
            self._threads[-1].start()
        while auth._waiting.total() < before + count:
            threading.Event().wait(0.001)

    def go_on(self) -> None:
        """Let the checks end."""
        self._going_on.set()
        for thread in self._threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in self._threads)


@pytest.fixture
def flood(monkeypatch: pytest.MonkeyPatch) -> Flood:
    """A flood of wrong passwords."""
    return Flood(monkeypatch)


def test_few_wait_for_a_check(flood: Flood) -> None:
    """Beyond them a password is refused unchecked, with the word that it may come again; one client does not take all
    the places; afterwards there is room again."""
    auth = BasicAuth({"ann": hashed("secret")})
    flood.send(auth, "a", access.MAX_WAITING_PER_CLIENT)
    with pytest.raises(access.TooManyWaitError):
        auth.admits(basic("ann", "x"), client="a")
    for client in ("b", "c", "d"):
        flood.send(auth, client, access.MAX_WAITING_PER_CLIENT)
    with pytest.raises(access.TooManyWaitError):
        auth.admits(basic("ann", "x"), client="e")
    flood.go_on()
    assert flood.admitted == [False] * access.MAX_WAITING
    assert auth.admits(basic("ann", "x"), client="a") is False
    assert not auth._waiting


def test_who_was_right_before_does_not_wait(flood: Flood, monkeypatch: pytest.MonkeyPatch) -> None:
    """During a flood a password that was right once is answered at once, from whatever address."""
    auth = BasicAuth({"ann": hashed("secret")})
    with monkeypatch.context() as patch:
        patch.setattr(bcrypt, "checkpw", lambda password, known: True)
        assert auth.admits(basic("ann", "secret"))
    flood.send(auth, "a", access.MAX_WAITING_PER_CLIENT)
    assert auth.admits(basic("ann", "secret"), client="a")
    flood.go_on()


def test_nothing_is_checked_for_who_has_gone(flood: Flood) -> None:
    """A client that has hung up while it waited costs no check."""
    auth = BasicAuth({"ann": hashed("secret")})
    flood.send(auth, "a", 1)
    assert flood.checking.wait(60)
    flood.send(auth, "b", 5, is_gone=True)
    flood.go_on()
    assert flood.checked == [b"wrong 0"]


@pytest.mark.parametrize("known", ["secret", "$2b$12$short", "$1$abc$def", "", "$2b$99$" + "a" * 53])
def test_a_password_in_the_clear_is_refused(known: str) -> None:
    """What is no bcrypt hash is refused, with the user's name and without the text."""
    with pytest.raises(OptionsError, match="user 'ann' is not a bcrypt hash") as caught:
        BasicAuth({"ann": known})
    assert not known or known not in str(caught.value)
