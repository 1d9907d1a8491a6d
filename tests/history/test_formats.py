"""Rows come back from a file as they were written, whatever the format."""

from __future__ import annotations

import builtins
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor_core.base.errors import EventsError
from supervisor_core.history.formats import FileFormat, JsonLines, Parquet, encode
from supervisor_core.history.table import HistoryColumn, HistoryTable, Row, stored
from tests.cases import each

_VALUES = {
    "text": st.text(max_size=9),
    "whole": st.integers(-(2**63) + 1, 2**63 - 1),
    "number": st.floats(allow_nan=False, allow_infinity=False),
    "truth": st.booleans(),
    "time": st.floats(0, 1e10),
    "labels": st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
}


def rows_of(table: HistoryTable) -> st.SearchStrategy[list[Row]]:
    """Rows with anything in them, unknown values included."""
    columns = [(st.none() | _VALUES[c.type]).map(lambda v, t=c.type: stored(v, t)) for c in table.columns]
    return st.lists(st.tuples(*columns), max_size=5)


@each("name", ["jsonl", "parquet"])
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_rows_come_back(name: str, table: HistoryTable, data: st.DataObject) -> None:
    """Every value of every type, and None."""
    if name == "parquet":
        pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    form: FileFormat = JsonLines() if name == "jsonl" else Parquet()
    rows = data.draw(rows_of(table))
    assert form.decode(encode(form, table, rows), table) == rows


def test_a_file_of_an_older_version_lacks_columns(form: FileFormat, table: HistoryTable) -> None:
    """What it does not have is unknown."""
    older = replace(table, columns=table.columns[:3])
    assert form.decode(encode(form, older, [("a\u2028", 1, 5)]), table) == [("a\u2028", 1, 5, None, None, None)]


@each("damage", ["cut", "empty", "strange", "other type"])
def test_a_damaged_file_is_an_error(form: FileFormat, table: HistoryTable, damage: str) -> None:
    """Whatever is in the file: it is never read as fewer rows, and never another exception than is promised."""
    if damage == "other type":
        columns = (
            HistoryColumn("run", "text", "."),
            HistoryColumn("step", "text", "."),
            HistoryColumn("at", "number", "."),
        )
        data = encode(form, HistoryTable(name="saves", day="at", key=("run",), columns=columns), [("a", "b", 0.5)])
    else:
        whole = encode(form, table, [("a", 1, 5, 1.0, True, ())] * 3)
        data = {"cut": whole[:-9], "empty": b"{", "strange": b"\xff\x00" * 40}[damage]
    with pytest.raises(ValueError):
        form.decode(data, table)


def test_parquet_describes_its_columns(table: HistoryTable, tmp_path: Path) -> None:
    """The text of a column is in the file; times are in UTC."""
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    (tmp_path / "file").write_bytes(encode(Parquet(), table, []))
    schema = parquet.read_schema(tmp_path / "file")
    assert schema.field("at").metadata[b"description"] == b"When."
    assert str(schema.field("at").type) == "timestamp[us, tz=UTC]"


def test_without_pyarrow_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """It names the package, the command and the other format."""
    load = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith("pyarrow"):
            raise ImportError("No module named 'pyarrow'")
        return load(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(EventsError, match=r"--format jsonl: .*pip install .*'pyarrow>=16'"):
        Parquet()
