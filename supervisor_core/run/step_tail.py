"""`StepTail`: the steps that a session's scalars got to after its last heartbeat, and when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from supervisor_core.events.chunk import Points

_EARLY_STEPS = 1
"""A step's scalars may be written before the step is counted."""


class Reached(NamedTuple):
    """A step, and the wall time of its first scalar."""

    step: int
    at: float


class StepTail:
    """Keeps, per tag, the highest step since the last heartbeat that told one.

    A program may count something else than steps in a tag (examples, epochs): one that was ever ahead of the next
    heartbeat's step is not believed.
    """

    def __init__(self) -> None:
        self._highest: dict[str, Reached] = {}
        self._foreign: set[str] = set()

    @property
    def reached(self) -> Reached | None:
        """The highest step since the last heartbeat; None where there is none to be believed."""
        return max(self._highest.values(), key=lambda reached: (reached.step, -reached.at), default=None)

    def add(self, scalars: Mapping[str, Points], told: Sequence[tuple[int, int | None]]) -> None:
        """Take in new points.

        Args:
            scalars: by tag, each in the order of the file.
            told: offset and step of the heartbeats among them, likewise; a step of None begins anew and proves nothing.
        """
        before = self._highest
        if told:
            self._highest = {}
            self._foreign.update(tag for tag, highest in before.items() if _is_ahead(highest.step, told[0][1]))
        for tag, points in scalars.items():
            if tag not in self._foreign and len(points):
                self._add(tag, points, told)

    def _add(self, tag: str, points: Points, told: Sequence[tuple[int, int | None]]) -> None:
        start = 0
        for (_, step), cut in zip(told, np.searchsorted(points.offsets, [at for at, _ in told]).tolist(), strict=True):
            if cut > start and _is_ahead(int(points.steps[start:cut].max()), step):
                self._foreign.add(tag)
                return
            start = cut
        if start < len(points):
            first = start + int(points.steps[start:].argmax())
            highest = Reached(int(points.steps[first]), float(points.walls[first]))
            before = self._highest.get(tag)
            if before is None or highest.step > before.step:
                self._highest[tag] = highest


def _is_ahead(highest: int, step: int | None) -> bool:
    return step is not None and highest > step + _EARLY_STEPS
