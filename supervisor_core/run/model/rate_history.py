"""`RateHistory`: a run's steps per second over the last hours, by the minute, and whether it has become slow."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from statistics import median
from typing import NamedTuple

MINUTE_SECS = 60.0
KEPT_MINUTES = 360
"""At least; the alert's defaults compare the last 15 minutes with the median of six hours."""
_SPARE_MINUTES = 60
"""More are kept before the oldest are dropped, together."""
_LATEST = 1e11
"""A later wall time is no time: some writers store nonsense."""
_LEAST_MINUTES = 5
"""A younger run has no usual rate."""


class Slow(NamedTuple):
    """A training below its usual rate."""

    recent: float
    """Mean steps per second of late."""
    usual: float
    """Median steps per second before."""
    since: float
    """Wall time of the first minute that was slow."""


class RateHistory:
    """Means of each minute in which the training made steps; the newest `KEPT_MINUTES` are kept."""

    __slots__ = ("_is_shared", "_means", "_stretches", "_weight")

    def __init__(self) -> None:
        self._stretches, self._means = array("I"), array("f")
        """Of each stretch of minutes without a gap the first minute, and the place of its mean among all."""
        self._weight = 0.0
        """How many readings the newest mean is of."""
        self._is_shared = False
        """Whether another history has the same arrays."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RateHistory) and (self._stretches, self._means) == (
            other._stretches,
            other._means,
        )

    __hash__ = None  # type: ignore[assignment]  # it grows

    def add(self, at: float, steps_per_sec: float, weight: float = 1.0) -> None:
        """Add a reading.

        Args:
            at: wall time. One before the newest minute counts as of that minute.
            steps_per_sec: the reading.
            weight: how many readings it is the mean of.
        """
        if not (0.0 <= at < _LATEST and math.isfinite(steps_per_sec)):
            return
        if self._is_shared:
            self._stretches, self._means, self._is_shared = self._stretches[:], self._means[:], False
        minute = int(at // MINUTE_SECS)
        count = len(self._means)
        newest = self._stretches[-2] + count - 1 - self._stretches[-1] if count else -1
        if minute > newest:
            if not count or minute > newest + 1:
                self._stretches.extend((minute, count))
            self._means.append(steps_per_sec)
            self._weight = weight
            if count + 1 >= KEPT_MINUTES + _SPARE_MINUTES:
                self._drop(count + 1 - KEPT_MINUTES)
            return
        self._weight += weight
        self._means[-1] += (steps_per_sec - self._means[-1]) * weight / self._weight

    def _minute(self, place: int) -> int:
        """Return the minute of a mean."""
        stretch = bisect_right(self._stretches[1::2], place) - 1
        return self._stretches[2 * stretch] + place - self._stretches[2 * stretch + 1]

    def _minutes(self) -> Iterator[int]:
        """Yield the minutes of all means."""
        ends = [*self._stretches[3::2], len(self._means)]
        for minute, place, end in zip(self._stretches[::2], self._stretches[1::2], ends, strict=True):
            yield from range(minute, minute + end - place)

    def _drop(self, count: int) -> None:
        """Drop the oldest minutes."""
        stretches = array("I", (self._minute(count), 0))
        for minute, place in zip(self._stretches[::2], self._stretches[1::2], strict=True):
            if place > count:
                stretches.extend((minute, place - count))
        self._stretches, self._means = stretches, self._means[count:]

    @classmethod
    def joined(cls, parts: Iterable[RateHistory]) -> RateHistory:
        """Return what several files of one run hold, in their order, as a history of its own."""
        whole = cls()
        for part in parts:
            if not part._means:
                continue
            if not whole._means:
                whole._stretches, whole._means, whole._weight = part._stretches, part._means, part._weight
                part._is_shared = whole._is_shared = True
                continue
            last = len(part._means) - 1
            for place, (minute, mean) in enumerate(zip(part._minutes(), part._means, strict=True)):
                whole.add(minute * MINUTE_SECS, mean, part._weight if place == last else 1.0)
        return whole

    def slow(self, below: float, window_secs: float) -> Slow | None:
        """Return that the training is slower than it was before; None if it is not, and while too little is known.

        Args:
            below: the share of the usual rate below which it is slow.
            window_secs: the time over which the rate of late is averaged. A quarter of the run's life where it is
                younger than four times that.
        """
        means = self._means[-KEPT_MINUTES:]
        first = len(self._means) - len(means)
        minutes = max(1, min(round(window_secs / MINUTE_SECS), len(means) // 4))
        recent = sum(means[-minutes:]) / minutes if means else 0.0
        begin = len(means)
        while begin > 0 and means[begin - 1] * below <= recent:
            begin -= 1
        if begin < _LEAST_MINUTES or begin == len(means):
            return None
        usual = median(means[:begin])
        if recent >= below * usual:  # before it was faster for a moment only
            return None
        return Slow(recent, usual, self._minute(first + begin) * MINUTE_SECS)
