"""`FoldCache`: what was understood of the runs of one logdir, on disk, so that the next process reads only what is new.

One SQLite file for each logdir, in a directory of this user's (mode 0700). A row is a run:

    run    its name below the logdir
    head   `KeptRun`: where the reader of each events file was, and what a look compares
    last   the run as it was shown, where it has ended; NULL else
    fold   the fold that belongs to ``head``

Each is a `fold_state` in zlib's format, which has a checksum. The name of the file holds the `layout` of the code that
wrote it, and whether old ticks are kept: other code has another file. A row holds the positions that its fold has
reached, and is written in one transaction, so any number of processes may read and write one cache.

Nothing in here raises: a cache that cannot be used costs a line in the log, and its runs are read again.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import stat
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from supervisor_core.clock import SYSTEM_CLOCK, Clock
from supervisor_core.events.reader import ReaderPosition
from supervisor_core.process.runtime_directory import check_own
from supervisor_core.run.fold_state import MOST_BYTES, StateError, layout, packed, unpacked
from supervisor_core.run.snapshot import WatchedRun
from supervisor_core.storage.local import local_path
from supervisor_core.systems import user_id

if TYPE_CHECKING:
    import sqlite3

_LOG = logging.getLogger("supervisor_core")
_T = TypeVar("_T")

BUSY_SECS = 1.0
"""How long a write waits for that of another process, before it is put off."""
AGAIN_SECS = 600.0
"""After a write that failed (a full disk), writing is tried again this much later."""
MOST_DISK_BYTES = 8 << 30
"""Of one logdir's file; a run beyond that is not kept."""
_OLD_SECS = 3600.0
"""The file of other code is deleted once nothing has written it for so long."""
_BATCH = 500
"""Runs written in one transaction."""
_TABLE = "CREATE TABLE IF NOT EXISTS runs (run BLOB PRIMARY KEY, head BLOB, last BLOB, fold BLOB)"
_PASSING = ("locked", "busy", "no such table")
"""In the texts of errors that say nothing: another process writes, or nothing was kept yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptRun:
    """What is kept of a run beside its fold."""

    positions: Mapping[str, ReaderPosition]
    """Name of each events file -> where its reader was."""
    last: WatchedRun | None
    """As it was shown, where it has ended."""
    stamp: object
    """Of its directory then."""
    looked_at: float
    """When, as wall time."""
    dead: str | None
    """The session whose process was found to be over."""
    claim: str | None
    """The label under which its own process serves it, of its newest session."""


class FoldCache:
    """Keeps the runs of one logdir. Used by one thread at a time.

    Args:
        directory: where the file is; created if it is missing, mode 0700.
        logdir: as its runs' files are spelt.
        kept_ticks: see `RunFold`.
        all_saves: likewise.
        clock: times when writing is tried again.

    Example:
        >>> import tempfile
        >>> FoldCache(tempfile.mkdtemp(), "/runs", 1).kept("mnist") is None
        True
    """

    def __init__(
        self,
        directory: str,
        logdir: str,
        kept_ticks: int | None,
        clock: Clock = SYSTEM_CLOCK,
        *,
        all_saves: bool = True,
    ) -> None:
        self._directory = directory
        self._logdir = logdir
        self._kept_ticks, self._all_saves = kept_ticks, all_saves
        self._clock = clock
        self._path = ""
        self._database: sqlite3.Connection | None = None
        self._heads: dict[str, bytes] = {}
        self._warned: set[str] = set()
        self._write_at = 0.0
        self._has_failed = False
        self._open()

    def kept(self, run: str) -> KeptRun | None:
        """Return what is kept of a run; None where that is nothing, or nothing that can be used."""
        rows = self._asked("SELECT head, last FROM runs WHERE run = ?", (_key(run),))
        if not rows:
            return None
        head, last = rows[0]
        try:
            kept = KeptRun(last=None if last is None else _opened(last), **_opened(head))
        except (StateError, TypeError) as error:
            self._damaged(run, error)
            return None
        self._heads[run] = head
        return kept

    def fold(self, run: str) -> tuple[Any, ...] | None:
        """Return the state of the fold of a run that `kept` has returned; None if another process has replaced it."""
        rows = self._asked("SELECT fold FROM runs WHERE run = ? AND head = ?", (_key(run), self._heads.get(run, b"")))
        if not rows:
            return None
        try:
            found: tuple[Any, ...] = _opened(rows[0][0])
        except StateError as error:
            self._damaged(run, error)
            return None
        return found

    def forget(self, run: str) -> None:
        """Let go of what `fold` needs, once it was asked for."""
        self._heads.pop(run, None)

    def keep(self, runs: Iterable[tuple[str, KeptRun, tuple[object, ...]]], most_bytes: float = float("inf")) -> int:
        """Write runs, each with its name, what is kept of it, and the state of its fold; return how many were written:
        fewer where they are longer than ``most_bytes``, or the disk refuses them."""
        if self._database is None or self._clock.monotonic() < self._write_at:
            return 0
        rows: list[tuple[bytes | None, ...]] = []
        row: tuple[bytes | None, ...]
        written = length = 0
        for run, kept, fold in runs:
            try:
                head = {name: getattr(kept, name) for name in ("positions", "stamp", "looked_at", "dead", "claim")}
                row = (_key(run), _closed(head), None if kept.last is None else _closed(kept.last), _closed(fold))
            except StateError as error:
                _LOG.debug("Run %s is not kept in the cache: %s", run, error)
                row = (_key(run), None, None, None)
            rows.append(row)
            length += sum(len(each) for each in row if each is not None)
            if len(rows) >= _BATCH or length > most_bytes:
                if not self._write(rows):
                    return written
                written, rows = written + len(rows), []
                if length > most_bytes:
                    return written
        return written + len(rows) if not rows or self._write(rows) else written

    def prune(self, runs: Iterable[str]) -> None:
        """Delete all runs but these."""
        known = {_key(run) for run in runs}
        gone = [(run,) for (run,) in self._asked("SELECT run FROM runs") or () if run not in known]
        if gone:
            self._changed("DELETE FROM runs WHERE run = ?", gone)

    def close(self) -> None:
        """Close the file."""
        database, self._database = self._database, None
        if database is not None:
            with contextlib.suppress(Exception):
                database.close()

    def _open(self) -> None:
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(self._directory, 0o700)
            check_own(self._directory, "give another directory", is_secret=True)
            name, version = file_name(self._logdir, self._kept_ticks, all_saves=self._all_saves), layout()
            self._path = os.path.join(self._directory, f"{name}-{version}.sqlite")
            self._remove_old(name)
            if os.path.lexists(self._path):
                _check_file(self._path)
            self._connect()
        except (OSError, StateError) as error:
            self._refused(f"The cache is not used: {error}.")
        except Exception as error:  # sqlite3's: a damaged file, a full disk; or Python has no sqlite3
            self._faulty(error)

    def _connect(self) -> None:
        import sqlite3

        database = sqlite3.connect(self._path, timeout=BUSY_SECS, check_same_thread=False, isolation_level=None)
        self._database = database
        database.execute("PRAGMA synchronous = NORMAL")
        (page_bytes,) = database.execute("PRAGMA page_size").fetchone()
        database.execute(f"PRAGMA max_page_count = {MOST_DISK_BYTES // page_bytes}")
        database.execute("SELECT 1 FROM sqlite_master")  # reads the file

    def _remove_old(self, name: str) -> None:
        """Delete the files of other code, whose process seems to be over."""
        for entry in os.listdir(self._directory):
            path = os.path.join(self._directory, entry)
            if entry.startswith(f"{name}-") and path != self._path and entry.endswith(".sqlite"):
                _check_file(path)
                if self._clock.wall() - os.stat(path).st_mtime > _OLD_SECS:
                    os.unlink(path)
                    _LOG.info("%s was deleted: another version of this program has written it", path)

    def _asked(self, statement: str, values: tuple[Any, ...] = ()) -> list[Any] | None:
        return self._tried(lambda database: database.execute(statement, values).fetchall())

    def _write(self, rows: list[tuple[bytes | None, ...]]) -> bool:
        """Write rows; those without a head are deleted."""
        kept = [row for row in rows if row[1] is not None]
        gone = [row[:1] for row in rows if row[1] is None]
        return self._changed("INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?)", kept) and (
            not gone or self._changed("DELETE FROM runs WHERE run = ?", gone)
        )

    def _changed(self, statement: str, rows: Sequence[tuple[bytes | None, ...]]) -> bool:
        def change(database: sqlite3.Connection) -> bool:
            database.execute("BEGIN IMMEDIATE")
            try:
                database.execute(_TABLE)
                database.executemany(statement, rows)
                database.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(Exception):
                    database.execute("ROLLBACK")
                raise
            return True

        return bool(self._tried(change))

    def _tried(self, call: Callable[[sqlite3.Connection], _T]) -> _T | None:
        """Return what a call returns; None if it failed, for which there is one line in the log."""
        if self._database is None:
            return None
        try:
            return call(self._database)
        except Exception as error:  # sqlite3's own, and those of a text that it does not take
            self._faulty(error)
            return None

    def _faulty(self, error: Exception) -> None:
        import sqlite3

        if isinstance(error, sqlite3.OperationalError):
            if any(word in str(error) for word in _PASSING):
                _LOG.debug("%s: %s", self._path, error)
                return
            self._write_at = self._clock.monotonic() + AGAIN_SECS
            if not self._has_failed:
                self._has_failed = True
                self._refused(f"The cache {self._path} cannot be written: {error}. Nothing else depends on it.")
            return
        self.close()
        if not isinstance(error, sqlite3.DatabaseError):
            self._refused(f"The cache {self._path} is not used: {error!r}.")
            return
        self._refused(f"The cache {self._path} is damaged: {error}. It is deleted, and its runs are read again.")
        with contextlib.suppress(OSError):
            os.unlink(self._path)
        with contextlib.suppress(OSError):
            os.unlink(f"{self._path}-journal")
        with contextlib.suppress(Exception):
            self._connect()

    def _damaged(self, run: str, error: Exception) -> None:
        self._refused(f"The cache {self._path} has a damaged entry: {error}. The run is read again.")
        _LOG.debug("The damaged entry is that of run %s", run)
        self._changed("DELETE FROM runs WHERE run = ?", [(_key(run),)])

    def _refused(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            _LOG.warning("%s", text)


def file_name(logdir: str, kept_ticks: int | None, *, all_saves: bool) -> str:
    """Return how the names of the files of a logdir begin."""
    local = local_path(logdir)
    spelt = logdir.rstrip("/") if local is None else f"{logdir.rstrip('/')}\0{os.path.abspath(local)}"
    digest = hashlib.blake2b(os.fsencode(spelt), digest_size=8).hexdigest()
    return f"{digest}-{'all' if kept_ticks is None else kept_ticks}{'' if all_saves else '.present'}"


def _check_file(path: str) -> None:
    found = os.lstat(path)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != user_id() or found.st_nlink > 1:
        raise PermissionError(f"{path} is no file of this user's alone; delete it")


def _key(run: str) -> bytes:
    return os.fsencode(run)


def _closed(item: object) -> bytes:
    return zlib.compress(packed(item), 1)


def _opened(data: bytes) -> Any:
    try:
        inflate = zlib.decompressobj()
        whole = inflate.decompress(data, MOST_BYTES + 1)
    except (zlib.error, TypeError) as error:
        raise StateError(f"it is damaged: {error}") from error
    if not inflate.eof:
        raise StateError("it is cut, or too long")
    return unpacked(whole)
