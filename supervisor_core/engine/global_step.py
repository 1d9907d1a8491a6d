"""`GlobalStep`: the global step between two readings of it, extrapolated by the steps that are counted here."""

from __future__ import annotations

STEPS_TO_JUDGE = 10
"""Number of steps after which the increment of the global step per step is determined."""


class GlobalStep:
    """The global step of a session, known from readings. Not thread-safe.

    Args:
        now: monotonic seconds.
    """

    def __init__(self, now: float) -> None:
        self.stride = 1
        """By how much a step changes it; 0 where the readings do not agree with the count of steps."""
        self.moved_at = now
        """Monotonic time of the reading that was the first to have the last value."""
        self._first: tuple[int, int] | None = None
        """A reading, and the steps counted then."""
        self._value: int | None = None
        self._steps = 0
        """Those counted at the last reading."""

    @property
    def before(self) -> int | None:
        """What it was before the first step of this session; None before the first reading."""
        return None if self._value is None else self._value - self.stride * self._steps

    def at(self, steps: int) -> int | None:
        """Return an estimate of it after a number of steps of this session; None before the first reading."""
        return None if self._value is None else self._value + self.stride * (steps - self._steps)

    def read(self, value: int, earliest: int, latest: int, now: float) -> None:
        """Take a reading.

        Args:
            value: its value.
            earliest: steps counted just before it was read.
            latest: steps counted now.
            now: monotonic seconds.
        """
        if self._first is None:
            self._first = (value, earliest)
        first_value, first_count = self._first
        ahead = (first_value - first_count) - (value - earliest)
        if self.stride == 1 and ahead > 0:  # the first reading included steps that were not counted yet
            first_value, first_count = self._first = (value, earliest)
        moved = value - first_value
        if earliest - first_count >= STEPS_TO_JUDGE:
            stride = round(moved / (earliest - first_count))
            # A step is counted just after it has ended, so either side may miss one or two.
            fits = stride * (earliest - first_count) - 2 <= moved <= stride * (latest - first_count) + 2
            self.stride = stride if fits else 0
        if value != self._value:
            self.moved_at = now
        self._value = value
        counted = first_count + moved // self.stride if self.stride else latest
        self._steps = min(max(counted, earliest), latest)

    def rewound(self, value: int, steps: int) -> None:
        """The model is at another step now: earlier readings are void."""
        self._first, self.stride = (value, steps), 1
        self._value, self._steps = value, steps
