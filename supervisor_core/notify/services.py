"""`Service`: what takes messages; `parse_services`: those of Apprise, by their URLs; `CommandService`: a command."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from supervisor_core.base.install import install_command
from supervisor_core.notify.apprise_process import SendProblem, ask
from supervisor_core.notify.event import event_json
from supervisor_core.notify.secret import Secret, without_secrets
from supervisor_core.run.model.words import duration, listed

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


COMMAND_SECS = 30.0
"""How long the command may take for one event."""


class CommandService(Service):
    """Runs a command for each event, one at a time, in a process group of its own. Its output is dropped.

    Args:
        command: a line for the shell.
        timeout_secs: after that it is killed, with everything that it has started.
    """

    name = "on-event"
    takes_each = True

    def __init__(self, command: Secret, timeout_secs: float = COMMAND_SECS) -> None:
        self._command, self._timeout_secs = command, timeout_secs
        self._process: subprocess.Popen[bytes] | None = None

    def send(self, message: Message) -> None:
        """Run the command for each event of a message."""
        try:
            for event in message.events:
                self._run(self._command.reveal(), json.dumps(event_json(event)).encode() + b"\n")
        finally:
            self._process = None  # its `repr` shows the command

    def abandon(self) -> None:
        """Kill the command that runs: after this process its timeout would not end it."""
        process = self._process
        if process is not None and process.returncode is None:
            _kill_group(process)

    def _run(self, command: str, line: bytes) -> None:
        try:
            self._process = process = subprocess.Popen(
                command,
                shell=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=without_secrets(),
                start_new_session=True,
            )
        except OSError as error:
            raise NotSent(f"the command cannot be started: {error.strerror}") from None
        try:
            process.communicate(line, timeout=self._timeout_secs)
        except subprocess.TimeoutExpired:
            _kill(process)
            why = f"the command was killed, it took longer than {duration(self._timeout_secs)}"
            raise NotSent(why) from None
        if process.returncode:
            raise NotSent(_status(process.returncode))


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that was not waited for, and what it has started."""
    with suppress(ProcessLookupError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a process and what it has started."""
    _kill_group(process)
    process.wait()
    if process.stdin is not None:
        with suppress(OSError):
            process.stdin.close()


def _status(status: int) -> str:
    if status > 0:
        return f"the command ended with status {status}"
    return f"the command was killed by signal {-status}"
