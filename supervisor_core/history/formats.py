"""The formats of tables: `Parquet`, `JsonLines`, `Csv`. Columns are written piece by piece; the files of an archive are
read back as rows."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, BinaryIO, Protocol, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from supervisor_core.base.errors import EventsError
from supervisor_core.base.install import PYARROW, pip_install
from supervisor_core.history.table import FlatTable, HistoryColumn, HistoryTable, Row, iso_of, micros_of, stored

_ROWS_A_PIECE = 10_000
_ROWS_A_GROUP = 1 << 17
"""Rows of a Parquet file that are compressed together; they are held until then."""


@dataclass(frozen=True, slots=True, eq=False)
class Coded:
    """A column of few values: for each row the place of its own; -1 where it has none."""

    codes: NDArray[np.int32]
    values: Sequence[str]

    def __len__(self) -> int:
        return len(self.codes)


ColumnData: TypeAlias = "Coded | NDArray[Any] | Sequence[Any]"
"""One value for each row, as a `Row` has it."""


def listed(data: ColumnData) -> Sequence[Any]:
    """Return a column as values of Python.

    Example:
        >>> listed(Coded(np.array([1, 0, -1], np.int32), ["loss", "acc"]))
        ['acc', 'loss', None]
    """
    if isinstance(data, Coded):
        values = [*data.values, None]  # -1 is the last
        return [values[code] for code in data.codes.tolist()]
    if isinstance(data, np.ndarray):
        found: list[Any] = data.tolist()
        return found
    return data


def arrow_array(arrow: Any, data: ColumnData, type: Any) -> Any:
    """Return a column as a ``pyarrow.Array``.

    Args:
        arrow: the module.
        data: the column.
        type: of the array; a dictionary for one that is `Coded`.
    """
    if isinstance(data, Coded):
        codes = arrow.array(data.codes, mask=data.codes < 0)
        return arrow.DictionaryArray.from_arrays(codes, arrow.array(list(data.values), arrow.string()))
    return arrow.array(data, type)


class Writer(Protocol):
    """Writes one file."""

    def write(self, columns: Sequence[ColumnData]) -> None:
        """Append rows, given by column."""

    def close(self) -> None:
        """Write what comes last."""

    def abandon(self) -> None:
        """Write nothing any more."""


class FileFormat(Protocol):
    """What the files of an archive are written and read in."""

    suffix: str

    def writer(self, file: BinaryIO, table: FlatTable) -> Writer:
        """Return what writes a file."""

    def decode(self, data: bytes, table: HistoryTable) -> list[Row]:
        """Return the rows of a file; columns that it lacks, as a file of an older version does, are None.

        Raises:
            ValueError: if it is damaged.
        """


def encode(form: FileFormat, table: HistoryTable, rows: Sequence[Row]) -> bytes:
    """Return a file with these rows, in their order."""
    file = io.BytesIO()
    writer = form.writer(file, table)
    if rows:
        writer.write(list(zip(*rows, strict=True)))
    writer.close()
    return file.getvalue()


class JsonLines:
    """One JSON object a line; times as ISO 8601 in UTC. What is not a number in JSON is null."""

    suffix = "jsonl"

    def writer(self, file: BinaryIO, table: FlatTable) -> Writer:
        """See `FileFormat.writer`."""
        return _JsonLines(file, table)

    def decode(self, data: bytes, table: HistoryTable) -> list[Row]:
        """See `FileFormat.decode`."""
        return [
            tuple(_from_json(values.get(column.name), column) for column in table.columns)
            for values in (_object(line.decode()) for line in data.split(b"\n") if line)
        ]


class _JsonLines:
    def __init__(self, file: BinaryIO, table: FlatTable) -> None:
        self._file, self._columns = file, table.columns
        self._encoder = msgspec.json.Encoder()

    def write(self, columns: Sequence[ColumnData]) -> None:
        shown = [_in_json(data, column) for data, column in zip(columns, self._columns, strict=True)]
        names = [column.name for column in self._columns]
        for first in range(0, len(shown[0]), _ROWS_A_PIECE):
            rows = zip(*(values[first : first + _ROWS_A_PIECE] for values in shown), strict=True)
            self._file.write(self._encoder.encode_lines([dict(zip(names, row, strict=True)) for row in rows]))

    def close(self) -> None:
        """Nothing comes last."""

    def abandon(self) -> None:
        """Nothing is held."""


def _in_json(data: ColumnData, column: HistoryColumn) -> Sequence[Any]:
    values = listed(data)
    if column.type == "time":
        return [None if value is None else iso_of(value) for value in values]
    if column.type == "labels":
        return [None if value is None else dict(value) for value in values]
    return values


def _object(line: str) -> dict[str, Any]:
    found = json.loads(line)
    if not isinstance(found, dict):
        raise ValueError(f"a line holds {line[:20]!r}; expected an object")
    return found


def _from_json(value: Any, column: HistoryColumn) -> Any:
    if column.type == "time":
        return None if value is None else micros_of(value)
    try:
        return stored(value, column.type)
    except (TypeError, AttributeError) as error:
        raise ValueError(f"{column.name} is {value!r}; expected {column.type}") from error


class Csv:
    """Unknown is an empty field; times as ISO 8601 in UTC, labels as JSON; a text that a spreadsheet would take for a
    formula begins with an apostrophe. Lines end as RFC 4180 says: `csv.writer` quotes only the line ends that it
    writes."""

    def writer(self, file: BinaryIO, table: FlatTable) -> Writer:
        """See `FileFormat.writer`."""
        return _Csv(file, table)


_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
"""A spreadsheet takes a text that begins so for a formula; the tab's files have the same guard (``csv.ts``)."""


class _Csv:
    def __init__(self, file: BinaryIO, table: FlatTable) -> None:
        self._columns = table.columns
        self._text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        self._csv = csv.writer(self._text)
        self._csv.writerow([column.name for column in table.columns])

    def write(self, columns: Sequence[ColumnData]) -> None:
        shown = [_in_csv(data, column) for data, column in zip(columns, self._columns, strict=True)]
        self._csv.writerows(zip(*shown, strict=True))

    def close(self) -> None:
        self._text.flush()
        self._text.detach()

    def abandon(self) -> None:
        """What is held goes with it."""


def _in_csv(data: ColumnData, column: HistoryColumn) -> Sequence[Any]:
    if column.type in ("text", "name"):
        if isinstance(data, Coded):  # few texts, many rows
            return listed(Coded(data.codes, [_no_formula(text) for text in data.values]))
        return [None if text is None else _no_formula(text) for text in data]
    values = _in_json(data, column)
    if column.type == "truth":
        return ["" if value is None else "true" if value else "false" for value in values]
    if column.type == "labels":
        return [None if value is None else json.dumps(value) for value in values]
    return values


def _no_formula(text: str) -> str:
    return f"'{text}" if text.startswith(_FORMULA_STARTS) else text


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

    def writer(self, file: BinaryIO, table: FlatTable) -> Writer:
        """See `FileFormat.writer`."""
        return _ParquetGroups(self, file, table)

    def decode(self, data: bytes, table: HistoryTable) -> list[Row]:
        """See `FileFormat.decode`."""
        arrow = self.arrow
        try:
            found = arrow.parquet.read_table(arrow.BufferReader(data))
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


class _ParquetGroups:
    def __init__(self, parquet: Parquet, file: BinaryIO, table: FlatTable) -> None:
        self._arrow, self._schema = parquet.arrow, parquet.schema(table)
        encodings = {"whole": "DELTA_BINARY_PACKED", "number": "BYTE_STREAM_SPLIT"}
        encoded = {each.name: encodings[each.type] for each in table.columns if each.type in encodings}
        self._writer = self._arrow.parquet.ParquetWriter(
            file,
            self._schema,
            compression="zstd",
            use_dictionary=[each.name for each in table.columns if each.name not in encoded],
            column_encoding=encoded,
        )
        self._held: list[Any] = []
        self._rows = 0

    def write(self, columns: Sequence[ColumnData]) -> None:
        arrays = [arrow_array(self._arrow, data, field.type) for data, field in zip(columns, self._schema, strict=True)]
        self._held.append(self._arrow.Table.from_arrays(arrays, schema=self._schema))
        self._rows += len(columns[0])
        if self._rows >= _ROWS_A_GROUP:
            self._flush()

    def _flush(self) -> None:
        if self._held:
            found = self._arrow.concat_tables(self._held).unify_dictionaries()
            self._writer.write_table(found, row_group_size=_ROWS_A_GROUP)
        self._held, self._rows = [], 0

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def abandon(self) -> None:
        self._writer.is_open = False  # else it writes its footer when it is collected
