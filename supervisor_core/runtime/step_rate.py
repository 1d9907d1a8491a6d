"""`StepRate`: training steps per second, true for steps of a millisecond and for steps of an hour."""

from __future__ import annotations

from collections import deque

WINDOW_SECS = 30.0
"""The rate is over at least so much time, if there is as much."""
WINDOW_STEPS = 10
"""And over at least so many steps."""
OVERDUE_STEPS = 10
"""Nothing moves any more once so many steps (or readings) are overdue, and `WINDOW_SECS` have passed."""


class StepRate:
    """Measures from the end of one step to the end of another, never to a moment between two. Not thread-safe.

    Args:
        now: monotonic seconds.
        count: steps counted by then.
    """

    __slots__ = ("_ends",)

    def __init__(self, now: float, count: int = 0) -> None:
        self._ends: deque[tuple[float, int]] = deque([(now, count)])

    def restart(self, now: float, count: int) -> None:
        """Forget everything before this moment."""
        self._ends = deque([(now, count)])

    def add(self, at: float, count: int) -> None:
        """Take a reading: the count, and when its last step ended. One in which nothing has moved changes nothing."""
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

    def leave_out(self, secs: float) -> None:
        """Leave out the seconds before this moment, in which no training was to be done."""
        self._ends = deque((at + secs, count) for at, count in self._ends)

    def value(self, now: float) -> float | None:
        """Return steps per second; None before a step has ended. When a step takes longer than those before it, the
        rate falls with each second that it lasts."""
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
