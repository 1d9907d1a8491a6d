"""Telemetry must never end a training."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.base.errors import LogdirInUseError
from supervisor_core.engine.deadline import NEVER, Deadline
from supervisor_core.engine.recorder import SYNC_SECS, BeatHistory, TelemetryRecorder
from supervisor_core.events.file_writer import FileWriter
from supervisor_core.events.telemetry import (
    HeartbeatRecord,
    PauseReport,
    Place,
    Record,
    SessionRecord,
    StopRecord,
    ThreadStatus,
    WorkerStatus,
)
from supervisor_core.run.watch.logdir_watch import LogdirWatch

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


def test_a_program_that_closes_the_writer_is_recorded_on(tmp_path: Path) -> None:
    """In another file, in mid-run and at the end, and so is what it adds next; after the end no file is begun."""
    writer = FileWriter(tmp_path)
    recorder = TelemetryRecorder(writer)
    recorder.write(SessionRecord(session="s", attempt=1))
    writer.close()
    assert recorder.write(HeartbeatRecord(session="s", phase="training", step=60), 60)
    writer.close()
    writer.scalar("loss", 0.5, 61)
    writer.close()
    assert recorder.write(StopRecord(session="s", reason="completed", step=100), 100, durable=True)
    writer.close()
    with pytest.warns(UserWarning, match="closed FileWriter"):
        recorder.write(HeartbeatRecord(session="s", phase="stopped", step=100), 100)
    assert len(list(tmp_path.iterdir())) == 4
    run = LogdirWatch(str(tmp_path)).refresh().runs["."].run
    assert (run.state, run.step, run.last_values[0].step, len(run.sessions)) == ("completed", 100, 61, 1)


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


IDLE = ThreadStatus(name="checkpoint", state="idle", ticks=1)
WORKER = WorkerStatus(name="worker:1", state="running", step=1, place=Place(digest="a", frames=("train.py:1 f",)))
BEAT = HeartbeatRecord(
    session="s", phase="training", threads=(IDLE,), workers=(WORKER,), activity_secs={"productive": 1.0, "stall": 0.0}
)


def test_a_heartbeat_without_news_is_recorded_once_a_minute() -> None:
    """More rarely once the session is old. Services that have not changed are left out: a reader has them from before.
    All are in the next one after a heartbeat that could not be written. The other processes come without stacks."""
    history = BeatHistory(10.0)
    beats = {secs: replace(BEAT, elapsed_secs=secs, step=int(secs)) for secs in map(float, range(0, 130, 10))}
    recorded = {secs: taken for secs, beat in beats.items() if (taken := history.take(beat, is_periodic=True))}
    assert list(recorded) == [0.0, 60.0, 120.0]
    assert recorded[0.0].threads == (IDLE,) and recorded[60.0].threads == ()
    assert [record.workers for record in recorded.values()] == [(replace(WORKER, place=Place(digest="a")),)] * 3
    assert recorded[60.0].activity_secs == {"productive": 1.0}
    history.reset()
    again = history.take(replace(BEAT, elapsed_secs=121.0), is_periodic=True)
    assert again is not None and again.threads == (IDLE,)
    for first_secs, every_secs in ((3600.0, 120.0), (86400.0, 360.0)):
        late = [replace(BEAT, elapsed_secs=first_secs + more) for more in (0.0, every_secs - 10.0, every_secs)]
        assert [history.take(beat, is_periodic=True) is not None for beat in late] == [True, False, True]
    silent = BeatHistory(0.0)
    assert [silent.take(beat, is_periodic=True) is None for beat in beats.values()] == [False, *[True] * 12]


@pytest.mark.parametrize(
    ("news", "workers"),
    [
        ({"phase": "evaluating"}, False),
        ({"loss_finite": False}, False),
        ({"events_dropped": 1}, False),
        ({"pause": PauseReport(cause="stopped", since=1.0, secs=9.0)}, False),
        ({"threads": (replace(IDLE, state="overdue"),)}, False),
        ({"threads": (replace(IDLE, failures=1),)}, False),
        ({"watchdog_would_act": 1}, False),
        ({"progress_age_secs": 70.0, "progress_timeout_secs": 60.0}, True),
        ({"workers": (replace(WORKER, state="lost"),)}, True),
    ],
    ids=str,
)
def test_a_heartbeat_with_news_is_recorded_at_once(news: dict[str, Any], workers: bool) -> None:
    """With the other processes, if they are the news, or nobody makes progress."""
    history = BeatHistory(10.0)
    history.take(replace(BEAT, elapsed_secs=0.0), is_periodic=True)
    ticking = replace(BEAT, elapsed_secs=10.0, threads=(replace(IDLE, state="ticking", ticks=2),))
    assert history.take(ticking, is_periodic=True) is None
    found = history.take(replace(BEAT, **{"elapsed_secs": 20.0, **news}), is_periodic=True)
    assert found is not None and (found.workers is not None) == workers
    asked = history.take(replace(BEAT, **{"elapsed_secs": 21.0, **news}), is_periodic=False)
    assert asked is not None


class Live:
    """A liveness file that keeps what it is given."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def write(self, record: Record, step: int | None = None, **how: Any) -> None:
        self.records.append(record)


def test_the_liveness_file_has_each_heartbeat_as_it_is() -> None:
    """Also those that are not recorded, and those that cannot be."""
    for writer, added in ((Writer(), 1), (Writer(broken=True), 0), (None, 0)):
        recorder, live = TelemetryRecorder(writer), Live()
        recorder.live = live
        for secs in (0.0, 10.0):
            recorder.write(replace(BEAT, elapsed_secs=secs), is_periodic=True)
        assert live.records == [replace(BEAT, elapsed_secs=0.0), replace(BEAT, elapsed_secs=10.0)]
        assert writer is None or writer.calls == ["add"] * added
