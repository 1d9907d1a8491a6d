"""`ChunkBuilder`: collects the records of one read of a file, and makes a `Chunk` of them."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from supervisor_core.base.errors import EventsError
from supervisor_core.events.chunk import Chunk, Mark, Points, Problem, SessionMark, TelemetryMark
from supervisor_core.events.hparams import HParam
from supervisor_core.events.payload import Decoded
from supervisor_core.events.telemetry import from_json
from supervisor_core.events.vector_decode import Column, VectorDecoder

_CREATED = re.compile(r"tfevents\.(\d{1,15})(?:\.|$)")
_PROCESS = re.compile(r"tfevents\.\d+\.(?P<host>.+)\.(?P<pid>\d+)\.\d+(\.v2)?$")
_ADDRESS = re.compile(r"tfevents\.\d+\.\d+\.\d+\.\d+\.\d+(\.v2)?$")
_MARK_BYTES = 64
_KEPT_PROBLEMS = 1_000

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


@lru_cache(maxsize=4096)
def created_at(path: str) -> float | None:
    """Return the seconds in an events file's name; None where it has none."""
    found = _CREATED.search(path.rpartition("/")[2])
    return wall_secs(float(found.group(1))) if found else None


def writer_of(path: str) -> tuple[str, str] | None:
    """Return host and process of the writer of an events file, from its name; None where it has none.

    Example:
        >>> writer_of("/runs/a/events.out.tfevents.1700000000.node-7.example.org.4711.0001")
        ('node-7.example.org', '4711')
    """
    found = _PROCESS.search(path)
    return (found["host"], found["pid"]) if found and not _ADDRESS.search(path) else None


def host_of(paths: Iterable[str]) -> str | None:
    """Return the host on which events files were written, from the first name that has one; None without one."""
    return next((writer[0] for writer in map(writer_of, paths) if writer is not None), None)


class ChunkBuilder:
    """Takes records in the order of the file.

    Args:
        tags: the file's tags so far; new ones are added.
    """

    def __init__(self, tags: set[str]) -> None:
        self.records = 0
        self.bytes = 0
        self.telemetry_bytes = 0
        """Length of decoded telemetry and session logs; one byte of JSON may take thirty in memory."""
        self.problems: list[Problem] = []
        self._walls: list[float] = []
        """Wall times: the first record's is the first, the latest is among them."""
        self._steps: list[int] = []
        """Of the records that hold a summary: the first and the last are the first and the last of these, and the
        largest is among them."""
        self._marks: list[Mark] = []
        self._hparams: dict[str, HParam] | None = None
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
        self._walls.append(wall_secs(event.wall))
        if event.has_summary:
            self._steps.append(event.step)
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
        walls, steps, good = decoded.walls, decoded.steps, decoded.done.copy()
        summary = good.copy()
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
        self._walls += [float(walls[0]), float(walls.max())]
        if not summary.all():
            steps = steps[summary]
        if len(steps):
            self._steps += [int(steps[0]), int(steps.max()), int(steps[-1])]

    def _take(self, offset: int, event: Decoded) -> None:
        wall, step = wall_secs(event.wall), event.step
        for scalar in event.scalars:
            self._points.add(scalar.tag, offset, step, wall, scalar.value)
        for status, path in event.sessions:
            self.telemetry_bytes += _MARK_BYTES
            self._marks.append(SessionMark(offset=offset, at=wall, step=step, status=status, checkpoint_path=path))
        if event.hparams:
            self._hparams = event.hparams
        for kind, text in event.telemetry:
            self.telemetry_bytes += len(text)
            try:
                self._marks.append(TelemetryMark(offset=offset, at=wall, step=step, record=from_json(kind, text)))
            except EventsError as error:
                self.add_problem(Problem(kind="telemetry", offset=offset, text=str(error)))

    def chunk(self, path: str, created_at: float | None, *, from_start: bool) -> Chunk:
        """Return all records so far as a chunk."""
        return Chunk(
            path=path,
            from_start=from_start,
            records=self.records,
            bytes=self.bytes,
            created_at=created_at,
            first_at=self._walls[0] if self._walls else None,
            last_at=max(self._walls, default=None),
            first_step=self._steps[0] if self._steps else None,
            last_step=self._steps[-1] if self._steps else None,
            max_step=max(self._steps, default=None),
            marks=tuple(self._marks),
            scalars=self._points.points(),
            hparams=self._hparams,
            problems=tuple(self.problems),
        )


MAX_TAGS = 50_000
"""Limit of the tags read of one file, the first ones."""

Lists = tuple["array[int]", "array[int]", "array[float]", "array[float]"]
"""Scalars of one tag: the offsets of their records, steps, wall times, values."""


class PointsBuilder:
    """Collects scalars one by one and in bulk, in any order; returns them in the order of the file.

    Args:
        tags: the file's tags so far; new ones are added.
    """

    def __init__(self, tags: set[str]) -> None:
        self._known = tags
        self.left_out = 0
        """Scalars of tags beyond `MAX_TAGS`."""
        self._single: dict[str, Lists] = {}
        self._tags: dict[str, int] = {}
        self._numbers: list[NDArray[np.uint32]] = []
        self._pieces: list[Points] = []

    def add(self, tag: str, offset: int, step: int, wall: float, value: float) -> None:
        """Add one scalar."""
        lists = self.lists(tag)
        if lists is None:
            self.left_out += 1
            return
        lists[0].append(offset)
        lists[1].append(step)
        lists[2].append(wall)
        lists[3].append(value)

    def lists(self, tag: str) -> Lists | None:
        """Return the lists of a tag, to which scalars may be appended one by one; None for a tag beyond `MAX_TAGS`."""
        lists = self._single.get(tag)
        if lists is None and self._is_admitted(tag):
            lists = self._single[tag] = (array("q"), array("q"), array("d"), array("d"))
        return lists

    def add_column(
        self, column: Column, offsets: NDArray[np.int64], steps: NDArray[np.int64], walls: NDArray[np.float64]
    ) -> None:
        """Add one scalar of each of many records."""
        tags = [tag.decode("utf-8", "replace") for tag in column.tags]
        admitted = [self._is_admitted(tag) for tag in tags]
        which, points = column.which, Points(offsets, steps, walls, column.values)
        if not all(admitted):
            kept = np.array(admitted)[np.zeros(len(offsets), np.int64) if which is None else which]
            self.left_out += len(kept) - int(np.count_nonzero(kept))
            if which is None or not kept.any():
                return
            which, points = which[kept], points.taken(kept)
        numbers = np.array(
            [self._number(tag) if good else 0 for tag, good in zip(tags, admitted, strict=True)], np.uint32
        )
        self._numbers.append(np.full(len(points), numbers[0]) if which is None else numbers[which])
        self._pieces.append(points)

    def _is_admitted(self, tag: str) -> bool:
        if tag in self._known:
            return True
        if len(self._known) >= MAX_TAGS:
            return False
        self._known.add(tag)
        return True

    def points(self) -> dict[str, Points]:
        """Return all scalars, by tag."""
        single = {tag: _points(lists) for tag, lists in self._single.items()}
        if not self._pieces:  # the common case; scalars added one by one are in order
            return single
        numbers = [np.full(len(points), self._number(tag), np.uint32) for tag, points in single.items()]
        return self._by_tag(np.concatenate([*numbers, *self._numbers]), [*single.values(), *self._pieces])

    def _number(self, tag: str) -> int:
        return self._tags.setdefault(tag, len(self._tags))

    def _by_tag(self, numbers: NDArray[np.uint32], pieces: list[Points]) -> dict[str, Points]:
        order = None
        if len(self._tags) > 1:
            # Sorting two-byte numbers is a matter of counting them.
            order = np.argsort(numbers.astype(np.uint16) if len(self._tags) < 65536 else numbers, kind="stable")
        points = Points.joined(pieces, order)
        bounds = np.cumsum(np.bincount(numbers, minlength=len(self._tags))).tolist()
        return {
            tag: _in_file_order(points.taken(slice(first, last)))
            for tag, first, last in zip(self._tags, [0, *bounds], bounds, strict=False)
        }


def _points(lists: Lists) -> Points:
    offsets, steps, walls, values = lists
    return Points(
        np.frombuffer(offsets, np.int64),
        np.frombuffer(steps, np.int64),
        np.frombuffer(walls, np.float64),
        np.frombuffer(values, np.float64),
    )


def _in_file_order(points: Points) -> Points:
    offsets = points.offsets
    if len(points) < 2 or (offsets[1:] >= offsets[:-1]).all():
        return points
    return points.taken(np.argsort(offsets, kind="stable"))
