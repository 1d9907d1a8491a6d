"""`Outbox`: takes events from a watcher and sends them to services, each in a thread of its own: gathered for some
seconds, sent as one message, within a limit, tried again."""

from __future__ import annotations

import logging
import math
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

from supervisor_core.base.clock import SYSTEM_CLOCK, Clock
from supervisor_core.base.systems import user_name
from supervisor_core.notify.event import Event
from supervisor_core.notify.message import JOINER, Message, message_of, urgencies
from supervisor_core.notify.services import NotSent, Service
from supervisor_core.run.model.words import counted, duration

MOST_WAITING = 1000
"""How many events wait for a service; of more, the least urgent ones are only counted."""
FIRST_RETRY_SECS, LONGEST_RETRY_SECS = 1.0, 300.0
GIVE_UP_SECS = 3600.0
"""For how long an event is tried again."""
_HOUR_SECS = 3600.0
_KNOWN_EVENTS = 10_000
"""How many events are remembered, so that none is sent twice."""
_SHORTEST_WAIT_SECS = 0.5
_LONGEST_WAIT_SECS = 3600.0

_LOG = logging.getLogger("supervisor_core")


@dataclass(frozen=True, slots=True)
class Unsent:
    """An event that a service has not got yet."""

    event: Event
    since: float
    """Wall time from which on it waits."""


@dataclass(frozen=True, slots=True)
class ServiceLeft:
    """What one process leaves to the next one of a service."""

    known: tuple[str, ...] = ()
    """Ids of events that came, the oldest first."""
    unsent: tuple[Unsent, ...] = ()


@dataclass(slots=True)
class _Waiting:
    """An event that is to be sent."""

    event: Event
    at: float
    """When it came, on the monotonic clock."""


_Share = tuple[int | None, bool]
"""An owner of runs, and whether it is about their pages."""


def _share(item: _Waiting) -> _Share:
    return item.event.owner, item.event.topic == "page"


class Delivery:
    """The events for one service. `add`, `resume`, `waiting` and `left` are for any thread, everything else for one.

    Args:
        service: gets the messages.
        limit_per_hour: how many with a page, at most, and how many without one, of the runs of each owner. So neither
            messages without a page, such as the restarts of a loop, nor another user's hold one back. What is held
            back is logged, and goes with the next message.
        gather_secs: how long after an event others are waited for.
        clock: replaced in tests.
    """

    def __init__(
        self, service: Service, *, limit_per_hour: int, gather_secs: float, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self.service = service
        self._limit = limit_per_hour
        self._gather_secs = 0.0 if service.takes_each else gather_secs
        self._clock = clock
        self._lock = threading.Lock()  # guards the next five
        self._known: dict[str, None] = {}
        self._waiting: list[_Waiting] = []
        self._sending: list[_Waiting] = []
        self._uncounted = 0
        self._oldest_uncounted = math.inf
        self._sent = defaultdict[_Share, deque[float]](lambda: deque(maxlen=limit_per_hour))
        """When the newest messages were sent, on the monotonic clock."""
        self._held_back = set[_Share]()
        """What the limit holds back, as was logged."""
        self._turns = Counter[tuple[object, ...]]()
        """How many events each owner had, and each of its runs, of a service that takes each."""
        self._failures = 0
        self._next_try = -math.inf

    def add(self, events: Sequence[Event]) -> None:
        """Add events that are to be sent, but those that came before."""
        now = self._clock.monotonic()
        with self._lock:
            new = [event for event in events if event.id not in self._known]
            self._remember([event.id for event in new])
            self._add([_Waiting(event, now) for event in new])

    def resume(self, left: ServiceLeft) -> None:
        """Add what an earlier process has not sent."""
        now, wall = self._clock.monotonic(), self._clock.wall()
        with self._lock:
            self._remember(left.known)
            self._add([_Waiting(item.event, now - max(0.0, wall - item.since)) for item in left.unsent])

    @property
    def waiting(self) -> list[Event]:
        """What is to be sent."""
        with self._lock:
            return [item.event for item in self._waiting]

    def left(self) -> ServiceLeft:
        """Return what another process goes on with if this one is killed now."""
        ahead = self._clock.wall() - self._clock.monotonic()
        with self._lock:
            begun = [] if self.service.takes_each else self._sending
            unsent = tuple(Unsent(item.event, item.at + ahead) for item in (*begun, *self._waiting))
            return ServiceLeft(tuple(self._known), unsent)

    def due_in(self) -> float:
        """Return in how many seconds `deliver` has something to do: 0.0 if now; infinity if not until `add`."""
        now = self._clock.monotonic()
        return max(0.0, self._due(now) - now)

    def next_try_in(self) -> float:
        """Return how many seconds are waited after attempts that failed."""
        return max(0.0, self._next_try - self._clock.monotonic())

    def deliver(self, *, is_last: bool = False) -> bool:
        """Send one message, if one is due; return whether one was sent.

        Args:
            is_last: nothing is waited for: neither other events, nor the time of the next attempt, nor the limit.
        """
        now = self._clock.monotonic()
        due = self._due(now)
        if due == math.inf or (now < due and not is_last):
            return False
        with self._lock:
            self._sending, left = (items := self._take()), []
        try:
            is_sent = self._send(items, now)
            if not is_sent and not self.service.takes_each:
                left = self._not_given_up(items, self._clock.monotonic())
        finally:
            with self._lock:
                self._sending, self._waiting = [], left + self._waiting
        return is_sent

    def _take(self) -> list[_Waiting]:
        """Take what is sent now from what waits; the lock is held."""
        if not self.service.takes_each:
            items, self._waiting = self._waiting, []
            return items
        if len(self._waiting) == 1:
            self._turns.clear()
        keys = [((item.event.owner,), (item.event.owner, item.event.run)) for item in self._waiting]
        index = min(range(len(keys)), key=lambda index: [self._turns[key] for key in keys[index]])
        self._turns.update(keys[index])
        return [self._waiting.pop(index)]

    def _remember(self, ids: Sequence[str]) -> None:
        """Take events as known; the lock is held."""
        self._known.update(dict.fromkeys(ids))
        while len(self._known) > _KNOWN_EVENTS:
            del self._known[next(iter(self._known))]

    def _add(self, items: list[_Waiting]) -> None:
        """Add what waits; the lock is held."""
        self._waiting += items
        if len(self._waiting) > MOST_WAITING:
            ranks = urgencies([item.event for item in self._waiting])
            order = sorted(range(len(ranks)), key=ranks.__getitem__)  # stable: the oldest first
            self._count_only([self._waiting[index] for index in order[MOST_WAITING:]])
            self._waiting = [self._waiting[index] for index in order[:MOST_WAITING]]

    def _due(self, now: float) -> float:
        """Return when a message is to be sent; infinity while nothing waits."""
        oldest: dict[_Share, float] = {}
        with self._lock:
            for item in self._waiting:
                share = _share(item)
                oldest[share] = min(item.at, oldest.get(share, math.inf))
        due = [self._slot(at + self._gather_secs, now, share) for share, at in oldest.items()]
        return max(self._next_try, min(due, default=math.inf))

    def _slot(self, at: float, now: float, share: _Share) -> float:
        """Return when the limit allows a message, from a time on; log once what it holds back."""
        sent = self._sent[share]
        slot = at if len(sent) < self._limit else max(at, sent[0] + _HOUR_SECS)
        if slot > at and share not in self._held_back:
            self._held_back.add(share)
            owner, is_page = share
            which = f"{counted(self._limit, 'message')} with{'' if is_page else 'out'} a page"
            whose = "" if owner is None else f" about runs of user {user_name(owner) or owner}"
            _LOG.warning(
                "%s: %s%s in an hour: the next waits %s", self.service.name, which, whose, duration(slot - now)
            )
        return slot

    def _send(self, items: Sequence[_Waiting], now: float) -> bool:
        """Send events, and how many were left out."""
        with self._lock:
            uncounted, since = self._uncounted, self._oldest_uncounted
        held = min((item.event.at for item in items if now - item.at > self._gather_secs + 60.0), default=math.inf)
        since = min(since, held)
        message = message_of([item.event for item in items], more=uncounted, since=None if since == math.inf else since)
        if not self._try(message):
            return False
        with self._lock:
            self._uncounted -= uncounted
            self._oldest_uncounted = math.inf if not self._uncounted else self._oldest_uncounted
        if not self.service.takes_each:
            for share in dict(
                sorted(map(_share, items), key=itemgetter(1))
            ).items():  # one with a page is of those with a page alone
                self._sent[share].append(self._clock.monotonic())
            self._held_back.clear()
        return True

    def _try(self, message: Message) -> bool:
        """Send a message; log what is new about whether that works."""
        name, title = self.service.name, message.title.replace(JOINER, "")
        try:
            self.service.send(message)
        except NotSent as error:
            why = str(error)
        except Exception as error:  # of a service's library: its text may hold a URL
            why = f"an error of the type {type(error).__name__}"
        else:
            if self._failures:
                _LOG.info("%s takes messages again", name)
            self._failures, self._next_try = 0, -math.inf
            _LOG.info("%s: sent: %s", name, title)
            return True
        self._failures += 1
        wait = min(FIRST_RETRY_SECS * 2.0 ** min(self._failures - 1, 30), LONGEST_RETRY_SECS)
        self._next_try = -math.inf if self.service.takes_each else self._clock.monotonic() + wait
        if self.service.takes_each:
            _LOG.warning("%s: not done: %s: %s", name, why, title)
        elif self._failures == 1:
            _LOG.warning("%s: not sent: %s; tried again for %s: %s", name, why, duration(GIVE_UP_SECS), title)
        return False

    def _not_given_up(self, items: Sequence[_Waiting], now: float) -> list[_Waiting]:
        """Return what is tried again; what is not is counted."""
        given_up = [item for item in items if now - item.at >= GIVE_UP_SECS]
        if given_up:
            _LOG.error(
                "%s: %s given up after %s; the first: %s",
                self.service.name,
                counted(len(given_up), "change"),
                duration(GIVE_UP_SECS),
                given_up[0].event.text,
            )
            with self._lock:
                self._count_only(given_up)
        return [item for item in items if now - item.at < GIVE_UP_SECS]

    def _count_only(self, items: Sequence[_Waiting]) -> None:
        """Count events that are not sent; the lock is held."""
        self._uncounted += len(items)
        self._oldest_uncounted = min([self._oldest_uncounted, *(item.event.at for item in items)])


class Outbox:
    """Sends events to services. A service that hangs or fails holds up neither the caller nor other services.

    Args:
        services: get the messages.
        limit_per_hour: see `Delivery`.
        gather_secs: how long after an event others are waited for, which go into the same message.
        changed: called when what is known or unsent is another; must not block.
        clock: replaced in tests.
    """

    def __init__(
        self,
        services: Sequence[Service],
        *,
        limit_per_hour: int,
        gather_secs: float,
        changed: Callable[[], object] = lambda: None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._changed = changed
        deliveries = [
            Delivery(service, limit_per_hour=limit_per_hour, gather_secs=gather_secs, clock=clock)
            for service in services
        ]
        self._lanes = [_Lane(delivery, changed, clock) for delivery in deliveries]

    def resume(self, left: Mapping[str, ServiceLeft]) -> None:
        """Go on where an earlier process has ended.

        Args:
            left: of each service, by its name.
        """
        for lane in self._lanes:
            lane.resume(left.get(lane.delivery.service.name, ServiceLeft()))

    def left(self) -> dict[str, ServiceLeft]:
        """Return what `resume` takes in another process."""
        return {lane.delivery.service.name: lane.delivery.left() for lane in self._lanes}

    def put(self, events: Sequence[Event]) -> None:
        """Take events that are to be sent. It neither waits nor raises; an event that came before is left out."""
        if events:
            for lane in self._lanes:
                lane.add(events)
            self._changed()

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

    def __init__(self, delivery: Delivery, sent: Callable[[], object], clock: Clock) -> None:
        self.delivery, self._sent, self._clock = delivery, sent, clock
        self._changed = threading.Condition()  # guards the next two
        self._until = math.inf
        self._has_ended = False
        self._thread = threading.Thread(target=self._run, name=f"supervisor-{delivery.service.name}", daemon=True)
        self._thread.start()

    def add(self, events: Sequence[Event]) -> None:
        """Add events."""
        self.delivery.add(events)
        with self._changed:
            self._changed.notify_all()

    def resume(self, left: ServiceLeft) -> None:
        """Add what an earlier process has not sent."""
        self.delivery.resume(left)
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
        left = self.delivery.waiting
        if hangs:
            self.delivery.service.abandon()
        else:
            self._thread.join()  # which does nothing more
        if left or hangs:
            what = f"{counted(len(left), 'change')} not sent" if left else "the last message may not have been sent"
            first = f"; the first: {left[0].text}" if left else ""
            _LOG.warning("%s: %s in time%s", self.delivery.service.name, what, first)
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
        while self.delivery.waiting:
            secs = self._until - self._clock.monotonic()
            if secs <= 0:
                break
            if not is_sent:
                with self._changed:
                    self._changed.wait(wait_at_end(self.delivery.next_try_in(), secs))
            is_sent = self._deliver(is_last=True)

    def _wait(self) -> bool:
        """Wait until something is to be done; return False if that is to close."""
        with self._changed:
            while self._until == math.inf:
                secs = self.delivery.due_in()
                if secs <= 0:
                    return True
                self._changed.wait(min(secs, _LONGEST_WAIT_SECS))
        return False

    def _deliver(self, *, is_last: bool) -> bool:
        try:
            is_sent = self.delivery.deliver(is_last=is_last)
            self._sent()
            return is_sent
        except Exception as error:  # the thread goes on; the error's text may hold a secret
            _LOG.error("%s: an error of the type %s", self.delivery.service.name, type(error).__name__)
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
