"""`LogdirWatch`: every run below a logdir, read as it grows and understood as it stands.

What a session cannot write into its events file is looked up elsewhere, see `live_session`.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from supervisor_core.clock import SYSTEM_CLOCK, Clock, boot_secs
from supervisor_core.events.chunk import Chunk, FileFacts
from supervisor_core.events.index import LogdirIndex, RunIndex
from supervisor_core.run.bounds import UNSEEN
from supervisor_core.run.copies import CopyMarks
from supervisor_core.run.fold import RunFold
from supervisor_core.run.goodput import is_down
from supervisor_core.run.live_session import LeaseReader, PageReader, with_lease, with_page
from supervisor_core.run.model import Run, Session
from supervisor_core.run.presence import CheckpointPresence
from supervisor_core.run.restarter_process import restarter_runs
from supervisor_core.run.snapshot import LogdirSnapshot, WatchedRun
from supervisor_core.run.writer_clock import WriterClock
from supervisor_core.storage.filesystem import ReadFilesystem
from supervisor_core.storage.local import local_path, source_of
from supervisor_core.storage.remote_source import RemoteSource
from supervisor_core.systems import free_bytes

_LOG = logging.getLogger("supervisor_core")

_ENDED = ("completed", "stopped", "failed")
"""The states that only a new session, or what happens to its files, changes."""
_FEW_SESSIONS = 100
"""Of an ended run with so few, what can be put together again within milliseconds is not kept."""
_RUNS_A_COLLECTION = 500
"""Runs read between two collections of garbage during the first look."""
_MOVING = ("running", "stalled", "lost")
"""The states in which time alone changes a run: its state, or where its time goes."""


class LogdirWatch:
    """Looks at a logdir, again and again; each look costs in proportion to what is new.

    Keeps what the model of a run needs, and no scalar columns. Only runs that have new events, that time alone
    changes (running, stalled, lost), or whose directory has changed are put together again; of all others the same
    object is handed out as before. Used by one thread at a time.

    Args:
        logdir: the directory; it need not exist yet. One with ``://`` in it is remote.
        include: a regular expression that a run's name must match somewhere.
        exclude: one that it must not match anywhere.
        kept_ticks: how many of each service thread's newest ticks, and of its newest spans, are kept; None: all, of
            which a run of a week has a hundred thousand.
        filesystem: where events files are read from; the one that the path says.
        presence: where checkpoints are looked for.
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
        kept_ticks: int | None = None,
        filesystem: ReadFilesystem | None = None,
        presence: CheckpointPresence | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._source = source_of(logdir) if filesystem is None else filesystem
        self._index = LogdirIndex(logdir, include=include, exclude=exclude, filesystem=self._source, clock=clock)
        listed = self._source.names if isinstance(self._source, RemoteSource) else lambda directory: None
        self._presence = presence or CheckpointPresence(logdir, listed=listed)
        self._clock = clock
        self._kept_ticks = kept_ticks
        self._runs: dict[str, _RunWatch] = {}
        self._copies = CopyMarks[str]()
        self._done = 0

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
        self._done = 0
        is_first = not self._runs
        names = self._names()

        def progressed(done: int, total: int) -> None:
            self._done = done
            if is_first:
                self._run(next(names)).settle(self._clock.wall(), boot_secs(self._clock))
                if done % _RUNS_A_COLLECTION == 0:
                    gc.collect(1)
            if on_progress is not None:
                on_progress(done, total)

        try:
            with _collector_paused() if is_first else contextlib.nullcontext():
                self._read(progressed)
                if self._find_deaths():
                    self._read()  # what they wrote before: how they ended, perhaps
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
        done = len(self._runs) if unread is None else self._done
        runs = {
            name: watch.refresh(now, boot_now, unread if number >= done else None)
            for number, (name, watch) in enumerate(self._runs.items())
        }
        requests = self._source.requests if isinstance(self._source, RemoteSource) else 0
        return LogdirSnapshot(
            logdir=self.logdir,
            at=now,
            runs=self._copies.marked(runs),
            problems=tuple(problems),
            reachable=self._index.is_reachable,
            requests=requests,
            identity=_identity(self.logdir),
        )

    def so_far(self) -> LogdirSnapshot:
        """Return the runs that the refresh under way has read to their ends, without problems.

        For ``on_progress``, so that something can be shown before the first refresh of a large logdir ends.
        """
        now, boot_now = self._clock.wall(), boot_secs(self._clock)
        names = list(self._index.runs)[: self._done]
        return LogdirSnapshot(
            logdir=self.logdir, at=now, runs={name: self._run(name).refresh(now, boot_now) for name in names}
        )

    def _read(self, progressed: Callable[[int, int], None] | None = None) -> None:
        self._index.refresh(progressed, take=lambda name, chunks: self._run(name).update(chunks))

    def _names(self) -> Iterator[str]:
        """Yield the names of the runs, which are known when the first of them has been read."""
        yield from self._index.runs

    def _find_deaths(self) -> bool:
        """Find the processes that are over without a record of it; return whether there are some since the last
        time."""
        now, boot_now = self._clock.wall(), boot_secs(self._clock)
        return any([self._run(name).has_died(now, boot_now) for name in self._index.runs])

    def _run(self, name: str) -> _RunWatch:
        index, watch = self._index.runs[name], self._runs.get(name)
        if watch is None or watch.index is not index:  # new, or gone in between
            watch = self._runs[name] = _RunWatch(index, self._presence, self._kept_ticks)
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


class _RunWatch:
    """One run: its fold, and the last result."""

    def __init__(self, index: RunIndex, presence: CheckpointPresence, kept_ticks: int | None) -> None:
        self.index = index
        self._presence = presence
        self._fold = RunFold(index.name, kept_ticks=kept_ticks)
        self._lease = LeaseReader(index.directory)
        self._page = PageReader(index.directory)
        self._clock = WriterClock()
        self._dead: str | None = None
        self._lost: str | None = None
        self._fresh = True
        self._stamp: object = None
        self._last: WatchedRun | None = None
        self._looked_at = 0.0

    def update(self, chunks: Sequence[Chunk]) -> None:
        self._fresh = True
        try:
            self._fold.update(chunks)
        except Exception as error:  # a fault of ours; it must not cost the other runs
            _LOG.exception("The events of run %s could not be understood", self.index.name)
            self._lost = f"its events could not be understood: {error!r}"

    def settle(self, now: float, boot_now: float) -> None:
        """Put the run together, if it has ended: so that of many runs not all is kept at once that is needed for it."""
        try:
            session = self._fold.newest_session
        except Exception:  # as in `update`; the look that follows reports it
            _LOG.debug("Run %s could not be put together", self.index.name, exc_info=True)
            return
        if session is not None and session.outcome not in ("running", "unknown"):
            self.refresh(now, boot_now)

    def has_died(self, now: float, boot_now: float) -> bool:
        """Return whether the process of the newest session is over, though no record says so; True once."""
        if not self._fresh and self._last is not None and self._last.run.state in _ENDED:
            return False
        try:
            session = self._fold.newest_session
            if session is None or session.outcome != "running" or session.id == self._dead:
                return False
            death = self._page.death(session, now, boot_now)
        except Exception:  # as in `update`; the look that follows reports it
            _LOG.debug("The page of run %s could not be read", self.index.name, exc_info=True)
            return False
        if death is None:
            return False
        self._fold.died(death)
        self._dead, self._fresh = session.id, True
        return True

    def _observe(self, files: Sequence[FileFacts], now: float) -> None:
        """Take the newest time of the newest session."""
        session = self._fold.newest_session
        if session is not None and session.ended_at is not None and not (session.inferred or session.gone):
            times = [file.written_at for file in files if file.path in session.files and file.written_at is not None]
            written_at, ahead = max(times, default=None), self._ahead_by_lease(session, now)
            if ahead is not None:  # on a full disk an events file is written again and again, and has nothing new
                written_at = None
            self._clock.observe(session.id, at=session.ended_at, written_at=written_at, now=now, ahead_secs=ahead)

    def _ahead_by_lease(self, session: Session, now: float) -> float | None:
        """Return by how much the clock of an open session is ahead by its lease; None where that is unknown, and once
        its events were seen to move."""
        if session.outcome != "running" or self._clock.is_moving:
            return None
        lease = self._lease.read(now)
        return self._lease.clock.skew_secs if lease is not None and lease.session == session.id else None

    def refresh(self, now: float, boot_now: float, unread: str | None = None) -> WatchedRun:
        index = self.index
        files, left_out, identity, unreachable = index.files, index.left_out, index.identity, index.problem is not None
        problem = unread or self._lost or self.index.problem or _unreadable(files)
        last, stamp = self._last, self._presence.stamp(self.index.directory)
        if (
            last is not None
            and not self._fresh
            and last.run.state not in _MOVING
            and not _is_down(last.run, self._looked_at)
            and not (last.run.state == "unknown" and last.run.launches)  # its restarter may have gone
            and (last.files, last.left_out_files, last.identity) == (files, left_out, identity)
            and (last.problem, self._stamp) == (problem or _dropped(last), stamp)
        ):
            return last
        self._fresh, self._stamp, self._looked_at = False, stamp, self._clock.now(now)
        try:
            clock = self._clock
            self._observe(files, now)
            run = self._fold.run(clock.now(now), self._presence.within(self.index.directory), restarter_runs)
            is_gone = bool(run.sessions) and run.sessions[-1].gone
            if run.state in _MOVING and not is_gone:
                run = with_page(run, self._page.read(run.sessions[-1], now), clock.now(now), boot_now)
            if run.state == "lost" and not is_gone:
                run = with_lease(run, self._lease.read(now, clock.known_ahead_secs), self._lease.clock.now(now))
                clock = clock if run.state == "lost" or self._lease.clock.skew_secs is None else self._lease.clock
            if clock.is_moving or run.state in ("running", "stalled"):
                run = replace(run, clock_skew_secs=clock.skew_secs)
        except Exception as error:  # as above
            _LOG.debug("Run %s could not be put together", self.index.name, exc_info=True)
            run = last.run if last is not None else RunFold(self.index.name).run(now, lambda path: None)
            problem = f"it could not be put together: {error!r}"
        found = WatchedRun(
            run=run,
            directory=index.directory,
            files=files,
            unreachable=unreachable,
            left_out_files=left_out,
            free_bytes=_free_bytes(index.directory) if run.state in _MOVING and not unreachable else None,
            identity=identity,
            problem=problem,
        )
        dropped = None if problem else _dropped(found)
        self._last = found if dropped is None else replace(found, problem=dropped)
        if run.state in _ENDED and len(run.sessions) <= _FEW_SESSIONS:
            self._fold.rest()
        return self._last


def _is_down(run: Run, at: float) -> bool:
    """Return whether the time since the run's death was downtime at the last look: it grows, or ends, with this one."""
    return bool(run.sessions) and is_down(run.state, run.sessions[-1], at)


def _identity(logdir: str) -> tuple[int, int] | None:
    local = local_path(logdir)
    try:
        status = None if local is None else os.stat(local)
    except OSError:
        return None
    return None if status is None else (status.st_ino, status.st_dev)


def _unreadable(files: Sequence[FileFacts]) -> str | None:
    return next((f"{file.path}: {file.skipped}" for file in files if file.unreadable), None)


def _free_bytes(directory: str) -> int | None:
    local = local_path(directory)
    if local is None:
        return None
    try:
        return free_bytes(local)
    except OSError:
        return None


def _dropped(watched: WatchedRun) -> str | None:
    found = watched.dropped
    parts = [f"{kind} dropped {found[kind]:,} x" for kind in UNSEEN if kind in found]
    return f"more than is kept of one run (docs/limits.md): {', '.join(parts)}" if parts else None
