"""`Delivery`: what one service is still to get, when it is sent, and what is done when it cannot be sent."""

from __future__ import annotations

import logging
import math
import threading
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass

from supervisor_core.base.clock import SYSTEM_CLOCK, Clock
from supervisor_core.notify.claims import Claims
from supervisor_core.notify.event import Event
from supervisor_core.notify.message import Message, message_of, urgencies
from supervisor_core.notify.services import NotSent, Service
from supervisor_core.run.model.words import counted, duration

MOST_WAITING = 1000
"""How many events wait for a service; of more, the least urgent ones are only counted."""
FIRST_RETRY_SECS, LONGEST_RETRY_SECS = 1.0, 300.0
GIVE_UP_SECS = 3600.0
"""For how long an event is tried again."""
LOOK_AGAIN_SECS = 30.0
"""How often it is looked whether another watcher has sent what it has claimed."""
YIELD_SECS = 2.0
"""How long another watcher is given to claim all that both have seen."""
_HOUR_SECS = 3600.0
_FOR_PAGES = 4
"""One of that many messages of an hour is kept for pages."""

_LOG = logging.getLogger("supervisor_core")


@dataclass(slots=True)
class _Waiting:
    """An event that is to be sent."""

    event: Event
    at: float
    """When it came, on the monotonic clock."""
    next_look: float = 0.0
    """When to look again, of one that another watcher has claimed."""
    is_claimed: bool = False
    """Whether this watcher has claimed it."""


@dataclass(frozen=True, slots=True)
class _Sent:
    """A message that was sent."""

    at: float
    """When, on the monotonic clock."""
    runs: frozenset[str]


class Delivery:
    """The events for one service: gathered for some seconds, sent as one message, tried again, within a limit.

    The limit is shared fairly: a run's events are sent while it has had at most as many messages within the hour as are
    left of it. So one that never stops takes about half of them, and leaves some to each of the others.

    `add` and `waiting` may be used by any thread, everything else by one.

    Args:
        service: gets the messages.
        limit_per_hour: how many, at most; one of four is kept for pages.
        gather_secs: how long after an event others are waited for.
        claims: shared with other watchers; None if there are none.
        clock: replaced in tests.
    """

    def __init__(
        self,
        service: Service,
        *,
        limit_per_hour: int,
        gather_secs: float,
        claims: Claims | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.service = service
        self._limit = math.inf if service.takes_each else limit_per_hour
        self._gather_secs = 0.0 if service.takes_each else gather_secs
        self._claims = claims
        self._clock = clock
        self._key: str | None = None
        """Of the service in the claims; None as long as there is none."""
        self._lock = threading.Lock()  # guards the next four
        self._waiting: list[_Waiting] = []
        self._dropped: list[_Waiting] = []
        """Claimed, and now only counted: to be given back, which may hang."""
        self._uncounted = 0
        self._oldest_uncounted = math.inf
        self._elsewhere: list[_Waiting] = []
        self._sent: deque[_Sent] = deque()
        """Within the last hour, the oldest first."""
        self._failures = 0
        self._next_try = -math.inf
        self._has_yielded = False

    def add(self, events: Sequence[Event]) -> None:
        """Add events that are to be sent."""
        now = self._clock.monotonic()
        with self._lock:
            self._waiting += [_Waiting(event, now) for event in events]
            if len(self._waiting) > MOST_WAITING:
                ranks = urgencies([item.event for item in self._waiting])
                order = sorted(range(len(ranks)), key=ranks.__getitem__)  # stable: the oldest first
                dropped = [self._waiting[index] for index in order[MOST_WAITING:]]
                self._waiting = [self._waiting[index] for index in order[:MOST_WAITING]]
                self._count_only(dropped)
                self._dropped += [item for item in dropped if item.is_claimed]

    @property
    def waiting(self) -> list[Event]:
        """What is to be sent."""
        with self._lock:
            return [item.event for item in self._waiting]

    def due_in(self) -> float:
        """Return in how many seconds `deliver` has something to do: 0.0 if now; infinity if not until `add`."""
        now = self._clock.monotonic()
        looks = min((item.next_look for item in self._elsewhere), default=math.inf)
        return max(0.0, min(self._due(now), looks) - now)

    def next_try_in(self) -> float:
        """Return how many seconds are waited after attempts that failed."""
        return max(0.0, self._next_try - self._clock.monotonic())

    def deliver(self, *, is_last: bool = False) -> bool:
        """Send one message, if one is due; return whether one was sent.

        Args:
            is_last: nothing is waited for: neither other events, nor the time of the next attempt, nor the limit.
        """
        now = self._clock.monotonic()
        with self._lock:
            dropped, self._dropped = self._dropped, []
        self._release(dropped)
        self._look_elsewhere(now)
        due = self._due(now)
        if due == math.inf or (now < due and not is_last):
            return False
        return self._send(now)

    def give_back(self) -> list[Event]:
        """Leave what was not sent to other watchers, and return it."""
        with self._lock:
            left, self._waiting = self._waiting, []
            dropped, self._dropped = self._dropped, []
        self._release([*left, *dropped])
        return [item.event for item in left]

    def _due(self, now: float) -> float:
        """Return when a message is to be sent; infinity while nothing waits."""
        oldest: dict[tuple[str, bool], float] = {}
        with self._lock:
            for item in self._waiting:
                kind = item.event.run, item.event.topic == "page"
                oldest[kind] = min(item.at, oldest.get(kind, math.inf))
        while self._sent and self._sent[0].at <= now - _HOUR_SECS:
            self._sent.popleft()
        told = self._told()
        due = (
            max(at + self._gather_secs, self._next_slot(run, told[run], is_page=is_page))
            for (run, is_page), at in oldest.items()
        )
        return max(self._next_try, min(due, default=math.inf))

    def _send(self, now: float) -> bool:
        """Claim what waits, and send it."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
            uncounted, since = self._uncounted, self._oldest_uncounted
        if self.service.takes_each:
            waiting, later = waiting[:1], waiting[1:]
            self._put_back(later)
        mine = self._claimed(waiting, now)
        if not mine:
            return False
        held = min((item.event.at for item in mine if now - item.at > self._gather_secs + 60.0), default=math.inf)
        since = min(since, held)
        message = message_of(
            [item.event for item in mine],
            more=uncounted,
            since=None if since == math.inf else since,
            told=self._told(),
        )
        if not self._try(message):
            self._put_back(self._not_given_up(mine, self._clock.monotonic()))
            return False
        with self._lock:
            self._uncounted -= uncounted
            self._oldest_uncounted = math.inf if not self._uncounted else self._oldest_uncounted
        self._settle(mine)
        if self._limit < math.inf:
            runs = frozenset(item.event.run for item in mine)
            self._sent.append(_Sent(self._clock.monotonic(), runs))
        return True

    def _try(self, message: Message) -> bool:
        """Send a message; log what is new about whether that works."""
        name = self.service.name
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
            _LOG.info("%s: sent: %s", name, message.title)
            return True
        self._failures += 1
        wait = min(FIRST_RETRY_SECS * 2.0 ** min(self._failures - 1, 30), LONGEST_RETRY_SECS)
        self._next_try = -math.inf if self.service.takes_each else self._clock.monotonic() + wait
        if self.service.takes_each:
            _LOG.warning("%s: not done: %s: %s", name, why, message.title)
        elif self._failures == 1:
            _LOG.warning("%s: not sent: %s; tried again for %s: %s", name, why, duration(GIVE_UP_SECS), message.title)
        return False

    def _not_given_up(self, items: Sequence[_Waiting], now: float) -> list[_Waiting]:
        """Return what is tried again; what is not is counted, and left to other watchers."""
        if self.service.takes_each:
            self._settle(items)  # no other watcher is to do it again
            return []
        given_up = [item for item in items if now - item.at >= GIVE_UP_SECS]
        if given_up:
            self._release(given_up)
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

    def _settle(self, items: Sequence[_Waiting]) -> None:
        """Say to other watchers that events were sent."""
        if self._claims is not None and self._key is not None:
            for item in items:
                self._claims.sent(item.event.id, self._key)

    def _claimed(self, items: list[_Waiting], now: float) -> list[_Waiting]:
        """Return the events that this watcher is to send."""
        if self._claims is None or self.service.identity is None:
            return items
        if self._key is None:
            self._key = self._claims.key(self.service.identity)
        if self._key is None:
            return items
        mine = []
        for index, item in enumerate(items):
            if self._is_mine(item, self._claims, self._key, now):
                mine.append(item)
            elif not mine and not self._has_yielded and item in self._elsewhere:
                # Another watcher is claiming what both have seen: it gets all of it, for one message.
                self._has_yielded, self._next_try = True, now + YIELD_SECS
                self._put_back(items[index + 1 :])
                return []
        self._has_yielded = False
        return mine

    def _is_mine(self, item: _Waiting, claims: Claims, key: str, now: float) -> bool:
        """Return whether this watcher is to send an event; keep one that another watcher has claimed."""
        owner = claims.take(item.event.id, key)
        item.is_claimed = owner == "mine" and claims.attempt(item.event.id, key)
        if item.is_claimed:
            return True
        if owner != "sent":
            item.next_look = now + LOOK_AGAIN_SECS
            self._elsewhere.append(item)
        return False

    def _look_elsewhere(self, now: float) -> None:
        """Take over what another watcher has claimed and does not send."""
        if self._claims is None or self._key is None:
            return
        due = [item for item in self._elsewhere if item.next_look <= now]
        self._elsewhere = [item for item in self._elsewhere if item.next_look > now]
        for item in due:
            owner = self._claims.take(item.event.id, self._key)
            if owner == "mine":
                item.is_claimed = True
                self._put_back([item])
            elif owner == "other" and now - item.at < GIVE_UP_SECS:
                item.next_look = now + LOOK_AGAIN_SECS
                self._elsewhere.append(item)
            elif owner == "other":
                self._claims.give_back(item.event.id, self._key)

    def _release(self, items: Sequence[_Waiting]) -> None:
        """Leave events to other watchers."""
        if self._claims is not None and self._key is not None:
            for item in items:
                self._claims.give_back(item.event.id, self._key)

    def _put_back(self, items: list[_Waiting]) -> None:
        with self._lock:
            self._waiting = items + self._waiting

    def _count_only(self, items: Sequence[_Waiting]) -> None:
        """Count events that are not sent; the lock is held."""
        self._uncounted += len(items)
        self._oldest_uncounted = min([self._oldest_uncounted, *(item.event.at for item in items)])

    def _next_slot(self, run: str, told: int, *, is_page: bool) -> float:
        """Return when the limit allows the next message about a run, which had ``told`` within the hour."""
        allowed = self._limit if is_page else self._limit - self._limit // _FOR_PAGES
        left, since = allowed - len(self._sent), -math.inf
        for sent in self._sent:
            if left > 0 and told <= left:
                break
            left, since = left + 1, sent.at + _HOUR_SECS
            told -= run in sent.runs
        return since

    def _told(self) -> Counter[str]:
        """Return how many messages of the last hour were about each run."""
        return Counter(run for sent in self._sent for run in sent.runs)
