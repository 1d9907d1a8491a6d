"""`PointsBuilder`: scalars on their way from records to columns, one column set per tag."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from supervisor_core.events.chunk import Points
from supervisor_core.events.vector_decode import Column

MAX_TAGS = 50_000
"""So many tags of one file are read, the first."""

_Lists = tuple[list[int], list[int], list[float], list[float]]
_Item = TypeVar("_Item", bound=np.generic)
_Arrays = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]


class PointsBuilder:
    """Takes scalars one by one and in bulk, in any order; hands them out in the order of the file.

    Args:
        tags: those that the file has so far; those are added that are taken.
    """

    def __init__(self, tags: set[str]) -> None:
        self._known = tags
        self.left_out = 0
        """Scalars of tags beyond `MAX_TAGS`."""
        self._single: dict[str, _Lists] = {}
        self._tags: dict[str, int] = {}
        self._numbers: list[NDArray[np.uint32]] = []
        self._pieces: list[_Arrays] = []

    def add(self, tag: str, offset: int, step: int, wall: float, value: float) -> None:
        """Take one scalar."""
        lists = self._single.get(tag)
        if lists is None:
            if not self._is_admitted(tag):
                self.left_out += 1
                return
            lists = self._single[tag] = ([], [], [], [])
        lists[0].append(offset)
        lists[1].append(step)
        lists[2].append(wall)
        lists[3].append(value)

    def add_column(
        self, column: Column, offsets: NDArray[np.int64], steps: NDArray[np.int64], walls: NDArray[np.float64]
    ) -> None:
        """Take one scalar of each of many records."""
        tags = [tag.decode("utf-8", "replace") for tag in column.tags]
        admitted = [self._is_admitted(tag) for tag in tags]
        which, values = column.which, column.values
        if not all(admitted):
            kept = np.array(admitted)[np.zeros(len(offsets), np.int64) if which is None else which]
            self.left_out += len(kept) - int(np.count_nonzero(kept))
            if which is None or not kept.any():
                return
            which, offsets, steps, walls, values = which[kept], offsets[kept], steps[kept], walls[kept], values[kept]
        numbers = np.array(
            [self._number(tag) if good else 0 for tag, good in zip(tags, admitted, strict=True)], np.uint32
        )
        self._numbers.append(np.full(len(offsets), numbers[0]) if which is None else numbers[which])
        self._pieces.append((offsets, steps, walls, values))

    def _is_admitted(self, tag: str) -> bool:
        if tag in self._known:
            return True
        if len(self._known) >= MAX_TAGS:
            return False
        self._known.add(tag)
        return True

    def points(self) -> dict[str, Points]:
        """Return everything taken, by tag."""
        single = {tag: _arrays(lists) for tag, lists in self._single.items()}
        if not self._pieces:  # as it is at most looks: one by one means in order
            return {tag: Points(*arrays) for tag, arrays in single.items()}
        numbers = [np.full(len(arrays[0]), self._number(tag), np.uint32) for tag, arrays in single.items()]
        pieces = [*single.values(), *self._pieces]
        return self._by_tag(np.concatenate([*numbers, *self._numbers]), pieces)

    def _number(self, tag: str) -> int:
        return self._tags.setdefault(tag, len(self._tags))

    def _by_tag(self, numbers: NDArray[np.uint32], pieces: list[_Arrays]) -> dict[str, Points]:
        order = None
        if len(self._tags) > 1:
            # Sorting two-byte numbers is a matter of counting them.
            order = np.argsort(numbers.astype(np.uint16) if len(self._tags) < 65536 else numbers, kind="stable")
        # Column by column, so that the memory of one in between serves the next.
        offsets, steps = (
            _gathered([piece[0] for piece in pieces], order),
            _gathered([piece[1] for piece in pieces], order),
        )
        walls, values = (
            _gathered([piece[2] for piece in pieces], order),
            _gathered([piece[3] for piece in pieces], order),
        )
        bounds = np.cumsum(np.bincount(numbers, minlength=len(self._tags))).tolist()
        out = {}
        for tag, first, last in zip(self._tags, [0, *bounds], bounds, strict=False):
            part = slice(first, last)
            out[tag] = Points(*_ordered((offsets[part], steps[part], walls[part], values[part])))
        return out


def _gathered(pieces: list[NDArray[_Item]], order: NDArray[np.int64] | None) -> NDArray[_Item]:
    column = np.concatenate(pieces)
    return column if order is None else column[order]


def _arrays(lists: _Lists) -> _Arrays:
    return (
        np.array(lists[0], np.int64),
        np.array(lists[1], np.int64),
        np.array(lists[2], np.float64),
        np.array(lists[3], np.float64),
    )


def _ordered(arrays: _Arrays) -> _Arrays:
    offsets = arrays[0]
    if len(offsets) < 2 or (offsets[1:] >= offsets[:-1]).all():
        return arrays
    order = np.argsort(offsets, kind="stable")
    return arrays[0][order], arrays[1][order], arrays[2][order], arrays[3][order]
