"""`StepTimeCurve`: the productive seconds of a session by step, between two recoveries."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from copy import deepcopy

ERROR_SECS = 0.05
"""How far the newest points of a curve may be from what was added."""
NEWEST_POINTS = 64
"""Kept at least as they are: training resumes at recent steps. Up to twice as many are."""
OLD_POINTS = 128
"""Before these. With more of them, points are dropped until three quarters are left."""


class StepTimeCurve:
    """Pairs of step and productive seconds, both increasing, interpolated linearly.

    Few are kept. The seconds of the newest steps are within `ERROR_SECS` of those that were added; of a long session,
    those of older steps are less exact: of a week of steps that take 0.27 s, give or take a tenth, by up to ten
    seconds.

    Args:
        first_step: the step at which it begins; None where unknown.
        begin_secs: the productive seconds spent by then.
    """

    __slots__ = ("_line", "_old", "begin_secs", "end_secs", "first_step")

    def __init__(self, first_step: int | None = None, begin_secs: float = 0.0) -> None:
        self.first_step = first_step
        self.begin_secs = self.end_secs = begin_secs
        """All productive seconds, those after the last known step included."""
        self._old: Polyline | None = None
        self._line = Polyline(ERROR_SECS)
        """All pairs: the older ones, and those after them."""

    @property
    def last_step(self) -> int | None:
        """The highest step known."""
        return self._line.xs[-1] if self._line.xs else self.first_step

    def __len__(self) -> int:
        return sum(map(len, self._lines))

    @property
    def _lines(self) -> tuple[Polyline, ...]:
        return (self._line,) if self._old is None else (self._old, self._line)

    def reached(self, step: int, secs: float) -> None:
        """Add the productive seconds at which a step was first seen. Steps that do not increase are ignored."""
        self.end_secs = max(self.end_secs, secs)
        line = self._line
        if not line.xs or step > line.xs[-1]:
            line.add(step, self.end_secs)
            if len(line.xs) > 2 * NEWEST_POINTS:
                self._age()

    def _age(self) -> None:
        """Make old points of all but the newest."""
        line, old = self._line, self._old or Polyline(ERROR_SECS)
        for x, y in zip(line.xs[:-NEWEST_POINTS], line.ys[:-NEWEST_POINTS], strict=True):
            old.add(x, y)
        line.xs, line.ys = line.xs[-NEWEST_POINTS:], line.ys[-NEWEST_POINTS:]
        if len(old) > OLD_POINTS:
            while len(old) > OLD_POINTS * 3 // 4:
                coarser = Polyline(2 * old.error)
                for x, y in old.points():
                    coarser.add(x, y)
                old = coarser
        self._old = old

    def extended(self, first_step: int | None, last_step: int | None, end_secs: float) -> StepTimeCurve:
        """Return a curve that begins at ``first_step``, if this one has no first step, and ends at ``last_step`` and
        ``end_secs``. Where no pair is added the pairs are shared: add no points to this one while the other is in
        use."""
        other = StepTimeCurve(first_step if self.first_step is None else self.first_step, self.begin_secs)
        other._old, other._line = self._old, self._line
        other.end_secs = max(self.end_secs, end_secs)
        if last_step is not None and (not self._line.xs or last_step > self._line.xs[-1]):
            other._line = Polyline(ERROR_SECS)
            other._line.xs, other._line.ys = self._line.xs[:], self._line.ys[:]
            other._line.xs.append(last_step)
            other._line.ys.append(other.end_secs)
        return other

    def absorb(self, later: StepTimeCurve) -> None:
        """Append the points that another file of the same session holds."""
        if not len(self):  # as each look at a live session, which is costly point by point
            self._old, self._line = deepcopy((later._old, later._line))
            self.end_secs = max(self.end_secs, later.end_secs)
            return
        for line in later._lines:
            for step, secs in line.points():
                self.reached(step, secs)
        self.end_secs = max(self.end_secs, later.end_secs)

    def secs_at(self, step: int) -> float:
        """Return the productive seconds spent when the session got to a step, at most `end_secs`."""
        steps, secs = self._line.xs, self._line.ys
        if self._old is not None:
            steps, secs = self._old.xs + steps, self._old.ys + secs
        first = self.first_step if self.first_step is not None else (steps[0] if steps else 0)
        if step <= first:
            return self.begin_secs
        index = bisect_left(steps, step)
        if index == len(steps):
            return secs[-1] if secs else self.end_secs
        before = (steps[index - 1], secs[index - 1]) if index else (first, self.begin_secs)
        after = (steps[index], secs[index])
        if after[0] <= before[0]:
            return after[1]
        return before[1] + (after[1] - before[1]) * (step - before[0]) / (after[0] - before[0])


class Polyline:
    """Points with increasing ``x``; those that a straight line between kept ones explains are dropped.

    An addition costs the same at any length.

    Args:
        error: how far a dropped point may be from the line, in ``y``.

    Example:
        >>> line = Polyline(0.1)
        >>> for x in range(100):
        ...     line.add(x, 2.0 * x)
        >>> list(line.points())
        [(0, 0.0), (99, 198.0)]
    """

    __slots__ = ("_high", "_low", "error", "xs", "ys")

    def __init__(self, error: float) -> None:
        self.error = error
        self.xs = array("q")
        self.ys = array("d")
        """The kept points. The newest is the last, and may be dropped when the next one comes."""
        self._low = self._high = 0.0
        """Slopes from the last point but one of the lines that pass all points dropped after it, and the last."""

    def __len__(self) -> int:
        return len(self.xs)

    def add(self, x: int, y: float) -> None:
        """Add a point; its ``x`` must be above all others."""
        xs, ys = self.xs, self.ys
        if len(xs) > 1:
            dx = x - xs[-2]
            slope, most = (y - ys[-2]) / dx, self.error / dx
            if self._low <= slope <= self._high:
                xs[-1], ys[-1] = x, y
                self._low, self._high = max(self._low, slope - most), min(self._high, slope + most)
                return
        xs.append(x)
        ys.append(y)
        if len(xs) > 1:
            dx = x - xs[-2]
            slope, most = (y - ys[-2]) / dx, self.error / dx
            self._low, self._high = slope - most, slope + most

    def points(self) -> Iterator[tuple[int, float]]:
        """Yield the kept points, oldest first."""
        return zip(self.xs, self.ys, strict=True)
