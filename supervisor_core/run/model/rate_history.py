"""`RateHistory`: a run's steps per second over the last hours, by the minute, and whether it has become slow."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable
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

    __slots__ = ("_means", "_minutes", "_weight")

    def __init__(self) -> None:
        self._minutes, self._means = array("I"), array("f")
        self._weight = 0.0
        """How many readings the newest mean is of."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RateHistory) and (self._minutes, self._means) == (other._minutes, other._means)

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
        minute = int(at // MINUTE_SECS)
        if self._minutes and minute <= self._minutes[-1]:
            self._weight += weight
            self._means[-1] += (steps_per_sec - self._means[-1]) * weight / self._weight
            return
        self._minutes.append(minute)
        self._means.append(steps_per_sec)
        self._weight = weight
        if len(self._minutes) >= KEPT_MINUTES + _SPARE_MINUTES:
            del self._minutes[:-KEPT_MINUTES], self._means[:-KEPT_MINUTES]

    @classmethod
    def joined(cls, parts: Iterable[RateHistory]) -> RateHistory:
        """Return what several files of one run hold, in their order, as a history of its own."""
        whole = cls()
        for part in parts:
            if not whole._means:
                whole._minutes, whole._means, whole._weight = part._minutes[:], part._means[:], part._weight
                continue
            for minute, mean in zip(part._minutes, part._means, strict=True):
                whole.add(minute * MINUTE_SECS, mean, part._weight if minute == part._minutes[-1] else 1.0)
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
        return Slow(recent, usual, self._minutes[first + begin] * MINUTE_SECS)
