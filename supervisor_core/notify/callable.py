"""`EventCalls`: calls a function of the program with each event of its run: `Options.on_event`.

    a thread: looks at the run's directory, as any watcher does  ->  what has changed  ->  a thread: calls the function

Nothing here runs in the training's thread, nor in a forked child. A function that raises or hangs is logged once; only
its own events are lost.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from supervisor_core.base.clock import SYSTEM_CLOCK, Clock
from supervisor_core.notify.changes import Changes
from supervisor_core.notify.event import Event, event_json
from supervisor_core.notify.outbox import Outbox
from supervisor_core.notify.services import Service
from supervisor_core.notify.watcher import INTERVAL_SECS, Looked, Watcher
from supervisor_core.run.model.words import duration
from supervisor_core.run.watch.logdir_watch import LogdirWatch
from supervisor_core.storage.local import local_path

if TYPE_CHECKING:
    from supervisor_core.notify.message import Message

_LOG = logging.getLogger("supervisor_core")

REMOTE_INTERVAL_SECS = 60.0
"""Between two looks in an object store, where each costs money."""
CALL_SECS = 30.0
"""A call that takes longer is logged."""

OnEvent = Callable[[dict[str, Any]], object]


class EventCalls:
    """Calls a function with each event of one run, from the session's begin to its end: one call at a time.

    Args:
        call: gets the event as the object of docs/event.schema.json.
        logdir: the run's directory.
        run: its name in the events.
        since: wall time of the session's begin: what happened before it is no event.
        clock: replaced in tests.
    """

    def __init__(self, call: OnEvent, logdir: str, run: str, since: float, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._run, self._since, self._clock = run, since, clock
        self._process = os.getpid()
        self._watch = LogdirWatch(logdir, include=r"^\.$", kept_ticks=1, all_saves=False, clock=clock)
        self._calls = CallableService(call, clock)
        self._outbox = Outbox([self._calls], limit_per_hour=1, gather_secs=0.0, clock=clock)
        interval_secs = INTERVAL_SECS if local_path(logdir) is not None else REMOTE_INTERVAL_SECS
        self._watcher = Watcher(self._look, Changes(since=since), self._put, interval_secs=interval_secs, clock=clock)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look_until_stopped, name="supervisor_events", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def finish(self) -> None:
        """Say that the session has ended: a last look is taken."""
        if os.getpid() == self._process:  # a forked child may have the event locked
            self._stop.set()

    def wait(self, secs: float) -> None:
        """Wait until the last look is taken and the function has returned from its events; what is left then is logged.

        Args:
            secs: how long at most.
        """
        if os.getpid() != self._process:
            return
        until = self._clock.monotonic() + secs
        self._thread.join(secs)
        self._outbox.close(max(0.0, until - self._clock.monotonic()))

    def _look_until_stopped(self) -> None:
        self._watcher.run(self._stop)
        self._watcher.look(is_last=True)

    def _look(self) -> Looked:
        self._calls.check()
        snapshot = self._watch.refresh()
        run = snapshot.runs.get(".")
        return Looked(at=snapshot.at, runs={} if run is None else {self._run: run})

    def _put(self, events: Sequence[Event]) -> None:
        # A notice of an earlier session still holds.
        self._outbox.put([event for event in events if event.kind != "notice" or event.at >= self._since])


class CallableService(Service):
    """A function of the program, as a service.

    Args:
        call: gets each event.
        clock: replaced in tests.
    """

    name = "on_event"
    takes_each = True

    def __init__(self, call: OnEvent, clock: Clock) -> None:
        self._call, self._clock = call, clock
        self._began: float | None = None
        self._has_failed = self._has_hung = False

    def send(self, message: Message) -> None:
        """Call it with each event of a message; raises nothing."""
        for event in message.events:
            self._began = self._clock.monotonic()
            try:
                self._call(event_json(event))
            except BaseException as error:  # SystemExit too: it is the program's, in a thread of ours
                level = logging.DEBUG if self._has_failed else logging.ERROR
                self._has_failed = True
                _LOG.log(level, "Options.on_event has raised an error, logged once: %s", error, exc_info=error)
            finally:
                self._began = None

    def check(self) -> None:
        """Log a call that takes long, once."""
        began = self._began
        if began is not None and not self._has_hung and self._clock.monotonic() - began > CALL_SECS:
            self._has_hung = True
            _LOG.warning(
                "Options.on_event has not returned for %s, logged once: further events wait for it.",
                duration(self._clock.monotonic() - began),
            )
