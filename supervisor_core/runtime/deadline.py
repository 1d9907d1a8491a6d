"""`Deadline`: one moment by which an ending is over, made once and handed down to everything that waits."""

from __future__ import annotations

import math
import threading
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
