"""`Beacon`: by which a process of the cluster that is not the chief shows that it lives, and what it does.

The chief alone writes the events file. Every other process keeps one small file of its own in the shared logdir, see
`supervisor_core.supervision.task_record`, which the chief's `Roster` reads. All writing is done by one thread: a file
system that hangs or is full holds nobody up, and what has become of the process meanwhile is told once it is back.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from supervisor_core.checkpoint.process_identity import this_machine
from supervisor_core.clock import SYSTEM_CLOCK, Clock
from supervisor_core.events.telemetry import HeartbeatRecord, Record, StallRecord, StopRecord
from supervisor_core.runtime.deadline import NEVER, Deadline
from supervisor_core.storage.local import Filesystem
from supervisor_core.supervision.task_file import TaskFile
from supervisor_core.supervision.task_record import TaskRecord

MAX_INTERVAL_SECS = 10.0
"""A beacon beats at least this often, so that a process that was killed is missed soon."""

FINAL_WAIT_SECS = 5.0
"""How long the process's end waits for its last word to be written."""

_MAX_TEXT = 2000
_LOG = logging.getLogger("supervisor_core")


class Beacon:
    """The heartbeat of one process of a cluster; takes telemetry records as a `runtime.recorder.Recorder` does.

    Nothing that it does blocks (but the end, for five seconds at most) or raises. Of two living processes of one name
    the later keeps the file; the earlier says so once, and is silent from then on.

    Args:
        logdir: the run's directory, shared with the chief.
        task: what the process is called, ``worker:1``.
        session: its session's id.
        interval_secs: seconds between beats; at most ten, which is also what 0 stands for.
        phase: what it does to begin with; of a process that no monitor watches, from then on.
        clock: the time, for what the file says.
        filesystem: where to write. Default: what the logdir's name says.
        final_wait_secs: how long the end waits for the last word to be written.
        spawn: how the writing is run. Default: in a daemon thread.

    Example:
        >>> beacon = Beacon("/tmp/example-run", "ps:0", "6f1d3c0a9b7e4d21", interval_secs=10, phase="serving")
        >>> beacon.start()
        >>> beacon.write(StopRecord(session="6f1d3c0a9b7e4d21", reason="requested"))
        >>> beacon.close()
    """

    def __init__(
        self,
        logdir: str | os.PathLike[str],
        task: str,
        session: str,
        *,
        interval_secs: float,
        phase: str = "starting",
        clock: Clock = SYSTEM_CLOCK,
        filesystem: Filesystem | None = None,
        final_wait_secs: float = FINAL_WAIT_SECS,
        spawn: Callable[[Callable[[], None]], None] | None = None,
    ) -> None:
        here = this_machine()
        now = clock.wall()
        self._clock = clock
        self._final_wait_secs = final_wait_secs
        self._spawn = spawn or _in_daemon_thread
        self._process = os.getpid()
        self._file = TaskFile(os.fspath(logdir), task, session, filesystem=filesystem)
        self._state = TaskRecord(
            task=task,
            session=session,
            host=here.host,
            boot=here.boot,
            pids=here.pids,
            pid=self._process,
            started_at=now,
            written_at=now,
            beats=0,
            interval_secs=min(interval_secs or MAX_INTERVAL_SECS, MAX_INTERVAL_SECS),
            phase=phase,
        )
        self._asked, self._tried = 1, 0
        """How often there was something to tell at once, and for how much of that the writing has been tried."""
        self._state_lock = threading.Condition()
        self._is_started = False
        self._is_closed = False
        self._is_silent = False
        self._said = False

    @property
    def task(self) -> str:
        """What the process is called."""
        return self._state.task

    @property
    def error(self) -> str | None:
        """None: a process that is not the chief writes no events."""
        return None

    @property
    def dropped(self) -> int:
        """How many events could not be written: none, since a later beat says what an earlier one could not."""
        return 0

    def start(self) -> None:
        """Begin to beat, at once. Starting twice changes nothing."""
        with self._state_lock:
            if self._is_started or self._is_closed:
                return
            self._is_started = True
        try:
            self._spawn(self._beat_until_closed)
        except RuntimeError as error:  # no more threads, or the interpreter is going down
            self._is_silent = True
            self._say_once(error)

    def write(
        self, record: Record, step: int | None = None, *, durable: bool = False, deadline: Deadline = NEVER
    ) -> None:
        """Take a telemetry record, as far as it says what the process does.

        Heartbeats give phase and steps, stalls that it is stalled, a stop that it has ended and why: this one is waited
        for, a few seconds at most. What else there is belongs into the chief's events file.
        """
        if isinstance(record, HeartbeatRecord):
            self._change(at_once=False, phase=record.phase, step=record.step, steps=record.steps)
        elif isinstance(record, StallRecord):
            self._change(stalled=record.state == "begin")
        elif isinstance(record, StopRecord):
            self._end(record, deadline)

    def waiting_for(self, text: str | None) -> None:
        """Say for what the process waits; None when it does no more."""
        self._change(waiting_for=text and text[:_MAX_TEXT])

    def close(self) -> None:
        """Stop beating. Returns at once. Without a stop record before, the process will count as lost."""
        if self._is_another_process():
            return
        with self._state_lock:
            self._is_closed = True
            self._state_lock.notify_all()

    def _change(self, *, at_once: bool = True, **changes: Any) -> None:
        if self._is_another_process():
            return
        with self._state_lock:
            if self._state.ended is not None:
                return
            before, self._state = self._state, replace(self._state, **changes)
            entered = before.phase != self._state.phase and self._state.phase != "stopped"  # a stop record follows
            if entered or (at_once and before != self._state):
                self._asked += 1
                self._state_lock.notify_all()

    def _end(self, record: StopRecord, deadline: Deadline) -> None:
        self._change(
            phase="stopped",
            step=self._state.step if record.step is None else record.step,
            steps=record.steps or self._state.steps,
            waiting_for=None,
            stalled=False,
            ended=record.reason,
            ended_at=self._clock.wall(),
            error=record.error and record.error[:_MAX_TEXT],
        )
        if self._is_another_process():
            return
        with self._state_lock:
            if self._is_started:
                asked = self._asked
                wait_secs = deadline.remaining(self._final_wait_secs)
                self._state_lock.wait_for(lambda: self._is_silent or self._tried >= asked, wait_secs)

    def _beat_until_closed(self) -> None:
        taken = 0
        while not self._is_silent and self._wait(taken):
            with self._state_lock:
                taken = self._asked
                self._state = replace(self._state, beats=self._state.beats + 1, written_at=self._clock.wall())
                record = self._state
            self._put(record)
            with self._state_lock:
                self._tried = taken
                self._state_lock.notify_all()

    def _wait(self, taken: int) -> bool:
        """Return when it is time to beat: True; or when there is nothing left to say: False."""
        with self._state_lock:
            self._state_lock.wait_for(lambda: self._is_closed or self._asked > taken, self._state.interval_secs)
            return self._asked > taken or not self._is_closed

    def _put(self, record: TaskRecord) -> None:
        try:
            other = self._file.write(record)
        except Exception as error:  # clients of file systems raise what they like; the next beat tries again
            self._say_once(error)
            return
        self._said = False
        if other is not None:
            self._is_silent = True
            _LOG.warning(
                "Another process (session %s) goes by the name of %r in %s: this one no longer says there how it is. "
                "Give each process a name of its own: Options(worker_name=...).",
                other,
                record.task,
                self._file.path,
            )

    def _say_once(self, error: Exception) -> None:
        if not self._said:
            _LOG.warning(
                "The heartbeat %s could not be written; the chief may take this process for lost: %s",
                self._file.path,
                error,
            )
        self._said = True

    def _is_another_process(self) -> bool:
        """Say whether this is a forked child, where the beacon is the parent's, and its locks may be held forever."""
        return os.getpid() != self._process


def _in_daemon_thread(beat: Callable[[], None]) -> None:
    threading.Thread(target=beat, name="supervisor_beacon", daemon=True).start()
