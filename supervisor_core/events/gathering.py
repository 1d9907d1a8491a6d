"""`Gathering`: what one look at a file has found so far, on its way to becoming a `Chunk`."""

from __future__ import annotations

import re

import numpy as np

from supervisor_core.errors import EventsError
from supervisor_core.events.chunk import Chunk, Mark, Points, Problem, SessionMark, TelemetryMark
from supervisor_core.events.payload import Decoded
from supervisor_core.events.telemetry import from_json

_CREATED = re.compile(r"tfevents\.(\d{1,15})(?:\.|$)")


def created_at(path: str) -> float | None:
    """Return the seconds in an events file's name; None where it has none."""
    found = _CREATED.search(path.rpartition("/")[2])
    return float(found.group(1)) if found else None


class Gathering:
    """Takes records in the order of the file."""

    def __init__(self) -> None:
        self.records = 0
        self.bytes = 0
        self.problems: list[Problem] = []
        self._first_at: float | None = None
        self._last_at: float | None = None
        self._first_step: int | None = None
        self._last_step: int | None = None
        self._max_step: int | None = None
        self._marks: list[Mark] = []
        self._scalars: dict[str, tuple[list[int], list[int], list[float], list[float]]] = {}

    def add(self, offset: int, length: int, event: Decoded) -> None:
        """Take one whole record, ``length`` bytes long with its framing."""
        self.records += 1
        self.bytes += length
        wall, step = event.wall, event.step
        if self._first_at is None:
            self._first_at = wall
        if self._last_at is None or wall > self._last_at:
            self._last_at = wall
        if event.has_summary:
            if self._max_step is None or self._first_step is None:
                self._first_step = self._max_step = step
            elif step > self._max_step:
                self._max_step = step
            self._last_step = step
        for scalar in event.scalars:
            columns = self._scalars.get(scalar.tag)
            if columns is None:
                columns = self._scalars[scalar.tag] = ([], [], [], [])
            columns[0].append(offset)
            columns[1].append(step)
            columns[2].append(wall)
            columns[3].append(scalar.value)
        for status, path in event.sessions:
            self._marks.append(SessionMark(offset=offset, at=wall, step=step, status=status, checkpoint_path=path))
        for kind, text in event.telemetry:
            try:
                record = from_json(kind, text)
            except EventsError as error:
                self.problems.append(Problem(kind="telemetry", offset=offset, text=str(error)))
            else:
                self._marks.append(TelemetryMark(offset=offset, at=wall, step=step, record=record))

    def chunk(self, path: str, *, from_start: bool) -> Chunk:
        """Return everything taken so far."""
        scalars = {
            tag: Points(
                np.array(offsets, np.int64),
                np.array(steps, np.int64),
                np.array(walls, np.float64),
                np.array(values, np.float64),
            )
            for tag, (offsets, steps, walls, values) in self._scalars.items()
        }
        return Chunk(
            path=path,
            from_start=from_start,
            records=self.records,
            bytes=self.bytes,
            created_at=created_at(path),
            first_at=self._first_at,
            last_at=self._last_at,
            first_step=self._first_step,
            last_step=self._last_step,
            max_step=self._max_step,
            marks=tuple(self._marks),
            scalars=scalars,
            problems=tuple(self.problems),
        )
