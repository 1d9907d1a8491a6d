"""`TableFile`: one table in one file, written piece by piece, and there as a whole or not at all.

What is written goes into a file beside it, ``.runs.parquet.part``, which takes its place at the end. A kill leaves that
file behind; the next export to the same place writes into it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from types import TracebackType
from typing import BinaryIO

from supervisor_core.base.errors import EventsError
from supervisor_core.base.systems import user_id
from supervisor_core.history.formats import ColumnData, Csv, JsonLines, Parquet, Writer
from supervisor_core.history.table import FlatTable, Row
from supervisor_core.storage.local import LOCAL
from supervisor_core.storage.opening import open_own

FORMATS: dict[str, Callable[[], Parquet | Csv | JsonLines]] = {
    ".parquet": lambda: Parquet("name a file that ends in .csv or .jsonl"),
    ".csv": Csv,
    ".jsonl": JsonLines,
}
"""Ending of a file's name -> its format."""
_ROWS_A_PIECE = 10_000


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

    def __init__(self, path: str, table: FlatTable, ending: str | None = None) -> None:
        form = FORMATS[ending or os.path.splitext(path)[1].lower()]
        self._path, self.rows = os.path.abspath(path), 0
        directory, name = os.path.split(self._path)
        self._part = os.path.join(directory, f".{name}.part")
        self._file: BinaryIO = os.fdopen(_locked(self._part, path), "wb")
        try:
            self._writer: Writer = form().writer(self._file, table)
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
    import fcntl  # which Windows does not have

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
