"""One moment, and how much time is left until then."""

from __future__ import annotations

import math
import threading
from typing import Any

from supervisor_core.engine.deadline import NEVER, Deadline


def test_remaining(clock: Any) -> None:
    """What is left shrinks with the monotonic clock, never below 0, and never above what is asked for."""
    deadline = Deadline.after(25.0, clock)
    assert (deadline.remaining(), deadline.remaining(10.0), deadline.is_over) == (25.0, 10.0, False)
    clock.advance(20.0)
    assert (deadline.remaining(), deadline.remaining(10.0), deadline.is_over) == (5.0, 5.0, False)
    clock.advance(6.0)
    assert (deadline.remaining(), deadline.timeout, deadline.is_over) == (0.0, 0.0, True)


def test_earlier(clock: Any) -> None:
    """What is kept in reserve is taken off."""
    assert Deadline.after(25.0, clock).earlier(2.0).remaining() == 23.0


def test_never() -> None:
    """No deadline is never over, and is a wait that the standard library takes."""
    assert (NEVER.remaining(), NEVER.is_over) == (math.inf, False)
    assert threading.Lock().acquire(timeout=NEVER.timeout)
