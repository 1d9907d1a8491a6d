"""`ChunkBuilder`: collects the records of one read of a file, and makes a `Chunk` of them."""

from __future__ import annotations

import re
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from supervisor_core.errors import EventsError
from supervisor_core.events.chunk import Chunk, Mark, Points, Problem, SessionMark, TelemetryMark
from supervisor_core.events.payload import Decoded
from supervisor_core.events.telemetry import from_json
from supervisor_core.events.vector_decode import Column, VectorDecoder

_CREATED = re.compile(r"tfevents\.(\d{1,15})(?:\.|$)")
_MARK_BYTES = 64
_KEPT_PROBLEMS = 1_000
_BEFORE_ALL = float("-inf")

LAST_WALL_SECS = 1e11
"""Bound of a wall time in seconds (the year 5138); a larger one is in smaller units: today in milliseconds is ten times
that."""
_UNITS_PER_SEC = (1e3, 1e6, 1e9)


def wall_secs(wall: float) -> float:
    """Return in seconds a wall time that its writer gave in seconds, milli-, micro- or nanoseconds; 0, the value of
    writers without a clock, for one that is no time (NaN, negative).

    Example:
        >>> wall_secs(1.7e9), wall_secs(1.7e12), wall_secs(1.7e18)
        (1700000000.0, 1700000000.0, 1700000000.0)
    """
    if 0.0 <= wall <= LAST_WALL_SECS:
        return wall
    if not wall > 0.0:
        return 0.0
    return next((wall / units for units in _UNITS_PER_SEC if wall / units <= LAST_WALL_SECS), 0.0)


def created_at(path: str) -> float | None:
    """Return the seconds in an events file's name; None where it has none."""
    found = _CREATED.search(path.rpartition("/")[2])
    return wall_secs(float(found.group(1))) if found else None


class ChunkBuilder:
    """Takes records in the order of the file.

    Args:
        tags: the file's tags so far; new ones are added.
    """

    def __init__(self, tags: set[str]) -> None:
        self.records = 0
        self.bytes = 0
        self.telemetry_bytes = 0
        """Length of telemetry and session logs; one byte of JSON may take thirty in memory."""
        self.problems: list[Problem] = []
        self._first_at: float | None = None
        self._last_at: float | None = None
        self._first_step: int | None = None
        self._last_step: int | None = None
        self._max_step: int | None = None
        self._marks: list[Mark] = []
        self._points = PointsBuilder(tags)

    @property
    def left_out(self) -> int:
        """Scalars of tags beyond `MAX_TAGS`."""
        return self._points.left_out

    def add_problem(self, problem: Problem) -> None:
        """Add a problem; the first ones are kept."""
        if len(self.problems) < _KEPT_PROBLEMS:
            self.problems.append(problem)

    def add(self, offset: int, length: int, event: Decoded) -> None:
        """Add one whole record, ``length`` bytes long with its framing."""
        self.records += 1
        self.bytes += length
        wall, step = wall_secs(event.wall), event.step
        if self._first_at is None:
            self._first_at = wall
        if wall > (_BEFORE_ALL if self._last_at is None else self._last_at):  # False for NaN
            self._last_at = wall
        if event.has_summary:
            if self._max_step is None or self._first_step is None:
                self._first_step = self._max_step = step
            elif step > self._max_step:
                self._max_step = step
            self._last_step = step
        self._take(offset, event)

    def add_decoded(
        self, decoded: VectorDecoder, offsets: NDArray[np.int64], length: int, rest: dict[int, Decoded]
    ) -> None:
        """Add many records, ``length`` bytes long together.

        Args:
            decoded: the records that were decoded together.
            offsets: the offset of each record in the file, including those of ``rest``.
            length: bytes of all good records, with their framing.
            rest: the records that were decoded one by one, by their number.
        """
        walls, steps, good, summary = decoded.walls, decoded.steps, decoded.done.copy(), decoded.done.copy()
        if len(walls) and not (walls.min() >= 0.0 and walls.max() <= LAST_WALL_SECS):  # NaN is in neither
            walls[:] = [wall_secs(wall) for wall in walls.tolist()]
        for number, event in rest.items():
            walls[number], steps[number], good[number], summary[number] = (
                wall_secs(event.wall),
                event.step,
                True,
                event.has_summary,
            )
            self._take(int(offsets[number]), event)
        for members, column in decoded.columns:
            self._points.add_column(column, offsets[members], steps[members], walls[members])
        if not good.all():
            walls, steps, summary = walls[good], steps[good], summary[good]
        if not len(walls):
            return
        self.records += len(walls)
        self.bytes += length
        if self._first_at is None:
            self._first_at = float(walls[0])
        latest = float(np.fmax.reduce(walls))
        if latest > (_BEFORE_ALL if self._last_at is None else self._last_at):
            self._last_at = latest
        if not summary.all():
            steps = steps[summary]
        if len(steps):
            self._last_step, largest = int(steps[-1]), int(steps.max())
            if self._max_step is None or self._first_step is None:
                self._first_step, self._max_step = int(steps[0]), largest
            elif largest > self._max_step:
                self._max_step = largest

    def _take(self, offset: int, event: Decoded) -> None:
        """Add the content of an event."""
        wall, step = wall_secs(event.wall), event.step
        for scalar in event.scalars:
            self._points.add(scalar.tag, offset, step, wall, scalar.value)
        for status, path in event.sessions:
            self.telemetry_bytes += _MARK_BYTES
            self._marks.append(SessionMark(offset=offset, at=wall, step=step, status=status, checkpoint_path=path))
        for kind, text in event.telemetry:
            self.telemetry_bytes += len(text)
            try:
                record = from_json(kind, text)
            except EventsError as error:
                self.add_problem(Problem(kind="telemetry", offset=offset, text=str(error)))
            else:
                self._marks.append(TelemetryMark(offset=offset, at=wall, step=step, record=record))

    def chunk(self, path: str, created_at: float | None, *, from_start: bool) -> Chunk:
        """Return all records so far as a chunk."""
        return Chunk(
            path=path,
            from_start=from_start,
            records=self.records,
            bytes=self.bytes,
            created_at=created_at,
            first_at=self._first_at,
            last_at=self._last_at,
            first_step=self._first_step,
            last_step=self._last_step,
            max_step=self._max_step,
            marks=tuple(self._marks),
            scalars=self._points.points(),
            problems=tuple(self.problems),
        )


MAX_TAGS = 50_000
"""Limit of the tags read of one file, the first ones."""

_Lists = tuple[list[int], list[int], list[float], list[float]]
_Item = TypeVar("_Item", bound=np.generic)
_Arrays = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]


class PointsBuilder:
    """Collects scalars one by one and in bulk, in any order; returns them in the order of the file.

    Args:
        tags: the file's tags so far; new ones are added.
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
        """Add one scalar."""
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
        """Add one scalar of each of many records."""
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
        """Return all scalars, by tag."""
        single = {tag: _arrays(lists) for tag, lists in self._single.items()}
        if not self._pieces:  # the common case; scalars added one by one are in order
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
