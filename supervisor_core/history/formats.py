"""`TableFile`: one table in one Parquet, CSV or JSON lines file, which is there as a whole or not at all.

It is written piece by piece into a file beside it, ``.runs.parquet.part``, which takes its place at the end. A kill
leaves that file behind; the next export to the same place writes into it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from types import TracebackType
from typing import Any, BinaryIO, Protocol, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from supervisor_core.base.errors import EventsError
from supervisor_core.base.install import PYARROW, pip_install
from supervisor_core.base.systems import new_file_mode, user_id
from supervisor_core.history.rows import HistoryColumn, Row, Table, iso_of
from supervisor_core.storage.local import LOCAL
from supervisor_core.storage.lock_file import LockedError, LockFile

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


class _JsonLines:
    """One JSON object a line; times as ISO 8601 in UTC. What is not a number in JSON is null."""

    def __init__(self, file: BinaryIO, table: Table) -> None:
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


_SEPARATORS = ";\t\r\n"
_FORMULA = re.compile(r"(^[\s\";]*|[\s\";]+)([=+\-@\uff0b\uff0d\uff1d\uff20]?)")
"""What may stand before what a spreadsheet takes for a formula, and its sign: at the begin of a cell, also of one that
another separator than the comma makes of a part of a text. The tab's files have the same guard (``csv.ts``)."""
_ROWS_OF_CSV = 1000


class _Csv:
    """Unknown is an empty field; times as ISO 8601 in UTC, labels as JSON. Each text stands in quotes, whatever it has;
    what a spreadsheet would take for a formula has an apostrophe before it. Lines end as RFC 4180 says."""

    def __init__(self, file: BinaryIO, table: Table) -> None:
        self._columns, self._file = table.columns, file
        self._write([",".join(column.name for column in table.columns)])

    def write(self, columns: Sequence[ColumnData]) -> None:
        shown = [_in_csv(data, column) for data, column in zip(columns, self._columns, strict=True)]
        lines = map(",".join, zip(*shown, strict=True))
        while piece := list(islice(lines, _ROWS_OF_CSV)):
            self._write(piece)

    def _write(self, lines: Sequence[str]) -> None:
        self._file.write("".join(f"{line}\r\n" for line in lines).encode())

    def close(self) -> None:
        """Nothing comes last."""

    def abandon(self) -> None:
        """What is held goes with it."""


def _in_csv(data: ColumnData, column: HistoryColumn) -> Iterable[str]:
    if column.type in ("text", "name"):
        if isinstance(data, Coded):  # few texts, many rows
            return [text or "" for text in listed(Coded(data.codes, list(map(_quoted, data.values))))]
        return ["" if text is None else _quoted(text) for text in data]
    values = _in_json(data, column)
    if column.type == "truth":
        return ["" if value is None else "true" if value else "false" for value in values]
    if column.type == "labels":
        return ["" if value is None else _quoted(json.dumps(value)) for value in values]
    return ["" if value is None else str(value) for value in values]


def _quoted(text: str) -> str:
    guarded = _FORMULA.sub(_guarded, text).replace('"', '""')
    return f'"{guarded}"'


def _guarded(found: re.Match[str]) -> str:
    before, sign = found.groups()
    if found.start() == 0:
        return f"'{before}{sign}" if sign or before.startswith(("\t", "\r")) else before
    return f"{before}'{sign}" if sign and any(each in before for each in _SEPARATORS) else f"{before}{sign}"


def pyarrow(instead: str) -> Any:
    """Return the module, with its part for Parquet.

    Args:
        instead: what does without it; the middle of the error.

    Raises:
        EventsError: if it is not installed.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise EventsError(
            f"Parquet needs pyarrow ({error}). Install it, or {instead}: {pip_install(PYARROW)}"
        ) from error
    module: Any = pyarrow
    return module


_ARROW_TYPES: Mapping[str, Callable[[Any], Any]] = {
    "text": lambda arrow: arrow.string(),
    "name": lambda arrow: arrow.dictionary(arrow.int32(), arrow.string()),
    "whole": lambda arrow: arrow.int64(),
    "number": lambda arrow: arrow.float64(),
    "truth": lambda arrow: arrow.bool_(),
    "time": lambda arrow: arrow.timestamp("us", tz="UTC"),
    "labels": lambda arrow: arrow.map_(arrow.string(), arrow.string()),
}


def arrow_schema(arrow: Any, table: Table) -> Any:
    """Return the schema of a table, a `pyarrow.Schema`; what each column holds is its metadata."""
    return arrow.schema(
        [
            arrow.field(column.name, _ARROW_TYPES[column.type](arrow), metadata={"description": column.text})
            for column in table.columns
        ]
    )


class _Parquet:
    def __init__(self, file: BinaryIO, table: Table) -> None:
        self._arrow = pyarrow("name a file that ends in .csv or .jsonl")
        self._schema = arrow_schema(self._arrow, table)
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


FORMATS: Mapping[str, Callable[[BinaryIO, Table], Writer]] = {".parquet": _Parquet, ".csv": _Csv, ".jsonl": _JsonLines}
"""Ending of a file's name -> what writes it."""


class TableFile:
    """Writes a file; a context manager. Only where its block ends without an error is the file there.

    Args:
        path: the file.
        table: its columns.
        ending: one of `FORMATS`, says the format. Default: that of the path.

    Raises:
        EventsError: if another process writes it, or pyarrow is missing for a Parquet file.
        OSError: if it cannot be written.

    Example::

        with TableFile("sessions.csv", SESSIONS) as file:
            file.write_rows(rows)
    """

    def __init__(self, path: str, table: Table, ending: str | None = None) -> None:
        form = FORMATS[ending or os.path.splitext(path)[1].lower()]
        self._path, self.rows = os.path.abspath(path), 0
        directory, name = os.path.split(self._path)
        self._part = os.path.join(directory, f".{name}.part")
        self._lock = _locked(self._part, path)
        self._file: BinaryIO = open(self._lock.descriptor, "wb", closefd=False)  # noqa: SIM115
        try:
            self._writer = form(self._file, table)
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
                os.fchmod(self._file.fileno(), new_file_mode())  # as a lock it had only its owner's
                os.replace(self._part, self._path)
                LOCAL.sync([], os.path.dirname(self._path))
        except BaseException:
            self._writer.abandon()
            self._drop()
            raise
        if error is None:
            self._close()
        else:
            self._writer.abandon()
            self._drop()

    def _drop(self) -> None:
        with contextlib.suppress(OSError):  # the first error is raised
            os.unlink(self._part)
        self._close()

    def _close(self) -> None:
        with contextlib.suppress(OSError):
            self._file.close()
        self._lock.release()


def _locked(part: str, path: str) -> LockFile:
    """Return a file that no other process writes, locked and empty."""
    lock = LockFile(part)
    try:
        flaw = lock.take()
    except LockedError as error:
        text = f"{path} is written by another export, {error.strerror}; wait for its end, or name another file."
        raise EventsError(text) from error
    except OSError as error:
        if not os.path.lexists(part):
            raise
        raise EventsError(f"{part} is in the way ({error.strerror}): delete it, or name another file.") from error
    if flaw is not None:
        raise flaw
    status = os.fstat(lock.descriptor)
    if status.st_uid not in (0, user_id()) or status.st_nlink > 1:
        lock.release()
        raise EventsError(f"{part} is another user's; nothing is written there. Name another file.")
    os.ftruncate(lock.descriptor, 0)
    return lock
