"""TensorBoard's smoothing, taken over every point: an exponential average, debiased.

It runs along what was kept: the points that a restart abandoned continue the average, and do not feed it. It is taken
before points are thinned, from the tag's first point on, so neither the width nor the zoom of a chart changes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_GROWTH = 1e100
"""How far powers of the weight may grow within a block: far from overflow, and each sum is exact to its last term."""
_MOST_PER_BLOCK = 4096

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class _Average:
    """An average that has taken some values: their weighted sum, and the weight that is still missing."""

    sum: float = 0.0
    missing: float = 1.0


def smooth(segments: Sequence[tuple[Floats, NDArray[np.int64], int | None]], weight: float) -> list[Floats]:
    """Return the smoothed values of each segment.

    Args:
        segments: in their order, each with its values, their steps, and the step after which it was abandoned.
        weight: of the average so far against the next value, above 0 and below 1.

    Example:
        >>> smooth([(np.array([1.0, 3.0]), np.array([0, 1]), None)], 0.5)[0].tolist()
        [1.0, 2.3333333333333335]
    """
    average = _Average()
    found = []
    for values, steps, limit in segments:
        beyond = np.flatnonzero(steps > limit) if limit is not None else np.empty(0, np.int64)
        cut = int(beyond[0]) if len(beyond) else len(values)
        kept, average = _along(values[:cut], average, weight)
        abandoned, _ = _along(values[cut:], average, weight)
        found.append(np.concatenate([kept, abandoned]))
    return found


def pixel_means(x: NDArray[Any], smoothed: Floats, edges: Floats, places: NDArray[np.int64]) -> Floats:
    """Return, at places that thinning has left, the mean of the smoothed values in each one's pixel: extremes are what
    is left, and a line through them alone would not be the average's."""
    pixel = np.searchsorted(edges, x, side="right")
    finite = np.isfinite(smoothed)
    sums = np.bincount(pixel[finite], smoothed[finite], minlength=len(edges) + 1)
    counts = np.bincount(pixel[finite], minlength=len(edges) + 1)
    means = sums / np.maximum(counts, 1)
    return np.where(finite[places], means[pixel[places]], smoothed[places])


def _along(values: Floats, average: _Average, weight: float) -> tuple[Floats, _Average]:
    """Return the smoothed values and the average after them. What is not finite is passed on, and not averaged."""
    shown = values.astype(np.float64)
    places = np.flatnonzero(np.isfinite(shown))
    count = len(places)
    if not count:
        return shown, average
    block = max(1, min(_MOST_PER_BLOCK, int(np.log(_GROWTH) / -np.log(weight))))
    scale = float(np.max(np.abs(shown[places]))) or 1.0
    rows = -(-count // block)
    padded = np.zeros(rows * block)
    padded[:count] = shown[places] / scale
    powers = weight ** np.arange(block)
    # Within a block: the sum of w^(k-j) x_j, as w^k times a running sum of x_j / w^j.
    inner = np.cumsum(padded.reshape(rows, block) / powers, axis=1) * powers * (1 - weight)
    carried = np.empty(rows)
    carry = average.sum / scale
    for row, last in enumerate(inner[:, -1].tolist()):
        carried[row] = carry
        carry = carry * weight**block + last
    sums = (inner + carried[:, None] * (powers * weight)).ravel()[:count]
    missing = average.missing * weight ** np.arange(1, count + 1)
    shown[places] = sums / (1 - missing) * scale
    return shown, _Average(float(sums[-1]) * scale, float(missing[-1]))
