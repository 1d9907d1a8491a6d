"""`Sender`: all that a watcher hands on: events to services and to the command, and the ping."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from pathlib import Path

from supervisor_core.notify.changes import Changes
from supervisor_core.notify.claims import Claims, default_directory
from supervisor_core.notify.event import Event
from supervisor_core.notify.outbox import Outbox
from supervisor_core.notify.ping import Ping
from supervisor_core.notify.settings import GATHER_SECS, NotifySettings
from supervisor_core.run.model.thresholds import Thresholds
from supervisor_core.run.model.words import DAY_SECS

_LOG = logging.getLogger("supervisor_core")

STOPPED_SECS = 5.0
"""How long what is left may take to be sent after a stop signal."""
_UNSAID_SECS = 300.0
"""A stop is held back for 90 s, since the run may go on; a look, and what is gathered, take some seconds more."""


class Sender:
    """Sends what a watcher has seen. Its methods but `seen`, which writes a file, and `close` never wait.

    Args:
        settings: where to.
        watched: what is watched, the same at each start; None: when it was looked at is not kept.
        gather_secs: see `Outbox`.
    """

    def __init__(
        self, settings: NotifySettings, *, watched: str | None = None, gather_secs: float = GATHER_SECS
    ) -> None:
        directory = default_directory() if settings.state is None else Path(settings.state)
        if directory is None:
            _LOG.warning("This user has no home: watchers of one run each send its messages, unless --state is given")
        self._claims = None if directory is None else Claims(directory)
        self._watched = watched
        self._outbox = Outbox(
            settings.services,
            topics=settings.topics,
            limit_per_hour=settings.limit_per_hour,
            gather_secs=gather_secs,
            claims=self._claims,
        )
        self._ping = None if settings.ping is None else Ping(settings.ping)

    def since(self, now: float) -> float:
        """Return the wall time from which on ends and restarts are news: some minutes before a watcher of the same has
        last looked, which is what it may not have said; a day ago at most; the present if none has.

        Args:
            now: the present wall time.
        """
        last = None if self._claims is None or self._watched is None else self._claims.last_look(self._watched)
        return now if last is None else max(min(last, now) - _UNSAID_SECS, now - DAY_SECS)

    def put(self, events: Sequence[Event]) -> None:
        """Take events that are to be sent."""
        self._outbox.put(events)

    def seen(self) -> None:
        """Say that a look has seen everything."""
        if self._claims is not None and self._watched is not None:
            self._claims.looked(self._watched, time.time())
        if self._ping is not None:
            self._ping.seen()

    def close(self, timeout_secs: float) -> bool:
        """Send what is left; return whether all was sent within this time, in seconds."""
        if self._ping is not None:
            self._ping.close()
        return self._outbox.close(timeout_secs)

    def begin_closing(self, timeout_secs: float) -> None:
        """Let a `close` that is under way take no longer than this, in seconds."""
        self._outbox.begin_closing(timeout_secs)


def changes_for(settings: NotifySettings, thresholds: Thresholds, since: float | None = None) -> Changes:
    """Return what says what has changed, with the links that are configured.

    Args:
        settings: see `NotifySettings`.
        thresholds: from when on something is said.
        since: see `Changes`.
    """
    return Changes(thresholds=thresholds, runbook_base=settings.runbook_base, tab_url=settings.tab_url, since=since)
