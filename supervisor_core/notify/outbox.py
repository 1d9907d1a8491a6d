"""`Outbox`: takes events from a watcher, and sends them to all services, each in a thread of its own."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Collection, Sequence

from supervisor_core.base.clock import SYSTEM_CLOCK, Clock
from supervisor_core.notify.claims import Claims
from supervisor_core.notify.delivery import Delivery
from supervisor_core.notify.event import Event, Topic
from supervisor_core.notify.services import Service
from supervisor_core.run.model.words import counted

_KNOWN_EVENTS = 10_000
"""How many events are remembered, so that none is sent twice."""
_SHORTEST_WAIT_SECS = 0.5
_GIVE_BACK_SECS = 0.2
"""How long before the end of the time other watchers get what was not sent."""
_LONGEST_WAIT_SECS = 3600.0

_LOG = logging.getLogger("supervisor_core")


class Outbox:
    """Sends events to services. A service that hangs or fails holds up neither the caller nor other services.

    Args:
        services: get the messages.
        topics: what is sent; other events are left out.
        limit_per_hour: how many messages a service gets in an hour, at most.
        gather_secs: how long after an event others are waited for, which go into the same message.
        claims: what is shared with other watchers; None if there are none.
        clock: replaced in tests.
    """

    def __init__(
        self,
        services: Sequence[Service],
        *,
        topics: Collection[Topic],
        limit_per_hour: int,
        gather_secs: float,
        claims: Claims | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._topics = frozenset(topics)
        self._known: dict[str, None] = {}
        self._lanes = [
            _Lane(
                Delivery(service, limit_per_hour=limit_per_hour, gather_secs=gather_secs, claims=claims, clock=clock),
                clock,
            )
            for service in services
        ]

    def put(self, events: Sequence[Event]) -> None:
        """Take events that are to be sent. It neither waits nor raises; an event that came before is left out."""
        chosen = [event for event in events if event.topic in self._topics and event.id not in self._known]
        self._known.update(dict.fromkeys(event.id for event in chosen))
        while len(self._known) > _KNOWN_EVENTS:
            del self._known[next(iter(self._known))]
        if chosen:
            for lane in self._lanes:
                lane.add(chosen)

    def close(self, timeout_secs: float) -> bool:
        """Send what is left at once, and end. Return whether everything was sent; what was not is logged.

        Args:
            timeout_secs: how long it may take, at most.
        """
        self.begin_closing(timeout_secs)
        return all([lane.end() for lane in self._lanes])

    def begin_closing(self, timeout_secs: float) -> None:
        """Begin what `close` does, without a wait; one that is under way, in another thread, takes no longer than this.

        Args:
            timeout_secs: how long it may take, at most.
        """
        for lane in self._lanes:
            lane.begin_closing(timeout_secs)


class _Lane:
    """The thread of one service."""

    def __init__(self, delivery: Delivery, clock: Clock) -> None:
        self._delivery, self._clock = delivery, clock
        self._changed = threading.Condition()  # guards the next two
        self._until = math.inf
        self._has_ended = False
        self._left: list[Event] = []
        self._thread = threading.Thread(target=self._run, name=f"supervisor-{delivery.service.name}", daemon=True)
        self._thread.start()

    def add(self, events: Sequence[Event]) -> None:
        """Add events."""
        self._delivery.add(events)
        with self._changed:
            self._changed.notify_all()

    def begin_closing(self, timeout_secs: float) -> None:
        """Have the thread send what is left, and end."""
        with self._changed:
            self._until = min(self._until, self._clock.monotonic() + timeout_secs)
            self._changed.notify_all()

    def end(self) -> bool:
        """Wait for the thread until the time is over; return whether everything was sent."""
        with self._changed:
            while not self._has_ended and (secs := self._until - self._clock.monotonic()) > 0:
                self._changed.wait(secs)
            hangs = not self._has_ended
        left = self._left or self._delivery.waiting
        if hangs:
            self._delivery.service.abandon()
        else:
            self._thread.join()  # which does nothing more
        if left or hangs:
            what = f"{counted(len(left), 'change')} not sent" if left else "the last message may not have been sent"
            first = f"; the first: {left[0].text}" if left else ""
            _LOG.warning("%s: %s in time%s", self._delivery.service.name, what, first)
        return not left and not hangs

    def _run(self) -> None:
        try:
            self._serve()
        finally:
            with self._changed:
                self._has_ended = True
                self._changed.notify_all()

    def _serve(self) -> None:
        while self._wait():
            self._deliver(is_last=False)
        is_sent = True
        while self._delivery.waiting:
            secs = self._until - _GIVE_BACK_SECS - self._clock.monotonic()
            if secs <= 0:
                break
            if not is_sent:
                with self._changed:
                    self._changed.wait(wait_at_end(self._delivery.next_try_in(), secs))
            is_sent = self._deliver(is_last=True)
        self._left = self._delivery.give_back()  # here, since the directory of the claims may hang

    def _wait(self) -> bool:
        """Wait until something is to be done; return False if that is to close."""
        with self._changed:
            while self._until == math.inf:
                secs = self._delivery.due_in()
                if secs <= 0:
                    return True
                self._changed.wait(min(secs, _LONGEST_WAIT_SECS))
        return False

    def _deliver(self, *, is_last: bool) -> bool:
        try:
            return self._delivery.deliver(is_last=is_last)
        except Exception as error:  # the thread goes on; the error's text may hold a secret
            _LOG.error("%s: an error of the type %s", self._delivery.service.name, type(error).__name__)
            with self._changed:
                self._changed.wait(_SHORTEST_WAIT_SECS)
            return False


def wait_at_end(next_try_secs: float, left_secs: float) -> float:
    """Return how long an outbox that is closed waits before the next attempt.

    Args:
        next_try_secs: how long it would wait otherwise.
        left_secs: how long the end may still take: there is time for one more attempt, and waits grow as before.

    Example:
        >>> wait_at_end(300.0, 3600.0), wait_at_end(300.0, 5.0), wait_at_end(300.0, 0.1)
        (300.0, 2.5, 0.1)
    """
    return min(left_secs, max(_SHORTEST_WAIT_SECS, min(next_try_secs, left_secs / 2)))
