"""`StepLock`: keeps snapshots and steps apart; steps hold it shared, a snapshot exclusively.

A step adds its thread to the holders, then checks whether a snapshot is pending; a snapshot says that it is pending,
then checks the holders. Whichever comes second sees the other, so a step needs no lock: an append and a removal on a
short list, which are atomic, and two reads of an attribute (0.2 us for `acquire_shared` and `release_shared` together).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from threading import get_ident

from supervisor_core.base.clock import SYSTEM_CLOCK, Clock
from supervisor_core.engine.signal_safe_event import SignalSafeEvent


class ExclusiveSection:
    """One exclusive section: pending, running or over."""

    __slots__ = ("blocked_secs", "consistent", "first_came", "over", "owner", "wake_queue")

    def __init__(self, owner: int) -> None:
        self.consistent = False
        """True if no other thread held the lock during the section; False if the wait timed out."""
        self.blocked_secs = 0.0
        """Seconds for which a step waited, from the first one; final after the section."""
        self.owner = owner
        self.first_came: float | None = None
        """When the first step began to wait."""
        self.wake_queue: SimpleQueue[None] = SimpleQueue()
        """Gets an item as often as a holder leaves."""
        self.over: SignalSafeEvent[None] = SignalSafeEvent()


class StepLock:
    """Shared by any number of threads, or held exclusively by one.

    Both are reentrant: a thread that holds it shared (a nested call) or exclusively may acquire it shared and never
    waits. Other threads wait for the end of a pending or running exclusive section, but no longer than its timeout
    unless it holds the lock alone. So a holder that blocks, as on a full queue, delays others but cannot deadlock them.

    Example:
        >>> step_lock = StepLock()
        >>> step_lock.acquire_shared()
        >>> step_lock.release_shared()
        >>> with step_lock.exclusive(timeout_secs=10.0) as held:
        ...     held.consistent
        True
    """

    def __init__(self, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._holders: list[int] = []  # thread ids, once per acquisition
        self._pending: ExclusiveSection | None = None
        self._exclusive_lock = threading.RLock()

    @property
    def is_free(self) -> bool:
        """Whether no thread holds it shared at this moment."""
        return not self._holders

    def acquire_shared(self) -> None:
        """Acquire; every call is followed by `release_shared` in the same thread, even if it was interrupted."""
        self._holders.append(get_ident())
        if self._pending is not None:
            self._wait_for_section()

    def release_shared(self) -> None:
        """Release; does nothing if `acquire_shared` was interrupted before it acquired."""
        try:
            self._holders.remove(get_ident())
        except ValueError:
            return
        section = self._pending
        if section is not None:
            section.wake_queue.put(None)

    @contextmanager
    def exclusive(self, timeout_secs: float) -> Iterator[ExclusiveSection]:
        """Run the body while no other thread holds the lock, or after the timeout regardless.

        Exclusive sections of different threads always exclude each other, however long that takes.

        Args:
            timeout_secs: seconds to wait for shared holders; 0 does not wait. After it others may acquire the lock at
                once, and the body runs with ``consistent`` False. The same holds, without a wait, if the calling thread
                itself holds the lock shared.
        """
        ident = get_ident()
        with self._exclusive_lock:
            outer, section = self._pending, ExclusiveSection(ident)
            pending_since = self._clock.monotonic()
            self._pending = section
            try:
                alone = self._await_others(section, pending_since + timeout_secs)
                now = self._clock.monotonic()
                if not alone:
                    self._end_section(section, outer)
                section.consistent = alone and ident not in self._holders
                try:
                    yield section
                finally:
                    until = self._clock.monotonic() if alone else now
                    if section.first_came is not None:
                        section.blocked_secs = max(0.0, until - section.first_came)
            finally:
                self._end_section(section, outer)

    def _end_section(self, section: ExclusiveSection, outer: ExclusiveSection | None) -> None:
        self._pending = outer
        section.over.set(None)

    def _await_others(self, section: ExclusiveSection, deadline: float) -> bool:
        while any(ident != section.owner for ident in self._holders.copy()):
            remaining = deadline - self._clock.monotonic()
            if remaining <= 0:
                return False
            try:
                section.wake_queue.get(timeout=min(remaining, threading.TIMEOUT_MAX))
            except Empty:
                continue
        return True

    def _wait_for_section(self) -> None:
        """Release and wait until no exclusive section of another thread is pending or running."""
        ident = get_ident()
        if self._holders.count(ident) > 1:
            return
        while (section := self._pending) is not None and section.owner != ident:
            self._holders.remove(ident)
            if section.first_came is None:
                section.first_came = self._clock.monotonic()
            section.wake_queue.put(None)
            section.over.wait()
            self._holders.append(ident)
