"""`Gate`: keeps snapshots and steps apart, at next to no cost for the steps.

A step marks its thread as inside, then looks whether a snapshot is pending; a snapshot says that it is pending, then
looks who is inside. Whichever comes second sees the other, so a step needs no lock: an append and a removal on a short
list, which are atomic, and two looks at an attribute (0.2 us for `Gate.enter` and `Gate.leave` together).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from threading import get_ident

from supervisor_core.clock import SYSTEM_CLOCK, Clock
from supervisor_core.runtime.latch import Latch


class Held:
    """What `Gate.exclusive` came to."""

    __slots__ = ("blocked_secs", "consistent", "held_secs", "waited_secs")

    def __init__(self, *, consistent: bool, waited_secs: float) -> None:
        self.consistent = consistent
        """True if nobody was inside while the section ran; False if the wait was over before that."""
        self.waited_secs = waited_secs
        """Seconds from the call until the section began."""
        self.held_secs = waited_secs
        """Seconds during which new entrants were kept waiting; final once the section has ended."""
        self.blocked_secs = 0.0
        """Those of them for which somebody did wait, from the first to come; final once the section has ended."""


class _Turn:
    __slots__ = ("bell", "first_came", "over", "owner")

    def __init__(self, owner: int) -> None:
        self.owner = owner
        self.first_came: float | None = None
        self.bell: SimpleQueue[None] = SimpleQueue()
        self.over: Latch[None] = Latch()


class Gate:
    """Many may be inside at once, or one exclusively.

    A thread may enter again while it is inside (a nested run), and the thread of an exclusive section may enter too:
    neither ever waits. Others that enter while an exclusive section is pending or running wait for its end, though
    never longer than its bounded wait unless it really has the gate to itself; so whoever is inside and blocks, like an
    enqueue on a full queue, delays others but cannot lock them out.

    Example:
        >>> gate = Gate()
        >>> gate.enter()
        >>> gate.leave()
        >>> with gate.exclusive(timeout_secs=10.0) as held:
        ...     held.consistent
        True
    """

    def __init__(self, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._inside: list[int] = []  # the threads, each as often as it entered
        self._turn: _Turn | None = None
        self._exclusive_lock = threading.RLock()

    def enter(self) -> None:
        """Go inside; every call is followed by one of `leave` in the same thread, also if it was interrupted."""
        self._inside.append(get_ident())
        if self._turn is not None:
            self._give_way()

    def leave(self) -> None:
        """Go outside again; does nothing after an `enter` that was interrupted before it was inside."""
        try:
            self._inside.remove(get_ident())
        except ValueError:
            return
        turn = self._turn
        if turn is not None:
            turn.bell.put(None)

    @contextmanager
    def exclusive(self, timeout_secs: float) -> Iterator[Held]:
        """Run the body while nobody else is inside, or after this many seconds regardless.

        Exclusive sections exclude each other always, however long that takes; one within another of the same thread
        is let through.

        Args:
            timeout_secs: seconds to wait for those inside to leave; 0 does not wait. When they are over, others may
                enter again at once, and the body runs with ``consistent`` False. So it does, without waiting for
                itself, if the calling thread is inside.
        """
        start = self._clock.monotonic()
        ident = get_ident()
        with self._exclusive_lock:
            outer, turn = self._turn, _Turn(ident)
            pending_since = self._clock.monotonic()
            self._turn = turn
            try:
                alone = self._await_others(turn, pending_since + timeout_secs)
                now = self._clock.monotonic()
                if not alone:
                    self._end_turn(turn, outer)
                held = Held(consistent=alone and ident not in self._inside, waited_secs=now - start)
                held.held_secs = now - pending_since
                try:
                    yield held
                finally:
                    until = self._clock.monotonic() if alone else now
                    held.held_secs = until - pending_since
                    if turn.first_came is not None:
                        held.blocked_secs = max(0.0, until - turn.first_came)
            finally:
                self._end_turn(turn, outer)

    def _end_turn(self, turn: _Turn, outer: _Turn | None) -> None:
        self._turn = outer
        turn.over.set(None)

    def _await_others(self, turn: _Turn, deadline: float) -> bool:
        while any(ident != turn.owner for ident in self._inside.copy()):
            remaining = deadline - self._clock.monotonic()
            if remaining <= 0:
                return False
            try:
                turn.bell.get(timeout=min(remaining, threading.TIMEOUT_MAX))
            except Empty:
                continue
        return True

    def _give_way(self) -> None:
        """Wait outside until no exclusive section of another thread is pending or running."""
        ident = get_ident()
        if self._inside.count(ident) > 1:
            return
        while (turn := self._turn) is not None and turn.owner != ident:
            self._inside.remove(ident)
            if turn.first_came is None:
                turn.first_came = self._clock.monotonic()
            turn.bell.put(None)
            turn.over.wait()
            self._inside.append(ident)
