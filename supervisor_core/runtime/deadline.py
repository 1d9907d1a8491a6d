"""`Deadline`: one monotonic time for a whole shutdown, handed to everything that waits; `ExitTimer` enforces it."""

from __future__ import annotations

import faulthandler
import math
import os
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass

from supervisor_core.clock import SYSTEM_CLOCK, Clock


@dataclass(frozen=True)
class Deadline:
    """A moment of the monotonic clock.

    Example:
        >>> deadline = Deadline.after(25.0)
        >>> 0.0 < deadline.remaining(at_most=10.0) <= 10.0
        True
        >>> NEVER.remaining()
        inf
    """

    at: float
    """The moment, in monotonic seconds; ``math.inf`` for none."""
    clock: Clock = SYSTEM_CLOCK
    """Its clock."""

    @classmethod
    def after(cls, secs: float, clock: Clock = SYSTEM_CLOCK) -> Deadline:
        """Return the deadline ``secs`` seconds from now."""
        return cls(clock.monotonic() + secs, clock)

    def remaining(self, at_most: float = math.inf) -> float:
        """Return the remaining seconds, from 0 to ``at_most``."""
        return max(0.0, min(at_most, self.at - self.clock.monotonic()))

    @property
    def timeout(self) -> float:
        """The remaining seconds as a timeout for the standard library, which accepts no infinity."""
        return self.remaining(threading.TIMEOUT_MAX)

    @property
    def is_over(self) -> bool:
        """Whether it has passed."""
        return self.clock.monotonic() >= self.at

    def earlier(self, secs: float) -> Deadline:
        """Return the deadline ``secs`` seconds before this one."""
        return Deadline(self.at - secs, self.clock)


NEVER = Deadline(math.inf)
"""No deadline."""


class ExitTimer:
    """Ends the process at a deadline even if no Python code can run.

    It is a timer in a C thread, which needs no interpreter lock: native code that holds the lock blocks all Python
    threads and signal handlers. At the deadline it writes the stacks of all threads to standard error, to show what
    blocked, and exits with status 1, without any Python cleanup. A process has one such timer
    (`faulthandler.dump_traceback_later`); one that the program has set is replaced.

    Example:
        >>> exit_timer = ExitTimer()
        >>> exit_timer.arm(Deadline.after(3600.0))
        >>> exit_timer.disarm()
    """

    def __init__(self) -> None:
        self._armed_by: int | None = None

    def arm(self, deadline: Deadline) -> None:
        """End the process at the deadline; do nothing if it has passed or the timer is unavailable."""
        secs = deadline.remaining()
        if not secs:
            return
        with suppress(
            OSError, ValueError, AttributeError, RuntimeError, OverflowError
        ):  # no standard error, or threads
            faulthandler.dump_traceback_later(secs, exit=True, file=sys.__stderr__ or sys.stderr)
            self._armed_by = os.getpid()

    def disarm(self) -> None:
        """Cancel the timer. Does nothing in a forked child, which has no such timer."""
        armed_by, self._armed_by = self._armed_by, None
        if armed_by == os.getpid():
            faulthandler.cancel_dump_traceback_later()
