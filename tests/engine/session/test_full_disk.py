"""A session whose events cannot be written: its lock file says that it is alive, and why it writes no events."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.checkpoint.lease_file import BLOCK_BYTES, LeaseRecord, decode
from supervisor_core.checkpoint.logdir_lock import LEASE_NAME
from supervisor_core.engine.recorder import StopInfo
from supervisor_core.engine.session_recorder import SessionRecorder
from supervisor_core.errors import EventsWriteError
from supervisor_core.events.file_writer import FileWriter
from supervisor_core.events.telemetry import CheckpointRecord
from supervisor_core.metrics.page import run_status
from supervisor_core.process.identity import boot_id
from supervisor_core.process.progress_page import PageReading, page_in
from supervisor_core.process.runtime_directory import private_directory
from supervisor_core.run.logdir_watch import LogdirWatch


class FullDisk:
    """A summary writer whose disk has no room from some moment on."""

    def __init__(self, logdir: Path) -> None:
        self._writer = FileWriter(str(logdir))
        self.dropped = 0
        self.last_error: EventsWriteError | None = None

    @property
    def failing(self) -> bool:
        """Whether nothing can be written."""
        return self.last_error is not None

    def fill(self) -> None:
        """Leave no room."""
        self.last_error = EventsWriteError("events cannot be written")
        self.last_error.__cause__ = OSError(errno.ENOSPC, "No space left on device")

    def add_summary(self, summary: Any, global_step: Any = None) -> None:
        """Append a summary, if there is room."""
        if not self.failing:
            self._writer.add_summary(summary, global_step)

    def flush(self) -> None:
        """Hand over what was appended."""
        self._writer.flush()

    def close(self) -> None:
        """End."""
        self._writer.close()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[FullDisk]:
    """A writer into the test's logdir."""
    writer = FullDisk(tmp_path)
    yield writer
    writer.close()


def join_renewals() -> None:
    """Wait until no lease is written; each is by a thread of its own, which the monitor's may just be starting."""
    pause = threading.Event()
    while any(thread.name == "supervisor-lease" for thread in threading.enumerate()):
        pause.wait(0.001)


def renewed(run: SessionRecorder, logdir: Path, is_meant: Callable[[LeaseRecord], bool]) -> LeaseRecord:
    """The lease, once a renewal says what is meant."""
    while True:
        run._renew_lock(run.progress.snapshot().global_step)
        join_renewals()
        record = decode((logdir / LEASE_NAME).read_bytes())
        if record is not None and is_meant(record):
            os.utime(logdir / LEASE_NAME, (record.renewed_at, record.renewed_at))  # the disk has the same clock
            return record


def failed_save(run: SessionRecorder) -> CheckpointRecord:
    """The record of a save that found no room."""
    return CheckpointRecord(
        session=run.session_id, trigger="timer", path=None, step=7, bytes=None, secs=1.0, blocked_secs=0.0, error="full"
    )


def test_a_full_disk_is_no_death(tmp_path: Path, begin, disk, clock_at) -> None:
    """Silent for a minute, the run counts as running while its lease is renewed: at its step, with its failed saves,
    and with the reason. When the renewals end it is lost. All that where its page cannot be read: elsewhere."""
    clock = clock_at(time.time())
    run = begin(writer=disk, clock=clock)
    run._monitor.stop()  # it would renew the lease between what is renewed here and the look at it
    assert run.progress.page.path is not None
    run.progress.page.path.unlink()
    run.ready()
    run.enter("training")
    run.progress.step_read(7)
    run.beat()
    disk.flush()
    watch = LogdirWatch(str(tmp_path), clock=clock)
    (watched,) = watch.refresh().runs.values()
    assert watched.run.state == "running" and run_status(watched.run, clock.now).events_failing is False

    disk.fill()
    clock.now += 60
    run.progress.step_read(9)
    run.progress.run_ended(False, clock.monotonic(), clock.monotonic())
    run.saved(failed_save(run))
    run.saved(failed_save(run))
    lease = renewed(run, tmp_path, lambda lease: lease.save_failures_in_a_row == 2 and lease.last_step == 9)
    assert (lease.phase, lease.progress_at, lease.events_error) == (
        "training",
        clock.now,
        "[Errno 28] No space left on device",
    )
    assert os.path.getsize(tmp_path / LEASE_NAME) == BLOCK_BYTES
    assert run.status().events_failing and run.status().checkpoint.failures_in_a_row == 2
    (watched,) = watch.refresh().runs.values()
    status = run_status(watched.run, clock.now)
    assert (watched.run.state, watched.run.sessions[-1].events_error) == ("running", lease.events_error)
    assert (status.active, status.global_step, status.last_progress_at) == (True, 9, clock.now)
    assert (status.checkpoint.failures_in_a_row, status.checkpoint.failures) == (2, 2)
    assert (status.events_failing, status.steps_per_second) == (True, None)

    clock.now += 301  # nothing moves: the lease, which is renewed, says since when
    renewed(run, tmp_path, lambda lease: lease.renewed_at == clock.now)
    (watched,) = watch.refresh().runs.values()
    assert watched.run.state == "stalled"

    clock.now += 31
    (watched,) = watch.refresh().runs.values()
    assert (watched.run.state, run_status(watched.run, clock.now).events_failing) == ("lost", None)


def hangs() -> None:
    """Give up to wait for a disk."""
    raise TimeoutError("the disk does not answer")


@pytest.mark.skipif(boot_id() is None, reason="without a boot id a page does not count")
@pytest.mark.parametrize("fault", ["full", "hangs"])
def test_an_end_that_cannot_be_written_leaves_its_page(
    tmp_path: Path, begin, disk, fault: str, monkeypatch, clock_at
) -> None:
    """The step that the session had reached is known once its process is over."""
    run = begin(writer=disk)
    run.ready()
    run.enter("training")
    run.progress.step_read(7)
    run.beat()
    disk.flush()
    clock = clock_at(time.time())
    watch = LogdirWatch(str(tmp_path), clock=clock)
    watch.refresh()
    if fault == "full":
        disk.fill()
    else:
        monkeypatch.setattr(disk, "add_summary", lambda *args: None)
        monkeypatch.setattr(disk, "flush", hangs)
    run.progress.step_read(1737)
    run._monitor.tick()
    run.end(StopInfo(reason="error", error="SaveFailedError: No space left on device"))
    clock.now += 100.0
    (watched,) = watch.refresh().runs.values()
    assert watched.run.state == "lost"  # its process goes on; the session does not
    monkeypatch.setattr(PageReading, "is_dead", True)
    (watched,) = watch.refresh().runs.values()
    assert (watched.run.state, watched.run.sessions[-1].last_step) == ("lost", 1737)
    again = begin()
    assert not Path(page_in(private_directory(), run.session_id)).exists()
    again.end(StopInfo(reason="completed"))


def test_a_long_error_does_not_let_the_lease_grow(tmp_path: Path, begin, disk) -> None:
    """The lease keeps its one block, whatever the error says: a full disk has no second one."""
    run = begin(writer=disk)
    disk.last_error = EventsWriteError("x" * 5000)
    lease = renewed(run, tmp_path, lambda lease: lease.events_error is not None)
    assert (lease.events_error, lease.session) == ("x" * 120, run.session_id)
    assert os.path.getsize(tmp_path / LEASE_NAME) == BLOCK_BYTES
