"""`Histogram`: counts of durations by bucket, cheap enough to be told of every step."""

from __future__ import annotations

from bisect import bisect_left

from supervisor_core.run.status import Distribution

STEP_BOUNDS = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Bucket bounds for the duration of a step, in seconds."""

SAVE_BOUNDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""Bucket bounds for the duration of a save, and for the time that training was held up by one, in seconds."""


class Histogram:
    """Counts values by bucket. The owner's lock guards it: it has none of its own.

    Args:
        bounds: the upper bound of each bucket, rising; a last bucket takes the rest.
    """

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, value: float) -> None:
        """Count one value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def merge(self, other: Histogram) -> None:
        """Count the values that another, of the same bounds, has counted."""
        self._counts = [ours + theirs for ours, theirs in zip(self._counts, other._counts, strict=True)]
        self._sum += other._sum

    @property
    def count(self) -> int:
        """How many values were counted."""
        return sum(self._counts)

    @property
    def mean(self) -> float | None:
        """The mean of the values; None before the first."""
        count = self.count
        return self._sum / count if count else None

    def snapshot(self) -> Distribution:
        """Return the present state as a plain value."""
        return Distribution(bounds=self._bounds, counts=tuple(self._counts), sum=self._sum)
