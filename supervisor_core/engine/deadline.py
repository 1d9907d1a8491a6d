"""`Deadline`: one monotonic time for a whole shutdown, handed to everything that waits.

`StopDeadline` says which one a session's end has, and what part of it is for what; `ExitTimer` enforces it.
"""

from __future__ import annotations

import faulthandler
import math
import os
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass

from supervisor_core.base.clock import SYSTEM_CLOCK, Clock


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

RESERVE_SHARE, RESERVE_SECS = 0.2, 2.0
"""The part of the stop timeout, and at most how much of it in seconds, kept for the last records."""
RECORDS_SECS, JOIN_SECS = 10.0, 5.0
"""How long the last records may take, and threads have to end, even if the save took all of ``stop_grace_secs``."""


class StopDeadline:
    """The deadline of a session's end: made by a signal, or by a stop without one; see `docs/stopping.md`.

    Args:
        stop_timeout_secs: how long the end may take after a signal; see `supervisor_core.engine.timeouts`.
    """

    def __init__(self, stop_timeout_secs: float, clock: Clock) -> None:
        self.for_end = NEVER
        """When the end has to be over; `NEVER` as long as nothing ends."""
        self._by_signal = False
        self.stop_timeout_secs = stop_timeout_secs
        """How long the end may take after a signal, in seconds."""
        self._clock = clock

    def reset(self) -> None:
        """There is no end under way."""
        self.for_end, self._by_signal = NEVER, False

    def signalled(self, at: float | None) -> None:
        """A signal came.

        Args:
            at: when, on the monotonic clock. Default: now.
        """
        since = self._clock.monotonic() if at is None else at
        self.for_end, self._by_signal = Deadline(since + self.stop_timeout_secs, self._clock), True

    def stopped(self, secs: float) -> None:
        """The session is stopped, and has this many seconds from now on; those of a signal before are replaced."""
        self.for_end = Deadline.after(secs, self._clock)

    @property
    def for_save(self) -> Deadline:
        """Until when there is time to save: without a signal a save takes the time that it takes."""
        return self.for_work if self._by_signal else NEVER

    @property
    def for_work(self) -> Deadline:
        """Until when there is time to wait for what has to end first."""
        if not self._by_signal:
            return self.for_end
        return self.for_end.earlier(self._reserve_secs)

    @property
    def for_records(self) -> Deadline:
        """Until when there is time for the last records."""
        if self._by_signal:
            return self.for_end
        return Deadline.after(max(RECORDS_SECS, self.for_end.remaining()), self._clock)

    def linger_secs(self, secs: float) -> float:
        """Return how many of these seconds metrics may linger: after a signal, less than there is for work. So the
        loop's thread comes to its end, and the signal's thread does not end the process as one that hangs."""
        return self.for_work.earlier(self._reserve_secs).remaining(secs) if self._by_signal else secs

    @property
    def _reserve_secs(self) -> float:
        return min(RESERVE_SECS, RESERVE_SHARE * self.stop_timeout_secs)

    def join_secs(self, grace_secs: float) -> float:
        """Return how many of a stop's seconds threads may be waited for."""
        left = self.for_work.remaining(grace_secs)
        return left if self._by_signal else max(left, min(grace_secs, JOIN_SECS))


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
