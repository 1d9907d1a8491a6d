"""A tag's values in a window, thinned to what can be drawn, and never changed: each is a point that was written."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from supervisor_core.events.columns import Columns
from tb_plugin.data.segments import Segments

PLAIN_POINTS_PER_PIXEL = 4
"""Up to so many points per pixel there is nothing to thin: as many would be left."""


@dataclass(frozen=True)
class ScalarWindow:
    """What ``scalars`` answers."""

    columns: Mapping[str, NDArray[Any]]
    header: Mapping[str, Any]


def scalar_window(
    files: Mapping[str, Columns], segments: Segments, *, by_step: bool, low: float, high: float, pixels: int
) -> ScalarWindow:
    """Return the points between two moments, or steps, bounds included.

    Args:
        files: the tag's points by file; at least one.
        segments: tells which session each is of.
        by_step: whether the bounds are steps; else they are wall times.
        low: the lower bound; may be infinite, as the upper one.
        high: the upper bound.
        pixels: how many columns the window will be drawn in.
    """
    owners = {path: segments.assign(path, points.walls) for path, points in files.items()}
    walls = np.concatenate([points.walls for points in files.values()])
    steps = np.concatenate([points.steps for points in files.values()])
    values = np.concatenate([points.values for points in files.values()])
    owner = np.concatenate(list(owners.values()))
    x: NDArray[Any] = steps if by_step else walls
    chosen = np.flatnonzero((x >= low) & (x <= high) & np.isfinite(x))
    found, thinned = len(chosen), False
    present, owner = np.unique(owner[chosen], return_inverse=True)
    if found > PLAIN_POINTS_PER_PIXEL * pixels:
        kept = thin(x[chosen], values[chosen], owner, pixels, low, high)
        thinned = len(kept) < found
        chosen, owner = chosen[kept], owner[kept]
    return ScalarWindow(
        columns={"wall": walls[chosen], "step": steps[chosen], "value": values[chosen], "segment": owner},
        header={"points": found, "thinned": thinned, "segments": segments.describe([int(index) for index in present])},
    )


def thin(
    x: NDArray[Any], values: NDArray[np.float64], owner: NDArray[Any], pixels: int, low: float, high: float
) -> NDArray[np.int64]:
    """Return the places of the points to draw, in order: of each pixel and segment the first, the smallest, the
    largest, the last, and the first that is no number, so that no peak and no gap is lost.

    Args:
        x: where each point stands.
        values: its value.
        owner: its segment.
        pixels: how many columns there are between the bounds.
        low: the left bound; where it is infinite, the smallest x.
        high: the right bound; where it is infinite, the largest x.
    """
    left = low if np.isfinite(low) else float(x.min())
    right = high if np.isfinite(high) else float(x.max())
    scale = pixels / (right - left) if right - left > sys.float_info.min * pixels else 0.0
    pixel = np.minimum(((x - left) * scale).astype(np.int64), pixels - 1)
    key = owner * pixels + pixel
    order = None
    if len(key) > 1 and np.any(key[1:] < key[:-1]):
        order = np.argsort(key, kind="stable")
        key, values = key[order], values[order]
    starts = np.flatnonzero(np.concatenate(([True], key[1:] != key[:-1])))
    ends = np.append(starts[1:], len(key))
    kept = [starts, ends - 1]
    lengths = ends - starts
    for extreme in (np.fmin, np.fmax):
        wanted = np.repeat(extreme.reduceat(values, starts), lengths)
        kept.append(_first_of_each(values == wanted, starts, ends))
    missing = np.isnan(values)
    if missing.any():
        kept.append(_first_of_each(missing, starts, ends))
    places = np.unique(np.concatenate(kept))
    return places if order is None else np.sort(order[places])


def _first_of_each(hit: NDArray[np.bool_], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the first place that is hit in each group; none of a group without one."""
    places = np.flatnonzero(hit)
    if not len(places):
        return places
    first = np.searchsorted(places, starts)
    found = places[np.minimum(first, len(places) - 1)]
    return found[(found >= starts) & (found < ends)]
