"""`TableFile`: one table in one file, written piece by piece, and there as a whole or not at all.

What is written goes into a file beside it, ``.runs.parquet.part``, which takes its place at the end. A kill leaves that
file behind; the next export to the same place writes into it.
"""

from __future__ import annotations

import contextlib
import csv
import fcntl
import io
import json
import os
from collections.abc import Iterable, Sequence
from itertools import islice
from types import TracebackType
from typing import Any, BinaryIO, Protocol

import msgspec

from supervisor_core.errors import EventsError
from supervisor_core.history.column_data import Coded, ColumnData, arrow_array, listed
from supervisor_core.history.formats import Parquet
from supervisor_core.history.table import FlatTable, HistoryColumn, Row, iso_of
from supervisor_core.storage.local import LOCAL
from supervisor_core.storage.opening import open_own
from supervisor_core.systems import user_id

SUFFIXES = (".parquet", ".csv", ".jsonl")
"""Endings of the files that can be written."""
_ROWS_A_PIECE = 10_000
_ROWS_A_GROUP = 1 << 17
"""Rows of a Parquet file that are compressed together; they are held until then."""


class _FormatWriter(Protocol):
    def write(self, columns: Sequence[ColumnData]) -> None:
        """Append rows."""

    def close(self) -> None:
        """Write what comes last."""

    def abandon(self) -> None:
        """Write nothing any more."""


class TableFile:
    """Writes a file; a context manager. Only where its block ends without an error is the file there.

    Args:
        path: the file.
        table: its columns.
        ending: one of `SUFFIXES`, says the format. Default: that of the path.

    Raises:
        EventsError: if another process writes it, or pyarrow is missing for a Parquet file.
        OSError: if it cannot be written.

    Example::

        with TableFile("sessions.csv", SESSIONS) as file:
            file.write_rows(rows)
    """

    def __init__(self, path: str, table: FlatTable, ending: str | None = None) -> None:
        make = _WRITERS[ending or os.path.splitext(path)[1].lower()]
        self._path, self.rows = os.path.abspath(path), 0
        directory, name = os.path.split(self._path)
        self._part = os.path.join(directory, f".{name}.part")
        self._file: BinaryIO = os.fdopen(_locked(self._part, path), "wb")
        try:
            self._writer: _FormatWriter = make(self._file, table)
        except BaseException:
            self._drop()
            raise

    def write(self, columns: Sequence[ColumnData]) -> None:
        """Append rows, which are given by column, in the order of the table's columns."""
        if len(columns[0]):
            self._writer.write(columns)
            self.rows += len(columns[0])

    def write_rows(self, rows: Iterable[Row]) -> None:
        """Append rows; needs memory for some of them only."""
        given = iter(rows)
        while piece := list(islice(given, _ROWS_A_PIECE)):
            self.write(list(zip(*piece, strict=True)))

    def __enter__(self) -> TableFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._writer.close()
                self._file.flush()
                os.fsync(self._file.fileno())
                os.replace(self._part, self._path)
                LOCAL.sync([], os.path.dirname(self._path))
        except BaseException:
            self._writer.abandon()
            self._drop()
            raise
        if error is None:
            self._file.close()
        else:
            self._writer.abandon()
            self._drop()

    def _drop(self) -> None:
        with contextlib.suppress(OSError):  # the first error is raised
            os.unlink(self._part)
        with contextlib.suppress(OSError):
            self._file.close()


def _locked(part: str, path: str) -> int:
    """Open a file that no other process writes, and empty it."""
    while True:
        descriptor = open_own(part, os.O_RDWR | os.O_CREAT)
        try:
            if os.fstat(descriptor).st_uid not in (0, user_id()):
                raise EventsError(f"{part} is another user's; nothing is written there. Name another file.")
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(descriptor, part):  # else it has become the file itself meanwhile
                os.ftruncate(descriptor, 0)
                return descriptor
        except BlockingIOError as error:
            os.close(descriptor)
            raise EventsError(
                f"{path} is written by another export; wait for its end, or name another file."
            ) from error
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _is_at(descriptor: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False


_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
"""A spreadsheet takes a text that begins so for a formula; the tab's files have the same guard (``csv.ts``)."""


class _Csv:
    """Unknown is an empty field; times as ISO 8601 in UTC, labels as JSON; a text that a spreadsheet would take for a
    formula begins with an apostrophe. Lines end as RFC 4180 says: `csv.writer` quotes only the line ends that it
    writes."""

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


class _JsonLines:
    """One JSON object a line; times as ISO 8601 in UTC. What is no number in JSON is null."""

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


class _ParquetGroups:
    def __init__(self, file: BinaryIO, table: FlatTable) -> None:
        parquet = Parquet("name a file that ends in .csv or .jsonl")
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


_WRITERS: dict[str, Any] = dict(zip(SUFFIXES, (_ParquetGroups, _Csv, _JsonLines), strict=True))
