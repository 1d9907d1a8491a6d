"""`LivenessWriter`: keeps the liveness file of one process of a run, see `supervisor_core.run.watch.liveness`.

One thread does all writing: a file system that hangs or is full blocks no caller, and the next successful write has the
current state.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from supervisor_core.base.clock import SYSTEM_CLOCK, Clock, boot_secs
from supervisor_core.base.errors import LogdirInUseError, SupervisorError
from supervisor_core.engine.deadline import NEVER, Deadline
from supervisor_core.engine.progress import ProgressSnapshot
from supervisor_core.events.record_fields import shared
from supervisor_core.events.telemetry import HeartbeatRecord, NoticeRecord, Place, Record, StallRecord, StopRecord
from supervisor_core.process.identity import Machine, this_machine
from supervisor_core.run.fold.notices import notice_key
from supervisor_core.run.model.liveness_record import Costs, RunSoFar
from supervisor_core.run.watch.liveness import (
    CHIEF,
    LIVENESS_DIRECTORY,
    MAX_NOTICES,
    LivenessRecord,
    encode,
    file_name,
    read_record,
)
from supervisor_core.storage.filesystem import Check, Filesystem
from supervisor_core.storage.local import filesystem_for, local_path, refuse_link
from supervisor_core.storage.opening import open_own

MAX_INTERVAL_SECS = 10.0
"""A process beats at least this often, so that readers soon see that it was killed."""

FINAL_WAIT_SECS = 5.0
"""How long the end of the process waits for the stop record to be written, in seconds."""

_MAX_TEXT = 2000
_SLACK_SECS = 0.5
"""The monitor runs once a second: a heartbeat comes rather half a second early than a second late."""
_LOG = logging.getLogger("supervisor_core")


def _in_daemon_thread(beat: Callable[[], None]) -> None:
    threading.Thread(target=beat, name="supervisor_heartbeat", daemon=True).start()


class LivenessWriter:
    """Keeps one liveness file.

    Only the end blocks, for five seconds at most; nothing raises. Of two live processes with one name the later keeps
    the file; the earlier logs that once and stops writing.

    Args:
        logdir: the run's directory, shared with the chief.
        task: the process's name, ``worker:1``; `CHIEF` for a chief, which writes each heartbeat that it takes.
        session: its session's id.
        interval_secs: seconds between beats; at most ten; 0 means ten.
        phase: its first phase; without a monitor, its only one.
        history: a chief's, of its run.
        page: path of its progress page.
        check: a chief's: called before each write; raises as `supervisor_core.storage.filesystem.Check` says.
        filesystem: default: the logdir's.
        machine, pid: where this process runs, and its id; replaced in tests.
        final_wait_secs: how long the end waits for the stop record to be written.
        spawn: runs the writing loop. Default: in a daemon thread.

    Example:
        >>> heartbeats = LivenessWriter("/tmp/example-run", "ps:0", "6f1d3c0a9b7e4d21", interval_secs=10)
        >>> heartbeats.start()
        >>> heartbeats.write(StopRecord(session="6f1d3c0a9b7e4d21", reason="requested"))
        >>> heartbeats.close()
    """

    def __init__(
        self,
        logdir: str | os.PathLike[str],
        task: str,
        session: str,
        *,
        interval_secs: float,
        phase: str = "starting",
        history: RunSoFar | None = None,
        page: str | None = None,
        check: Check | None = None,
        clock: Clock = SYSTEM_CLOCK,
        filesystem: Filesystem | None = None,
        machine: Machine | None = None,
        pid: int | None = None,
        final_wait_secs: float = FINAL_WAIT_SECS,
        spawn: Callable[[Callable[[], None]], None] = _in_daemon_thread,
    ) -> None:
        here = machine or this_machine()
        now, boot_now = clock.wall(), boot_secs(clock)
        self._clock = clock
        self._final_wait_secs = final_wait_secs
        self._spawn = spawn
        self._process = os.getpid()
        self._is_chief = task == CHIEF
        self._file = LivenessFile(os.fspath(logdir), task, session, filesystem, check)
        self._state = LivenessRecord(
            **shared(LivenessRecord, here),
            task=task,
            session=session,
            pid=self._process if pid is None else pid,
            started_at=now,
            written_at=now,
            started_boot_secs=boot_now,
            written_boot_secs=boot_now,
            beats=0,
            interval_secs=min(interval_secs or MAX_INTERVAL_SECS, MAX_INTERVAL_SECS),
            phase=phase,
            history=history,
            page=page,
        )
        self._next_write = clock.monotonic()
        """When a chief that is seen to live has its next heartbeat at the latest."""
        self._asked, self._tried = 1, 0
        """Number of changes to write at once, and how many of them a write was tried for."""
        self._state_lock = threading.Condition()
        self._is_started = self._must_start = False
        self._is_closed = False
        self._has_given_up = False
        self._has_warned = False

    def start(self) -> None:
        """Start beating at once. Starting twice changes nothing."""
        with self._state_lock:
            if self._is_started or self._is_closed:
                return
            self._is_started, self._must_start = True, False
        try:
            self._spawn(self._beat_until_closed)
        except RuntimeError as error:  # no thread can be started now, or at interpreter exit
            self._is_started, self._must_start = False, True
            self._warn_once(error)

    def write(self, record: Record, deadline: Deadline = NEVER) -> None:
        """Update the state from a telemetry record; ignore records that only events files contain.

        A heartbeat has phase and steps, a stall record the stall, a notice what was said, a stop record the reason.
        Waits, for a few seconds at most, until a stop is written.
        """
        if isinstance(record, HeartbeatRecord):
            beat: dict[str, Any] = {"phase": record.phase, "step": record.step, "steps": record.steps}
            if self._is_chief:
                beat |= {"beat": replace(record, workers=None), "beat_at": self._clock.wall()}
            self.note(at_once=self._is_chief, pace=record.pace, **beat)
        elif isinstance(record, StallRecord):
            self.note(stalled=record.state != "end")
        elif isinstance(record, NoticeRecord) and not self._is_chief:
            others = (each for each in self._state.notices if notice_key(each) != notice_key(record))
            self.note(notices=(*others, record)[-MAX_NOTICES:])
        elif isinstance(record, StopRecord):
            self._end(record, deadline)

    def write_now(self) -> Exception | None:
        """Write the state in this thread; return why that failed. Before `start` only."""
        self._has_warned = True
        return self._put(self._next_record())

    def write_soon(self) -> None:
        """Have the state written again, as after the file was deleted. Returns at once."""
        self.note(is_new=True)

    def chief_lives(self, step: int | None, costs: Costs | None) -> None:
        """Record that the chief's monitor runs, its step, and the run's costs up to now; they are written with the next
        heartbeat, which is due after the interval."""
        if self._must_start:
            self.start()
        if costs is not None:
            self.note_history(costs=costs)
        is_due = self._clock.monotonic() >= self._next_write
        self.note(at_once=is_due, is_new=is_due, step=self._state.step if step is None else step)

    def note_history(self, **changes: Any) -> None:
        """Change fields of the run's history; a change of its steps is written at once."""
        if (before := self._state.history) is not None:
            history = replace(before, **changes)
            self.note(at_once=history.steps_lost != before.steps_lost, history=history)

    def note_place(self, place: Place | None, progress: ProgressSnapshot) -> None:
        """Record how long there was no progress, and where the process is meanwhile (None while it makes progress);
        another place is written at once."""
        self.note(
            # Who has said nothing of its progress yet makes each verdict undecided.
            at_once=place != self._state.place or self._state.progress_age_secs is None,
            **shared(LivenessRecord, progress),
            step=progress.global_step,
            place=place,
            hang_timeout_secs=progress.own_timeout_secs,
            held=progress.is_held,
        )

    def close(self) -> None:
        """Stop beating. Returns at once. Without an earlier stop record the process will count as lost."""
        if self._is_another_process():
            return
        with self._state_lock:
            self._is_closed = True
            self._state_lock.notify_all()

    def note(self, *, at_once: bool = True, is_new: bool = False, **changes: Any) -> None:
        """Change fields of the `LivenessRecord`; texts are cut. Nothing is changed after the end.

        Args:
            at_once: whether a change is written at once, as another phase always is; else with the next heartbeat.
            is_new: whether to write even if nothing changes.
        """
        if self._is_another_process():
            return
        changes = {name: item[:_MAX_TEXT] if isinstance(item, str) else item for name, item in changes.items()}
        with self._state_lock:
            if self._state.ended is not None:
                return
            before, self._state = self._state, replace(self._state, **changes)
            entered = before.phase != self._state.phase and self._state.phase != "stopped"  # a stop record follows
            if entered or is_new or (at_once and before != self._state):
                self._asked += 1
                self._next_write = self._clock.monotonic() + self._state.interval_secs - _SLACK_SECS
                self._state_lock.notify_all()

    def _end(self, record: StopRecord, deadline: Deadline) -> None:
        self.note(
            phase="stopped",
            step=self._state.step if record.step is None else record.step,
            steps=record.steps or self._state.steps,
            waiting_for=None,
            stalled=False,
            place=None,
            ended=record.reason,
            ended_at=self._clock.wall(),
            error=record.error,
        )
        if self._is_another_process():
            return
        with self._state_lock:
            if self._is_started:
                asked = self._asked
                wait_secs = deadline.remaining(self._final_wait_secs)
                self._state_lock.wait_for(lambda: self._has_given_up or self._tried >= asked, wait_secs)

    def _beat_until_closed(self) -> None:
        taken = 0
        while not self._has_given_up and self._wait(taken):
            with self._state_lock:
                taken = self._asked
            self._warn_once(self._put(self._next_record()))
            with self._state_lock:
                self._tried = taken
                self._state_lock.notify_all()

    def _wait(self, taken: int) -> bool:
        """Wait for the next beat; return False if the writer is closed and everything is written. A chief's beats come
        from its monitor alone: one that hangs is silent."""
        with self._state_lock:
            secs = None if self._is_chief else self._state.interval_secs
            self._state_lock.wait_for(lambda: self._is_closed or self._asked > taken, secs)
            return self._asked > taken or not self._is_closed

    def _next_record(self) -> LivenessRecord:
        with self._state_lock:
            self._state = replace(
                self._state,
                beats=self._state.beats + 1,
                written_at=self._clock.wall(),
                written_boot_secs=boot_secs(self._clock),
            )
            return self._state

    def _put(self, record: LivenessRecord) -> Exception | None:
        try:
            other = self._file.write(record)
        except LogdirInUseError:  # whoever stops the session is told by its hold of the logdir
            self._has_given_up = True
            return None
        except Exception as error:  # file system clients raise any type; the next beat tries again
            return error
        self._has_warned = False
        if other is not None:
            self._has_given_up = True
            _LOG.warning(
                "Another process (session %s) has the name %r in %s: this process no longer says there that it lives. "
                "Give each process a name of its own: Options(worker_name=...).",
                other,
                record.task,
                self._file.path,
            )
        return None

    def _warn_once(self, error: Exception | None) -> None:
        if error is not None and not self._has_warned:
            _LOG.warning(
                "The liveness file %s could not be written; readers may take this process for lost: %s",
                self._file.path,
                error,
            )
        self._has_warned = self._has_warned or error is not None

    def _is_another_process(self) -> bool:
        """Return whether this is a forked child: the writer is its parent's, and its lock may be held forever."""
        return os.getpid() != self._process


class _TakenOverError(SupervisorError):
    def __init__(self, session: str) -> None:
        super().__init__(session)
        self.session = session


class LivenessFile:
    """The liveness file of one process. Not thread-safe.

    Args:
        logdir: the run's directory, shared with the chief.
        task: the process's name in the cluster.
        session: the process's session.
        filesystem: default: the logdir's.
    """

    def __init__(
        self, logdir: str, task: str, session: str, filesystem: Filesystem | None = None, check: Check | None = None
    ) -> None:
        self.path = os.path.join(logdir, LIVENESS_DIRECTORY, file_name(task))
        self._check, self._session, self._filesystem = check or self._refuse_other, session, filesystem
        self._replaced: str | None = None
        self._has_written = False

    def write(self, record: LivenessRecord) -> str | None:
        """Replace the file by a record; if another session has taken it over, write nothing and return its id.

        Raises:
            OSError: if it cannot be written.
        """
        filesystem, data = self._open(), encode(record)
        directory = os.path.dirname(self.path)
        try:
            self._check()
            if not self._has_written:
                filesystem.make_directory(directory)
            refuse_link(directory)
            if not self._has_written:
                self._remove_leftovers(filesystem)
            try:
                filesystem.replace(self.path, data, self._check)
            except FileNotFoundError:  # the logdir was cleared while the process runs
                filesystem.list_names(os.path.dirname(directory))  # raises where it was renamed: it may come back
                filesystem.make_directory(directory)
                filesystem.replace(self.path, data, self._check)
        except _TakenOverError as taken:
            return taken.session
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT) or local_path(self.path) is None:
                raise
            try:
                self._overwrite(data)  # needs no room: a session on a full disk is not lost
            except OSError:
                raise error from None
        self._has_written = True
        return None

    def _overwrite(self, data: bytes) -> None:
        fd = open_own(self.path, os.O_RDWR)
        try:
            room = os.fstat(fd).st_size
            os.pwrite(fd, data[:-1].ljust(room - 1) + data[-1:], 0)
        finally:
            os.close(fd)

    def _refuse_other(self) -> None:
        """Check that no other session has the file now. Of two live processes the one that wrote first gives way: each
        remembers which session it replaced, so that clocks of two machines are never compared."""
        try:
            found: str | None = read_record(self._open(), self.path).session
        except (OSError, ValueError):  # missing or damaged: it is replaced
            found = None
        if not self._has_written:
            self._replaced = found
        elif found not in (None, self._session, self._replaced):
            assert found is not None
            raise _TakenOverError(found)

    def _open(self) -> Filesystem:
        if self._filesystem is None:
            self._filesystem, self.path = filesystem_for(self.path)
        return self._filesystem

    def _remove_leftovers(self, filesystem: Filesystem) -> None:
        """Delete temporary files of earlier processes of this task that were killed while writing."""
        directory, name = os.path.split(self.path)
        with contextlib.suppress(OSError):  # harmless if they stay
            for found in filesystem.list_names(directory):
                if found.startswith(f"{name}.tmp"):
                    filesystem.remove(os.path.join(directory, found))
