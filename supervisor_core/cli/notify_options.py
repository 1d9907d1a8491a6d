"""Where messages are sent, and which: the options that ``watch`` and ``run`` have in common."""

from __future__ import annotations

from typing import Any

import click

from supervisor_core.cli import Command, WrongInput
from supervisor_core.cli.logdirs import directories
from supervisor_core.notify.secret import NOTIFY_VARIABLE, PING_VARIABLE
from supervisor_core.notify.settings import (
    DEFAULT_TOPICS,
    LIMIT_PER_HOUR,
    TOPICS,
    NotifySettings,
)

_OPTIONS: dict[str, dict[str, Any]] = {
    "--notify": {
        "multiple": True,
        "metavar": "URL",
        "help": "Send messages there: a URL of Apprise, as ntfy://TOPIC or slack://TOKEN_A/TOKEN_B/TOKEN_C. "
        f"Repeatable. [env: {NOTIFY_VARIABLE}]",
    },
    "--notify-on": {
        "metavar": "TOPICS",
        "default": ",".join(DEFAULT_TOPICS),
        "help": f"What messages and --on-event are about: some of {','.join(TOPICS)}.",
    },
    "--on-event": {
        "metavar": "COMMAND",
        "help": "Run COMMAND with the shell for each event, with its JSON on standard input, for at most 30s.",
    },
    "--ping": {
        "metavar": "URL",
        "help": f"Request URL each minute while everything can be read. [env: {PING_VARIABLE}]",
    },
    "--notify-limit": {
        "type": click.IntRange(1, 1000),
        "metavar": "N",
        "default": LIMIT_PER_HOUR,
        "help": "At most N messages to a service within an hour.",
    },
    "--tensorboard-url": {"metavar": "URL", "help": "A TensorBoard with the tab, for the link to the run."},
    "--runbook-base": {"metavar": "URL", "help": "The page of alerts, for the link to what is to be done."},
    "--state": {
        "metavar": "DIR",
        "shell_complete": directories,
        "help": "Where a watcher keeps what is unsent. Default: a directory of the user's own.",
    },
}


def notify_options(command: Command) -> Command:
    """Give a command the options; `settings_of` takes what it gets."""
    for name, how in reversed(_OPTIONS.items()):
        command = click.option(name, **how)(command)
    return command


def settings_of(given: dict[str, Any]) -> NotifySettings | None:
    """Return what the options, and the environment, say; None where there is nowhere to send anything.

    Args:
        given: what the command got, from which the options are taken.

    Raises:
        WrongInput: for what cannot be used; the text holds nothing of a URL.
    """
    try:
        return NotifySettings.of(
            urls=given.pop("notify"),
            topics=given.pop("notify_on"),
            limit_per_hour=given.pop("notify_limit"),
            command=given.pop("on_event"),
            ping=given.pop("ping"),
            runbook_base=given.pop("runbook_base"),
            tab_url=given.pop("tensorboard_url"),
            state=given.pop("state"),
        )
    except ValueError as error:
        text = str(error)
        raise WrongInput(f"{text[:1].upper()}{text[1:]}.") from None
