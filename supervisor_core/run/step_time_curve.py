"""`Pace`: how many productive seconds a session had spent when it got to a step, from one recovery to the next."""

from __future__ import annotations

from array import array
from bisect import bisect_left


class Pace:
    """Pairs of step and productive seconds, both rising, and straight lines between them.

    Args:
        first_step: the step it begins at; None where it is not known.
        begin_secs: the productive seconds that the session had spent by then.
    """

    __slots__ = ("_secs", "_steps", "begin_secs", "end_secs", "first_step")

    def __init__(self, first_step: int | None = None, begin_secs: float = 0.0) -> None:
        self.first_step = first_step
        self.begin_secs = self.end_secs = begin_secs
        """All productive seconds, those after the last known step included."""
        self._steps = array("q")
        self._secs = array("d")

    @property
    def last_step(self) -> int | None:
        """The highest step known."""
        return self._steps[-1] if self._steps else self.first_step

    def reached(self, step: int, secs: float) -> None:
        """Record that the step was first seen after so many productive seconds. Steps that do not rise are passed
        over."""
        self.end_secs = max(self.end_secs, secs)
        if not self._steps or step > self._steps[-1]:
            self._steps.append(step)
            self._secs.append(self.end_secs)

    def extended(self, first_step: int | None, last_step: int | None, end_secs: float) -> Pace:
        """Return a pace that begins at ``first_step``, if this one does not know where, and goes on to ``last_step``
        and ``end_secs``. The pairs are shared where nothing is added, so this one must not be told more while the other
        is in use."""
        other = Pace(first_step if self.first_step is None else self.first_step, self.begin_secs)
        other._steps, other._secs = self._steps, self._secs
        other.end_secs = max(self.end_secs, end_secs)
        if last_step is not None and (not self._steps or last_step > self._steps[-1]):
            other._steps, other._secs = self._steps[:], self._secs[:]
            other.reached(last_step, end_secs)
        return other

    def absorb(self, later: Pace) -> None:
        """Go on with what another file told of the same session."""
        for step, secs in zip(later._steps, later._secs, strict=True):
            self.reached(step, secs)
        self.end_secs = max(self.end_secs, later.end_secs)

    def secs_at(self, step: int) -> float:
        """Return the productive seconds spent when the session got to a step, at most `end_secs`."""
        first = self.first_step if self.first_step is not None else (self._steps[0] if self._steps else 0)
        if step <= first:
            return self.begin_secs
        index = bisect_left(self._steps, step)
        if index == len(self._steps):
            return self._secs[-1] if self._secs else self.end_secs
        before = (self._steps[index - 1], self._secs[index - 1]) if index else (first, self.begin_secs)
        after = (self._steps[index], self._secs[index])
        if after[0] <= before[0]:
            return after[1]
        return before[1] + (after[1] - before[1]) * (step - before[0]) / (after[0] - before[0])
