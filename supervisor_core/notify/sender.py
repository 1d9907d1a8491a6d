"""`Sender`: all that a watcher hands on: events to services and to the command, and the ping."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from supervisor_core.notify.changes import Changes
from supervisor_core.notify.event import Event
from supervisor_core.notify.outbox import Outbox
from supervisor_core.notify.ping import Ping
from supervisor_core.notify.settings import GATHER_SECS, NotifySettings
from supervisor_core.notify.watch_state import Left, state_of
from supervisor_core.run.model.thresholds import Thresholds
from supervisor_core.run.model.words import DAY_SECS

STOPPED_SECS = 5.0
"""How long what is left may take to be sent after a stop signal."""
_UNSAID_SECS = 300.0
"""A stop is held back for 90 s, since the run may go on; a look, and what is gathered, take some seconds more."""


class Sender:
    """Sends what the one watcher of some logdirs has seen. Its methods but `close` and `hand_over` never wait.

    Args:
        settings: where to.
        logdirs: what is watched.
        gather_secs: see `Outbox`.

    Raises:
        LogdirInUseError: if one of the logdirs has a watcher.
    """

    def __init__(self, settings: NotifySettings, logdirs: Sequence[str], *, gather_secs: float = GATHER_SECS) -> None:
        self._state = state_of(logdirs, settings.state)
        left = Left() if self._state is None else self._state.left
        self._looked_at = left.looked_at
        self._keeps_unsent = True
        self._outbox = Outbox(
            settings.services,
            limit_per_hour=settings.limit_per_hour,
            gather_secs=gather_secs,
            changed=self._changed,
        )
        self._outbox.resume(left.services)
        if self._state is not None:
            self._state.keep(self._left)
        self._ping = None if settings.ping is None else Ping(settings.ping)

    def since(self, now: float) -> float:
        """Return the wall time from which on ends and restarts are news: some minutes before a watcher of the same has
        last looked, which is what it may not have said; a day ago at most; the present if none has.

        Args:
            now: the present wall time.
        """
        last = self._looked_at
        return now if last is None else max(min(last, now) - _UNSAID_SECS, now - DAY_SECS)

    def put(self, events: Sequence[Event]) -> None:
        """Take events that are to be sent."""
        self._outbox.put(events)

    def seen(self) -> None:
        """Say that a look has seen everything."""
        self._looked_at = time.time()
        self._changed()
        if self._ping is not None:
            self._ping.seen()

    def hand_over(self) -> None:
        """Let another one watch the logdirs. What is unsent stays with this one, and is kept nowhere else."""
        self._keeps_unsent = False
        if self._state is not None:
            self._state.close()

    def close(self, timeout_secs: float) -> bool:
        """Send what is left; return whether all was sent within this time, in seconds. What was not is kept for the
        next watcher."""
        if self._ping is not None:
            self._ping.close()
        is_sent = self._outbox.close(timeout_secs)
        if self._state is not None and self._keeps_unsent:
            self._state.close()
        return is_sent

    def begin_closing(self, timeout_secs: float) -> None:
        """Let a `close` that is under way take no longer than this, in seconds."""
        self._outbox.begin_closing(timeout_secs)

    def _changed(self) -> None:
        if self._state is not None:
            self._state.changed()

    def _left(self) -> Left:
        services = self._outbox.left()
        if not self._keeps_unsent:
            services = {name: replace(of, unsent=()) for name, of in services.items()}
        return Left(looked_at=self._looked_at, services=services)


def changes_for(settings: NotifySettings, thresholds: Thresholds, since: float | None = None) -> Changes:
    """Return what says what has changed, with the topics and links that are configured.

    Args:
        settings: see `NotifySettings`.
        thresholds: from when on something is said.
        since: see `Changes`.
    """
    base, tab = settings.runbook_base, settings.tab_url
    return Changes(thresholds=thresholds, runbook_base=base, tab_url=tab, topics=settings.topics, since=since)
