"""`RunCache`: the runs of one logdir that have ended, on disk, so that the next process does not read their files.

One SQLite file for each logdir, in a directory of this user's (mode 0700). A row is a run: its name below the logdir,
and a `KeptRun` as MessagePack in zlib's format, which has a checksum. A run is believed only while its events files
are the same: the next reader goes on from the kept positions, and reads the whole run again if one has changed. Other
code than that which wrote the file empties it. Any number of processes may read and write one cache.

Nothing in here raises: a cache that cannot be used costs a line in the log, and its runs are read again.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import platform
import stat
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from supervisor_core.base.systems import user_id
from supervisor_core.events.reader import ReaderPosition
from supervisor_core.process.runtime_directory import check_own
from supervisor_core.run.model.snapshot import WatchedRun
from supervisor_core.storage.local import local_path

if TYPE_CHECKING:
    import sqlite3

_LOG = logging.getLogger("supervisor_core")
_T = TypeVar("_T")

BUSY_SECS = 1.0
"""How long a write waits for that of another process, before it is left out."""
MOST_BYTES = 16 << 20
"""Of one run; a longer one is not kept."""
MOST_DISK_BYTES = 8 << 30
"""Of one logdir's file; a run beyond that is not kept."""
_TABLE = "CREATE TABLE IF NOT EXISTS runs (run BLOB PRIMARY KEY, kept BLOB)"
_PASSING = ("locked", "busy")
"""In the texts of errors that say only that another process writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptRun:
    """A run that has ended, as it was shown."""

    positions: Mapping[str, ReaderPosition]
    """Name of each events file -> where its reader was."""
    last: WatchedRun
    stamp: int | None
    """Of its directory then."""
    looked_at: float
    """When, as wall time."""


class RunCache:
    """Keeps the ended runs of one logdir. Used by one thread at a time.

    Args:
        directory: where the file is; created if it is missing, mode 0700.
        logdir: as its runs' files are spelt.
        kept_ticks: see `RunFold`.
        all_saves: likewise.

    Example:
        >>> import tempfile
        >>> RunCache(tempfile.mkdtemp(), "/runs", 1).kept("mnist") is None
        True
    """

    def __init__(self, directory: str, logdir: str, kept_ticks: int | None, *, all_saves: bool = True) -> None:
        name = file_name(logdir, kept_ticks, all_saves=all_saves)
        self._path = os.path.join(directory, f"{name}.sqlite")
        self._database: sqlite3.Connection | None = None
        self._warned: set[str] = set()
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(directory, 0o700)
            check_own(directory, "give another directory", is_secret=True)
            if os.path.lexists(self._path):
                _check_file(self._path)
            self._connect()
        except OSError as error:
            self._warn(f"The cache is not used: {error}.")
        except Exception as error:  # sqlite3's: a damaged file, a full disk; or Python has no sqlite3
            self._faulty(error)

    def kept(self, run: str) -> KeptRun | None:
        """Return what is kept of a run; None if that is nothing, or nothing that can be used."""
        statement = "SELECT kept FROM runs WHERE run = ?"
        rows = self._tried(lambda database: database.execute(statement, (os.fsencode(run),)).fetchall())
        if not rows:
            return None
        try:
            return _opened(rows[0][0])
        except (zlib.error, msgspec.MsgspecError, TypeError, ValueError) as error:
            self._warn(f"The cache {self._path} has a damaged entry: {error}. The run is read again.")
            _LOG.debug("The damaged entry is that of run %s", run)
            return None

    def keep(self, runs: Iterable[tuple[str, KeptRun]]) -> None:
        """Write runs by name."""
        rows = []
        for run, kept in runs:
            try:
                rows.append((os.fsencode(run), _closed(kept)))
            except (msgspec.MsgspecError, TypeError, ValueError) as error:  # a text in it is not Unicode, say
                _LOG.debug("Run %s is not kept in the cache: %s", run, error)
        if rows:
            self._change("INSERT OR REPLACE INTO runs VALUES (?, ?)", rows)

    def prune(self, runs: Iterable[str]) -> None:
        """Delete all runs but these."""
        known = {os.fsencode(run) for run in runs}
        found = self._tried(lambda database: database.execute("SELECT run FROM runs").fetchall())
        gone = [row for row in found or () if row[0] not in known]
        if gone:
            self._change("DELETE FROM runs WHERE run = ?", gone)

    def close(self) -> None:
        """Close the file."""
        database, self._database = self._database, None
        if database is not None:
            with contextlib.suppress(Exception):
                database.close()

    def _connect(self) -> None:
        import sqlite3

        database = sqlite3.connect(self._path, timeout=BUSY_SECS, check_same_thread=False, isolation_level=None)
        self._database = database
        database.execute("PRAGMA synchronous = NORMAL")
        (page_bytes,) = database.execute("PRAGMA page_size").fetchone()
        database.execute(f"PRAGMA max_page_count = {MOST_DISK_BYTES // page_bytes}")
        (version,) = database.execute("PRAGMA user_version").fetchone()
        with self._transaction(database):
            if version != code_version():
                database.execute("DROP TABLE IF EXISTS runs")
            database.execute(_TABLE)
            database.execute(f"PRAGMA user_version = {code_version()}")

    @contextlib.contextmanager
    def _transaction(self, database: sqlite3.Connection) -> Iterator[None]:
        database.execute("BEGIN IMMEDIATE")
        try:
            yield
            database.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(Exception):
                database.execute("ROLLBACK")
            raise

    def _change(self, statement: str, rows: Sequence[tuple[bytes, ...]]) -> None:
        def change(database: sqlite3.Connection) -> None:
            with self._transaction(database):
                database.executemany(statement, rows)

        self._tried(change)

    def _tried(self, call: Callable[[sqlite3.Connection], _T]) -> _T | None:
        """Return what a call returns; None if it failed, for which there is one line in the log."""
        try:
            return None if self._database is None else call(self._database)
        except Exception as error:  # sqlite3's own, and those of a text that it does not take
            self._faulty(error)
            return None

    def _faulty(self, error: Exception) -> None:
        """Use the cache no more, unless another process only writes to it; delete a damaged one."""
        import sqlite3

        if isinstance(error, sqlite3.OperationalError) and any(word in str(error) for word in _PASSING):
            _LOG.debug("%s: %s", self._path, error)
            return
        self.close()
        if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
            self._warn(f"The cache {self._path} is damaged: {error}. It is deleted, and its runs are read again.")
            for path in (self._path, f"{self._path}-journal"):
                with contextlib.suppress(OSError):
                    os.unlink(path)
            with contextlib.suppress(Exception):
                self._connect()
        else:
            self._warn(f"The cache {self._path} is not used: {error}. Nothing else depends on it.")

    def _warn(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            _LOG.warning("%s", text)


def file_name(logdir: str, kept_ticks: int | None, *, all_saves: bool) -> str:
    """Return the name of a logdir's file, without its ending."""
    local = local_path(logdir)
    spelt = logdir.rstrip("/") if local is None else f"{logdir.rstrip('/')}\0{os.path.abspath(local)}"
    digest = hashlib.blake2b(os.fsencode(spelt), digest_size=8).hexdigest()
    return f"{digest}-{'all' if kept_ticks is None else kept_ticks}{'' if all_saves else '.present'}"


@cache
def code_version() -> int:
    """Return what runs of this code are known by: 31 bits of a digest of the sources that make them."""
    digest = hashlib.blake2b(platform.python_version().encode(), digest_size=4)
    package = Path(__file__).parents[2]
    for source in sorted([*package.glob("run/**/*.py"), *package.glob("events/*.py")]):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return int.from_bytes(digest.digest(), "big") >> 1


def _check_file(path: str) -> None:
    found = os.lstat(path)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != user_id() or found.st_nlink > 1:
        raise PermissionError(f"{path} is no file of this user's alone; delete it")


def _closed(kept: KeptRun) -> bytes:
    data = zlib.compress(msgspec.msgpack.encode(kept, enc_hook=_plain), 1)
    if len(data) > MOST_BYTES:
        raise ValueError(f"it takes {len(data):,} bytes")
    return data


def _opened(data: bytes) -> KeptRun:
    inflate = zlib.decompressobj()
    whole = inflate.decompress(data, 8 * MOST_BYTES)
    if not inflate.eof:
        raise ValueError("it is cut, or too long")
    return _decoder().decode(whole)


@cache
def _decoder() -> msgspec.msgpack.Decoder[KeptRun]:
    return msgspec.msgpack.Decoder(KeptRun, dec_hook=_made)


def _plain(item: Any) -> Any:
    """Return what `_made` makes an object of."""
    if isinstance(item, array):
        return item.typecode, item.tolist()
    if isinstance(item, Mapping):
        return dict(item)
    if hasattr(item, "item"):  # a number of numpy's
        return item.item()
    raise TypeError(f"it holds a {type(item).__qualname__}")


def _made(kind: type, item: Any) -> Any:
    if kind is array:
        return array(*item)
    raise ValueError(f"it holds a {kind.__qualname__}")
