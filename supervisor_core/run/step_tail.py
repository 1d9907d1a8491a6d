"""`StepTail`: the steps that a session's scalars got to after its last heartbeat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from supervisor_core.events.chunk import Points

_EARLY_STEPS = 1
"""A step's scalars may be written before the step is counted."""


class StepTail:
    """Keeps, per tag, the highest step since the last heartbeat that told one.

    A program may count something else than steps in a tag (examples, epochs): one that was ever ahead of the next
    heartbeat's step is not believed.
    """

    def __init__(self) -> None:
        self._highest: dict[str, int] = {}
        self._foreign: set[str] = set()
        self._begun = False

    @property
    def step(self) -> int | None:
        """The highest step since the last heartbeat; None where there is none to be believed."""
        return max(self._highest.values(), default=None) if self._begun else None

    def add(self, scalars: Mapping[str, Points], beats: Sequence[tuple[int, int]]) -> None:
        """Take in new points.

        Args:
            scalars: by tag, each in the order of the file.
            beats: offset and step of the heartbeats among them, likewise.
        """
        if not beats and not self._begun:
            return
        before = self._highest
        if beats:
            self._highest = {}
            self._foreign.update(tag for tag, highest in before.items() if highest > beats[0][1] + _EARLY_STEPS)
        for tag, points in scalars.items():
            if tag not in self._foreign and len(points):
                self._add(tag, points, beats)
        self._begun = True

    def _add(self, tag: str, points: Points, beats: Sequence[tuple[int, int]]) -> None:
        cuts = np.searchsorted(points.offsets, [offset for offset, _ in beats]).tolist()
        begun, start = self._begun, 0
        for (_, step), cut in zip(beats, cuts, strict=True):
            if begun and cut > start and int(points.steps[start:cut].max()) > step + _EARLY_STEPS:
                self._foreign.add(tag)
                return
            begun, start = True, cut
        if start < len(points):
            highest = int(points.steps[start:].max())
            self._highest[tag] = max(highest, self._highest.get(tag, highest))
