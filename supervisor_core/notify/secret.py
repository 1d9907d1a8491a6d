"""`Secret`: a text that is shown nowhere; `Problem` and `problem_text`: what may be said of why it did not work.

A URL of a service holds its token. Libraries put URLs into the texts of their errors and into their logs, and a server
may repeat one in its answer. So no text of theirs is passed on: an error becomes a `Problem`, which has a text of ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Any, Literal, NoReturn, get_args

Kind = Literal[
    "no_apprise", "unusable", "name", "refused", "timeout", "certificate", "login", "status", "connection", "rejected",
    "killed", "ended",
]  # fmt: skip

_TEXTS: Mapping[Kind, str] = {
    "no_apprise": "Apprise is not installed",
    "unusable": "it cannot be used as a URL",
    "name": "the name of its host cannot be resolved",
    "refused": "its host refuses the connection",
    "timeout": "no answer in time",
    "certificate": "the certificate of its host is not valid",
    "login": "it does not accept the user's name or password",
    "connection": "no connection to it",
    "rejected": "it does not accept the message",
    "killed": "it took too long, and was killed",
    "ended": "the process that sends ended before it was done",
}
_KINDS: frozenset[str] = frozenset(get_args(Kind))


class Secret:
    """A text of which neither `str` nor `repr` shows anything, and which cannot be pickled.

    Example:
        >>> url = Secret("ntfy://token")
        >>> print(url, [url])
        (secret) [(secret)]
        >>> url.reveal()
        'ntfy://token'
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text, for what cannot do without it."""
        return self._text

    def __repr__(self) -> str:
        return "(secret)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret cannot be pickled")


class Problem:
    """Why something could not be sent: one of a few kinds, and the number that a server answered.

    Example:
        >>> str(Problem("status", 503))
        'it answers 503 (Service Unavailable)'
    """

    __slots__ = ("kind", "status")

    def __init__(self, kind: Kind, status: int | None = None) -> None:
        self.kind, self.status = kind, status

    def __str__(self) -> str:
        if self.kind != "status":
            return _TEXTS[self.kind]
        phrase = ""
        with suppress(ValueError):
            phrase = f" ({HTTPStatus(self.status or 0).phrase})"
        return f"it answers {self.status}{phrase}"

    def as_json(self) -> dict[str, str | int | None]:
        """Return it for another process."""
        return {"problem": self.kind, "status": self.status}

    @classmethod
    def from_json(cls, answer: Mapping[str, Any]) -> Problem:
        """Return what `as_json` returned in another process; any other thing is a process that ended."""
        kind, status = answer.get("problem"), answer.get("status")
        if kind not in _KINDS or (kind == "status") != (type(status) is int and 0 < status < 1000):
            return cls("ended")
        return cls(kind, status)


def problem_of(error: BaseException) -> Problem | None:
    """Return what an error of the network or of a library says, without its text; None if it says nothing of that."""
    for found in _chain(error):
        name = type(found).__name__  # of libraries that are not imported here
        status = getattr(found, "smtp_code", None)
        if name == "SMTPAuthenticationError":
            return Problem("login")
        if type(status) is int and 0 < status < 1000:
            return Problem("status", status)
        if name == "InvalidURL":
            return Problem("unusable")
        if name in ("gaierror", "NameResolutionError"):
            return Problem("name")
        if name == "SSLCertVerificationError":
            return Problem("certificate")
        if isinstance(found, ConnectionRefusedError):
            return Problem("refused")
        if isinstance(found, TimeoutError) or name in ("ConnectTimeoutError", "ReadTimeoutError", "Timeout"):
            return Problem("timeout")
    return Problem("connection") if isinstance(error, OSError) else None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the innermost causes of an error first; libraries keep them in several places."""
    seen, stack, found = set[int](), [error], list[BaseException]()
    while stack and len(found) < 30:
        current = stack.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        found.append(current)
        inner = [current.__cause__, current.__context__, getattr(current, "reason", None), *current.args]
        stack += [item for item in inner if isinstance(item, BaseException)]
    yield from reversed(found)
