"""How the rows of one file are written and read: `JsonLines` and `Parquet`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from supervisor_core.errors import EventsError
from supervisor_core.history.table import FlatTable, HistoryColumn, HistoryTable, Row, iso_of, micros_of, stored
from supervisor_core.install import PYARROW, pip_install
from supervisor_core.storage.opening import open_unlinked


class FileFormat(Protocol):
    """Whole files of one table."""

    suffix: str

    def write(self, path: Path, table: HistoryTable, rows: Sequence[Row]) -> None:
        """Write a file with these rows, in their order."""

    def read(self, path: Path, table: HistoryTable) -> list[Row]:
        """Return the rows of a file; columns that it lacks, as one of an older version does, are None.

        Raises:
            OSError: if it cannot be read.
            ValueError: if it is damaged.
        """


class JsonLines:
    """One JSON object a line; times as ISO 8601 in UTC."""

    suffix = "jsonl"

    def write(self, path: Path, table: HistoryTable, rows: Sequence[Row]) -> None:
        """See `FileFormat.write`."""
        with open(path, "w", encoding="ascii") as file:
            for row in rows:
                values = {
                    column.name: _to_json(value, column) for column, value in zip(table.columns, row, strict=True)
                }
                file.write(json.dumps(values, allow_nan=False) + "\n")

    def read(self, path: Path, table: HistoryTable) -> list[Row]:
        """See `FileFormat.read`."""
        with open(open_unlinked(str(path)), encoding="utf-8") as file:
            return [
                tuple(_from_json(values.get(column.name), column) for column in table.columns)
                for values in (_object(line) for line in file)
            ]


def _object(line: str) -> dict[str, Any]:
    found = json.loads(line)
    if not isinstance(found, dict):
        raise ValueError(f"a line holds {line[:20]!r}; expected an object")
    return found


def _to_json(value: Any, column: HistoryColumn) -> Any:
    if value is None:
        return None
    return iso_of(value) if column.type == "time" else dict(value) if column.type == "labels" else value


def _from_json(value: Any, column: HistoryColumn) -> Any:
    if column.type == "time":
        return None if value is None else micros_of(value)
    try:
        return stored(value, column.type)
    except (TypeError, AttributeError) as error:
        raise ValueError(f"{column.name} is {value!r}; expected {column.type}") from error


def pyarrow(what: str, instead: str = "") -> Any:
    """Return the module, with its part for Parquet.

    Args:
        what: what needs it; the first words of the error.
        instead: what does without it; the middle of the error.

    Raises:
        EventsError: if it is not installed.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise EventsError(
            f"{what} pyarrow ({error}). Install it{instead and f', or {instead}'}: {pip_install(PYARROW)}"
        ) from error
    module: Any = pyarrow
    return module


class Parquet:
    """Parquet files, with what each column holds as its metadata.

    Args:
        instead: what does without them, for the error.

    Raises:
        EventsError: if pyarrow is not installed.
    """

    suffix = "parquet"

    def __init__(self, instead: str = "use --format jsonl") -> None:
        self.arrow: Any = pyarrow("Parquet needs", instead)
        """The module."""

    def write(self, path: Path, table: HistoryTable, rows: Sequence[Row]) -> None:
        """See `FileFormat.write`."""
        arrow, schema = self.arrow, self.schema(table)
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
        arrays = [arrow.array(values, each.type) for values, each in zip(columns, schema, strict=True)]
        arrow.parquet.write_table(arrow.Table.from_arrays(arrays, schema=schema), str(path), compression="zstd")

    def read(self, path: Path, table: HistoryTable) -> list[Row]:
        """See `FileFormat.read`."""
        arrow = self.arrow
        with open(open_unlinked(str(path)), "rb") as file:
            try:
                found = arrow.parquet.read_table(file)
                columns = [self._column(found, column) for column in table.columns]
            except (arrow.ArrowException, TypeError) as error:
                raise ValueError(str(error)) from error
        return list(zip(*columns, strict=True))

    def _column(self, found: Any, column: HistoryColumn) -> list[Any]:
        if column.name not in found.schema.names:
            return [None] * found.num_rows
        values = found.column(column.name).cast(self._types[column.type])
        if column.type == "time":
            values = values.cast(self.arrow.int64())
        listed: list[Any] = values.to_pylist()
        return (
            [None if value is None else tuple(map(tuple, value)) for value in listed]
            if column.type == "labels"
            else listed
        )

    def schema(self, table: FlatTable) -> Any:
        """Return the schema of a table, a `pyarrow.Schema`."""
        arrow = self.arrow
        return arrow.schema(
            [
                arrow.field(column.name, self._types[column.type], metadata={"description": column.text})
                for column in table.columns
            ]
        )

    @cached_property
    def _types(self) -> dict[str, Any]:
        arrow = self.arrow
        return {
            "text": arrow.string(),
            "name": arrow.dictionary(arrow.int32(), arrow.string()),
            "whole": arrow.int64(),
            "number": arrow.float64(),
            "truth": arrow.bool_(),
            "time": arrow.timestamp("us", tz="UTC"),
            "labels": arrow.map_(arrow.string(), arrow.string()),
        }
