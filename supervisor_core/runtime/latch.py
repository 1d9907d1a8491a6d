"""`Latch`: a flag to wait for, set with a reason of which the first one counts, safe to set in a signal handler.

`threading.Event` guards itself with a lock that cannot be taken twice: a handler which sets an event while the thread
it interrupted is inside ``wait`` or ``set`` of the same event waits for itself forever. A reentrant lock instead
loses the wake-up, when the handler comes after the look at the flag and before the wait. Here there is no lock:
setting is one ``dict.setdefault``, waiters come and go by single operations of a deque, each waits on a queue of its
own, and ``SimpleQueue.put`` may interrupt itself. For the same reason a fork leaves nothing locked.
"""

from __future__ import annotations

import math
from collections import deque
from contextlib import suppress
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Generic, TypeVar

T = TypeVar("T")

LOOK_AGAIN_SECS = 1.0
"""The longest sleep at a time. A signal that comes at the very moment at which the thread falls asleep does not wake
it, and Python runs its handler, which may set the flag, only when it has woken up."""


class Latch(Generic[T]):
    """A flag with a reason. Any thread and any signal handler may call anything; nothing here ever blocks but `wait`.

    Example:
        >>> latch = Latch[str]()
        >>> latch.set("first"), latch.set("second")
        (True, False)
        >>> latch.reason, latch.wait()
        ('first', True)
    """

    def __init__(self) -> None:
        self._first: dict[None, tuple[T]] = {}
        self._bells: deque[SimpleQueue[bool]] = deque()

    def set(self, reason: T) -> bool:
        """Set the flag and wake every waiter; return True if it was this call's reason that was kept."""
        token = (reason,)
        won = self._first.setdefault(None, token) is token
        while True:
            try:
                bell = self._bells[0]
            except IndexError:
                return won
            # Rung first and removed after, so that an exception in between leaves no waiter behind.
            bell.put(True)
            with suppress(ValueError):
                self._bells.remove(bell)

    def is_set(self) -> bool:
        """Return whether the flag is set."""
        return bool(self._first)

    @property
    def reason(self) -> T | None:
        """What the flag was set with; None while it is not set."""
        token = self._first.get(None)
        return None if token is None else token[0]

    def clear(self) -> None:
        """Unset the flag and forget the reason. Waiters go on waiting."""
        self._first.clear()

    def wait(self, timeout_secs: float | None = None, *, bell: SimpleQueue[bool] | None = None) -> bool:
        """Wait until the flag is set, and return True; return False when the time is over.

        Args:
            timeout_secs: how long to wait at most; None waits forever, 0 and less do not wait.
            bell: end the wait, with False, as soon as somebody puts False here. What was put before the call counts.
        """
        if self._first:
            return True
        if timeout_secs is not None and timeout_secs <= 0:
            return False
        if bell is None:
            bell = SimpleQueue()
        self._bells.append(bell)
        try:
            # Looked at again after the entry: whoever set the flag in between did not see this waiter.
            return bool(self._first) or self._sleep(bell, math.inf if timeout_secs is None else timeout_secs)
        finally:
            with suppress(ValueError):
                self._bells.remove(bell)

    def _sleep(self, bell: SimpleQueue[bool], timeout_secs: float) -> bool:
        until = monotonic() + timeout_secs
        while True:
            try:
                return bell.get(timeout=min(LOOK_AGAIN_SECS, max(0.0, until - monotonic())))
            except Empty:
                if self._first or monotonic() >= until:
                    return bool(self._first)
