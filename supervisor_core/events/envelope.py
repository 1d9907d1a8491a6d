"""`envelope`: of any number of points, the few that a line of so many pixels shows.

For each pixel the first, smallest, largest and last value: a line through these covers the same pixels as a line
through all points. (Jugel et al., "M4: A Visualization-Oriented Time Series Data Aggregation", VLDB 2014.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from supervisor_core.events.chunk import Points
from supervisor_core.events.columns import Columns

Axis = Literal["step", "wall"]


@dataclass(frozen=True, slots=True, eq=False)
class Envelope:
    """One row for each pixel that has a finite value, from left to right: at most as many rows as pixels."""

    pixels: NDArray[np.int64]
    """Which pixel, from 0."""
    counts: NDArray[np.int64]
    """How many finite values it stands for."""
    x_first: NDArray[np.float64]
    """Step or wall time of the first of them, in the order of the columns."""
    x_last: NDArray[np.float64]
    first: NDArray[np.float64]
    minimum: NDArray[np.float64]
    maximum: NDArray[np.float64]
    last: NDArray[np.float64]
    nonfinite: int
    """How many values between the bounds are NaN or infinite; they are in no row."""
    before: tuple[float, float] | None
    """The finite point next to the left bound, outside: where a line comes in from."""
    after: tuple[float, float] | None
    """The finite point next to the right bound, outside."""

    def __len__(self) -> int:
        return len(self.pixels)


def envelope(points: Columns | Points, x_min: float, x_max: float, pixels: int, by: Axis = "step") -> Envelope:
    """Return what a line of ``pixels`` pixels from ``x_min`` to ``x_max``, both included, shows of some points.

    Where x goes down (a restart), a pixel stands for all points that fall on it, whenever they were written; cut the
    columns first to draw each session as a line of its own.

    Args:
        points: columns in the order of the file.
        x_min: the left bound: a step, or seconds since the epoch.
        x_max: the right bound.
        pixels: how many, at least 1.
        by: what x is.

    Raises:
        ValueError: if there is no pixel, or the bounds are no numbers in order.
    """
    if pixels < 1 or not x_min <= x_max:
        raise ValueError(f"An envelope needs a pixel and bounds in order; got {pixels} pixels, {x_min} to {x_max}.")
    x = (points.steps if by == "step" else points.walls).astype(np.float64)
    y = points.values
    within = (x >= x_min) & (x <= x_max)
    finite = np.isfinite(y)
    nonfinite = int(np.count_nonzero(within & ~finite))
    before, after = (
        _outermost(x, y, finite & (x < x_min), last=True),
        _outermost(x, y, finite & (x > x_max), last=False),
    )
    kept = within & finite
    x, y = x[kept], y[kept]
    span = float(x_max) - float(x_min)
    # Divided first: a span of steps may be more than a float can be multiplied by.
    place = (
        np.minimum(((x - x_min) / span * pixels).astype(np.int64), pixels - 1) if span else np.zeros(len(x), np.int64)
    )
    if len(place) > 1 and (place[1:] < place[:-1]).any():
        order = np.argsort(place, kind="stable")
        place, x, y = place[order], x[order], y[order]
    starts = np.flatnonzero(np.diff(place, prepend=-1))
    ends = np.append(starts[1:], len(place))
    if not len(place):
        starts = ends = np.empty(0, np.int64)
    return Envelope(
        pixels=place[starts],
        counts=ends - starts,
        x_first=x[starts],
        x_last=x[ends - 1],
        first=y[starts],
        minimum=np.minimum.reduceat(y, starts) if len(y) else y,
        maximum=np.maximum.reduceat(y, starts) if len(y) else y,
        last=y[ends - 1],
        nonfinite=nonfinite,
        before=before,
        after=after,
    )


def _outermost(
    x: NDArray[np.float64], y: NDArray[np.float64], outside: NDArray[np.bool_], *, last: bool
) -> tuple[float, float] | None:
    """The point outside that is nearest; of several at one place, the one that a line through them meets."""
    places = np.flatnonzero(outside)
    if not len(places):
        return None
    found = x[places]
    nearest = places[len(found) - 1 - int(found[::-1].argmax())] if last else places[int(found.argmin())]
    return float(x[nearest]), float(y[nearest])
