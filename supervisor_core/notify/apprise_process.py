"""The process that sends one message by Apprise, and `ask`, which starts it and waits for its answer.

Apprise and what it imports write URLs with their tokens to logs and into errors, may hang at any place, and keep 50 MB
of memory. So each message has a process of its own: the URL goes to its standard input, it writes to nothing, its
answer is one of few words, and at the time limit it is killed. A server may repeat a URL in its answer, too: so no
text of theirs is passed on, and an error becomes a `SendProblem`, which has a text of ours.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, get_args

from supervisor_core.base.log import answer_text, errors_within
from supervisor_core.notify.secret import without_secrets

SEND_SECS = 60.0
"""How long one message may take; the libraries alone may take many seconds to be read from a slow disk."""
MOST_BYTES = 1 << 28
"""How much memory one message may take: an answer may be endless. It takes a quarter of that at most."""
ANSWER_SECS = 15.0
"""How long a service may take to connect, and to answer, if its URL has no ``cto`` and ``rto``."""

_START = """\
import json, sys
request = json.load(sys.stdin.buffer)
sys.path[:] = request["path"]
from supervisor_core.notify.apprise_process import main
main(request)
"""


ProblemKind = Literal[
    "no_apprise", "unusable", "name", "refused", "timeout", "certificate", "login", "status", "connection", "rejected",
    "killed", "ended",
]  # fmt: skip

_TEXTS: Mapping[ProblemKind, str] = {
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
_PROBLEM_KINDS: frozenset[str] = frozenset(get_args(ProblemKind))


class SendProblem:
    """Why something could not be sent: one of a few kinds, and the number that a server answered.

    Example:
        >>> str(SendProblem("status", 503))
        'it answers 503 (Service Unavailable)'
    """

    __slots__ = ("kind", "status")

    def __init__(self, kind: ProblemKind, status: int | None = None) -> None:
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
        if kind not in _PROBLEM_KINDS or (kind == "status") != (type(status) is int and 0 < status < 1000):
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


def ask(request: Mapping[str, Any], timeout_secs: float = SEND_SECS) -> dict[str, Any]:
    """Return what a new process answers to a request; see `answer_to`. No error leaves it."""
    # Isolated: a module beside the program that is called `requests` is not imported.
    command = [sys.executable or "python3", "-I", "-c", _START]
    complete = json.dumps({**request, "path": sys.path, "timeout_secs": timeout_secs}).encode()
    try:
        done = subprocess.run(
            command,
            input=complete,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=without_secrets(),
            timeout=timeout_secs,
            start_new_session=True,
        )
        answer = json.loads(done.stdout)
    except subprocess.TimeoutExpired:  # its text would hold the command, and its output
        answer = SendProblem("killed").as_json()
    except (OSError, ValueError):
        answer = SendProblem("ended").as_json()
    return answer if isinstance(answer, dict) else SendProblem("ended").as_json()


def main(request: Mapping[str, Any]) -> None:
    """Answer one request, in a process for it alone."""
    answers = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # a library may print
    limit = threading.Timer(request["timeout_secs"], os._exit, (1,))  # if its parent is not there to kill it
    limit.daemon = True
    limit.start()
    _limit_memory()
    try:
        os.getcwd()
    except OSError:  # the working directory was deleted, which the libraries do not expect
        os.chdir(os.sep)
    try:
        answer = answer_to(request)
    except Exception as error:
        answer = (problem_of(error) or SendProblem("rejected")).as_json()
    with os.fdopen(answers, "wb") as file:
        file.write(json.dumps(answer).encode())
    os._exit(0)  # a thread of a service's library would hold it up


def _limit_memory() -> None:
    """Let this process have no more memory than a message needs, and leave no copy of it: it has the URL."""
    with suppress(ImportError, OSError, ValueError):  # not on Windows; a lower limit than that is in force
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))


def answer_to(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer to a request.

    ``{"check": [URL, ...]}`` is answered by ``{"names": [a name, or None for a URL that cannot be used, ...]}``.
    ``{"url": ..., "title": ..., "body": ..., "type": ...}`` is answered by ``{}`` if it was sent, else by a
    `SendProblem`.
    """
    try:
        import apprise
        import requests
    except ImportError:
        return SendProblem("no_apprise").as_json()
    seen = _Sending(requests)
    base = apprise.NotifyBase
    base.socket_connect_timeout = base.socket_read_timeout = ANSWER_SECS
    base.overflow_mode = apprise.OverflowMode.TRUNCATE  # not ten text messages for a long one
    asset = apprise.AppriseAsset(app_id="tb-supervisor", app_desc="tb-supervisor", storage_mode="memory")
    if "check" in request:
        return {"names": [_name(apprise.Apprise.instantiate(url, asset=asset)) for url in request["check"]]}
    service = apprise.Apprise.instantiate(request["url"], asset=asset)
    if service is None:
        return SendProblem("unusable").as_json()
    sender = apprise.Apprise(asset=asset)
    sender.add(service)
    seen.forget()
    is_sent = sender.notify(
        title=request["title"], body=request["body"], notify_type=request["type"], body_format=apprise.NotifyFormat.TEXT
    )
    return {} if is_sent else seen.problem().as_json()


def _name(service: Any) -> str | None:
    """Return the scheme of a service's URLs; None without a service."""
    for names in (getattr(service, "protocol", None), getattr(service, "secure_protocol", None)):
        found: Sequence[str] = (names,) if isinstance(names, str) else tuple(names or ())
        if found:
            return str(found[0])
    return None if service is None else "service"


class _Sending(logging.Handler):
    """What is seen of a message while Apprise sends it, since it returns only whether it was sent.

    Args:
        requests: the library. From now on it follows no redirect: the one who redirects a message has not taken it.
    """

    def __init__(self, requests: Any) -> None:
        super().__init__()
        self._status: int | None = None
        self._problem: SendProblem | None = None
        logger = logging.getLogger("apprise")
        logger.setLevel(logging.DEBUG)
        logger.addHandler(self)
        logger.propagate = False
        requests.Session.get_redirect_target = lambda _session, _response: None
        send = requests.Session.send

        def send_and_see(session: Any, *args: Any, **kwargs: Any) -> Any:
            response = send(session, *args, **kwargs)
            with suppress(AttributeError):
                self._status = int(response.status_code)
            return response

        requests.Session.send = send_and_see

    def forget(self) -> None:
        """Forget what was seen until now."""
        self._status = self._problem = None

    def emit(self, record: logging.LogRecord) -> None:
        """Look which error is being handled while something is logged."""
        error = sys.exc_info()[1]
        if error is not None:
            self._problem = problem_of(error) or self._problem

    def problem(self) -> SendProblem:
        """Return why a message was not sent."""
        if self._problem is not None:
            return self._problem
        if self._status is not None and not 200 <= self._status < 300:
            return SendProblem("status", self._status)
        return SendProblem("rejected")
