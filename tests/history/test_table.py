"""A row holds what every format can hold."""

from __future__ import annotations

import math

from supervisor_core.history.rows import TABLES, ColumnType, HistoryColumn, Table, stored
from tests.cases import each


@each(
    "value, type, expected",
    [
        (math.nan, "number", None),
        (math.inf, "time", None),
        (-1.0, "time", None),
        (1e300, "time", None),
        (2**63, "whole", None),
        (3, "number", 3.0),
        (1.5, "time", 1_500_000),
        ("a\udc80", "text", "a\\udc80"),
        ({"user": "b", "team": "a"}, "labels", (("team", "a"), ("user", "b"))),
        (None, "labels", None),
    ],
)
def test_what_a_column_cannot_hold_is_unknown(value: object, type: ColumnType, expected: object) -> None:
    """A number that is none, a time outside the calendar, bytes that are no text: None or escaped, never an error."""
    assert stored(value, type) == expected


def test_what_has_no_time_has_no_row() -> None:
    """A row has all columns, unknown ones too; time is in microseconds."""
    table = Table(name="t", columns=(HistoryColumn("run", "text", "."), HistoryColumn("at", "time", ".")), time="at")
    assert table.row({"run": "a", "at": math.nan}) is None
    assert table.row({"at": 86_399.9999999}) == (None, 86_400_000_000)


@each("table", TABLES)
def test_tables_are_declared_whole(table: Table) -> None:
    """Columns have names of their own and a sentence, and the time of a row is one of them."""
    types = {column.name: column.type for column in table.columns}
    assert len(types) == len(table.columns) and types[table.time or ""] == "time"
    assert all(column.text.endswith(".") for column in table.columns)
