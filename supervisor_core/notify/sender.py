"""`Sender`: all that a watcher hands on: events to services and to the command, and the ping."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from supervisor_core.notify.changes import Changes
from supervisor_core.notify.claims import Claims, default_directory
from supervisor_core.notify.event import Event
from supervisor_core.notify.outbox import Outbox
from supervisor_core.notify.ping import Ping
from supervisor_core.notify.settings import GATHER_SECS, NotifySettings
from supervisor_core.run.thresholds import Thresholds

_LOG = logging.getLogger("supervisor_core")


class Sender:
    """Sends what a watcher has seen. Its methods but `close` never wait.

    Args:
        settings: where to.
        gather_secs: see `Outbox`.
    """

    def __init__(self, settings: NotifySettings, *, gather_secs: float = GATHER_SECS) -> None:
        directory = default_directory() if settings.state is None else Path(settings.state)
        if directory is None:
            _LOG.warning("This user has no home: watchers of one run each send its messages, unless --state is given")
        self._outbox = Outbox(
            settings.services,
            topics=settings.topics,
            limit_per_hour=settings.limit_per_hour,
            gather_secs=gather_secs,
            claims=None if directory is None else Claims(directory),
        )
        self._ping = None if settings.ping is None else Ping(settings.ping)

    def put(self, events: Sequence[Event]) -> None:
        """Take events that are to be sent."""
        self._outbox.put(events)

    def seen(self) -> None:
        """Say that a look has seen everything."""
        if self._ping is not None:
            self._ping.seen()

    def close(self, timeout_secs: float) -> bool:
        """Send what is left; return whether all was sent within this time, in seconds."""
        if self._ping is not None:
            self._ping.close()
        return self._outbox.close(timeout_secs)


def changes_for(settings: NotifySettings, thresholds: Thresholds, since: float | None = None) -> Changes:
    """Return what says what has changed, with the links that are configured.

    Args:
        settings: see `NotifySettings`.
        thresholds: from when on something is said.
        since: see `Changes`.
    """
    return Changes(thresholds=thresholds, runbook_base=settings.runbook_base, tab_url=settings.tab_url, since=since)
