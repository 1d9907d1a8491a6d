"""`LogdirWatch`: every run below a logdir, read as it grows and understood as it stands.

What a session cannot write into its events file is looked up elsewhere, see `live`.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import math
import os
import stat
from collections.abc import Callable, Iterator

from supervisor_core.base.clock import SYSTEM_CLOCK, Clock, boot_secs
from supervisor_core.base.fair_share import fair_turns
from supervisor_core.base.shard import RunShard
from supervisor_core.events.index import LogdirIndex
from supervisor_core.run.model.snapshot import LogdirSnapshot
from supervisor_core.run.model.words import counted
from supervisor_core.run.watch.copies import CopyMarks
from supervisor_core.run.watch.hparam_runs import HParamsByPlace
from supervisor_core.run.watch.plain_writers import PlainWriters
from supervisor_core.run.watch.presence import CheckpointPresence
from supervisor_core.run.watch.run_cache import RunCache
from supervisor_core.run.watch.run_tracker import RunTracker
from supervisor_core.storage.filesystem import ReadFilesystem
from supervisor_core.storage.local import local_path, source_of
from supervisor_core.storage.remote_source import RemoteSource

_LOG = logging.getLogger("supervisor_core")

LOOK_SECS = 5.0
"""How long a look but the first reads what is new, and how long it puts runs together: by turns of their owners."""
BEHIND_SECS = 60.0
"""From when on a run that the looks have no time for is a problem."""
_BEHIND = f"as of an earlier look: the runs of one owner take more than a look has for them, {LOOK_SECS:g} s for all"
_RUNS_A_COLLECTION = 100
"""Runs read between two collections of garbage during the first look."""


class LogdirWatch:
    """Looks at a logdir, again and again; each look costs in proportion to what is new.

    Keeps what the model of a run needs, and no scalar columns. Only runs that have new events, that time alone
    changes (running, stalled, lost), or whose directory has changed are put together again; of all others the same
    object is handed out as before. Used by one thread at a time.

    Args:
        logdir: the directory; it need not exist yet. One with ``://`` in it is remote.
        include: a regular expression that a run's name must match somewhere.
        exclude: one that it must not match anywhere.
        shard: which part of these runs is read; None: all.
        max_runs: how many of these are read, see `LogdirIndex`; None: all.
        kept_ticks: how many of each service thread's newest ticks, and of its newest spans, are kept; None: all, of
            which a run of a week has a hundred thousand.
        all_saves: see `RunFold`; False for who holds thousands of runs.
        filesystem: where events files are read from; the one that the path says.
        presence: where checkpoints are looked for.
        cache: directory of the runs that have ended (`run_cache`): a first look then does not read them. None:
            everything is read. One that cannot be used costs a warning.
        clock: its wall time dates each look.

    Raises:
        EventsError: if no file system for a remote path is installed.
        ValueError: if a text is not a valid regular expression.

    Example:
        >>> snapshot = LogdirWatch("/no/such/logdir").refresh()
        >>> snapshot.runs, snapshot.problems
        ({}, ('/no/such/logdir does not exist.',))
    """

    def __init__(
        self,
        logdir: str,
        include: str | None = None,
        exclude: str | None = None,
        *,
        shard: RunShard | None = None,
        max_runs: int | None = None,
        kept_ticks: int | None = None,
        all_saves: bool = True,
        filesystem: ReadFilesystem | None = None,
        presence: CheckpointPresence | None = None,
        cache: str | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._source = source_of(logdir) if filesystem is None else filesystem
        self._index = LogdirIndex(
            logdir,
            include=include,
            exclude=exclude,
            shard=shard,
            max_runs=max_runs,
            filesystem=self._source,
            clock=clock,
        )
        listed = self._source.names if isinstance(self._source, RemoteSource) else lambda directory: None
        self._presence = presence or CheckpointPresence(logdir, listed=listed)
        self._clock = clock
        self._kept_ticks, self._all_saves = kept_ticks, all_saves
        self._writers = PlainWriters()
        self._runs: dict[str, RunTracker] = {}
        self._copies, self._hparams = CopyMarks[str](), HParamsByPlace()
        self._cache = None if cache is None else RunCache(cache, logdir, kept_ticks, all_saves=all_saves)
        self._holds_all = include is None and exclude is None

    @property
    def logdir(self) -> str:
        """The logdir, as it was given."""
        return self._index.logdir

    def refresh(self, on_progress: Callable[[int, int], None] | None = None) -> LogdirSnapshot:
        """Return the runs as they are now. Raises nothing: what could not be read is a problem in the snapshot.

        Args:
            on_progress: called after each run with the number of runs read, and of all runs.
        """
        problems: list[str] = []
        unread: str | None = None
        self._writers.clear()
        is_first = not self._runs
        limit_secs = None if is_first else LOOK_SECS
        behind = self._clock.monotonic() - BEHIND_SECS  # of the look's begin: it may be suspended meanwhile

        def progressed(done: int, total: int) -> None:
            if is_first:
                self._run(self._index.order[done - 1]).settle(self._clock.wall(), boot_secs(self._clock))
                if done % _RUNS_A_COLLECTION == 0:
                    gc.collect(1)
                    self._keep()
            if on_progress is not None:
                on_progress(done, total)

        try:
            with _collector_paused() if is_first else contextlib.nullcontext():
                self._read(progressed, limit_secs)
                if self._find_deaths(limit_secs):
                    self._read(None, limit_secs)  # what they wrote before: how they ended, perhaps
        except Exception as error:  # clients of object stores raise what they like; the next look may go well
            _LOG.debug("Looking at %s failed", self.logdir, exc_info=True)
            problems.append(f"{self.logdir} cannot be looked at: {error!r}.")
            unread = f"the look at its logdir broke off before it was read: {error!r}"
        problems += [problem.text for problem in self._index.problems]
        if not self._index.runs and not problems:
            problems += self._why_nothing()
        self._presence.clear()
        now, boot_now = self._clock.wall(), boot_secs(self._clock)
        self._runs = {name: self._run(name) for name in self._index.runs}
        was_read = frozenset(self._index.order)

        def visit(watch: RunTracker) -> bool:
            before, name = watch.last, watch.index.name
            why = None if name in was_read else unread or (_BEHIND if watch.read_at < behind else None)
            watch.refreshed_at = self._clock.monotonic()
            return watch.refresh(now, boot_now, why) is not before

        self._by_turns(limit_secs, visit)
        late = sum(min(watch.read_at, watch.refreshed_at) < behind for watch in self._runs.values())
        if late and unread is None:
            problems.append(f"{self.logdir}: {counted(late, 'run')} {_BEHIND}.")
        runs = {name: last for name, watch in self._runs.items() if (last := watch.last) is not None}
        if unread is None:
            self._keep()
            if is_first and self._cache is not None and self._holds_all and not problems and self._index.is_reachable:
                self._cache.prune([*self._runs, *self._index.elsewhere])
        requests = self._source.requests if isinstance(self._source, RemoteSource) else 0
        return LogdirSnapshot(
            logdir=self.logdir,
            at=now,
            runs=self._copies.marked(self._hparams.joined(runs)),
            elsewhere=self._index.elsewhere,
            left_out=self._index.left_out,
            problems=tuple(problems),
            reachable=self._index.is_reachable,
            is_whole=unread is None,
            requests=requests,
            identity=_identity(self.logdir),
        )

    def close(self) -> None:
        """Bring the cache up to date."""
        self._keep()

    def _read(self, progressed: Callable[[int, int], None] | None, limit_secs: float | None) -> None:
        self._index.refresh(
            progressed,
            take=lambda name, chunks: self._run(name).update(chunks),
            begin=lambda index: self._run(index.name).begin(),
            limit_secs=limit_secs,
        )
        now = self._clock.monotonic()
        for name in self._index.runs.keys() & self._index.order:
            self._run(name).read_at = now

    def _by_turns(self, limit_secs: float | None, visit: Callable[[RunTracker], bool]) -> None:
        """Visit runs by turns of their owners, those first that waited longest, as long as there is time.

        Args:
            limit_secs: how long; None: all runs.
            visit: returns whether the time that it took counts.
        """
        order = sorted(self._index.runs, key=lambda name: self._run(name).refreshed_at)
        turns = fair_turns(order, lambda name: self._index.runs[name].owner)
        left, name = math.inf if limit_secs is None else limit_secs, next(turns, None)
        while name is not None and left > 0:
            began = self._clock.monotonic()
            counts = visit(self._run(name))
            took = self._clock.monotonic() - began if counts else 0.0
            left -= took
            try:
                name = turns.send(round(1e6 * took))
            except StopIteration:
                return

    def _keep(self) -> None:
        """Write the runs that have ended since into the cache."""
        if self._cache is None:
            return
        self._cache.keep(watch.kept() for watch in self._runs.values() if watch.is_to_keep)

    def _find_deaths(self, limit_secs: float | None) -> bool:
        """Find the processes that are over without a record of it; return whether there are some since the last
        time."""
        now, boot_now = self._clock.wall(), boot_secs(self._clock)
        found = []

        def visit(watch: RunTracker) -> bool:
            found.append(watch.look_around(now, boot_now))
            return True

        self._by_turns(limit_secs, visit)
        return any(found)

    def _run(self, name: str) -> RunTracker:
        index, watch = self._index.runs[name], self._runs.get(name)
        if watch is None or watch.index is not index:  # new, or gone in between
            watch = self._runs[name] = RunTracker(
                index,
                self._presence,
                self._writers,
                self._kept_ticks,
                self._cache,
                all_saves=self._all_saves,
            )
        return watch

    def _why_nothing(self) -> list[str]:
        """Return the reason for finding no runs; empty for an empty logdir."""
        try:
            status = self._source.stat(self.logdir)
        except FileNotFoundError:
            return [f"{self.logdir} does not exist."]
        except Exception as error:  # as above
            return [f"{self.logdir} cannot be looked at: {error}."]
        return [] if stat.S_ISDIR(status.st_mode) else [f"{self.logdir} is no directory."]


@contextlib.contextmanager
def _collector_paused() -> Iterator[None]:
    """Keep the collector of cyclic garbage from looking again and again through all that is being read: none of it is
    garbage, and looking took a third of the time of a first look."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _identity(logdir: str) -> tuple[int, int] | None:
    local = local_path(logdir)
    try:
        status = None if local is None else os.stat(local)
    except OSError:
        return None
    return None if status is None else (status.st_ino, status.st_dev)
