"""`SendProblem`: what may be said of why something could not be sent.

Libraries put URLs, with their tokens, into the texts of their errors and into their logs, and a server may repeat one
in its answer. So no text of theirs is passed on: an error becomes a `SendProblem`, which has a text of ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

from supervisor_core.base.log import answer_text, errors_within

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


class SendProblem:
    """Why something could not be sent: one of a few kinds, and the number that a server answered.

    Example:
        >>> str(SendProblem("status", 503))
        'it answers 503 (Service Unavailable)'
    """

    __slots__ = ("kind", "status")

    def __init__(self, kind: Kind, status: int | None = None) -> None:
        self.kind, self.status = kind, status

    def __str__(self) -> str:
        if self.kind != "status":
            return _TEXTS[self.kind]
        return answer_text(self.status or 0)

    def as_json(self) -> dict[str, str | int | None]:
        """Return it for another process."""
        return {"problem": self.kind, "status": self.status}

    @classmethod
    def from_json(cls, answer: Mapping[str, Any]) -> SendProblem:
        """Return what `as_json` returned in another process; any other thing is a process that ended."""
        kind, status = answer.get("problem"), answer.get("status")
        if kind not in _KINDS or (kind == "status") != (type(status) is int and 0 < status < 1000):
            return cls("ended")
        return cls(kind, status)


def problem_of(error: BaseException) -> SendProblem | None:
    """Return what an error of the network or of a library says, without its text; None if it says nothing of that."""
    for found in errors_within(error):
        name = type(found).__name__  # of libraries that are not imported here
        status = getattr(found, "smtp_code", None)
        if name == "SMTPAuthenticationError":
            return SendProblem("login")
        if type(status) is int and 0 < status < 1000:
            return SendProblem("status", status)
        if name == "InvalidURL":
            return SendProblem("unusable")
        if name in ("gaierror", "NameResolutionError"):
            return SendProblem("name")
        if name == "SSLCertVerificationError":
            return SendProblem("certificate")
        if isinstance(found, ConnectionRefusedError):
            return SendProblem("refused")
        if isinstance(found, TimeoutError) or name in ("ConnectTimeoutError", "ReadTimeoutError", "Timeout"):
            return SendProblem("timeout")
    return SendProblem("connection") if isinstance(error, OSError) else None
