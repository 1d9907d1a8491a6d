"""``tb-supervisor watch``: sends messages about the runs below some logdirs, from their events files."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from supervisor_core.base.errors import LogdirInUseError
from supervisor_core.cli import hints, seconds_option
from supervisor_core.cli.logdirs import GivenLogdir, GivenRuns, common_directory, given_runs, name_in
from supervisor_core.cli.notify_options import notify_options, settings_of
from supervisor_core.cli.serving import configure_log, found_or_awaited, on_stop_signal, wait_for, watches_of
from supervisor_core.run.model.thresholds import Thresholds
from supervisor_core.run.model.words import counted

if TYPE_CHECKING:
    from supervisor_core.notify.settings import NotifySettings
    from supervisor_core.notify.watcher import Looked

LAST_LOOK_SECS = 1.0
"""How long, after a stop signal, the look under way may take."""

_LOG = logging.getLogger("supervisor_core")


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
    bar = ExitStack()
    on_progress = None
    if sys.stderr.isatty():
        from supervisor_core.cli.text import runs_bar  # which imports rich

        on_progress = bar.enter_context(runs_bar("first look"))
    looks = LogdirLooks(watches, partial(_name, found), on_progress=on_progress)
    changes = changes_for(settings, Thresholds(interval_secs=interval_secs), sender.since(time.time()))
    watcher = Watcher(looks.look, changes, sender.put, seen=sender.seen, interval_secs=interval_secs)
    stop = threading.Event()
    thread = threading.Thread(target=watcher.run, args=(stop, _Start(settings, bar)), name="watch", daemon=True)
    with on_stop_signal(stop.set):
        thread.start()
        wait_for(stop)
        bar.close()
        thread.join(LAST_LOOK_SECS)
        sender.close(STOPPED_SECS)
        if not thread.is_alive():
            looks.close()


def _name(found: Sequence[GivenLogdir], logdir: str, run: str) -> str:
    """Return a run's name, relative to what all logdirs have in common."""
    return run if len(found) == 1 else name_in(common_directory(found), logdir, run)


class _Start:
    """Says once what is watched, after the first look, whose bar it ends."""

    def __init__(self, settings: NotifySettings, bar: ExitStack) -> None:
        self._settings, self._bar = settings, bar
        self._is_said = False

    def __call__(self, looked: Looked | None) -> bool:
        """Say it; never ends the watcher."""
        if looked is not None and not self._is_said:
            self._is_said = True
            self._bar.close()
            _LOG.info("Watching %s: %s", counted(len(looked.runs), "run"), self._settings.text)
        return False
