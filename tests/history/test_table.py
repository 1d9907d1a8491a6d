"""A row holds what every format can hold, and knows its key and its day."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from supervisor_core.history.rows import TABLES
from supervisor_core.history.table import ColumnType, HistoryTable, iso_of, micros_of, stored
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


@given(st.integers(0, 253_402_300_799_000_000))
def test_a_time_survives_being_written(micros: int) -> None:
    """To the microsecond."""
    assert micros_of(iso_of(micros)) == micros


def test_what_has_no_time_has_no_row(table: HistoryTable) -> None:
    """There is no day that it belongs to."""
    assert table.row({"run": "a", "at": math.nan}) is None
    row = table.row({"run": "a", "step": 3, "at": 86_399.9999999})
    assert row is not None
    assert (table.key_of(row), table.day_of(row)) == (("a", 3), "1970-01-02")


@each("table", TABLES)
def test_tables_are_declared_whole(table: HistoryTable) -> None:
    """Columns have names of their own and a sentence; key and day are columns; the day is a time."""
    names = [column.name for column in table.columns]
    assert len(set(names)) == len(names) and {*table.key, table.day} <= set(names)
    assert all(column.text.endswith(".") for column in table.columns)
    assert {column.name: column.type for column in table.columns}[table.day] == "time"
