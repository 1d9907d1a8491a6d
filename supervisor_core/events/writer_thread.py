"""`WriterThread`: takes events from the queue, encodes them and appends them to the file, in a thread of its own;
`EventQueue`: between the threads that add events and this one.

An add must cost almost nothing, so a scalar is added without a lock: ``items.append(...)``, then ``if len(items) >
wake_above: wake()``. ``wake_above`` is 0 while the consumer sleeps, a quarter of the bound while it gathers a batch,
the bound while it writes (`wake` then waits for room), and -1 once closed. No wake-up is lost: the consumer sets
``wake_above`` to 0 *before* it checks the queue, a producer reads it *after* appending.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

from supervisor_core.base.errors import EventsWriteError, LogdirInUseError, WaitTimeoutError, WriterClosedError
from supervisor_core.events.event_format import Batch, BatchEncoder, Item
from supervisor_core.events.events_file import EventsFile, SyncError, counted
from supervisor_core.events.losses import NewestLosses

_LOG = logging.getLogger("supervisor_core")

RETRY_SECS, MOST_RETRY_SECS = 1.0, 60.0
"""The wait before a failed append is tried again; doubled each time, up to the second."""


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


class WriterThread:
    """Writes the events of a queue into an events file, until a request closes it.

    A failed append is retried, the wait doubling each time, and at once when a flush is requested. Meanwhile events
    wait in the queue up to its bound. Every outage is logged once when it begins and once when it ends.

    When another process has taken the logdir over (`guard_directory`), the writer stops for good: queued and later
    events are dropped and counted; the file is closed as it is. A flush or close raises no error for it: it is logged,
    and the chief that was taken over has an error of its own.

    Args:
        queue: the source of events and requests.
        linger_secs: time for which events are gathered before they are appended.
        losses: notes the newest values of the losses that are encoded.
    """

    def __init__(self, queue: EventQueue, file: EventsFile, linger_secs: float, losses: NewestLosses) -> None:
        self.queue = queue
        self.file = file
        self.last_error: EventsWriteError | None = None
        self.failing = False
        self._linger_secs = linger_secs
        self._encoder = BatchEncoder(losses)
        self._batch: Batch | None = None
        self._files_seen = file.opened
        self._retry_secs = RETRY_SECS
        self._lost = 0
        self._reported_lost = 0
        self._reason: Exception | None = None
        self._starting = threading.RLock()
        self._thread: threading.Thread | None = None
        self._started: list[int] = []
        self._serving = threading.Lock()
        self._serving_here: int | None = None
        self._finished = False
        self._taken_over = False

    @property
    def dropped(self) -> int:
        """Events lost for good."""
        return self.queue.dropped + self._lost

    @property
    def pending(self) -> int:
        """Events in memory that are not in the file yet."""
        batch = self._batch
        return len(self.queue.items) + (batch.events if batch is not None else 0)

    def wake(self) -> None:
        """Wake the queue's consumer, on a producer's thread; the first event starts the thread."""
        if self._has_thread():
            self.queue.wake()
        else:
            self._serve_here()

    def ask(self, request: WriteRequest, timeout_secs: float | None = None) -> None:
        """Have everything added so far written, and wait for it.

        Raises:
            EventsWriteError: if events could not be written or made durable, or were lost since the last report.
            WaitTimeoutError: if that takes longer than ``timeout_secs``.
            RuntimeError: on this thread itself, or above its work on the stack.
        """
        if self._serving_here == threading.get_ident():
            raise RuntimeError("A signal handler interrupted the writing of events, and cannot wait for it.")
        self.submit(request)
        self.queue.wait(request, timeout_secs)

    def submit(self, request: WriteRequest) -> None:
        """Have everything added so far written, without waiting for it."""
        self.queue.submit(request)
        if self._thread is None:
            self._serve_here()

    def _has_thread(self) -> bool:
        if self._thread is None:
            with self._starting:
                if self._thread is None and not self._finished:
                    thread = threading.Thread(target=self._run, name="supervisor-events-writer", daemon=True)
                    try:
                        thread.start()
                    except RuntimeError:  # too many threads, or an interpreter that is shutting down
                        return False
                    self._thread = thread
        return True

    def _serve_here(self) -> None:
        with self._starting:
            # Where it cannot be taken, the thread has just begun to serve, or a signal handler has interrupted this.
            if self._thread is None and self._serving.acquire(blocking=False):
                self._serving_here = threading.get_ident()
                try:
                    self._serve()
                finally:
                    self._serving_here = None
                    self._serving.release()
                self.queue.wake_on_each()

    def _run(self) -> None:
        # A signal handler that interrupts the start of this thread finds none yet, and starts another: one is enough.
        self._started.append(threading.get_ident())
        if self._started[0] != threading.get_ident():
            return
        self.queue.begin()
        try:
            while not self._finished:
                if not self.failing:
                    self.queue.gather(self._linger_secs)
                elif not self.queue.pause(self._retry_secs):
                    self._retry_secs = min(2 * self._retry_secs, MOST_RETRY_SECS)
                with self._serving:
                    self._serve()
        finally:
            self.queue.end()

    def _serve(self) -> None:
        """Write what can be written now, then answer whoever asked."""
        requests: list[WriteRequest] = []
        if self._taken_over:
            items, requests = self.queue.take()
            self._lost += len(items)
        elif self._write_batch() and self._has_file():
            items, requests = self.queue.take()
            self._encode(items)
            if self._write_batch():
                self._recover()
        if self.failing or self._taken_over:
            requests += self.queue.take_requests()
        if not requests:
            return
        closing = any(request.close for request in requests)
        doubt = self._sync() if closing or any(request.sync for request in requests) else None
        if closing:
            self._finish()
        lost, self._reported_lost = self.dropped - self._reported_lost, self.dropped
        for request in requests:
            self.queue.answer(request, self._outcome(lost, doubt if request.sync or request.close else None))
        if closing:
            self.queue.end()

    def _has_file(self) -> bool:
        """Open a file for the next batch if there is none; a new file gets each tag's metadata again."""
        if self.queue.items and not self._attempt(self.file.ensure_open):
            return False
        if self._files_seen != self.file.opened:
            self._files_seen = self.file.opened
            self._encoder.clear_metadata()
        return True

    def _encode(self, items: list[Item]) -> None:
        if items:
            try:
                self._batch = self._encoder.encode(items)
            except Exception as error:  # out of memory; the thread must outlive it
                self._lost += len(items)
                self._reason = error
                _LOG.error("%s could not be encoded: %s", counted(len(items)), error)

    def _write_batch(self) -> bool:
        batch = self._batch
        if batch is not None:
            if not self._attempt(lambda: self.file.append(batch)):
                return False
            self._batch = None
        return True

    def _attempt(self, write: Callable[[], object]) -> bool:
        try:
            write()
        except LogdirInUseError as error:
            self._give_up(error)
        except Exception as error:  # a remote file system's client raises what it likes
            self._fail(error)
        else:
            return True
        return False

    def _recover(self) -> None:
        if self.failing:
            self.failing = False
            self._retry_secs = RETRY_SECS
            _LOG.warning("Events are written again, to %s; %d were lost.", self.file.path, self.dropped)

    def _sync(self) -> SyncError | None:
        try:
            self.file.sync()
        except SyncError as error:
            _LOG.error("%s", error)
            return error
        return None

    def _finish(self) -> None:
        self._drop_pending()
        self._finished = True
        self.file.close()

    def _drop_pending(self) -> None:
        batch, self._batch = self._batch, None
        self._lost += self.queue.drop_all() + (0 if batch is None else batch.events)

    def _give_up(self, reason: LogdirInUseError) -> None:
        """Append nothing any more: the logdir is another chief's."""
        self._taken_over, self.failing = True, False
        self._drop_pending()
        self._sync()
        self.file.close()
        self.last_error = EventsWriteError(f"Nothing is appended to {self._location} any more: {reason}")
        self.last_error.__cause__ = reason
        _LOG.error("%s %s dropped.", self.last_error, counted(self.dropped))

    def _fail(self, reason: Exception) -> None:
        self._reason = reason
        if self.failing:
            return
        self.failing = True
        error = EventsWriteError(
            f"Events cannot be written to {self._location}: {reason}. What fits is held in memory and written as soon "
            "as that is possible again.",
            pending=self.pending,
        )
        error.__cause__ = reason
        self.last_error = error
        _LOG.error("%s", error)

    def _outcome(self, lost: int, doubt: SyncError | None) -> EventsWriteError | None:
        if self._taken_over:
            return None
        pending = self.pending if self.failing else 0
        parts = []
        if lost:
            reason = self._reason or "the file system did not answer"
            parts.append(f"{counted(lost)} for {self._location} {'is' if lost == 1 else 'are'} lost: {reason}.")
        if pending:
            parts.append(
                f"{counted(pending)} could not be written to {self._location} yet: {self._reason}. What fits is held "
                "in memory and written as soon as that is possible again."
            )
        if doubt is not None:
            parts.append(f"{doubt}.")
        if not parts:
            return None
        error = EventsWriteError(" ".join(parts), lost=lost, pending=pending)
        error.__cause__ = doubt.reason if doubt is not None and not lost and not pending else self._reason
        self.last_error = error
        return error

    @property
    def _location(self) -> str:
        return self.file.path or self.file.logdir
