"""`TagSteps`: how the steps of one tag went in one stretch of a file."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from supervisor_core.events.chunk import Points

MOST_FALLS = 64
"""A tag whose steps went down more often than this does not count steps, and is no witness of restarts."""


class Fall(NamedTuple):
    """A place where a tag's steps went down, and stayed down for a second point."""

    before: int
    """Offset of the last point before it."""
    after: int
    """Offset of the first point after it."""
    from_step: int
    to_step: int
    ended_at: float
    """Wall time of the last point before it."""
    started_at: float
    """Wall time of the first point after it."""


class TagSteps:
    """Gathers a tag's points; costs in proportion to them."""

    __slots__ = (
        "_held",
        "count",
        "falls",
        "first_offset",
        "first_step",
        "last_offset",
        "last_step",
        "last_value",
        "max_step",
    )

    def __init__(self, points: Points) -> None:
        self.first_step = self.max_step = int(points.steps[0])
        self.first_offset = int(points.offsets[0])
        self.last_step = self.last_offset = 0
        self.last_value = 0.0
        self.count = 0
        self.falls: list[Fall] = []
        self._held: Points | None = None

    @property
    def is_witness(self) -> bool:
        """Whether its steps go up, nearly always."""
        return len(self.falls) <= MOST_FALLS

    @property
    def stride(self) -> float:
        """Mean steps from one point to the next."""
        return (self.max_step - self.first_step) / max(1, self.count - 1)

    def add(self, points: Points) -> None:
        """Take in the next points."""
        self.count += len(points)
        self.last_step, self.last_offset = int(points.steps[-1]), int(points.offsets[-1])
        self.last_value = float(points.values[-1])
        self.max_step = max(self.max_step, int(points.steps.max()))
        if self.is_witness:
            self._look_for_falls(points)

    def _look_for_falls(self, points: Points) -> None:
        """A fall shows once the point after it is there, so the last two points are held back for the next time."""
        seen = points if self._held is None else _joined(self._held, points)
        self._held = _slice(seen, max(0, len(seen) - 2))
        if len(seen) < 3:
            return
        steps = seen.steps
        found = np.flatnonzero((steps[1:-1] < steps[:-2]) & (steps[2:] <= steps[:-2])) + 1
        for index in found[: MOST_FALLS + 1].tolist():
            before = index - 1
            self.falls.append(
                Fall(
                    before=int(seen.offsets[before]),
                    after=int(seen.offsets[index]),
                    from_step=int(steps[before]),
                    to_step=int(steps[index]),
                    ended_at=float(seen.walls[before]),
                    started_at=float(seen.walls[index]),
                )
            )


def _slice(points: Points, start: int) -> Points:
    # Copies: a view would keep the whole chunk's arrays.
    offsets, steps = points.offsets[start:].copy(), points.steps[start:].copy()
    return Points(offsets, steps, points.walls[start:].copy(), points.values[start:].copy())


def _joined(first: Points, second: Points) -> Points:
    return Points(
        np.concatenate((first.offsets, second.offsets)),
        np.concatenate((first.steps, second.steps)),
        np.concatenate((first.walls, second.walls)),
        np.concatenate((first.values, second.values)),
    )
