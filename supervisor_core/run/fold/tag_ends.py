"""`TagEnds`: the first step and the last point of each scalar tag of an events file; `newest_values`: of a run.

Where a restart has undone the last point of a tag, and another one before it may have been kept, the newest kept value
is not known.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator

import numpy as np

from supervisor_core.events.chunk import Points
from supervisor_core.events.columns import Columns
from supervisor_core.run.fold.segments import Segments
from supervisor_core.run.model.tag_values import TagValues


class TagEnds:
    """The tags of one file, each with its first step and its last point."""

    __slots__ = ("_points", "_steps", "index")

    def __init__(self) -> None:
        self.index: dict[str, int] = {}
        """Each tag with its place in the columns."""
        self._steps = array("q")
        """Of each tag the first step in the file, and the last."""
        self._points = array("d")
        """Of each tag the wall time of its last point, and its value."""

    def add(self, tag: str, points: Points) -> None:
        """Add the next points of a tag."""
        place = self.index.setdefault(tag, len(self.index))
        if 2 * place == len(self._steps):
            self._steps.extend((int(points.steps[0]), 0))
            self._points.extend((0.0, 0.0))
        self._steps[2 * place + 1] = int(points.steps[-1])
        self._points[2 * place], self._points[2 * place + 1] = float(points.walls[-1]), float(points.values[-1])

    def last(self, place: int) -> tuple[int, float]:
        """Return step and value of the last point of the tag with a place."""
        return self._steps[2 * place + 1], self._points[2 * place + 1]

    def known(self, path: str, segments: Segments) -> Iterator[tuple[str, int | None]]:
        """Yield each tag of which the file has kept points, with the place of its last one; None where that was not
        kept, and an earlier one may have been.

        Args:
            path: of the file.
            segments: those of its run.
        """
        firsts, lasts = np.array(self._steps).reshape(-1, 2).T
        walls, values = np.array(self._points).reshape(-1, 2).T
        last_is_kept = segments.kept(path, Columns(lasts, walls, values)).tolist()
        if all(last_is_kept):
            yield from self.index.items()
            return
        first_is_kept = segments.kept(path, Columns(firsts, walls, values)).tolist()
        for tag, place in self.index.items():
            if last_is_kept[place]:
                yield tag, place
            elif first_is_kept[place]:
                yield tag, None


def newest_values(files: Iterable[tuple[str, TagEnds]], segments: Segments) -> TagValues:
    """Return the newest kept value of each tag.

    Args:
        files: path and tags of each, in the files' order.
        segments: say which points were kept.
    """
    found: dict[str, tuple[int, float] | None] = {}
    for path, ends in files:
        for tag, place in ends.known(path, segments):
            found[tag] = None if place is None else ends.last(place)
    known = {tag: point for tag, point in found.items() if point is not None}
    tags = tuple(sorted(known))
    points = [known[tag] for tag in tags]
    return TagValues(tags, array("q", [step for step, _ in points]), array("d", [value for _, value in points]))
