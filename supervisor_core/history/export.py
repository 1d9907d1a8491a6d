"""`Export`: brings an archive up to date with a logdir, again and again; each time at the cost of what has changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from supervisor_core.history.archive import Archive
from supervisor_core.history.rows import TABLES, rows_of
from supervisor_core.history.table import Row
from supervisor_core.run.finding import Finding
from supervisor_core.run.snapshot import WatchedRun

MOST_ROWS = 100_000
"""Rows of a table that are collected before they are stored."""

_Digests = Mapping[str, Mapping[str, int]]
"""Of the rows of one run, by table and day."""


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
    """Rows that are stored together."""

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
