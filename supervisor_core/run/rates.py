"""`RateTail`: the latest readings of steps per second in one events file, for a curve as small as a word."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

from supervisor_core.events.chunk import Points

READINGS = 60
"""How many of a run are kept."""
RATE_TAG = "global_step/sec"
"""What TensorFlow's supervisor, hooks and estimators call theirs, and ours as well."""


class RateTail:
    """Takes readings in the order of the file; what heartbeats tell counts before the summaries of other writers."""

    __slots__ = ("_summaries", "_told")

    def __init__(self) -> None:
        self._told: deque[float] = deque(maxlen=READINGS)
        self._summaries: deque[float] = deque(maxlen=READINGS)

    def tell(self, rate: float | None) -> None:
        """Take what a heartbeat tells."""
        if rate is not None:
            self._told.append(rate)

    def add(self, points: Points | None) -> None:
        """Take new summaries of `RATE_TAG`."""
        if points is not None:
            self._summaries.extend(rate for rate in points.values[-READINGS:].tolist() if math.isfinite(rate))

    @property
    def readings(self) -> tuple[float, ...]:
        """The readings, oldest first."""
        return tuple(self._told or self._summaries)


def latest(tails: Sequence[RateTail]) -> tuple[float, ...]:
    """Return the latest readings of several files, given in their order."""
    found: tuple[float, ...] = ()
    for tail in reversed(tails):
        found = tail.readings + found
        if len(found) >= READINGS:
            break
    return found[-READINGS:]
