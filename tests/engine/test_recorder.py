"""Telemetry must never end a training."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from supervisor_core.engine.deadline import NEVER, Deadline
from supervisor_core.engine.recorder import SYNC_SECS, TelemetryRecorder
from supervisor_core.errors import LogdirInUseError
from supervisor_core.events.telemetry import HeartbeatRecord

RECORD = HeartbeatRecord(session="s", phase="training")


class Writer:
    """A summary writer that may be broken, and may know how to sync."""

    def __init__(self, broken: bool = False) -> None:
        self.calls: list[str] = []
        self.broken = broken
        self.dropped = 7

    def add_summary(self, summary: bytes, global_step: int | None = None) -> None:
        if self.broken:
            raise OSError("no space")
        self.calls.append("add")

    def flush(self) -> None:
        self.calls.append("flush")


class SyncingWriter(Writer):
    """One that can put things on the disk."""

    def __init__(self, broken: bool = False) -> None:
        super().__init__(broken)
        self.timeouts: list[float | None] = []

    def sync(self, timeout_secs: float | None = None) -> None:
        self.calls.append("sync")
        self.timeouts.append(timeout_secs)


class WaitingWriter(Writer):
    """One that keeps what it cannot write yet, and says whether it does."""

    failing = True
    last_error = None


@pytest.mark.parametrize(
    ("writer", "durable", "calls"),
    [(SyncingWriter(), True, ["add", "sync"]), (Writer(), True, ["add", "flush"]), (SyncingWriter(), False, ["add"])],
)
def test_a_durable_record_is_synced_where_that_is_possible(writer: Writer, durable: bool, calls: list[str]) -> None:
    """And flushed with a writer, like TensorFlow's own, that cannot. One that need not last waits for nothing."""
    TelemetryRecorder(writer).write(RECORD, 1, durable=durable)
    assert writer.calls == calls


def test_a_disk_is_not_waited_for_without_end(clock: Any) -> None:
    """Neither where there is no deadline, nor where it is far away; a near one counts."""
    writer = SyncingWriter()
    for deadline in (NEVER, Deadline.after(3600.0, clock), Deadline.after(3.0, clock)):
        TelemetryRecorder(writer).write(RECORD, durable=True, deadline=deadline)
    assert writer.timeouts == [SYNC_SECS, SYNC_SECS, 3.0]


def test_a_broken_writer_is_said_once_and_never_raises(caplog) -> None:
    """Training goes on; the log does not fill."""
    recorder = TelemetryRecorder(Writer(broken=True))
    with caplog.at_level(logging.WARNING, "supervisor_core"):
        recorder.write(RECORD)
        recorder.write(RECORD, durable=True)
    assert len(caplog.records) == 1
    assert "no space" in caplog.text


def test_what_the_writer_dropped_is_known() -> None:
    """And nothing is known of no writer."""
    assert TelemetryRecorder(Writer()).dropped == 7
    assert TelemetryRecorder(None).dropped == 0


@pytest.mark.parametrize(
    ("error", "calls"), [(OSError("the directory is away"), ["add"]), (LogdirInUseError("another chief"), [])]
)
def test_a_writer_that_waits_gets_what_cannot_be_checked(error: Exception, calls: list[str]) -> None:
    """While the lock cannot be checked, such a writer keeps the record; any other one does not get it. A chief that was
    replaced adds nothing, not even to a writer that would find out by itself."""

    def check() -> None:
        raise error

    waiting, plain = WaitingWriter(), Writer()
    for writer in (waiting, plain):
        TelemetryRecorder(writer, check).write(RECORD, 1)
    assert (waiting.calls, plain.calls) == (calls, [])
