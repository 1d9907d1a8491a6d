"""`Cadence`: how often one events file gets new points, and its steps per second, from the points alone.

For writers without heartbeats. A run is silent, rather than between two points, after ten times its median gap or
twice its longest gap (an evaluation, an epoch), whichever is more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from supervisor_core.events.chunk import Points

LEAST_BUDGET_SECS = 600.0
"""The least time until a run is silent: other writers flush every two minutes at best."""
USUAL_GAPS = 10.0
LONGEST_GAPS = 2.0
BURST_SECS = 1.0
"""Points closer together than this count as written at once."""
KEPT_POINTS = 256
"""Number of newest points, over all tags, used for the speed."""
LEAST_POINTS, LEAST_SECS = 5, 60.0
"""The speed is measured over at least this many points and this time, if there are as many."""

_CLASSES = 48
"""Classes of gaps, each the square root of two larger than the one before: from a second to half a year."""


class Cadence:
    """Reads the points of one file in order; constant memory, time proportional to the points."""

    __slots__ = ("_counts", "_last_at", "_longest_secs", "_steps", "_tags", "_walls")

    def __init__(self) -> None:
        self._counts: NDArray[np.int64] | None = None
        self._longest_secs = 0.0
        self._last_at: float | None = None
        self._walls: NDArray[np.float64] = np.empty(0)
        self._steps: NDArray[np.int64] = np.empty(0, np.int64)
        self._tags: NDArray[np.object_] = np.empty(0, object)

    def add(self, scalars: Mapping[str, Points]) -> None:
        """Add new points, by tag."""
        if not scalars:
            return
        offsets = np.concatenate([points.offsets for points in scalars.values()])
        walls = np.concatenate([points.walls for points in scalars.values()])
        if len(scalars) > 1:
            walls = walls[np.argsort(offsets, kind="stable")]
        self._gaps(walls)
        self._newest(scalars)

    def _gaps(self, walls: NDArray[np.float64]) -> None:
        walls = walls[np.isfinite(walls)]
        if self._last_at is not None:
            walls = np.concatenate(([self._last_at], walls))
        if not len(walls):
            return
        self._last_at = float(walls[-1])
        gaps = np.diff(walls)
        gaps = gaps[gaps >= BURST_SECS]
        if not len(gaps):
            return
        if self._counts is None:
            self._counts = np.zeros(_CLASSES, np.int64)
        classes = np.minimum(2 * np.log2(gaps), _CLASSES - 1).astype(np.int64)
        self._counts += np.bincount(classes, minlength=_CLASSES)
        self._longest_secs = max(self._longest_secs, float(gaps.max()))

    def _newest(self, scalars: Mapping[str, Points]) -> None:
        newest = {tag: slice(-KEPT_POINTS, None) for tag in scalars}
        order = np.concatenate([scalars[tag].offsets[part] for tag, part in newest.items()])
        order = np.argsort(order, kind="stable")[-KEPT_POINTS:]
        tags = np.repeat(
            np.array(list(scalars), object), [min(len(points), KEPT_POINTS) for points in scalars.values()]
        )
        walls = np.concatenate([scalars[tag].walls[part] for tag, part in newest.items()])
        steps = np.concatenate([scalars[tag].steps[part] for tag, part in newest.items()])
        self._tags = np.concatenate((self._tags, tags[order]))[-KEPT_POINTS:]
        self._walls = np.concatenate((self._walls, walls[order]))[-KEPT_POINTS:]
        self._steps = np.concatenate((self._steps, steps[order]))[-KEPT_POINTS:]

    @property
    def budget_secs(self) -> float:
        """Seconds without a point after which the run counts as silent."""
        if self._counts is None:
            return LEAST_BUDGET_SECS
        middle = int(np.searchsorted(np.cumsum(self._counts), self._counts.sum() / 2))
        usual_secs = min(2.0 ** ((middle + 0.5) / 2), self._longest_secs)
        return float(max(LEAST_BUDGET_SECS, USUAL_GAPS * usual_secs, LONGEST_GAPS * self._longest_secs))

    def steps_per_sec(self, tag: str | None) -> float | None:
        """Return the speed over the newest points of a tag that counts steps; None where they are too few."""
        here = np.flatnonzero(self._tags == tag) if tag is not None else ()
        points = [(float(self._walls[index]), int(self._steps[index])) for index in here]
        if len(points) < 2:
            return None
        last_at, last_step = points[-1]
        first_at, first_step = points[-1]
        for count, (at, step) in enumerate(reversed(points), 1):
            if step > first_step or at > first_at:
                break  # training began again at an earlier step, or the clock was set
            first_at, first_step = at, step
            if count >= LEAST_POINTS and last_at - at >= LEAST_SECS:
                break
        secs = last_at - first_at
        return (last_step - first_step) / secs if secs > 0 and math.isfinite(secs) else None
