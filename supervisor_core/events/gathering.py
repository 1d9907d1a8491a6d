"""`Gathering`: what one look at a file has found so far, on its way to becoming a `Chunk`."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from supervisor_core.errors import EventsError
from supervisor_core.events.chunk import Chunk, Mark, Problem, SessionMark, TelemetryMark
from supervisor_core.events.payload import Decoded
from supervisor_core.events.points import PointsBuilder
from supervisor_core.events.telemetry import from_json
from supervisor_core.events.vector_decode import Bulk

_CREATED = re.compile(r"tfevents\.(\d{1,15})(?:\.|$)")
_MARK_BYTES = 64
_KEPT_PROBLEMS = 1_000
_BEFORE_ALL = float("-inf")

LAST_WALL_SECS = 1e11
"""No wall time in seconds is later (the year 5138); what is larger is in smaller units: milliseconds of today are ten
times that."""
_UNITS_PER_SEC = (1e3, 1e6, 1e9)


def wall_secs(wall: float) -> float:
    """Return a wall time in seconds, which its writer gave in seconds, milli-, micro- or nanoseconds; 0 for what is no
    time at all (NaN, negative), as writers say that do not know it.

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


class Gathering:
    """Takes records in the order of the file.

    Args:
        tags: those that the file has so far; those are added that are read.
    """

    def __init__(self, tags: set[str]) -> None:
        self.records = 0
        self.bytes = 0
        self.told_bytes = 0
        """Length of the telemetry, of which one byte of JSON may take thirty in memory, and of session logs."""
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
        """Scalars of tags that were too many."""
        return self._points.left_out

    def trouble(self, problem: Problem) -> None:
        """Take something that could not be read; the first ones are kept."""
        if len(self.problems) < _KEPT_PROBLEMS:
            self.problems.append(problem)

    def add(self, offset: int, length: int, event: Decoded) -> None:
        """Take one whole record, ``length`` bytes long with its framing."""
        self.records += 1
        self.bytes += length
        wall, step = wall_secs(event.wall), event.step
        if self._first_at is None:
            self._first_at = wall
        if wall > (_BEFORE_ALL if self._last_at is None else self._last_at):  # never so for NaN
            self._last_at = wall
        if event.has_summary:
            if self._max_step is None or self._first_step is None:
                self._first_step = self._max_step = step
            elif step > self._max_step:
                self._max_step = step
            self._last_step = step
        self._take(offset, event)

    def add_bulk(self, bulk: Bulk, offsets: NDArray[np.int64], length: int, rest: dict[int, Decoded]) -> None:
        """Take many records, ``length`` bytes long together.

        Args:
            bulk: those that were decoded together.
            offsets: where each record begins in the file, those of the rest included.
            length: bytes of all that are good, with their framing.
            rest: those that were decoded one by one, by their number.
        """
        walls, steps, good, summary = bulk.walls, bulk.steps, bulk.done.copy(), bulk.done.copy()
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
        for members, column in bulk.columns:
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
        """Take what an event holds."""
        wall, step = wall_secs(event.wall), event.step
        for scalar in event.scalars:
            self._points.add(scalar.tag, offset, step, wall, scalar.value)
        for status, path in event.sessions:
            self.told_bytes += _MARK_BYTES
            self._marks.append(SessionMark(offset=offset, at=wall, step=step, status=status, checkpoint_path=path))
        for kind, text in event.telemetry:
            self.told_bytes += len(text)
            try:
                record = from_json(kind, text)
            except EventsError as error:
                self.trouble(Problem(kind="telemetry", offset=offset, text=str(error)))
            else:
                self._marks.append(TelemetryMark(offset=offset, at=wall, step=step, record=record))

    def chunk(self, path: str, created_at: float | None, *, from_start: bool) -> Chunk:
        """Return everything taken so far."""
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
