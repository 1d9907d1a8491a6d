"""`Polyline`: points of a growing curve, of which a straight line explains most."""

from __future__ import annotations

from array import array
from collections.abc import Iterator


class Polyline:
    """Points with increasing ``x``; those that a straight line between kept ones explains are dropped.

    An addition costs the same at any length.

    Args:
        error: how far a dropped point may be from the line, in ``y``.

    Example:
        >>> line = Polyline(0.1)
        >>> for x in range(100):
        ...     line.add(x, 2.0 * x)
        >>> list(line.points())
        [(0, 0.0), (99, 198.0)]
    """

    __slots__ = ("_high", "_low", "error", "xs", "ys")

    def __init__(self, error: float) -> None:
        self.error = error
        self.xs = array("q")
        self.ys = array("d")
        """The kept points. The newest is the last, and may be dropped when the next one comes."""
        self._low = self._high = 0.0
        """Slopes from the last point but one of the lines that pass all points dropped after it, and the last."""

    def __len__(self) -> int:
        return len(self.xs)

    def add(self, x: int, y: float) -> None:
        """Add a point; its ``x`` must be above all others."""
        xs, ys = self.xs, self.ys
        if len(xs) > 1:
            dx = x - xs[-2]
            slope, most = (y - ys[-2]) / dx, self.error / dx
            if self._low <= slope <= self._high:
                xs[-1], ys[-1] = x, y
                self._low, self._high = max(self._low, slope - most), min(self._high, slope + most)
                return
        xs.append(x)
        ys.append(y)
        if len(xs) > 1:
            dx = x - xs[-2]
            slope, most = (y - ys[-2]) / dx, self.error / dx
            self._low, self._high = slope - most, slope + most

    def points(self) -> Iterator[tuple[int, float]]:
        """Yield the kept points, oldest first."""
        return zip(self.xs, self.ys, strict=True)
