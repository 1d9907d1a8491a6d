"""`LaunchJournal`: each launch of the program in an events file of the restarter's own.

One file for each time between two launches: opened when a launch has ended, or is first seen to run without a progress
page or to hang; closed when the next one has begun. Its
name has an earlier time than the next session's file. TensorBoard reads one file of a directory at a time, in the order
of the names, and never goes back: a later name would let it miss what the session writes in that second.

Everything is written by a thread of its own. What cannot be written (a full disk, a dead mount) is logged, and no
restart waits for it.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from dataclasses import replace
from functools import partial
from typing import Literal

from supervisor_core.base.clock import SystemClock
from supervisor_core.base.errors import SupervisorError
from supervisor_core.base.log import error_text
from supervisor_core.checkpoint.guard import is_same
from supervisor_core.events.record_fields import shared
from supervisor_core.events.telemetry import MAX_STDERR_CHARS, DeathRecord, LaunchRecord, StallRecord, summary_bytes
from supervisor_core.events.writer import EventsWriter
from supervisor_core.process.progress_page import remove_page
from supervisor_core.restarter.failure import signal_name
from supervisor_core.restarter.launch import Death, LaunchFacts
from supervisor_core.restarter.logdir_view import LogdirThread
from supervisor_core.restarter.processes import command_text
from supervisor_core.run.fold.file_fold import RESTARTER_SUFFIX
from supervisor_core.run.fold.restarter_launches import launch_of
from supervisor_core.run.model.program_launch import ProgramLaunch

WRITE_SECS, CLOSE_SECS = 10.0, 5.0
"""Limits of the time for one record, in the journal's thread, and for all of them when the restarter ends."""

_LOG = logging.getLogger("supervisor_core")


class LaunchJournal:
    """Writes launches.

    Args:
        command: the program and its arguments.
    """

    def __init__(self, command: tuple[str, ...]) -> None:
        self._command = command_text(command)
        self._host = socket.gethostname()
        self._writer: EventsWriter | None = None
        self._thread = LogdirThread("restarter-journal")
        self.unrecorded: ProgramLaunch | None = None
        """The launch that ended last, as long as that is not recorded."""

    def begun(self, launch: LaunchFacts) -> None:
        """Record that a launch has begun."""
        record = self._begun(launch)
        self._thread.do(lambda: self._write(record, launch.started_at, launch), 0.0)

    def runs(self, launch: LaunchFacts, progress_timeout_secs: float | None, stall: StallRecord | None) -> None:
        """Record that one runs.

        Args:
            progress_timeout_secs: how long its events files may stay as they are; None of one with a progress page.
            stall: a look at its hang, or its end; its session is empty where the program has none.
        """
        begun = self._begun(launch)
        if stall is not None:
            stall = replace(stall, session=stall.session or begun.launch)
        record = replace(begun, state="runs", command=None, progress_timeout_secs=progress_timeout_secs, stall=stall)
        at = time.time()
        self._thread.do(lambda: self._write(record, at, launch), 0.0)

    def ended(self, launch: LaunchFacts) -> None:
        """Record how one has ended, and what was decided; before that, what its killed sessions have left in memory."""
        record = self._ended(launch)
        for death in launch.deaths:
            self._thread.do(partial(self._bury, death, launch), 0.0)
        self.unrecorded = end = launch_of(launch.ended_at, record)

        def write() -> None:
            if self._write(record, launch.ended_at, launch) and self.unrecorded is end:
                self.unrecorded = None

        self._thread.do(write, 0.0)

    def close(self) -> None:
        """Write what is left; wait for at most `CLOSE_SECS`."""
        self._thread.do(self._close, CLOSE_SECS)

    def _bury(self, death: Death, launch: LaunchFacts) -> None:
        """Record a death where the session wrote its events, and give its memory back; what cannot be written stays
        there. So do stacks that the launch's record names."""
        page, directory = death.page, death.page.logdir or launch.directory
        if is_same(directory, launch.directory):
            is_written = self._write(death.record, launch.ended_at, launch)
        else:
            is_written = self._write_alone(death.record, launch, directory)
        kept = None if launch.kept_stacks is None else launch.kept_stacks.path
        if is_written and (page.stacks is None or kept != str(page.stacks)):
            remove_page(page)

    def _write(self, record: LaunchRecord | DeathRecord, at: float, launch: LaunchFacts) -> bool:
        """Write a record into the open file; return whether that went well."""
        try:
            if self._writer is None:
                self._writer = self._open(launch.directory, launch)
            self._put(self._writer, record, at)
            if isinstance(record, LaunchRecord) and record.state == "begin":
                self._close()
        except (SupervisorError, OSError, ValueError) as error:
            self._writer = None
            self._warn(record, error)
            return False
        return True

    def _write_alone(self, record: DeathRecord, launch: LaunchFacts, directory: str) -> bool:
        """Write a record into a file of its own; return whether that went well."""
        try:
            writer = self._open(directory, launch)
            self._put(writer, record, launch.ended_at)
            writer.close(WRITE_SECS)
        except (SupervisorError, OSError, ValueError) as error:
            self._warn(record, error)
            return False
        return True

    def _open(self, directory: str, launch: LaunchFacts) -> EventsWriter:
        # Of the launch that has ended, or is about to begin: before whatever a later session writes.
        clock = _NameClock(launch.started_at - 1.0)
        return EventsWriter(directory, clock=clock, filename_suffix=RESTARTER_SUFFIX)

    def _put(self, writer: EventsWriter, record: LaunchRecord | DeathRecord, at: float) -> None:
        writer.summary(summary_bytes(record), step=record.step, wall_time=at)
        writer.sync(WRITE_SECS)

    def _warn(self, record: LaunchRecord | DeathRecord, error: Exception) -> None:
        what = (
            f"Launch {record.attempt}" if isinstance(record, LaunchRecord) else f"The end of session {record.session}"
        )
        _LOG.warning("%s is not recorded: %s", what, error_text(error))

    def _close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is None:
            return
        try:
            writer.close(WRITE_SECS)
        except SupervisorError as error:
            _LOG.warning("A record of a launch may be lost: %s", error_text(error))

    def _begun(self, launch: LaunchFacts) -> LaunchRecord:
        return LaunchRecord(
            launch=f"{self._host}-{os.getpid()}-{launch.attempt}",
            state="begin",
            attempt=launch.attempt,
            started_at=launch.started_at,
            host=self._host,
            pid=launch.pid,
            command=self._command,
        )

    def _ended(self, launch: LaunchFacts) -> LaunchRecord:
        end, decision = launch.end, launch.decision
        assert decision is not None
        return replace(
            self._begun(launch),
            **{
                **shared(LaunchRecord, launch, decision, end),
                "signal": None if end.signal is None else signal_name(end.signal),
                "stderr": end.stderr[-MAX_STDERR_CHARS:] or None,
            },
            state="end",
            core_dumped=end.core,
            decided_by=_decided_by(launch),
            error=launch.error,
            backoff_secs=decision.delay_secs,
            stacks=None if launch.kept_stacks is None else launch.kept_stacks.path,
        )


def _decided_by(launch: LaunchFacts) -> Literal["program", "watchdog", "signal", "machine"]:
    if launch.cause == "hang":
        return "watchdog"
    if launch.cause in ("stopped", "preempted"):
        return "signal"
    return "machine" if launch.cause in ("oom", "lost") else "program"


class _NameClock(SystemClock):
    """Gives a fixed wall time: that in the file's name. Records have their own."""

    def __init__(self, wall: float) -> None:
        self._wall = max(0.0, wall)

    def wall(self) -> float:
        """Return the fixed time."""
        return self._wall
