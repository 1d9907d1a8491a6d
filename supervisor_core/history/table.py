"""`FlatTable`: columns, and how a value becomes one that any format can hold; `HistoryTable`: what identifies a row."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any, Literal

from supervisor_core.run.judge.run_json import plain

ColumnType = Literal["text", "name", "whole", "number", "truth", "time", "labels"]
"""``name``: a text that many rows share; ``time``: a moment in UTC; ``labels``: texts by name."""

Row = tuple[Any, ...]
"""Values in the order of the columns. A time is whole microseconds since the epoch, labels are pairs in
the order of the names; None is unknown."""

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_LAST_SECS = 253_402_300_799.0
"""The end of the year 9999: databases know no later day."""
_MOST_WHOLE = 2**63 - 1


@dataclass(frozen=True, slots=True)
class HistoryColumn:
    """One column."""

    name: str
    type: ColumnType
    text: str
    """What it holds, for people; units included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatTable:
    """A table: its name and columns."""

    name: str
    columns: tuple[HistoryColumn, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryTable(FlatTable):
    """A table whose rows are stored by day.

    Example:
        >>> table = HistoryTable(name="saves", day="at", key=("run",), columns=(
        ...     HistoryColumn("run", "text", "The run."), HistoryColumn("at", "time", "When.")))
        >>> row = table.row({"run": "mnist", "at": 86400.5})
        >>> row, table.key_of(row), table.day_of(row)
        (('mnist', 86400500000), ('mnist',), '1970-01-02')
    """

    key: tuple[str, ...]
    """The columns that identify a row."""
    day: str
    """The column whose day, in UTC, is the row's partition."""
    scope: tuple[str, ...] = ()
    """Columns of what is stored as a whole: rows of it that are not given again are dropped. Default: the key."""
    _places: Mapping[str, int] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_places", {column.name: place for place, column in enumerate(self.columns)})

    def row(self, values: Mapping[str, Any]) -> Row | None:
        """Return the row of some values by column; None if it has no time. What cannot be held becomes None."""
        found = tuple(stored(values.get(column.name), column.type) for column in self.columns)
        return None if found[self._places[self.day]] is None else found

    def key_of(self, row: Sequence[Any]) -> tuple[Any, ...]:
        """Return what identifies a row."""
        return tuple(row[self._places[name]] for name in self.key)

    def scope_of(self, row: Sequence[Any]) -> tuple[Any, ...]:
        """Return what a row is stored with."""
        return tuple(row[self._places[name]] for name in self.scope or self.key)

    @property
    def moves(self) -> bool:
        """Whether a row, or one of its scope, may be in another day once more is known."""
        return self.day not in (self.scope or self.key)

    def micros_of(self, row: Sequence[Any]) -> int:
        """Return the time of a row, in microseconds since the epoch."""
        micros: int = row[self._places[self.day]]
        return micros

    def day_of(self, row: Sequence[Any]) -> str:
        """Return the day of a row, as ``2026-11-26``."""
        return day_of(self.micros_of(row))


def stored(value: Any, type: ColumnType) -> Any:
    """Return a value as a row has it; None where the type cannot hold it."""
    if value is None:
        return None
    if type == "truth":
        return bool(value)
    if type in ("text", "name"):
        return plain(str(value))
    if type == "labels":
        return tuple((plain(str(name)), plain(str(text))) for name, text in sorted(value.items()))
    if not math.isfinite(value):
        return None
    if type == "whole":
        return int(value) if abs(value) <= _MOST_WHOLE else None
    if type == "time":
        return round(value * 1e6) if 0 <= value <= _LAST_SECS else None
    return float(value)


def day_of(micros: int) -> str:
    """Return the day in UTC of a time in microseconds since the epoch."""
    return (_EPOCH + timedelta(microseconds=micros)).strftime("%Y-%m-%d")


def iso_of(micros: int) -> str:
    """Return a time in microseconds since the epoch as ISO 8601 has it.

    Example:
        >>> iso_of(1500000), micros_of("1970-01-01T00:00:01.500000Z")
        ('1970-01-01T00:00:01.500000Z', 1500000)
    """
    return (_EPOCH + timedelta(microseconds=micros)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def micros_of(text: str) -> int:
    """Return the microseconds since the epoch of a time that `iso_of` wrote."""
    found = datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=timezone.utc)
    return (found - _EPOCH) // timedelta(microseconds=1)
