"""`thin`: the points of a curve that are drawn; `sampled`: those of a tag that can be read at a glance. Each is a point
that was written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from supervisor_core.events.columns import Columns
from supervisor_core.run.fold.segments import Segments

Floats = NDArray[np.float64]

_OF_A_STRETCH = 5
"""Points that `thin` keeps of one, at most."""


class Point(NamedTuple):
    """One point of a tag."""

    step: int
    wall_time: float
    value: float
    """May be NaN or infinite."""
    kept: bool
    """Whether no later session recomputed its step."""


def sampled(
    files: Mapping[str, Columns], segments: Segments, most: int, low: float = -np.inf, high: float = np.inf
) -> tuple[list[Point], int]:
    """Return some of a tag's points between two steps, bounds included, by step, and the number of all of them. Of each
    stretch of steps the smallest and the largest value are among them, the first and the last, and one that is no
    number.

    Args:
        files: the tag's points by file.
        segments: says which of them were kept.
        most: how many points are returned at most; at least 5.
        low: the first step.
        high: the last step.

    Example:
        >>> from supervisor_core.run.fold.run_fold import RunFold
        >>> points = Columns(np.array([1, 2]), np.array([1.7e9, 1.7e9]), np.array([0.5, 0.25]))
        >>> found, total = sampled({"a": points}, Segments(RunFold("mnist").run(1.7e9)), 50, low=2)
        >>> found[0].value, total
        (0.25, 1)
    """
    steps = np.concatenate([np.empty(0, np.int64), *(columns.steps for columns in files.values())])
    walls = np.concatenate([np.empty(0), *(columns.walls for columns in files.values())])
    values = np.concatenate([np.empty(0), *(columns.values for columns in files.values())])
    kept = np.concatenate([np.empty(0, bool), *(segments.kept(path, columns) for path, columns in files.items())])
    chosen = np.flatnonzero((steps >= low) & (steps <= high))
    chosen = chosen[np.argsort(steps[chosen], kind="stable")]
    total = len(chosen)
    if total > most:
        x = steps[chosen]
        edges = np.linspace(float(x[0]), float(x[-1]), most // _OF_A_STRETCH + 1)[1:-1]
        chosen = chosen[thin(x, values[chosen], edges, rises=True)]
    points = zip(steps[chosen], walls[chosen], values[chosen], kept[chosen], strict=True)
    return [Point(int(step), float(wall), float(value), bool(is_kept)) for step, wall, value, is_kept in points], total


def thin(x: NDArray[Any], values: Floats, edges: Floats, *, rises: bool) -> NDArray[np.int64]:
    """Return the positions of the points to draw, in order: of each pixel the first, the smallest, the largest, the
    last, and the first that is no number, so that no peak and no gap is lost.

    Args:
        x: where each point stands; at least one.
        values: its value.
        edges: where each pixel but the first begins; rising.
        rises: whether x never falls; pixels are then found without looking at every point.
    """
    order = None
    if rises:
        starts = np.unique(np.concatenate(([0], np.searchsorted(x, edges))))
        starts = starts[starts < len(x)]
    else:
        pixel = np.searchsorted(edges, x, side="right")
        order = np.argsort(pixel, kind="stable")
        pixel, values = pixel[order], values[order]
        starts = np.flatnonzero(np.concatenate(([True], pixel[1:] != pixel[:-1])))
    ends = np.append(starts[1:], len(x))
    kept = [starts, ends - 1]
    for extreme in (np.fmin, np.fmax):
        wanted = np.repeat(extreme.reduceat(values, starts), ends - starts)
        kept.append(_first_of_each(values == wanted, starts, ends))
    missing = np.isnan(values)
    if missing.any():
        kept.append(_first_of_each(missing, starts, ends))
    positions = np.unique(np.concatenate(kept))
    return positions if order is None else np.sort(order[positions])


def _first_of_each(hit: NDArray[np.bool_], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the first position that is hit in each group; none of a group without one."""
    positions = np.flatnonzero(hit)
    if not len(positions):
        return positions
    first = np.searchsorted(positions, starts)
    found = positions[np.minimum(first, len(positions) - 1)]
    return found[(found >= starts) & (found < ends)]
