"""`EventQueue`: between the threads that add events and the one that writes them.

An add must cost almost nothing, so a scalar is added without a lock: ``items.append(...)``, then ``if len(items) >
wake_above: wake()``. ``wake_above`` is 0 while the consumer sleeps, a quarter of the bound while it gathers a batch,
the bound while it writes (`wake` then waits for room), and -1 once closed. No wake-up is lost: the consumer sets
``wake_above`` to 0 *before* it checks the queue, a producer reads it *after* appending.
"""

from __future__ import annotations

import logging
import threading
from collections import deque

from supervisor_core.errors import EventsWriteError, WaitTimeoutError, WriterClosedError
from supervisor_core.events.event_format import Item

_LOG = logging.getLogger("supervisor_core")

MAX_BYTES = 64 << 20
"""Bound of the queued serialized events; a single larger one is admitted into an empty queue."""
FULL_WAIT_SECS = 10.0
"""Limit of an add's wait for room."""


class WriteRequest:
    """Asks that everything added so far be written; ``sync``: and made durable; ``close``: and the file closed."""

    def __init__(self, *, sync: bool = False, close: bool = False) -> None:
        self.sync = sync
        self.close = close
        self.done = False
        self.error: EventsWriteError | None = None


class EventQueue:
    """A bounded queue of events, and of requests concerning them.

    Args:
        max_events: bound of queued events, beyond which an add waits for room, up to `FULL_WAIT_SECS`; then it drops
            its event, like every later one until the consumer makes progress. Nothing waits while the consumer fails.
        full_batch_bytes: number of queued bytes above which the consumer stops gathering.
    """

    def __init__(self, max_events: int, full_batch_bytes: int) -> None:
        self.items: deque[Item] = deque()
        self.wake_above = 0
        self.dropped = 0
        """Events that were not admitted, in the life of the queue."""
        self._max_events = max_events
        self._full_batch_events = max_events // 4
        self._full_batch_bytes = full_batch_bytes
        # Reentrant: a signal handler may add an event while its thread is in here.
        self._changed = threading.Condition(threading.RLock())
        self._bytes = 0
        self._requests: list[WriteRequest] = []
        self._batch_full = False
        self._failing = False
        self._stuck = False
        self._closed = False
        self._ended = False
        self._consumer: int | None = None

    # Called by producers.

    def put_bytes(self, item: Item) -> bool:
        """Add an item whose second part is bytes; return whether to call `wake`. Scalars are added without a call."""
        with self._changed:
            self._bytes += len(item[1])
            self.items.append(item)
            return len(self.items) > self.wake_above or self._bytes > self._full_batch_bytes

    def wake(self) -> None:
        """Wake the consumer, or wait for room; called when the queue is longer than ``wake_above``.

        Raises:
            WriterClosedError: if the queue is closed.
        """
        with self._changed:
            if self._closed:
                if self._ended:
                    self.items.clear()
                raise WriterClosedError("The events writer is closed; call reopen() before adding to it.")
            if self._is_full():
                self._wait_for_room()
            elif self._failing:
                return
            elif len(self.items) > self._full_batch_events or self._bytes > self._full_batch_bytes:
                self.wake_above = self._max_events
                self._batch_full = True
                self._changed.notify_all()
            elif self.wake_above == 0:
                self.wake_above = self._full_batch_events
                self._changed.notify_all()

    def submit(self, request: WriteRequest) -> None:
        """Queue a request behind everything added so far."""
        with self._changed:
            if self._ended:
                request.done = True
                return
            self._requests.append(request)
            if request.close:
                self._closed = True
                self.wake_above = -1
            self._changed.notify_all()

    def wait(self, request: WriteRequest, timeout_secs: float | None) -> None:
        """Return when a request is done.

        Raises:
            EventsWriteError: if the request failed.
            WaitTimeoutError: if it takes longer than ``timeout_secs``; it stays submitted.
            RuntimeError: in the consumer's own thread, which cannot wait for itself.
        """
        if self._consumer == threading.get_ident():
            raise RuntimeError("The events writer's own thread (a logging handler) cannot wait for it.")
        with self._changed:
            if not self._changed.wait_for(lambda: request.done, timeout_secs):
                raise WaitTimeoutError(
                    f"The file system did not answer within {timeout_secs:g} seconds: {len(self.items)} events stay "
                    "queued, and those before them may not be written."
                )
        if request.error is not None:
            raise request.error

    # Called by the consumer.

    def begin(self) -> None:
        """Make the calling thread the consumer."""
        with self._changed:
            self._consumer = threading.get_ident()

    def end(self) -> None:
        """End the queue: there is no consumer any more, and no request waits."""
        with self._changed:
            self._consumer = None
            self._ended = self._closed = True
            self.wake_above = -1
            self.items.clear()
            for request in self._take_requests():
                request.done = True
            self._changed.notify_all()

    def wake_on_each(self) -> None:
        """Have each add call `wake`; without a consumer of its own a queue must not gather."""
        with self._changed:
            self.wake_above = -1 if self._closed else 0

    def gather(self, linger_secs: float) -> None:
        """Sleep until there is an event or a request, then a little longer, to write many events at a time."""
        with self._changed:
            if not self._closed:
                self.wake_above = 0
            while not self.items and not self._requests:
                self._changed.wait()
            if not self._closed:
                self.wake_above = max(self.wake_above, self._full_batch_events)
            self._changed.wait_for(lambda: self._batch_full or self._requests, linger_secs)

    def pause(self, secs: float) -> bool:
        """Sleep for ``secs`` or until there is a request; return whether there is one."""
        with self._changed:
            return bool(self._changed.wait_for(lambda: self._requests, secs))

    def take(self) -> tuple[list[Item], list[WriteRequest]]:
        """Take all queued events, and the requests made after them."""
        with self._changed:
            pop = self.items.popleft
            items = [pop() for _ in range(len(self.items))]
            self._bytes = 0
            self._batch_full = self._failing = self._stuck = False
            if not self._closed:
                self.wake_above = self._full_batch_events
            self._changed.notify_all()
            return items, self._take_requests()

    def take_requests(self) -> list[WriteRequest]:
        """Take only the requests: the consumer is failing. Until the next `take` no add waits for room."""
        with self._changed:
            self._failing = True
            if not self._closed:
                self.wake_above = self._max_events
            self._changed.notify_all()
            return self._take_requests()

    def answer(self, request: WriteRequest, error: EventsWriteError | None) -> None:
        """Complete a request."""
        with self._changed:
            request.error = error
            request.done = True
            self._changed.notify_all()

    def drop_all(self) -> int:
        """Drop all queued events, at the end; return their number."""
        with self._changed:
            count = len(self.items)
            self.items.clear()
            self._bytes = 0
            return count

    def _take_requests(self) -> list[WriteRequest]:
        requests, self._requests = self._requests, []
        return requests

    def _is_full(self) -> bool:
        return len(self.items) > self._max_events or (self._bytes > MAX_BYTES and len(self.items) > 1)

    def _has_moved(self) -> bool:
        return self._failing or self._stuck or self._closed or not self._is_full()

    def _wait_for_room(self) -> None:
        if not self._failing and not self._stuck and self._consumer != threading.get_ident():
            self._batch_full = True
            self._changed.notify_all()
            if not self._changed.wait_for(self._has_moved, FULL_WAIT_SECS):
                self._stuck = True
                _LOG.warning(
                    "The events writer has made no progress for %g seconds; events are dropped until it does.",
                    FULL_WAIT_SECS,
                )
        while self._is_full() and not self._closed:
            _, body, *_ = self.items.pop()
            if isinstance(body, bytes):
                self._bytes -= len(body)
            self.dropped += 1
