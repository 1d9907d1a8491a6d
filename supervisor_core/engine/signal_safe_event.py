"""`SignalSafeEvent`: an event with a reason that signal handlers may set; the first reason counts.

`threading.Event` uses a lock that cannot be acquired twice: a handler that sets an event while the thread it interrupts
is in ``wait`` or ``set`` of the same event deadlocks. With a reentrant lock the wake-up is lost if the handler runs
after the check of the flag and before the wait. Here there is no lock: setting is one ``dict.setdefault``, waiters are
added and removed by single operations of a deque, each waits on its own queue, and ``SimpleQueue.put`` may interrupt
itself. For the same reason a fork leaves nothing locked.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Generic, TypeVar

T = TypeVar("T")

LOOK_AGAIN_SECS = 1.0
"""The longest sleep at a time, in seconds. A signal that comes exactly when the thread falls asleep does not wake it,
and Python runs its handler, which may set the event, only after it has woken up."""


class SignalSafeEvent(Generic[T]):
    """An event with a reason. Any thread and any signal handler may call any method; only `wait` blocks.

    Example:
        >>> event = SignalSafeEvent[str]()
        >>> event.set("first"), event.set("second")
        (True, False)
        >>> event.reason, event.wait()
        ('first', True)
    """

    def __init__(self) -> None:
        self._first: dict[None, tuple[T]] = {}
        self._waiters: deque[SimpleQueue[bool]] = deque()

    def set(self, reason: T) -> bool:
        """Set the event and wake every waiter; return True if this call's reason was kept."""
        token = (reason,)
        won = self._first.setdefault(None, token) is token
        while True:
            try:
                wake_queue = self._waiters[0]
            except IndexError:
                return won
            # Woken first and removed after, so that an exception in between loses no waiter.
            wake_queue.put(True)
            with suppress(ValueError):
                self._waiters.remove(wake_queue)

    def is_set(self) -> bool:
        """Return whether the event is set."""
        return bool(self._first)

    @property
    def probe(self) -> Callable[[], object]:
        """The quickest `is_set`, for a loop that asks at every step: what it returns is true if the event is set."""
        return self._first.__len__

    @property
    def reason(self) -> T | None:
        """What the event was set with; None while it is not set."""
        token = self._first.get(None)
        return None if token is None else token[0]

    def clear(self) -> None:
        """Unset the event and drop the reason. Waiters keep waiting."""
        self._first.clear()

    def wait(self, timeout_secs: float | None = None, *, wake_queue: SimpleQueue[bool] | None = None) -> bool:
        """Wait until the event is set and return True; return False at the timeout.

        Args:
            timeout_secs: how long to wait at most; None waits forever, 0 and less do not wait.
            wake_queue: False in this queue ends the wait with False, also if it was put there before the call.
        """
        if self._first:
            return True
        if timeout_secs is not None and timeout_secs <= 0:
            return False
        if wake_queue is None:
            wake_queue = SimpleQueue()
        self._waiters.append(wake_queue)
        try:
            # Checked again after adding the waiter: a `set` in between did not see it.
            return bool(self._first) or self._sleep(wake_queue, math.inf if timeout_secs is None else timeout_secs)
        finally:
            with suppress(ValueError):
                self._waiters.remove(wake_queue)

    def _sleep(self, wake_queue: SimpleQueue[bool], timeout_secs: float) -> bool:
        until = monotonic() + timeout_secs
        while True:
            try:
                return wake_queue.get(timeout=min(LOOK_AGAIN_SECS, max(0.0, until - monotonic())))
            except Empty:
                if self._first or monotonic() >= until:
                    return bool(self._first)
