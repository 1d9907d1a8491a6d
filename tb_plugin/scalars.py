"""A tag's values in a window, thinned to what can be drawn, and never changed: each is a point that was written.

The smoothed value of each comes beside it, taken over all of the tag's points before any is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from supervisor_core.events.columns import Columns
from supervisor_core.run.fold.points import RunningTime, Segments, thin
from tb_plugin.run_data import RunView

PLAIN_POINTS_PER_PIXEL = 4
"""With at most this many points per pixel, all are kept."""


Floats = NDArray[np.float64]


@dataclass(frozen=True)
class _Part:
    """What one session wrote into one file, as far as it is in the window."""

    owner: int
    x: NDArray[Any]
    columns: Columns
    smoothed: Floats
    """The values themselves where nothing is smoothed."""
    rises: bool
    """Whether x never falls."""

    def thinned(self, edges: Floats) -> _Part:
        if len(self.x) == 1:
            return self
        positions = thin(self.x, self.columns.values, edges, rises=self.rises)
        is_smoothed = self.smoothed is not self.columns.values
        columns = self.columns.taken(positions)
        means = pixel_means(self.x, self.smoothed, edges, positions) if is_smoothed else columns.values
        return _Part(self.owner, self.x[positions], columns, means, self.rises)


def scalar_window(
    files: Mapping[str, Columns],
    segments: Segments,
    *,
    by_step: bool = False,
    running: RunningTime | None = None,
    low: float,
    high: float,
    pixels: int,
    smoothing: float = 0.0,
) -> tuple[Mapping[str, NDArray[Any]], Mapping[str, Any]]:
    """Return the points between two moments, steps, or running times, bounds included: what ``scalars`` answers as
    columns, and what it says of them.

    Args:
        files: the tag's points by file.
        segments: which session each point is of.
        by_step: whether the bounds are steps; else they are wall times.
        running: the run's, if the bounds are running times. There is a column more then.
        low: the lower bound; may be infinite, as the upper one.
        high: the upper bound.
        pixels: how many columns the window will be drawn in.
        smoothing: weight of the moving average, from 0, which smooths nothing, to below 1.
    """

    def axis(columns: Columns) -> NDArray[Any]:
        return columns.steps if by_step else columns.walls if running is None else running.of(columns.walls)

    parts = list(_inside(_smoothed(files, segments, smoothing), axis, low, high))
    found = sum(len(part.x) for part in parts)
    thinned = False
    if found > PLAIN_POINTS_PER_PIXEL * pixels:
        left = low if np.isfinite(low) else float(min(part.x.min() for part in parts))
        right = high if np.isfinite(high) else float(max(part.x.max() for part in parts))
        edges = np.linspace(left, right, pixels + 1)[1:-1]
        parts = [part.thinned(edges) for part in parts]
        thinned = sum(len(part.x) for part in parts) < found
    owners = list(dict.fromkeys(part.owner for part in parts))
    position = {owner: float(index) for index, owner in enumerate(owners)}
    columns: dict[str, list[NDArray[Any]]] = {
        "wall": [part.columns.walls for part in parts],
        "step": [part.columns.steps for part in parts],
        "value": [part.columns.values for part in parts],
        "segment": [np.full(len(part.x), position[part.owner]) for part in parts],
    }
    if running is not None:
        columns["running"] = [part.x for part in parts]
    if smoothing:
        columns["smoothed"] = [part.smoothed for part in parts]
    header = {"points": found, "thinned": thinned, "segments": segments.describe(owners)}
    return {name: np.concatenate([np.empty(0), *pieces]) for name, pieces in columns.items()}, header


def _smoothed(files: Mapping[str, Columns], segments: Segments, smoothing: float) -> list[tuple[int, Columns, Floats]]:
    """Return what each session wrote into each file, by its segment, with the smoothed values."""
    pieces = [(owner, columns) for path, points in files.items() for owner, columns in segments.split(path, points)]
    if not smoothing:
        return [(owner, columns, columns.values) for owner, columns in pieces]
    of_owner: dict[int, list[Columns]] = {}
    for owner, columns in pieces:
        of_owner.setdefault(owner, []).append(columns)
    whole = [
        (
            np.concatenate([columns.values for columns in pieces]),
            np.concatenate([columns.steps for columns in pieces]),
            segments.abandoned_after(owner),
        )
        for owner, pieces in of_owner.items()
    ]
    left = dict(zip(of_owner, smooth(whole, smoothing), strict=True))
    found = []
    for owner, columns in pieces:
        values, left[owner] = np.split(left[owner], [len(columns.values)])
        found.append((owner, columns, values))
    return found


def _inside(
    pieces: Sequence[tuple[int, Columns, Floats]], axis: Callable[[Columns], NDArray[Any]], low: float, high: float
) -> Iterator[_Part]:
    for owner, columns, smoothed in pieces:
        x = axis(columns)
        rises = bool(len(x)) and bool(np.all(x[1:] >= x[:-1])) and bool(np.isfinite(x[0]) and np.isfinite(x[-1]))
        if rises:
            chosen: Any = slice(np.searchsorted(x, low), np.searchsorted(x, high, side="right"))
        else:
            chosen = np.flatnonzero((x >= low) & (x <= high) & np.isfinite(x))
        taken = columns.taken(chosen)
        # Where nothing is smoothed both are the same object: `thinned` has then nothing to average.
        part = _Part(owner, x[chosen], taken, taken.values if smoothed is columns.values else smoothed[chosen], rises)
        if len(part.x):
            yield part


_GROWTH = 1e100
"""How far powers of the weight may grow within a block: far from overflow, and each sum is exact to its last term."""
_MOST_PER_BLOCK = 4096

_Average = tuple[float, float]
"""An average that has taken some values: their weighted sum, and the weight that is still missing."""


def smooth(segments: Sequence[tuple[Floats, NDArray[np.int64], int | None]], weight: float) -> list[Floats]:
    """Return the smoothed values of each segment.

    Args:
        segments: in their order, each with its values, their steps, and the step after which it was abandoned.
        weight: of the average so far against the next value, above 0 and below 1.

    Example:
        >>> smooth([(np.array([1.0, 3.0]), np.array([0, 1]), None)], 0.5)[0].tolist()
        [1.0, 2.3333333333333335]
    """
    average = (0.0, 1.0)
    found = []
    for values, steps, limit in segments:
        beyond = np.flatnonzero(steps > limit) if limit is not None else np.empty(0, np.int64)
        cut = int(beyond[0]) if len(beyond) else len(values)
        kept, average = _along(values[:cut], average, weight)
        abandoned, _ = _along(values[cut:], average, weight)
        found.append(np.concatenate([kept, abandoned]))
    return found


def pixel_means(x: NDArray[Any], smoothed: Floats, edges: Floats, positions: NDArray[np.int64]) -> Floats:
    """Return, at positions that thinning has left, the mean of the smoothed values in each one's pixel: extremes are
    what is left, and a line through them alone would not be the average's."""
    pixel = np.searchsorted(edges, x, side="right")
    pixel -= pixel.min()
    finite = np.isfinite(smoothed)
    most = int(pixel.max()) + 1
    sums = np.bincount(pixel[finite], smoothed[finite], minlength=most)
    counts = np.bincount(pixel[finite], minlength=most)
    means = sums / np.maximum(counts, 1)
    return np.where(finite[positions], means[pixel[positions]], smoothed[positions])


def _along(values: Floats, average: _Average, weight: float) -> tuple[Floats, _Average]:
    """Return the smoothed values and the average after them. What is not finite is passed on, and not averaged."""
    shown = values.astype(np.float64)
    positions = np.flatnonzero(np.isfinite(shown))
    count = len(positions)
    if not count:
        return shown, average
    before, missing = average
    block = max(1, min(_MOST_PER_BLOCK, int(np.log(_GROWTH) / -np.log(weight))))
    scale = float(np.max(np.abs(shown[positions]))) or 1.0
    rows = -(-count // block)
    padded = np.zeros(rows * block)
    padded[:count] = shown[positions] / scale
    powers = weight ** np.arange(block)
    # Within a block: the sum of w^(k-j) x_j, as w^k times a running sum of x_j / w^j.
    inner = np.cumsum(padded.reshape(rows, block) / powers, axis=1) * powers * (1 - weight)
    carried = np.empty(rows)
    carry = before / scale
    for row, last in enumerate(inner[:, -1].tolist()):
        carried[row] = carry
        carry = carry * weight**block + last
    sums = (inner + carried[:, None] * (powers * weight)).ravel()[:count]
    weights_missing = missing * weight ** np.arange(1, count + 1)
    shown[positions] = sums / (1 - weights_missing) * scale
    return shown, (float(sums[-1]) * scale, float(weights_missing[-1]))


def running_time_of(shown: RunView) -> RunningTime:
    """Return the running time of a run; see `RunView.once`."""
    return RunningTime(shown.run.sessions)


def segments_of(shown: RunView) -> Segments:
    """Return the segments of a run's points; see `RunView.once`."""
    return Segments(shown.run)
