"""`Table`: the columns of an export, and how a value becomes one that any format can hold."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
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
class Table:
    """A table of an export.

    Example:
        >>> table = Table(name="saves", time="at", columns=(
        ...     HistoryColumn("run", "text", "The run."), HistoryColumn("at", "time", "When.")))
        >>> table.row({"run": "mnist", "at": 86400.5})
        ('mnist', 86400500000)
    """

    name: str
    columns: tuple[HistoryColumn, ...]
    time: str | None = None
    """The column without which there is no row."""

    def row(self, values: Mapping[str, Any]) -> Row | None:
        """Return the row of some values by column; None if it has no time. What cannot be held becomes None."""
        found = {column.name: stored(values.get(column.name), column.type) for column in self.columns}
        return None if self.time is not None and found[self.time] is None else tuple(found.values())


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


def iso_of(micros: int) -> str:
    """Return a time in microseconds since the epoch as ISO 8601 has it.

    Example:
        >>> iso_of(1500000)
        '1970-01-01T00:00:01.500000Z'
    """
    return (_EPOCH + timedelta(microseconds=micros)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
