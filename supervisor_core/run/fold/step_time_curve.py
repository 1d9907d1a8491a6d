"""`StepTimeCurve`: the productive seconds of a session by step, between two recoveries."""

from __future__ import annotations

from array import array
from bisect import bisect_left

MOST_POINTS = 384
"""With more, half of the older two thirds are dropped: training resumes at recent steps."""


class StepTimeCurve:
    """Pairs of step and productive seconds, both increasing, interpolated linearly; the older, the further apart.

    Args:
        first_step: the step at which it begins; None where unknown.
        begin_secs: the productive seconds spent by then.
    """

    __slots__ = ("_secs", "_steps", "begin_secs", "end_secs", "first_step")

    def __init__(self, first_step: int | None = None, begin_secs: float = 0.0) -> None:
        self.first_step = first_step
        self.begin_secs = self.end_secs = begin_secs
        """All productive seconds, those after the last known step included."""
        self._steps, self._secs = array("q"), array("d")

    @property
    def last_step(self) -> int | None:
        """The highest step known."""
        return self._steps[-1] if self._steps else self.first_step

    def reached(self, step: int, secs: float) -> None:
        """Add the productive seconds at which a step was first seen. Steps that do not increase are ignored."""
        self.end_secs = max(self.end_secs, secs)
        if self._steps and step <= self._steps[-1]:
            return
        self._steps.append(step)
        self._secs.append(self.end_secs)
        if len(self._steps) > MOST_POINTS:
            self._thin(MOST_POINTS * 2 // 3)

    def _thin(self, old: int) -> None:
        """Keep some half of the oldest points, as far apart from each other."""
        apart, kept = 2 * (self._steps[old] - self._steps[0]) / old, [0]
        for index in range(1, old):
            if self._steps[index] - self._steps[kept[-1]] >= apart:
                kept.append(index)
        kept += range(old, len(self._steps))
        self._steps = array("q", [self._steps[index] for index in kept])
        self._secs = array("d", [self._secs[index] for index in kept])

    def extended(self, first_step: int | None, last_step: int | None, end_secs: float) -> StepTimeCurve:
        """Return a copy that begins at ``first_step``, if this one has no first step, and ends at ``last_step`` and
        ``end_secs``."""
        other = StepTimeCurve(first_step if self.first_step is None else self.first_step, self.begin_secs)
        other._steps, other._secs, other.end_secs = self._steps[:], self._secs[:], max(self.end_secs, end_secs)
        if last_step is not None:
            other.reached(last_step, other.end_secs)
        return other

    def absorb(self, later: StepTimeCurve) -> None:
        """Append the points that another file of the same session holds."""
        for step, secs in zip(later._steps, later._secs, strict=True):
            self.reached(step, secs)
        self.end_secs = max(self.end_secs, later.end_secs)

    def secs_at(self, step: int) -> float:
        """Return the productive seconds spent when the session got to a step, at most `end_secs`."""
        steps, secs = self._steps, self._secs
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
