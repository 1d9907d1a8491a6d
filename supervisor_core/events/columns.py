"""`ColumnStore`: every scalar of a run, tag by tag, as columns that grow with its files."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from supervisor_core.events.chunk import Chunk, Points
from supervisor_core.events.index import RunIndex

_FIRST_ROWS, _LONG_ROWS = 16, 65_536
_ROW_BYTES = 24
MAX_COLUMNS = 200_000
"""Limit per run; there is one for each file and tag, which takes some 600 bytes besides its points."""


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """Scalars of one tag: three columns of one length, read-only, and unchanged while the store grows."""

    steps: NDArray[np.int64]
    walls: NDArray[np.float64]
    """Seconds since the epoch."""
    values: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.steps)

    def taken(self, chosen: slice | NDArray[np.int64]) -> Columns:
        """Return some of them: a slice, or places."""
        return Columns(self.steps[chosen], self.walls[chosen], self.values[chosen])


class ColumnStore:
    """Keeps all scalars of one run's chunks, without sampling: 24 bytes a point, and room to grow: a quarter more, of
    short columns as much again.

    Points are in the order of the files (that of their names) and within a file as they were written: steps may repeat
    and decrease. Not thread-safe; returned columns may be read by any thread.

    Example::

        store = ColumnStore()
        for chunk in run_index.refresh():
            store.add(chunk)
        loss = store.columns("loss")
    """

    def __init__(self) -> None:
        self.columns_held = 0
        """Number of columns: one for each file and tag."""
        self.left_out = 0
        """Points of columns beyond `MAX_COLUMNS`."""
        self._files: dict[str, dict[str, _Growing]] = {}
        self._joined: dict[str, Columns] = {}

    @property
    def tags(self) -> tuple[str, ...]:
        """Every tag that has a point, sorted."""
        return tuple(sorted({tag for tags in self._files.values() for tag in tags}))

    def __len__(self) -> int:
        """Return the number of points."""
        return sum(growing.size for tags in self._files.values() for growing in tags.values())

    @property
    def bytes_held(self) -> int:
        """The memory of the points, with the room to grow."""
        return sum(growing.bytes for tags in self._files.values() for growing in tags.values())

    def add(self, chunk: Chunk) -> None:
        """Append a chunk; one that is ``from_start`` replaces its file's earlier points."""
        if chunk.from_start and chunk.path in self._files:
            self.columns_held -= len(self._files.pop(chunk.path))
            self._joined.clear()
        if not chunk.scalars:
            return
        if chunk.path not in self._files:
            self._files[chunk.path] = {}
            self._files = dict(sorted(self._files.items()))
        tags = self._files[chunk.path]
        for tag, points in chunk.scalars.items():
            self._joined.pop(tag, None)
            growing = tags.get(tag)
            if growing is None:
                if self.columns_held >= MAX_COLUMNS:
                    self.left_out += len(points)
                    continue
                self.columns_held += 1
                growing = tags[tag] = _Growing()
            growing.append(points)

    def by_file(self, tag: str) -> dict[str, Columns]:
        """Return the points of a tag file by file, in the order of the files; empty for one that has none."""
        return {path: tags[tag].columns() for path, tags in self._files.items() if tag in tags}

    def columns(self, tag: str) -> Columns:
        """Return all points of a tag; empty columns for one that has none."""
        joined = self._joined.get(tag)
        if joined is None:
            parts = [tags[tag].columns() for tags in self._files.values() if tag in tags]
            joined = parts[0] if len(parts) == 1 else _join(parts)
            if parts:
                self._joined[tag] = joined
        return joined


def read_columns(directory: str, tag: str | None = None, seen: set[str] | None = None) -> ColumnStore:
    """Return the points of the events files in a directory.

    Args:
        tag: the only one that is wanted; None: all are.
        seen: gets the name of every tag.
    """
    store = ColumnStore()
    for chunk in RunIndex(".", directory).pieces():
        if seen is not None:
            seen.update(chunk.scalars)
        wanted = {name: points for name, points in chunk.scalars.items() if tag is None or name == tag}
        store.add(replace(chunk, scalars=wanted))
    return store


class _Growing:
    """Columns of one tag of one file, whose capacity doubles while they are short, and grows by a quarter then."""

    __slots__ = ("_columns", "size")

    def __init__(self) -> None:
        self.size = 0
        self._columns = _NOTHING

    @property
    def bytes(self) -> int:
        return _ROW_BYTES * len(self._columns.steps)

    def append(self, points: Points) -> None:
        size = self.size + len(points)
        if size > len(self._columns.steps):
            # The first part of a file is often all of it: no spare room before the second append.
            more = self.size if self.size < _LONG_ROWS else self.size // 4
            room = size if self.size == 0 else max(size, self.size + more, _FIRST_ROWS)
            before, self._columns = self.columns(), Columns(np.empty(room, np.int64), np.empty(room), np.empty(room))
            self._write(0, before)
        self._write(self.size, points)
        self.size = size

    def _write(self, start: int, points: Points | Columns) -> None:
        part = slice(start, start + len(points))
        self._columns.steps[part] = points.steps
        self._columns.walls[part] = points.walls
        self._columns.values[part] = points.values

    def columns(self) -> Columns:
        return _sealed(self._columns.taken(slice(self.size)))


_NOTHING = Columns(np.empty(0, np.int64), np.empty(0), np.empty(0))


def _join(parts: list[Columns]) -> Columns:
    parts = [_NOTHING, *parts]
    return _sealed(
        Columns(
            np.concatenate([part.steps for part in parts]),
            np.concatenate([part.walls for part in parts]),
            np.concatenate([part.values for part in parts]),
        )
    )


def _sealed(columns: Columns) -> Columns:
    for column in (columns.steps, columns.walls, columns.values):
        column.flags.writeable = False
    return columns
