"""`Service`: what takes messages; `parse_services`: those of Apprise, by their URLs."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from supervisor_core.base.install import install_command
from supervisor_core.notify.apprise_process import ask
from supervisor_core.notify.problem import SendProblem
from supervisor_core.notify.secret import Secret
from supervisor_core.run.model.words import listed

if TYPE_CHECKING:
    from supervisor_core.notify.message import Message

_LOG = logging.getLogger("supervisor_core")

EXAMPLE_URL = "ntfy://TOPIC"


class NotSent(Exception):  # noqa: N818
    """A message was not sent; its text says why, and holds no secret."""


class Service:
    """Takes messages. What is given to an `Outbox` extends it."""

    name: str
    """What it is called in logs and errors: ``notify 1 (slack)``."""
    takes_each: bool = False
    """Whether it gets each event at once in a message of its own, without a limit, and none a second time."""

    def send(self, message: Message) -> None:
        """Send a message. It ends by itself, within seconds; a thread of its own calls it.

        Raises:
            NotSent: if it was not sent.
        """
        raise NotImplementedError

    def abandon(self) -> None:
        """End what `send` has started and still waits for: its caller ends. Any thread calls it."""


class AppriseService(Service):
    """A service of Apprise's.

    Args:
        name: what it is called.
        url: its URL.
    """

    def __init__(self, name: str, url: Secret) -> None:
        self.name, self.url = name, url

    def __repr__(self) -> str:
        return f"AppriseService({self.name!r})"

    def send(self, message: Message) -> None:
        """Send a message, by a process of its own."""
        answer = ask(
            {"url": self.url.reveal(), "title": message.title, "body": message.body, "type": message.apprise_type}
        )
        if answer:
            raise NotSent(str(SendProblem.from_json(answer)))


def parse_services(urls: Sequence[Secret]) -> list[AppriseService]:
    """Return the services of URLs, in their order: ``notify 1``, ``notify 2`` .. It starts a process.

    Raises:
        ValueError: if a URL cannot be used; the text says the number of the URL, and nothing of it.
    """
    if not urls:
        return []
    for number, url in enumerate(urls, 1):
        scheme, mark, rest = url.reveal().partition("://")
        if not scheme or not mark or not rest:
            raise ValueError(f"notify URL {number} is not SCHEME://...; expected one as {EXAMPLE_URL}")
    answer = ask({"check": [url.reveal() for url in urls]})
    names = answer.get("names")
    if not isinstance(names, list) or len(names) != len(urls):
        problem = SendProblem.from_json(answer)
        if problem.kind == "no_apprise":
            raise ValueError(
                f"messages need Apprise, which is not installed: `{install_command('notify')}` installs it"
            )
        _LOG.warning("the notify URLs cannot be checked: %s", problem)  # no reason to begin without them
        names = ["not checked"] * len(urls)
    wrong = [str(number) for number, name in enumerate(names, 1) if not name]
    if wrong:
        raise ValueError(
            f"Apprise knows no service for notify URL {listed(wrong)}, or a part of it, or a package for it, is "
            f"missing; expected one as {EXAMPLE_URL}, slack://TOKEN_A/TOKEN_B/TOKEN_C or mailto://USER:PASSWORD@HOST"
        )
    return [AppriseService(f"notify {number} ({names[number - 1]})", url) for number, url in enumerate(urls, 1)]
