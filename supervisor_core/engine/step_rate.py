"""`StepRate`: steps per second over a window, correct for steps of a millisecond and of an hour."""

from __future__ import annotations

from collections import deque

WINDOW_SECS = 30.0
"""The rate covers at least this time, if there is as much."""
WINDOW_STEPS = 10
"""And at least this many steps."""
OVERDUE_STEPS = 10
"""The rate is 0 once this many steps (or readings) are overdue and `WINDOW_SECS` have passed."""


class StepRate:
    """Training steps per second, correct for steps of a millisecond and of an hour. Not thread-safe.

    Measures from the end of one step to the end of another, never to a time between two.

    Args:
        now: monotonic seconds.
        count: steps counted until then.
    """

    __slots__ = ("_ends",)

    def __init__(self, now: float, count: int = 0) -> None:
        self._ends: deque[tuple[float, int]] = deque([(now, count)])

    def restart(self, now: float, count: int) -> None:
        """Drop all readings before this one."""
        self._ends = deque([(now, count)])

    def add(self, at: float, count: int) -> None:
        """Take a reading: the count and the end of its last step. A reading without a new step changes nothing."""
        last_at, last = self._ends[-1]
        if count < last:
            self.restart(at, count)
        if count <= last:
            return
        self._ends.append((max(at, last_at), count))
        while len(self._ends) > 2:
            next_at, next_count = self._ends[1]
            if at - next_at < WINDOW_SECS or count - next_count < WINDOW_STEPS:
                break
            self._ends.popleft()

    def exclude(self, secs: float) -> None:
        """Exclude the last ``secs`` seconds, which had no training."""
        self._ends = deque((at + secs, count) for at, count in self._ends)

    def value(self, now: float) -> float | None:
        """Return steps per second; None before a step has ended. While a step takes longer than those before it, the
        rate decreases."""
        (first_at, first), (last_at, last) = self._ends[0], self._ends[-1]
        secs, steps = last_at - first_at, last - first
        if steps <= 0 or secs <= 0:
            return None
        rate, waiting = steps / secs, now - last_at
        usual_secs = secs / (len(self._ends) - 1)  # between two readings that moved
        if waiting <= usual_secs:
            return rate
        if waiting > max(WINDOW_SECS, OVERDUE_STEPS * usual_secs):
            return 0.0
        return (steps + rate * usual_secs) / (now - first_at)
