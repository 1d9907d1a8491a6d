"""Passwords: who is let in, and what it costs to ask."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator

import bcrypt
import pytest

from supervisor_core.base.errors import OptionsError
from supervisor_core.metrics import web_config
from supervisor_core.metrics.web_config import BasicAuth


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
    for tail in range(3):
        assert auth.admits(basic("ann", "x" * 72 + str(tail)))
    assert (len(checks), len(auth._right)) == (1, 1)


def test_a_flood_of_wrong_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    """One is checked at a time. If too many wait, others are refused unchecked, except who was right before."""
    monkeypatch.setattr(web_config, "MAX_WAITING", 1)
    auth = BasicAuth({"ann": hashed("secret")})
    assert auth.admits(basic("ann", "secret"))
    checking, go_on = threading.Event(), threading.Event()

    def check(password: bytes, known: bytes) -> bool:
        checking.set()
        return not go_on.wait(60)

    monkeypatch.setattr(bcrypt, "checkpw", check)
    guess = threading.Thread(target=auth.admits, args=(basic("ann", "wrong"),))
    guess.start()
    assert checking.wait(60)
    with pytest.raises(web_config.TooManyWaitError):
        auth.admits(basic("ann", "another"))
    assert auth.admits(basic("ann", "secret"))
    go_on.set()
    guess.join()
    assert auth.admits(basic("ann", "another")) is False


@pytest.mark.parametrize("known", ["secret", "$2b$12$short", "$1$abc$def", "", "$2b$99$" + "a" * 53])
def test_a_password_in_the_clear_is_refused(known: str) -> None:
    """What is no bcrypt hash is refused, with the user's name and without the text."""
    with pytest.raises(OptionsError, match="user 'ann' is not a bcrypt hash") as caught:
        BasicAuth({"ann": known})
    assert not known or known not in str(caught.value)
