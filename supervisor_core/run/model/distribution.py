"""`Distribution`: durations counted by bucket; `Histogram` counts them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

STEP_BOUNDS = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Bucket bounds for the duration of a step, in seconds."""

SAVE_BOUNDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""Bucket bounds for the duration of a save, and for the time for which it blocked training, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """A histogram, not cumulative: ``counts[i]`` counts the values up to ``bounds[i]``, above the bound before;
    ``counts`` has one more item, for values above all bounds."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float

    def merged(self, other: Distribution) -> Distribution:
        """Return it with the counts of another with the same bounds."""
        counts = tuple(ours + theirs for ours, theirs in zip(self.counts, other.counts, strict=True))
        return Distribution(bounds=self.bounds, counts=counts, sum=self.sum + other.sum)

    def with_value(self, value: float) -> Distribution:
        """Return it with one value more."""
        place = bisect_left(self.bounds, value)
        counts = (*self.counts[:place], self.counts[place] + 1, *self.counts[place + 1 :])
        return Distribution(bounds=self.bounds, counts=counts, sum=self.sum + value)


class Histogram:
    """Counts values by bucket; cheap enough for every step. Not thread-safe: the owner locks.

    Args:
        bounds: the upper bound of each bucket, increasing; one more bucket counts the values above.
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

    def add_all(self, values: Sequence[float]) -> float:
        """Count values, and return the largest; cheaper than one by one, above all where one bucket holds them all."""
        bounds, counts, largest = self._bounds, self._counts, max(values)
        first, last = bisect_left(bounds, min(values)), bisect_left(bounds, largest)
        if first == last:
            counts[first] += len(values)
        else:
            for value in values:
                counts[bisect_left(bounds, value)] += 1
        self._sum += sum(values)
        return largest

    def snapshot(self) -> Distribution:
        """Return the counts as a plain value."""
        return Distribution(bounds=self._bounds, counts=tuple(self._counts), sum=self._sum)
