"""``tb-supervisor watch``: sends messages about the runs below some logdirs, from their events files.

`notify_options` says where messages are sent, and which; ``run`` has them, too.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from supervisor_core.base.errors import LogdirInUseError
from supervisor_core.cli import Command, WrongInput, hints, seconds_option
from supervisor_core.cli.logdirs import GivenLogdir, GivenRuns, common_directory, directories, given_runs, name_in
from supervisor_core.cli.serving import configure_log, found_or_awaited, on_stop_signal, wait_for, watches_of
from supervisor_core.notify.event import TOPICS
from supervisor_core.notify.secret import NOTIFY_VARIABLE, PING_VARIABLE
from supervisor_core.notify.settings import DEFAULT_TOPICS, LIMIT_PER_HOUR, NotifySettings
from supervisor_core.run.model.thresholds import Thresholds
from supervisor_core.run.model.words import counted

if TYPE_CHECKING:
    from supervisor_core.notify.watcher import Looked

LAST_LOOK_SECS = 1.0
"""How long, after a stop signal, the look under way may take."""

_LOG = logging.getLogger("supervisor_core")


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
        "help": "At most N messages with a page to a service in an hour, and N without one, for each owner of runs.",
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


@click.command(
    short_help="Send messages: a run was lost, hangs, was restarted, is done.",
    epilog="\b\nExamples:\n"
    "  tb-supervisor watch --notify ntfy://TOPIC /runs\n"
    "  tb-supervisor watch --on-event 'tee -a events.jsonl' --ping https://HOST/ID '/teams/*/runs'",
)
@given_runs
@notify_options
@seconds_option("--interval", "How often the logdirs are read.", default="15s", least=0.1, most=3600.0)
def watch(
    runs: GivenRuns,
    interval_secs: float,
    **given: Any,
) -> None:
    """Send a message when something changes in a run in or below LOGDIR, until SIGTERM or SIGINT.

    LOGDIR is a directory, an events file (it stands for its directory), or a pattern; there may be several. Waits for
    a directory that does not exist yet. Reads the events files of any program.

    Exit status: 0 after SIGTERM or SIGINT; 2 if an argument is wrong; 95 if another watcher sends these messages.
    """
    settings = settings_of(given)
    if settings is None:
        raise hints.missing("--notify, --on-event or --ping", click.get_current_context())
    from supervisor_core.notify.sender import STOPPED_SECS, Sender, changes_for
    from supervisor_core.notify.watcher import LogdirLooks, Watcher

    configure_log()
    found = runs.existing(found_or_awaited)
    try:
        sender = Sender(settings, [each.path for each in found])
    except LogdirInUseError as error:
        from supervisor_core.restarter.policy import IN_USE_STATUS

        click.echo(f"Error: {error}.", err=True)
        click.get_current_context().exit(IN_USE_STATUS)
    watches = watches_of(runs, found)
    looks = LogdirLooks(watches, partial(_name, found))
    changes = changes_for(settings, Thresholds(interval_secs=interval_secs), sender.since(time.time()))
    watcher = Watcher(looks.look, changes, sender.put, seen=sender.seen, interval_secs=interval_secs)
    stop = threading.Event()
    thread = threading.Thread(
        target=watcher.run, args=(stop, partial(_say_once, settings, [])), name="watch", daemon=True
    )
    with on_stop_signal(stop.set):
        thread.start()
        wait_for(stop)
        thread.join(LAST_LOOK_SECS)
        sender.close(STOPPED_SECS)
        if not thread.is_alive():
            looks.close()


def _name(found: Sequence[GivenLogdir], logdir: str, run: str) -> str:
    """Return a run's name, relative to what all logdirs have in common."""
    return run if len(found) == 1 else name_in(common_directory(found), logdir, run)


def _say_once(settings: NotifySettings, said: list[Looked], looked: Looked | None) -> bool:
    """Say what is watched, after the first look; never end the watcher."""
    if looked is not None and not said:
        said.append(looked)
        _LOG.info("Watching %s: %s", counted(len(looked.runs), "run"), settings.text)
    return False
