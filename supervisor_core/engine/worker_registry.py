"""`WorkerRegistry`: the state of the cluster's other processes, for their chief.

Each of them keeps a heartbeat file in the shared logdir (`supervisor_core.engine.liveness_writer`). A thread
reads these at an interval; callers get the last state without I/O. Clocks of machines need not agree: a process is
alive while its file changes, and the time without a change is measured by the chief's clock. Time in which the chief
itself could not read does not count.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

from supervisor_core.base.clock import SYSTEM_CLOCK, Clock
from supervisor_core.base.options import Options
from supervisor_core.engine.deadline import NEVER, Deadline
from supervisor_core.events.telemetry import NoticeRecord, WorkerState, WorkerStatus
from supervisor_core.process.identity import Machine, is_running, this_machine
from supervisor_core.run.fold.notices import notice_key
from supervisor_core.run.watch.liveness import (
    LIVENESS_DIRECTORY,
    MAX_TASKS,
    LivenessRecord,
    files_of_others,
    has_ended_well,
    is_gone,
    read_record,
    state_of,
    status_of,
)
from supervisor_core.storage.filesystem import Filesystem
from supervisor_core.storage.local import filesystem_for, local_path

READ_SECS = 5.0
"""How often the chief reads the other processes' heartbeats, unless its own are more frequent, in seconds."""

REMOTE_READ_SECS = 15.0
"""The same if each read is a request to an object store."""

LAST_READ_SECS = 1.0
"""How long stopping waits for a last read, in seconds."""

QUICK_SECS = 0.1
"""A read that takes no longer may be repeated once a second while the chief makes no progress."""

_LOG = logging.getLogger("supervisor_core")


class WorkerRegistry:
    """Reads the heartbeat files of one logdir during one session of its chief.

    A process that had stopped without an error before the first read is not listed; a lost process is, until it comes
    back or its file is deleted.

    Args:
        lost_after_secs: a process without a beat for longer is lost, but not before it has missed three beats.
        interval_secs: seconds between two reads.
        on_change: called in the registry's thread when a process was added or removed, or its state has changed.
        on_notice: called in the registry's thread with what another process has said, when that is new.
        filesystem: default: the logdir's.
        machine: the chief's machine. Default: this one.
        runs: returns whether a process of that machine may be running.

    Example:
        >>> registry = WorkerRegistry("/tmp/example-run-of-one", lost_after_secs=60, interval_secs=5)
        >>> registry.scan(), registry.workers()
        (False, ())
    """

    def __init__(
        self,
        logdir: str | os.PathLike[str],
        *,
        lost_after_secs: float,
        interval_secs: float,
        on_change: Callable[[], None] = lambda: None,
        on_notice: Callable[[NoticeRecord], object] = lambda notice: None,
        clock: Clock = SYSTEM_CLOCK,
        filesystem: Filesystem | None = None,
        machine: Machine | None = None,
        runs: Callable[[int], bool] = is_running,
    ) -> None:
        found, self._directory = filesystem_for(os.path.join(os.fspath(logdir), LIVENESS_DIRECTORY))
        self._filesystem = filesystem or found
        self._lost_after_secs = lost_after_secs
        self._interval_secs = interval_secs
        self._on_change, self._on_notice = on_change, on_notice
        self._noticed: dict[tuple[object, ...], NoticeRecord] = {}
        self._clock = clock
        self._machine = machine or this_machine()
        self._runs = runs
        self._seen: dict[str, ObservedWorker] = {}
        self._over: dict[str, str] = {}
        """File name -> session of a process that had stopped without an error before the first read."""
        self._has_read = False
        self._last_read = clock.monotonic()
        """Monotonic start of the last complete read."""
        self._warned: set[str] = set()
        self._workers: tuple[WorkerStatus, ...] = ()
        self._is_local = local_path(logdir) is not None
        self._stop, self._wake = threading.Event(), threading.Event()
        self._is_quick = False
        self._thread = threading.Thread(target=self._read_until_stopped, name="supervisor_workers", daemon=True)

    def start(self) -> None:
        """Start the thread, which reads at once."""
        self._thread.start()

    def stop(self, deadline: Deadline = NEVER) -> None:
        """Read once more and stop the thread; wait a second at most, and at most half of the time to the deadline."""
        self._stop.set()
        self._wake.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(min(LAST_READ_SECS, deadline.remaining() / 2))

    def workers(self) -> tuple[WorkerStatus, ...]:
        """Return the cluster's other processes as of the last read, in natural order of their names. No I/O."""
        return self._workers

    def hurry(self) -> None:
        """Have the files read at once if that does not take long. No I/O."""
        if self._is_quick:
            self._wake.set()

    def scan(self) -> bool:
        """Read every file; return whether a process was added or removed, or its state has changed.

        A file that cannot be read or decoded is skipped, with one warning.
        """
        began = self._clock.monotonic()
        try:
            names = self._names()
        except Exception as error:  # file system clients raise any type; the next read tries again
            self._warn_once("", f"cannot be listed: {error}")
            return False
        self._warned &= {*names, "."}
        self._discount_gap(began)
        before = {name: worker.state for name, worker in self._seen.items()}
        found = {name: self._observe(name, began) for name in names}
        self._seen = {name: worker for name, worker in found.items() if worker is not None}
        self._over = {name: session for name, session in self._over.items() if name in found}
        self._has_read = True
        self._notice_all()
        self._workers = tuple(sorted((worker.status() for worker in self._seen.values()), key=by_name))
        self._is_quick = self._clock.monotonic() - began < QUICK_SECS and self._is_local
        return before != {name: worker.state for name, worker in self._seen.items()}

    def _notice_all(self) -> None:
        said = [replace(item, worker=each.record.task) for each in self._seen.values() for item in each.record.notices]
        before, self._noticed = self._noticed, {notice_key(item): item for item in said}
        for key, item in self._noticed.items():
            if before.get(key) != item:
                self._on_notice(item)

    def _names(self) -> list[str]:
        try:
            names = files_of_others(self._filesystem.list_names(self._directory))
        except FileNotFoundError:
            return []
        if len(names) <= MAX_TASKS:
            self._warned.discard(".")
        else:
            self._warn_once(".", f"holds {len(names):,} tasks; only {MAX_TASKS:,} of them are read")
        return names[:MAX_TASKS]

    def _discount_gap(self, began: float) -> None:
        """Do not count time without a complete read as silence: reads that failed or hung, a suspended chief."""
        blind = began - self._last_read - max(2 * self._interval_secs, self._lost_after_secs / 2)
        self._last_read = began
        if blind > 0:
            self._seen = {
                name: replace(item, beat_monotonic=item.beat_monotonic + blind) for name, item in self._seen.items()
            }

    def _observe(self, name: str, began: float) -> ObservedWorker | None:
        before = self._seen.get(name)
        try:
            record = self._read(name)
        except ValueError as error:
            self._warn_once(name, f"cannot be decoded: {error}")
            if before is None:
                return None
            record = before.record
        except FileNotFoundError:  # deleted since it was listed
            return before
        except Exception as error:  # as above; the next read tries again
            self._warn_once(name, f"cannot be read: {error}")
            return before
        else:
            self._warned.discard(name)
        if self._is_over(name, record):
            return None
        beat_monotonic, beat_at = self._clock.monotonic(), self._clock.wall()
        if before is None:
            beat_monotonic -= max(0.0, beat_at - record.written_at)
            beat_at = min(beat_at, record.written_at)
        elif (before.record.session, before.record.beats) == (record.session, record.beats):
            beat_monotonic, beat_at = before.beat_monotonic, before.beat_at
        state = state_of(
            record,
            silent_secs=began - beat_monotonic,
            lost_after_secs=self._lost_after_secs,
            is_gone=self._is_gone(record),
        )
        return ObservedWorker(record=record, beat_monotonic=beat_monotonic, beat_at=beat_at, state=state)

    def _read(self, name: str) -> LivenessRecord:
        path = os.path.join(self._directory, name)
        try:
            record = read_record(self._filesystem, path)
        except OSError:  # on network file systems a file that is replaced while it is read is stale
            record = read_record(self._filesystem, path)
        # A process writes its stop record before it ends: maybe after the first read.
        return read_record(self._filesystem, path) if self._is_gone(record) else record

    def _is_gone(self, record: LivenessRecord) -> bool:
        return is_gone(record, self._machine, self._runs)

    def _is_over(self, name: str, record: LivenessRecord) -> bool:
        if not self._has_read and has_ended_well(record):
            self._over[name] = record.session
        return self._over.get(name) == record.session

    def _warn_once(self, name: str, text: str) -> None:
        if name not in self._warned:
            _LOG.warning("The cluster's heartbeats: %s %s.", os.path.join(self._directory, name), text)
        self._warned.add(name)

    def _read_until_stopped(self) -> None:
        while True:
            is_last = self._stop.is_set()
            try:
                if self.scan() and not is_last:
                    self._on_change()
            except Exception:  # an unexpected file must not stop the registry
                _LOG.exception("The chief could not read the cluster's heartbeats; it continues.")
            if is_last:
                return
            self._wake.wait(self._interval_secs)
            if not self._stop.is_set():
                self._wake.clear()


@dataclass(frozen=True, kw_only=True)
class ObservedWorker:
    """The last record of a process, when it changed, and the resulting state."""

    record: LivenessRecord
    beat_monotonic: float
    """Monotonic time of the last beat, moved later by the time in which the chief could not read."""
    beat_at: float
    """The same moment by the chief's wall clock."""
    state: WorkerState

    def status(self) -> WorkerStatus:
        """Return the status for metrics and heartbeats."""
        return status_of(self.record, self.state, self.beat_at)


def read_interval_secs(logdir: str, options: Options) -> float:
    """Return how often the chief reads the heartbeats in a logdir."""
    if local_path(logdir) is None:
        return REMOTE_READ_SECS
    return min(READ_SECS, options.heartbeat_secs or READ_SECS)


def by_name(status: WorkerStatus) -> tuple[tuple[int, int, str], ...]:
    """Sort key: natural order of names, ``worker:2`` before ``worker:10``."""
    parts = re.split(r"(\d{1,18})", status.name)
    return tuple((index % 2, int(part) if index % 2 else 0, part) for index, part in enumerate(parts))
