"""What a restarter reads from a logdir, and keeps in it: all in one thread of its own, since a logdir may hang.

`LogdirView.read_position` says how far the run is. ``<logdir>/.supervisor.restarts`` holds one JSON object, ``"v": 2``
and the `RestartState` as ``state``, which is replaced as a whole.
"""

from __future__ import annotations

import errno
import json
import logging
import math
import os
import queue
import threading
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TypeVar

from supervisor_core.base.clock import SYSTEM_CLOCK, Clock
from supervisor_core.base.errors import CheckpointError
from supervisor_core.base.json_records import record_of
from supervisor_core.base.log import error_text
from supervisor_core.base.systems import user_id
from supervisor_core.checkpoint.bundle import VerifiedCheckpoint
from supervisor_core.checkpoint.manifest import NAME as MANIFEST
from supervisor_core.checkpoint.ownership import own_there
from supervisor_core.checkpoint.recovery import CheckpointKind, newest_usable
from supervisor_core.checkpoint.search import find_stores
from supervisor_core.restarter.hang import EventsSeen
from supervisor_core.restarter.policy import RestartState
from supervisor_core.run.fold.file_fold import RESTARTER_SUFFIX
from supervisor_core.run.fold.other_writers import LEAST_HANG_TIMEOUT_SECS
from supervisor_core.run.model.run import Session
from supervisor_core.run.model.snapshot import LogdirSnapshot, WatchedRun
from supervisor_core.run.watch.logdir_watch import LogdirWatch
from supervisor_core.storage.local import filesystem_for, local_path
from supervisor_core.storage.lock_file import LockedError, LockFile
from supervisor_core.storage.opening import MAX_READ_BYTES

STATE_NAME = ".supervisor.restarts"
VERSION = 2
MOST_KEPT = 1000
"""How many of the newest failures, and of the newest restarts, are read from the disk."""
MAX_VERIFIED = 1000
"""How many checkpoints are known to verify, so that none is read twice."""
SAID_EVERY_SECS = 60.0
"""How often an error of one kind is logged: nodes look at the logdir twice a second."""

_LOG = logging.getLogger("supervisor_core")
_T = TypeVar("_T")


class LogdirThread:
    """Makes calls in their order, in a daemon thread; waits for each as long as the caller likes."""

    def __init__(self, name: str = "restarter-logdir", clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._said: dict[object, float] = {}
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def do(self, call: Callable[[], _T], wait_secs: float) -> _T | None:
        """Return what a call returns; None if it takes longer than this, and is then made all the same, or raised an
        `OSError`, which is logged."""
        results: list[_T] = []
        done = threading.Event()

        def run() -> None:
            try:
                results.append(call())
            except (OSError, CheckpointError) as error:
                self.warn(error)
            except Exception as error:  # of a client of an object store: the training goes on
                if self._is_new(type(error)):
                    _LOG.exception("The logdir could not be read or written")
            finally:
                done.set()

        self._calls.put(run)
        done.wait(wait_secs)
        return results[0] if results else None

    def warn(self, error: Exception) -> None:
        """Log an error; of one kind, which each of the calls may have again, one in `SAID_EVERY_SECS`."""
        if self._is_new((type(error), getattr(error, "errno", None))):
            _LOG.warning("%s", error_text(error))

    def _is_new(self, kind: object) -> bool:
        now = self._clock.monotonic()
        if now - self._said.get(kind, -math.inf) < SAID_EVERY_SECS:
            return False
        self._said[kind] = now
        return True

    def _run(self) -> None:
        while True:
            self._calls.get()()


@dataclass(frozen=True, kw_only=True)
class RunPosition:
    """How far the run is."""

    is_known: bool
    """Whether everything could be read, and there was something to read."""
    saved_step: int | None
    """Step of the best checkpoint that verifies."""
    reached_step: int | None
    records: int
    """Number of events so far, without those of restarters: it rises while the program writes."""
    session: Session | None
    """The newest session with telemetry."""
    last_event_at: float | None
    has_scalars: bool
    directory: str
    """Where the newest run is: the logdir, or below it."""

    def session_since(self, started_at: float, before: RunPosition | None) -> Session | None:
        """Return the newest session if it is of a launch; None if it is not.

        Args:
            started_at: when the launch was started, wall time.
            before: the position before that: a session that was there already may have begun just before it.
        """
        known = None if before is None or before.session is None else before.session.id
        if self.session is None or self.session.id == known:
            return None
        return self.session if (self.session.started_at or 0.0) >= started_at - 1.0 else None


class LogdirView:
    """One logdir. Each method may take as long as its storage does."""

    def __init__(self, logdir: str) -> None:
        local = local_path(logdir)
        self.logdir = logdir if local is None else os.path.abspath(local)
        self._filesystem, self._top = filesystem_for(self.logdir)
        self._watch = LogdirWatch(self.logdir, kept_ticks=1, all_saves=False)
        self._verified: dict[tuple[str, float | None], VerifiedCheckpoint] = {}
        self._lock: LockFile | None = None
        """Held for as long as this process lives."""

    def take(self, lock_suffix: str = ".lock") -> str | None:
        """Create the logdir if it is missing, and lock out other restarters; return who has locked it, or None.

        An object store has no locks: there the sessions' liveness keeps two trainings apart.

        Args:
            lock_suffix: of the lock's name; each node of a job of several has its own.
        """
        if local_path(self.logdir) is None:
            return None
        os.makedirs(self.logdir, exist_ok=True)
        try:
            self._lock = LockFile(os.path.join(self.logdir, STATE_NAME + lock_suffix))
            flaw = self._lock.take()
        except LockedError as error:
            return error.strerror
        if flaw is not None:
            _LOG.warning("%s has no file locks (%s): a second restarter is not kept out", self.logdir, flaw.strerror)
        return None

    def read_state(self) -> RestartState | None:
        """Return what is on disk; None without it."""
        try:
            return decode_state(self._read_own(self.state_path))
        except FileNotFoundError:
            return None
        except (PermissionError, ValueError) as error:
            _LOG.warning("%s is not used, so the counts begin again: %s", self.state_path, error)
            return None

    def write_state(self, state: RestartState) -> None:
        """Replace what is on disk."""
        self._filesystem.replace(self.state_path, encode_state(state))

    def read_beside(self, suffix: str) -> bytes | None:
        """Return the content of a file whose name is that of the state and a suffix; None without one."""
        try:
            return self._read_own(self.state_path + suffix)
        except FileNotFoundError:
            return None

    def write_beside(self, suffix: str, data: bytes) -> bool:
        """Replace such a file; True."""
        self._filesystem.replace(self.state_path + suffix, data)
        return True

    def _read_own(self, path: str) -> bytes:
        """Return the content of a file of the restarters; `PermissionError` for another user's, who may write into the
        logdir: it would end or start the program."""
        with self._filesystem.open(path) as file:
            owner = None if file.status is None else file.status.st_uid
            if file.is_linked or (owner not in (None, 0, user_id()) and owner not in own_there(self._top)):
                whose = "it is a link" if file.is_linked else f"it belongs to user {owner}"
                raise PermissionError(errno.EPERM, f"{whose}; delete it", path)
            if file.size > MAX_READ_BYTES:
                raise OSError(errno.EFBIG, f"it has more than {MAX_READ_BYTES:,} bytes", path)
            return file.read_at(0, file.size)

    def follow(self) -> EventsSeen:
        """Read what is new in the events files; return what they show."""
        runs = self._watch.refresh().runs.values()
        newest = max(
            (item.run for item in runs if item.run.sessions), key=lambda run: run.last_event_at or 0.0, default=None
        )
        last = None if newest is None else newest.sessions[-1]
        usual_secs = last.progress_timeout_secs if last is not None and last.inferred else None
        return EventsSeen(
            records=sum(map(_program_records, runs)),
            usual_secs=LEAST_HANG_TIMEOUT_SECS if usual_secs is None else usual_secs,
            step=None if newest is None else newest.step,
        )

    def read_position(self) -> RunPosition:
        """Return how far the run is. May read a whole checkpoint."""
        snapshot = self._watch.refresh()
        saved_step, is_listed, has_checkpoints = self._saved_step(snapshot)
        runs = [item.run for item in snapshot.runs.values()]
        steps = [step for run in runs for step in (run.max_step, run.step) if step is not None]
        newest = max((run for run in runs if run.sessions), key=lambda run: run.last_event_at or 0.0, default=None)
        own = [run for run in runs if run.sessions and not run.sessions[-1].inferred]
        last = max((run.sessions[-1] for run in own), key=lambda item: item.started_at or 0.0, default=None)
        is_read = all(item.read_ok for item in snapshot.runs.values()) and snapshot.reachable
        here = newest is None or ("." in snapshot.runs and bool(snapshot.runs["."].run.sessions))
        return RunPosition(
            is_known=is_read and is_listed and (has_checkpoints or any(run.sessions for run in runs)),
            saved_step=saved_step,
            reached_step=max(steps, default=None),
            records=sum(map(_program_records, snapshot.runs.values())),
            session=last,
            last_event_at=None if newest is None else newest.last_event_at,
            has_scalars=any(run.scalar_tags for run in runs),
            directory=self.logdir if newest is None or here else f"{self.logdir.rstrip('/')}/{newest.name}",
        )

    def _saved_step(self, snapshot: LogdirSnapshot) -> tuple[int | None, bool, bool]:
        """Return the best step of a checkpoint that verifies, whether all could be looked at, and whether there are
        any."""
        errors: list[OSError] = []
        best: list[int] = []
        has_any = False
        recorded = {
            os.path.basename(item.path)
            for run in snapshot.runs.values()
            for item in run.run.checkpoints
            if item.verified and item.path is not None
        }
        for store in find_stores(self._filesystem, self._top, on_error=errors.append):
            found = newest_usable(store, partial(self._verify, store, recorded), start_over=True)
            if found.chosen is not None and found.verified is not None:
                has_any = True
                step = found.chosen.step if found.verified.step is None else found.verified.step
                best += [] if step is None else [step]
        return max(best, default=None), not errors, has_any

    def _verify(self, store: CheckpointKind, recorded: Collection[str], path: str) -> VerifiedCheckpoint:
        """Verify a checkpoint, once. Of one that its session has read back the index and the sizes are enough."""
        marks = [mark for mark in (f"{path}.index", f"{path}/{MANIFEST}") if self._filesystem.is_file(mark)]
        key = (path, self._filesystem.modified_at(marks[0]) if marks else None)
        if key not in self._verified:
            if len(self._verified) >= MAX_VERIFIED:
                self._verified.clear()
            self._verified[key] = store.verify(path, data=os.path.basename(path) not in recorded)
        return self._verified[key]

    @property
    def state_path(self) -> str:
        """Where the state of the restarters is."""
        return f"{self._top.rstrip('/')}/{STATE_NAME}"


def _program_records(watched: WatchedRun) -> int:
    """Return the number of events that no restarter wrote."""
    return sum(file.records for file in watched.files if not file.path.endswith(RESTARTER_SUFFIX))


def encode_state(state: RestartState) -> bytes:
    """Return what is kept on disk between restarters."""
    failures = [{"type": item.type, "where": item.where, "step": item.step} for item in state.failures]
    return json.dumps({"v": VERSION, "state": {**asdict(state), "failures": failures}}, indent=1).encode() + b"\n"


def decode_state(data: bytes) -> RestartState:
    """Return what `encode_state` has written, or another version of it.

    Raises:
        ValueError: if it is no state; says why.
    """
    try:
        values = json.loads(data)
        if not isinstance(values, dict) or values.get("v") != VERSION:
            raise ValueError(f"it is not of version {VERSION}")
        state = record_of(RestartState, values.get("state"))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    failures = tuple(replace(item, rank=None) for item in state.failures[-MOST_KEPT:])
    return replace(state, failures=failures, counted_at=state.counted_at[-MOST_KEPT:])
