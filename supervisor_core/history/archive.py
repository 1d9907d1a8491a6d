"""`Archive`: tables in a directory, a directory for each table and day, a file for each logdir in it. `Export` brings
one up to date with a logdir, again and again; each time at the cost of what has changed.

    DIR/sessions/day=2026-11-26/part-9f8a01c2d3e4.parquet

The name of a part is a hash of the logdir, so that archives of several logdirs share a directory. A part is only ever
replaced as a whole, by one that was written and synced beside it: whoever reads sees the one or the other, and a kill
leaves no torn file. A row replaces the one with its key. What is no longer in the logdir stays. A row that moves to
another day is stored there first: after a kill in between it is in both until the next export.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from supervisor_core.base.errors import EventsError
from supervisor_core.base.systems import CLOSE_ON_EXEC, NO_FOLLOW, user_id
from supervisor_core.history.formats import FileFormat, encode
from supervisor_core.history.rows import TABLES, rows_of
from supervisor_core.history.table import HistoryTable, Row, day_of
from supervisor_core.run.judge.finding import Finding
from supervisor_core.run.model.snapshot import WatchedRun
from supervisor_core.storage.local import LOCAL
from supervisor_core.storage.opening import open_unlinked

_DAY_MICROS = 86_400_000_000
MOST_ROWS = 100_000
"""Rows of a table that are collected before they are stored."""
_Digests = Mapping[str, Mapping[str, int]]
"""Of the rows of one run, by table and day."""


class Archive:
    """Writes rows. One at a time for a directory and a logdir: it holds a lock until it is closed.

    Args:
        directory: where; created if it is missing.
        logdir: whose rows they are.
        format: of the files.

    Raises:
        EventsError: if another process writes there, or files there belong to another user.
        OSError: if the directory cannot be written.
    """

    def __init__(self, directory: str, logdir: str, format: FileFormat) -> None:
        import fcntl  # which Windows does not have

        self._root, self._format = Path(directory), format
        self._name = hashlib.sha256(logdir.encode("utf-8", "surrogateescape")).hexdigest()[:12]
        self._root.mkdir(parents=True, exist_ok=True)
        self._lock = open_unlinked(str(self._root / f".{self._name}.lock"), os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self.close()
            raise EventsError(f"{directory} is written by another export of {logdir}; end that first.") from error

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let others write."""
        os.close(self._lock)

    def put(self, table: HistoryTable, rows: Iterable[Row], days: Iterable[str] | None = ()) -> int:
        """Store rows: they replace those of their scopes. Return the number of rows that are new or changed.

        Needs memory for these rows, and for those of one day.

        Args:
            table: the table.
            rows: of each scope all that there are.
            days: in which earlier rows of these scopes may be, besides those of the rows; None: any from the day
                before the first of these rows on.

        Raises:
            EventsError: if a file there is damaged, or another user's.
            OSError: if the directory cannot be written; the rows of some days may be stored then.
        """
        by_day: dict[str, dict[tuple[object, ...], Row]] = {}
        for row in rows:
            by_day.setdefault(table.day_of(row), {})[table.key_of(row)] = row
        scopes = {table.scope_of(row) for found in by_day.values() for row in found.values()}
        others = self._days_near(table, by_day) if days is None else set(days)
        changed = sum(self._put_day(table, day, found, scopes) for day, found in sorted(by_day.items()))
        for day in sorted(others - by_day.keys()):
            self._put_day(table, day, {}, scopes)
        return changed

    def days(self, table: HistoryTable) -> list[str]:
        """Return the days of which there are rows, in order."""
        paths = (self._root / table.name).glob(f"day=*/{self._path(table, '').name}")
        return sorted(path.parent.name.removeprefix("day=") for path in paths)

    def _days_near(self, table: HistoryTable, rows: Mapping[str, Mapping[tuple[object, ...], Row]]) -> set[str]:
        if not rows or not table.moves:
            return set()
        first = min(table.micros_of(row) for row in rows[min(rows)].values())
        start = day_of(max(0, first - _DAY_MICROS))
        return {day for day in self.days(table) if day >= start}

    def rows(self, table: HistoryTable, day: str) -> list[Row]:
        """Return what is stored of a day, as ``2026-11-26``."""
        path = self._path(table, day)
        try:
            status = os.lstat(path)
        except FileNotFoundError:
            return []
        if not stat.S_ISREG(status.st_mode) or status.st_uid not in (0, user_id()):
            raise EventsError(f"{path} is no file of this user; it is neither read nor replaced. Move it away.")
        try:
            with open(open_unlinked(str(path)), "rb") as file:
                return self._format.decode(file.read(), table)
        except ValueError as error:
            raise EventsError(
                f"{path} is damaged: {error}. Move it away: the next export writes what the logdir still has of it."
            ) from error

    def _put_day(
        self, table: HistoryTable, day: str, rows: Mapping[tuple[object, ...], Row], scopes: set[tuple[object, ...]]
    ) -> int:
        known = {table.key_of(row): row for row in self.rows(table, day)}
        kept = {key: row for key, row in known.items() if key in rows or table.scope_of(row) not in scopes}
        found = {**kept, **rows}
        if found != known:
            self._replace(table, day, found)
        return sum(known.get(key) != row for key, row in rows.items())

    def _replace(self, table: HistoryTable, day: str, rows: Mapping[tuple[object, ...], Row]) -> None:
        path = self._path(table, day)
        if not rows:
            path.unlink(missing_ok=True)
            return
        for directory in (path.parent.parent, path.parent):
            _make_own(directory)
        temporary = self._root / f".{self._name}.tmp"
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        data = encode(self._format, table, sorted(rows.values(), key=lambda row: _order(table, row)))
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_FOLLOW | CLOSE_ON_EXEC
        try:
            with open(os.open(temporary, flags, 0o666), "wb") as file:
                file.write(data)
            LOCAL.sync([str(temporary)], str(self._root))
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):  # the first error is raised
                temporary.unlink()
            raise
        LOCAL.sync([], str(path.parent))

    def _path(self, table: HistoryTable, day: str) -> Path:
        return self._root / table.name / f"day={day}" / f"part-{self._name}.{self._format.suffix}"


def _make_own(directory: Path) -> None:
    """Create a directory, or check that it is one of this user's, and no link."""
    with contextlib.suppress(FileExistsError):
        directory.mkdir()
    status = os.lstat(directory)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid not in (0, user_id()):
        raise EventsError(f"{directory} is no directory of this user; nothing is written there. Move it away.")


def _order(table: HistoryTable, row: Row) -> tuple[object, ...]:
    """By time, then by key; unknown first."""
    return (table.micros_of(row), *((value is not None, value) for value in table.key_of(row)))


class Export:
    """Puts the rows of runs into an archive.

    Args:
        archive: where to.
        logdir: what the column ``logdir`` has.
    """

    def __init__(self, archive: Archive, logdir: str) -> None:
        self._archive, self._logdir = archive, logdir
        self._stored: dict[str, _Digests] = {}

    def update(self, runs: Iterable[tuple[WatchedRun, Sequence[Finding]]]) -> Mapping[str, int]:
        """Store what is new or has changed; return the number of such rows by table.

        A run whose rows could not be stored is tried again the next time.

        Args:
            runs: each with its findings.

        Raises:
            EventsError, OSError: as `Archive.put`.
        """
        changed = {table.name: 0 for table in TABLES}
        batch = _Batch()
        for watched, found in runs:
            name = watched.run.name
            rows: dict[str, dict[str, list[Row]]] = {table.name: {} for table in TABLES}
            for table, row in rows_of(self._logdir, watched, found):
                rows[table.name].setdefault(table.day_of(row), []).append(row)
            digests = {
                table: {day: hash(tuple(each)) for day, each in by_day.items()} for table, by_day in rows.items()
            }
            for table_name, by_day in rows.items():
                batch.add(table_name, by_day, digests[table_name], self._stored.get(name, {}).get(table_name))
            batch.digests[name] = digests
            if batch.is_full:
                self._store(batch, changed)
                batch = _Batch()
        self._store(batch, changed)
        return changed

    def _store(self, batch: _Batch, changed: dict[str, int]) -> None:
        for table in TABLES:
            days = None if table.name in batch.anywhere else batch.days[table.name]
            changed[table.name] += self._archive.put(table, batch.rows[table.name], days)
        self._stored.update(batch.digests)


class _Batch:
    def __init__(self) -> None:
        self.rows: dict[str, list[Row]] = {table.name: [] for table in TABLES}
        self.days: dict[str, set[str]] = {table.name: set() for table in TABLES}
        self.anywhere: set[str] = set()
        """Tables of which earlier rows may be in other days: of a run that is seen for the first time."""
        self.digests: dict[str, _Digests] = {}

    @property
    def is_full(self) -> bool:
        return max(map(len, self.rows.values())) >= MOST_ROWS

    def add(
        self, table: str, rows: Mapping[str, list[Row]], digests: Mapping[str, int], known: Mapping[str, int] | None
    ) -> None:
        """Add what has changed of a run's rows.

        Args:
            table: the name of their table.
            rows: all of them, by day.
            digests: theirs, by day.
            known: those of the rows that are stored; None where that is not known.
        """
        if known is None:
            self.anywhere.add(table)
        gone = (known or {}).keys() - rows.keys()
        self.days[table] |= gone
        for day, found in rows.items():
            if gone or known is None or known.get(day) != digests[day]:
                self.rows[table] += found
