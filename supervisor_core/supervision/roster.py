"""`Roster`: what the chief sees of the cluster's other processes.

Each of them keeps a heartbeat file in the shared logdir (`supervisor_core.supervision.beacon`). A thread reads those
every so often; who asks gets what it saw last, without any I/O. The machines' clocks need not agree: a process lives
while its file changes, and how long that has not happened is told by the chief's clock. Time in which the chief itself
could not look is nobody's silence.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from dataclasses import replace

from supervisor_core.checkpoint.process_identity import Machine, is_running, this_machine
from supervisor_core.clock import SYSTEM_CLOCK, Clock
from supervisor_core.run.status import WorkerStatus
from supervisor_core.runtime.deadline import NEVER, Deadline
from supervisor_core.storage.local import Filesystem, filesystem_for
from supervisor_core.supervision.sighting import Sighting, by_name, has_ended_well, state_of
from supervisor_core.supervision.task_file import TASKS_DIRECTORY, read_record
from supervisor_core.supervision.task_record import TaskRecord

MAX_TASKS = 1000
"""So many files are read at each look."""

LAST_LOOK_SECS = 1.0
"""How long stopping waits for a last look."""

_LOG = logging.getLogger("supervisor_core")


class Roster:
    """Watches the heartbeat files of one logdir, for the length of one session of its chief.

    A process that had ended as planned before the first look is not listed; one that was lost is, until it comes
    back or its file is deleted.

    Args:
        logdir: the run's directory.
        lost_after_secs: a process that is silent for longer is lost; not before it has missed three beats.
        interval_secs: seconds between two looks.
        on_change: called in the roster's thread when a process has come, has gone, or is in another state than before.
        clock: the time; monotonic for silences.
        filesystem: where to read. Default: what the logdir's name says.
        machine: where the chief runs. Default: here.
        runs: tells whether a process of that machine may be running.

    Example:
        >>> roster = Roster("/tmp/example-run-of-one", lost_after_secs=60, interval_secs=5)
        >>> roster.look(), roster.workers()
        (False, ())
    """

    def __init__(
        self,
        logdir: str | os.PathLike[str],
        *,
        lost_after_secs: float,
        interval_secs: float,
        on_change: Callable[[], None] = lambda: None,
        clock: Clock = SYSTEM_CLOCK,
        filesystem: Filesystem | None = None,
        machine: Machine | None = None,
        runs: Callable[[int], bool] = is_running,
    ) -> None:
        self._directory = os.path.join(os.fspath(logdir), TASKS_DIRECTORY)
        self._lost_after_secs = lost_after_secs
        self._interval_secs = interval_secs
        self._on_change = on_change
        self._clock = clock
        self._filesystem = filesystem
        self._machine = machine or this_machine()
        self._runs = runs
        self._seen: dict[str, Sighting] = {}
        self._over: dict[str, str] = {}
        """File name -> session of a process that had ended as planned before the first look."""
        self._has_looked = False
        self._looked = clock.monotonic()
        """When the last look began that saw everything there was."""
        self._said: set[str] = set()
        self._workers: tuple[WorkerStatus, ...] = ()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="supervisor_roster", daemon=True)

    def start(self) -> None:
        """Start watching, with a look at once."""
        self._thread.start()

    def stop(self, deadline: Deadline = NEVER) -> None:
        """Look once more, and stop watching; waits a second at most, and half of the time that is left."""
        self._stop.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(min(LAST_LOOK_SECS, deadline.remaining() / 2))

    def workers(self) -> tuple[WorkerStatus, ...]:
        """Return the cluster's other processes as they were at the last look, numbers in their order. No I/O."""
        return self._workers

    def look(self) -> bool:
        """Look at every file; return whether a process has come, has gone, or is in another state than before.

        What cannot be read, or makes no sense, is skipped, and said once.
        """
        began = self._clock.monotonic()
        try:
            filesystem = self._open()
            names = self._names(filesystem)
        except Exception as error:  # clients of file systems raise what they like; the next look tries again
            self._say_once("", f"cannot be listed: {error}")
            return False
        self._said &= {*names, "."}
        self._forgive(began)
        before = {name: sighting.state for name, sighting in self._seen.items()}
        found = {name: self._sight(filesystem, name, began) for name in names}
        self._seen = {name: sighting for name, sighting in found.items() if sighting is not None}
        self._over = {name: session for name, session in self._over.items() if name in found}
        self._has_looked = True
        self._workers = tuple(sorted((sighting.status() for sighting in self._seen.values()), key=by_name))
        return before != {name: sighting.state for name, sighting in self._seen.items()}

    def _open(self) -> Filesystem:
        if self._filesystem is None:
            self._filesystem, self._directory = filesystem_for(self._directory)
        return self._filesystem

    def _names(self, filesystem: Filesystem) -> list[str]:
        try:
            names = sorted(name for name in filesystem.list_names(self._directory) if name.endswith(".json"))
        except FileNotFoundError:
            return []
        if len(names) <= MAX_TASKS:
            self._said.discard(".")
        else:
            self._say_once(".", f"holds {len(names):,} tasks; only {MAX_TASKS:,} of them are looked at")
        return names[:MAX_TASKS]

    def _forgive(self, began: float) -> None:
        """Take the time in which nobody could look from everybody's silence: looks that failed or hung, a chief that
        was suspended."""
        blind = began - self._looked - max(2 * self._interval_secs, self._lost_after_secs / 2)
        self._looked = began
        if blind > 0:
            self._seen = {name: replace(item, heard=item.heard + blind) for name, item in self._seen.items()}

    def _sight(self, filesystem: Filesystem, name: str, began: float) -> Sighting | None:
        before = self._seen.get(name)
        try:
            record = self._read(filesystem, name)
        except ValueError as error:
            self._say_once(name, f"makes no sense: {error}")
            if before is None:
                return None
            record = before.record
        except FileNotFoundError:  # deleted since it was listed
            return before
        except Exception as error:  # as above; it may be there again at the next look
            self._say_once(name, f"cannot be read: {error}")
            return before
        else:
            self._said.discard(name)
        if self._is_over(name, record):
            return None
        heard, heard_at = self._clock.monotonic(), self._clock.wall()
        if before is None:
            heard -= max(0.0, heard_at - record.written_at)
            heard_at = min(heard_at, record.written_at)
        elif (before.record.session, before.record.beats) == (record.session, record.beats):
            heard, heard_at = before.heard, before.heard_at
        state = state_of(
            record,
            silent_secs=began - heard,
            lost_after_secs=self._lost_after_secs,
            is_gone=self._is_gone(record),
        )
        return Sighting(record=record, heard=heard, heard_at=heard_at, state=state)

    def _read(self, filesystem: Filesystem, name: str) -> TaskRecord:
        path = os.path.join(self._directory, name)
        try:
            record = read_record(filesystem, path)
        except OSError:  # on network file systems, what is replaced while it is read is stale
            record = read_record(filesystem, path)
        # A process that ends says so first: its last word may have come after the reading.
        return read_record(filesystem, path) if self._is_gone(record) else record

    def _is_gone(self, record: TaskRecord) -> bool:
        where = Machine(host=record.host, boot=record.boot, pids=record.pids)
        return record.ended is None and where == self._machine and not self._runs(record.pid)

    def _is_over(self, name: str, record: TaskRecord) -> bool:
        if not self._has_looked and has_ended_well(record):
            self._over[name] = record.session
        return self._over.get(name) == record.session

    def _say_once(self, name: str, text: str) -> None:
        if name not in self._said:
            _LOG.warning("The cluster's heartbeats: %s %s.", os.path.join(self._directory, name), text)
        self._said.add(name)

    def _watch(self) -> None:
        while True:
            is_last = self._stop.is_set()
            try:
                if self.look() and not is_last:
                    self._on_change()
            except Exception:  # one file that nobody foresaw must not blind the chief
                _LOG.exception("The chief could not read the cluster's heartbeats; it continues.")
            if is_last:
                return
            self._stop.wait(self._interval_secs)
