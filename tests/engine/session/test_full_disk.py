"""A session whose events cannot be written: its liveness file says that it is alive, and why it writes no events."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.base.errors import EventsWriteError
from supervisor_core.engine.recorder import StopInfo
from supervisor_core.engine.session_recorder import SessionRecorder
from supervisor_core.events.file_writer import FileWriter
from supervisor_core.events.telemetry import CheckpointRecord
from supervisor_core.metrics.page import run_status
from supervisor_core.process.identity import boot_id
from supervisor_core.process.progress_page import PageReading, page_in
from supervisor_core.process.runtime_directory import private_directory
from supervisor_core.run.watch.liveness import CHIEF, LIVENESS_DIRECTORY, LivenessRecord, file_name, read_chief
from supervisor_core.run.watch.logdir_watch import LogdirWatch
from supervisor_core.storage.local import LocalFilesystem


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


def written(logdir: Path, is_meant: Callable[[LivenessRecord], bool]) -> LivenessRecord:
    """The liveness file, once it has what is meant; its thread writes it."""
    pause = threading.Event()
    while True:
        with suppress(ValueError):  # half of it was written
            live = read_chief(logdir)
            if live is not None and is_meant(live):
                path = logdir / LIVENESS_DIRECTORY / file_name(CHIEF)
                os.utime(path, (live.written_at, live.written_at))  # the disk has the same clock
                return live
        pause.wait(0.001)


def full(*arguments: Any) -> None:
    """Have no room for another file."""
    raise OSError(errno.ENOSPC, "No space left on device")


def failed_save(run: SessionRecorder) -> CheckpointRecord:
    """The record of a save that found no room."""
    return CheckpointRecord(
        session=run.session_id, trigger="timer", path=None, step=7, bytes=None, secs=1.0, blocked_secs=0.0, error="full"
    )


def test_a_full_disk_is_no_death(tmp_path: Path, begin, disk, clock_at, monkeypatch) -> None:
    """Silent for a minute, the run counts as running while its liveness file is replaced: at its step, with its failed
    saves, and with the reason. That needs no room, and no page. Its end is said there, too."""
    clock = clock_at(time.time())
    run = begin(writer=disk, clock=clock)
    run.stop_ticks()  # its heartbeats are the test's
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
    monkeypatch.setattr(LocalFilesystem, "replace", full)
    clock.now += 60
    run.progress.step_read(9)
    run.progress.run_ended(False, clock.monotonic(), clock.monotonic())
    run.saved(failed_save(run))
    run.saved(failed_save(run))
    run.beat()
    written(tmp_path, lambda live: live.beat_at == clock.now and live.step == 9 and live.save_failures == 2)
    (watched,) = watch.refresh().runs.values()
    status = run_status(watched.run, clock.now)
    assert watched.run.state == "running"
    assert watched.run.sessions[-1].events_error == "[Errno 28] No space left on device"
    assert (status.active, status.global_step, status.session.last_progress_at) == (True, 9, clock.now)
    assert (status.session.save_failures_in_a_row, status.session.save_failures) == (2, 2)
    assert status.events_failing and run.status().events_failing
    own = run.status()
    assert own.session is not None and own.session.events_error == watched.run.sessions[-1].events_error
    run.end(StopInfo(reason="error", error="SaveFailedError: no room"))
    (watched,) = watch.refresh().runs.values()
    last = watched.run.sessions[-1]
    assert (watched.run.state, last.outcome, last.error) == ("failed", "error", "SaveFailedError: no room")


def hangs() -> None:
    """Give up to wait for a disk."""
    raise TimeoutError("the disk does not answer")


@pytest.mark.skipif(boot_id() is None, reason="without a boot id a page does not count")
@pytest.mark.parametrize("fault", ["full", "hangs"])
def test_an_end_that_cannot_be_written_leaves_its_page(
    tmp_path: Path, begin, disk, fault: str, monkeypatch, clock_at
) -> None:
    """And its liveness file: how the session ended, and the step that it had reached, are known."""
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
    run.tick()
    run.end(StopInfo(reason="error", error="SaveFailedError: No space left on device"))
    clock.now += 100.0
    (watched,) = watch.refresh().runs.values()
    assert (watched.run.state, watched.run.sessions[-1].last_step) == ("failed", 1737)
    monkeypatch.setattr(PageReading, "is_dead", True)
    again = begin()
    assert not Path(page_in(private_directory(), run.session_id)).exists()
    again.end(StopInfo(reason="completed"))
