"""`Deadline`: one moment by which an ending is over, made once and handed down to everything that waits."""

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
    """Whose monotonic hand is meant."""

    @classmethod
    def after(cls, secs: float, clock: Clock = SYSTEM_CLOCK) -> Deadline:
        """Return the moment ``secs`` seconds from now."""
        return cls(clock.monotonic() + secs, clock)

    def remaining(self, at_most: float = math.inf) -> float:
        """Return the seconds that are left, from 0 to ``at_most``."""
        return max(0.0, min(at_most, self.at - self.clock.monotonic()))

    @property
    def timeout(self) -> float:
        """The seconds that are left, as a wait of the standard library takes them: it knows no infinity."""
        return self.remaining(threading.TIMEOUT_MAX)

    @property
    def is_over(self) -> bool:
        """Whether the moment has come."""
        return self.clock.monotonic() >= self.at

    def earlier(self, secs: float) -> Deadline:
        """Return the moment ``secs`` seconds before this one."""
        return Deadline(self.at - secs, self.clock)


NEVER = Deadline(math.inf)
"""No deadline: for waits that nothing presses."""


class ExitTimer:
    """A timer in a C thread, which needs no interpreter lock: native code that holds it keeps Python's threads, signal
    handlers included, from running for as long as it likes.

    When the deadline comes, the stacks of all threads are written to standard error, so that it can be seen what held
    up the end, and the process exits with status 1: nothing that Python would have to do is done. There is one such
    timer in a process (`faulthandler.dump_traceback_later`); one that the program has set is replaced.

    Example:
        >>> exit_timer = ExitTimer()
        >>> exit_timer.arm(Deadline.after(3600.0))
        >>> exit_timer.disarm()
    """

    def __init__(self) -> None:
        self._armed_by: int | None = None

    def arm(self, deadline: Deadline) -> None:
        """End the process at the deadline, unless it is over already; where that cannot be had, do nothing."""
        secs = deadline.remaining()
        if not secs:
            return
        with suppress(
            OSError, ValueError, AttributeError, RuntimeError, OverflowError
        ):  # no standard error, or threads
            faulthandler.dump_traceback_later(secs, exit=True, file=sys.__stderr__ or sys.stderr)
            self._armed_by = os.getpid()

    def disarm(self) -> None:
        """Let the process live. In a forked child, which has no such timer, nothing happens."""
        armed_by, self._armed_by = self._armed_by, None
        if armed_by == os.getpid():
            faulthandler.cancel_dump_traceback_later()
