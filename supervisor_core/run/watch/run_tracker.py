"""`RunTracker`: one run of a logdir, from what is new in its events files to the run as it stands.

What a session cannot write into its events file is looked up elsewhere, see `live`.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from supervisor_core.base.systems import free_bytes
from supervisor_core.events.chunk import Chunk, FileFacts
from supervisor_core.events.index import RunIndex
from supervisor_core.events.record_fields import replaced
from supervisor_core.process.identity import is_stopped, may_be_of
from supervisor_core.run.fold.bounds import UNSEEN
from supervisor_core.run.fold.first_error import has_lost_unknown_rank, with_first_error
from supervisor_core.run.fold.goodput import is_down
from supervisor_core.run.fold.inferred_sessions import FLUSH_SECS, LastWrite
from supervisor_core.run.fold.other_writers import LEAST_HANG_TIMEOUT_SECS
from supervisor_core.run.fold.run_fold import RunFold
from supervisor_core.run.fold.session_fold import NOTHING
from supervisor_core.run.model.checkpoints import last_good, newest_there
from supervisor_core.run.model.run import LIVE, Run, Session
from supervisor_core.run.model.snapshot import WatchedRun
from supervisor_core.run.watch.copies import as_copy, original_of
from supervisor_core.run.watch.live import (
    FRESH_SECS,
    Live,
    LiveReader,
    WriterClock,
    ranks_here,
    restarter_runs,
    runs_here,
    with_ranks,
    with_verdict,
)
from supervisor_core.run.watch.plain_writers import PlainWriters, RunWriter
from supervisor_core.run.watch.presence import CheckpointPresence
from supervisor_core.run.watch.run_cache import KeptRun, RunCache
from supervisor_core.storage.local import local_path

_LOG = logging.getLogger("supervisor_core")

_ENDED = ("completed", "stopped", "failed")
"""The states that only a new session, or what happens to its files, changes."""
_FEW_SESSIONS = 100
"""Of an ended run with so few, what can be put together again within milliseconds is not kept."""
_FEW_SESSIONS_ALIVE = 5
"""Likewise of a live run, which almost every look puts together again."""
_SOON_READ_BYTES = 16 << 20
"""Events files of an ended run that are read again within tens of milliseconds."""
_LIKELY_SECS, _LIKELY_GAPS = 10.0, 2.0
"""For so long, or so many usual gaps, after an event a run may be written by a process that was never seen here."""
_MOVING = ("running", "stalled", "lost")
"""The states in which time alone changes a run: its state, or where its time goes."""


class RunTracker:
    """One run: its fold, and the last result. Used by one thread at a time.

    Args:
        index: reads its events files.
        presence: where its checkpoints are looked for.
        writers: where its process is looked for, if it has no telemetry.
        kept_ticks: see `RunFold`.
        all_saves: likewise.
        cache: has the runs that had ended at earlier looks; None: nothing.
    """

    def __init__(
        self,
        index: RunIndex,
        presence: CheckpointPresence,
        writers: PlainWriters,
        kept_ticks: int | None,
        cache: RunCache | None = None,
        *,
        all_saves: bool = True,
    ) -> None:
        self.index = index
        self.read_at = self.refreshed_at = -math.inf
        """When it was read to its end, and put together, by the monotonic clock of who looks."""
        self._presence, self._writers = presence, writers
        self._kept_ticks, self._all_saves = kept_ticks, all_saves
        self._cache = cache
        self._loaded: RunFold | None = None
        self._was_let_go = False
        self._times_read_again = 0
        self._is_kept = False
        """Whether the cache has it as it is."""
        self._clock = WriterClock()
        self._live = Live()
        """What is known now of the newest session."""
        self._fault: str | None = None
        """Why its liveness file says nothing of it."""
        self._has_looked = False
        """Whether that is of the look under way."""
        self._writer = RunWriter()
        self._original: str | None = None
        """The directory of this machine that this one is a copy of, while its session is open there."""
        self._over: tuple[tuple[str, ...], int] | None = None
        """Files, and their size, of which all writers were found to be over."""
        self._goes_on: tuple[str, ...] | None = None
        """Files that have grown after that: their writers are in another container of this host's name."""
        self._sizes: Mapping[str, tuple[int, float, bool]] = NOTHING
        """Of each of several files: its size, since when it is seen to have it, and whether it was seen to grow."""
        self._dead: str | None = None
        self._lost: str | None = None
        self._fresh = True
        self._stamp: int | None = None
        self._last: WatchedRun | None = None
        self._is_at_rest = False
        """Whether nothing but new events, or what happens to its files, changes `_last`."""
        self._looked_at = 0.0

    @cached_property
    def _reader(self) -> LiveReader:
        return LiveReader(self.index.directory)

    @property
    def _fold(self) -> RunFold:
        """The run's fold: if it was let go, the run is read again."""
        if self._loaded is None and not self._was_let_go:  # not before: of thousands, all would be held until the last
            self._loaded = self._new_fold()
        if self._loaded is None:
            self._loaded = self._new_fold()
            self._times_read_again += 1
            self._fresh, self._is_kept = True, False
            self.index.resume({})
            for chunk in self.index.pieces():
                self._loaded.update([chunk])
        return self._loaded

    def _new_fold(self) -> RunFold:
        return RunFold(self.index.name, kept_ticks=self._kept_ticks, all_saves=self._all_saves)

    @property
    def last(self) -> WatchedRun | None:
        """The run as of the last `refresh`; None before the first."""
        return self._last

    def begin(self) -> None:
        """Go on from what the cache has of the run."""
        kept = None if self._cache is None else self._cache.kept(self.index.name)
        if kept is not None:
            self._let_go()
            self.index.resume(kept.positions)
            self._stamp, self._looked_at = kept.stamp, kept.looked_at
            self._fresh, self._is_kept = False, True
            self._take(kept.last)

    @property
    def is_to_keep(self) -> bool:
        """Whether the cache is to have it: it has ended, and changed since it was kept."""
        is_sound = self._last is not None and self._last.problem is None and self._dead is None
        return is_sound and self._is_at_rest and not (self._is_kept or self._fresh)

    def kept(self) -> tuple[str, KeptRun]:
        """Return what the cache is to have of it, and take it as kept."""
        assert self._last is not None
        self._is_kept = True
        kept = KeptRun(positions=self.index.positions, last=self._last, stamp=self._stamp, looked_at=self._looked_at)
        return self.index.name, kept

    def update(self, chunks: Sequence[Chunk]) -> None:
        """Add new events."""
        self._fresh, self._is_kept = True, False
        try:
            before = self._times_read_again
            fold = self._fold
            if self._times_read_again == before:  # else these chunks are in it
                fold.update(chunks)
        except Exception as error:  # a fault of ours; it must not cost the other runs
            _LOG.exception("The events of run %s could not be understood", self.index.name)
            self._lost = f"its events could not be understood: {error!r}"

    def settle(self, now: float, boot_now: float) -> None:
        """Put the run together, if it has ended: so that of many runs not all is kept at once that is needed for it."""
        if not self._fresh:
            return
        try:
            newest = self._fold.newest
        except Exception:  # as in `update`; the look that follows reports it
            _LOG.debug("Run %s could not be put together", self.index.name, exc_info=True)
            return
        if newest is not None and newest.session.outcome not in ("running", "unknown"):
            self.refresh(now, boot_now)

    def look_around(self, now: float, boot_now: float) -> bool:
        """Learn what is known now of the newest session, if it is open. Return whether its process was found to be
        over: there may be new records of how it ended."""
        if not self._fresh and self._last is not None and not self._moves(self._last):
            return False
        try:
            self._has_looked = True
            return self._look_around(now, boot_now)
        except Exception:  # as in `update`; the look that follows reports it
            _LOG.debug("What is known now of run %s could not be read", self.index.name, exc_info=True)
            return False

    def _look_around(self, now: float, boot_now: float) -> bool:
        self._date_files(now)
        newest, before = self._fold.newest, self._writer
        self._live, self._fault, self._writer = Live(), None, RunWriter()
        self._original = None
        if newest is None or not newest.session.is_open or newest.session.gone:
            return False
        if newest.session.inferred:
            return self._find_writer(newest.session, before, now)
        session, ranks = newest.session, [worker.history.name for worker in newest.workers]
        reader, at = self._reader, self._clock.now(now)
        self._original = original_of(session, self.index.directory)
        if self._original is not None:
            self._fold.lives(reader.chief(session.id, at))
            return False
        live = reader.look(session, at, boot_now, ranks=ranks, is_stalled=newest.is_stalled)
        if reader.recorded_at is not None:  # a page has no time of the session's own clock
            self._clock.observe(session.id, at=reader.recorded_at, written_at=reader.written_at, now=now)
            if self._clock.now(now) != at:
                at = self._clock.now(now)
                live = reader.look(session, at, boot_now, ranks=ranks, is_stalled=newest.is_stalled)
        self._live = live
        if live.record is not None:
            self._fold.lives(live.record, live.stall)
        else:
            files = [file.written_at for file in self.index.files if file.path in session.files]
            written_at = max((at for at in files if at is not None), default=None)
            self._clock.observe(session.id, at=session.ended_at or 0.0, written_at=written_at, now=now)
            self._fault = reader.fault
        if live.death is None:
            return False
        self._fold.died(live.death)
        self._dead, self._fresh, self._is_kept = session.id, True, False
        return True

    def _date_files(self, now: float) -> None:
        """Say when each of several files was written. A time in the future is not believed: unless the file is seen to
        grow, it was written before it was first seen."""
        files = self.index.files
        if len(files) < 2:
            return
        seen, written = self._sizes, {}
        sizes: dict[str, tuple[int, float, bool]] = {}
        for file in files:
            size = file.size_bytes or 0
            known_size, at, has_grown = seen.get(file.path, (size, now, False))
            if size > known_size:
                at, has_grown = now, True
            sizes[file.path] = size, at, has_grown
            if file.written_at is not None and file.written_at <= now + FLUSH_SECS:
                written[file.path] = LastWrite(file.written_at, has_grown=has_grown)
            else:
                written[file.path] = LastWrite(at, has_grown, has_grown)
        self._sizes = sizes
        self._fold.was_written(written)

    def _find_writer(self, session: Session, before: RunWriter, now: float) -> bool:
        """Find the process that writes a run without telemetry; return whether it was found to be over."""
        paths = session.files
        files = [file for file in self.index.files if file.path in paths]
        size, at = sum(file.size_bytes or 0 for file in files), self._fold.last_event_at
        written_at = max((file.written_at for file in files if file.written_at is not None), default=None)
        if at:
            self._clock.observe("inferred", at=at, written_at=written_at, now=now, size=size)
        if self._over is not None and self._over[0] == paths and size > self._over[1]:
            self._goes_on = paths
        if self._goes_on != paths:
            self._writer = self._writers.of(paths)
            is_recent = at and self._clock.now(now) - at <= max(
                _LIKELY_SECS, _LIKELY_GAPS * (session.usual_gap_secs or 0.0)
            )
            if self._writer.is_over and is_recent and self._over is None and before.pid is None:
                self._writer = RunWriter()  # its process may never have been of those that are seen here
        was_over, self._over = self._over, (paths, size) if self._writer.is_over else None
        return self._over is not None and was_over is None

    def refresh(self, now: float, boot_now: float, unread: str | None = None) -> WatchedRun:
        """Return the run as it is now; the same object as before, where nothing has changed.

        Args:
            now: the present wall time.
            boot_now: the same by `supervisor_core.base.clock.boot_secs`.
            unread: why it was not read to its end; None where it was.
        """
        index = self.index
        files, left_out, identity, unreachable = index.files, index.left_out, index.identity, index.problem is not None
        problem = unread or self._lost or self.index.problem or _unreadable(files)
        last, stamp = self._last, self._presence.stamp(self.index.directory)
        if (
            last is not None
            and not self._fresh
            and self._is_at_rest
            and (last.files, last.left_out_files, last.identity) == (files, left_out, identity)
            and (last.problem, self._stamp) == (problem or _dropped(last), stamp)
        ):
            return last
        self._fresh, self._stamp, self._looked_at = False, stamp, self._clock.now(now)
        try:
            clock = self._clock
            if not self._has_looked:
                self.look_around(now, boot_now)
            self._has_looked = False
            self._date_files(now)
            directory = self.index.directory
            present, moved_at = self._presence.within(directory), self._presence.moved_at(directory)
            run = self._fold.run(clock.now(now), present, restarter_runs, self._writer.is_alive, moved_at)
            if not self._all_saves and run.loss_finite is False and _lacks_saves(run):
                self._all_saves = True  # the last good one may be among those that are not kept
                self._let_go()
                self._look_around(now, boot_now)
                run = self._fold.run(clock.now(now), present, restarter_runs, self._writer.is_alive, moved_at)
            if run.loss_finite is False or run.state not in ("running", "stalled"):
                run = self._without_damaged(run)
            if run.state in _MOVING and not (run.sessions and run.sessions[-1].gone):
                run = with_verdict(with_ranks(run, self._live.ranks), clock.now(now))
            elif run.state == "failed" and has_lost_unknown_rank(run):
                names = [worker.name for worker in ranks_here(run)]
                run = with_ranks(run, self._reader.ranks(names, clock.now(now), is_stalled=True))
                run = replace(run, sessions=with_first_error(run.sessions, run.workers))
            if self._fault is not None and run.state in LIVE and _is_expected(run.sessions[-1], clock.now(now)):
                problem = problem or f"{self._fault}; whether the session lives is judged by its events"
            if clock.is_moving or run.state in _MOVING:
                run = replace(run, clock_skew_secs=_skew(run, clock.skew_secs))
        except Exception as error:  # as above
            _LOG.debug("Run %s could not be put together", self.index.name, exc_info=True)
            run = last.run if last is not None else RunFold(self.index.name).run(now, lambda path: None)
            problem = f"it could not be put together: {error!r}"
        writer_pid = self._pid_of_writer(run)
        found = WatchedRun(
            run=run,
            directory=index.directory,
            files=files,
            unreachable=unreachable,
            writer_pid=writer_pid,
            suspended_pid=_suspended(run, writer_pid, index.owner),
            left_out_files=left_out,
            free_bytes=_free_bytes(index.directory) if run.state in _MOVING and not unreachable else None,
            identity=identity,
            owner=index.owner,
            problem=problem,
        )
        found = found if self._original is None else as_copy(found, self._original)
        dropped = None if problem else _dropped(found)
        found = found if dropped is None else replace(found, problem=dropped)
        self._is_kept = False
        few_sessions = _FEW_SESSIONS if run.state in _ENDED else _FEW_SESSIONS_ALIVE
        if run.state != "lost" and len(run.sessions) <= few_sessions:
            self._fold.rest()
        if self._may_let_go(found):
            self._let_go()
        return self._take(found)

    def _without_damaged(self, run: Run) -> Run:
        """Return a run that names no damaged checkpoint to resume from, as far as sizes show it."""
        while True:
            for saved in (newest_there(run.checkpoints), run.last_good):
                path = None if saved is None or saved.inferred else saved.moved_to or saved.path
                damage = None if path is None else self._presence.damage(self.index.directory, path)
                if damage is not None:
                    saves = tuple(replaced(each, damage=damage) if each is saved else each for each in run.checkpoints)
                    good = last_good(saves, run.loss_nonfinite_since)
                    run = replaced(run, checkpoints=saves, last_good=good)
                    break
            else:
                return run

    def _take(self, found: WatchedRun) -> WatchedRun:
        """Keep a result as the last, and return it as it is kept."""
        run = found.run
        self._is_at_rest = (
            not self._moves(found)
            and not _is_down(run, self._looked_at)
            and not (run.state == "unknown" and run.launches)  # its restarter may have gone
        )
        self._last = found
        return found

    def _moves(self, watched: WatchedRun) -> bool:
        """Return whether time alone, or the end of a process, changes a run."""
        return watched.run.state in _MOVING or self._writer.pid is not None

    def _pid_of_writer(self, run: Run) -> int | None:
        """Return the process that writes a run without telemetry. Once the run is silent, that is one that has a file
        open for writing: nobody is called to a process that has closed it."""
        if self._writer.pid is None or run.state in _MOVING:
            return self._writer.pid
        return next((pid for path in run.sessions[-1].files if (pid := self._writers.holder(path)) is not None), None)

    def _let_go(self) -> None:
        """Hold no fold until one is needed."""
        self._loaded, self._was_let_go = None, True

    def _may_let_go(self, found: WatchedRun) -> bool:
        """Whether the fold is rather read again should anything happen to the run: two fifths of the memory of a reader
        of thousands of runs are folds of those that have ended. Done once, for a run to which something does happen."""
        return (
            found.run.state in _ENDED
            and self._times_read_again == 0
            and self._dead is None
            and found.problem is None
            and found.bytes <= _SOON_READ_BYTES
            and local_path(self.index.directory) is not None
            and not _is_down(found.run, self._looked_at)
        )


def _suspended(run: Run, writer_pid: int | None, owner: int | None) -> int | None:
    last = run.sessions[-1] if run.sessions else None
    pid = last.pid if last is not None and run.state == "lost" and runs_here(last) else writer_pid
    if pid is not None and pid != writer_pid and not may_be_of(pid, owner):
        return None
    return pid if pid is not None and run.state in ("lost", "unknown") and is_stopped(pid) else None


_LEAST_SECS = 1e-3


def _skew(run: Run, secs: float | None) -> float | None:
    """Return by how much the clock of the run's machine is ahead. What another writer flushes late looks like a clock
    that is behind."""
    is_late = secs is not None and run.sessions[-1].inferred and -LEAST_HANG_TIMEOUT_SECS < secs < 0.0
    return None if is_late else secs


def _lacks_saves(run: Run) -> bool:
    kept = Counter(saved.session for saved in run.checkpoints)
    return any(session.saves > kept[session.id] for session in run.sessions)


def _is_expected(session: Session, now: float) -> bool:
    """Return whether a session writes a liveness file, and nothing else is known of it that is new."""
    return session.recorded_beat_secs is not None and now - (session.ended_at or 0.0) > FRESH_SECS


def _is_down(run: Run, at: float) -> bool:
    """Return whether the time since the run's death was downtime at the last look: it grows, or ends, with this one.

    A death that is still to come by the reader's clock, which may be behind, counts: its downtime begins.
    """
    if not run.sessions or run.sessions[-1].ended_at is None:
        return False
    return is_down(run.state, run.sessions[-1], max(at, run.sessions[-1].ended_at + _LEAST_SECS))


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
