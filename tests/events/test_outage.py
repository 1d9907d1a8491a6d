from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.base.errors import EventsWriteError
from supervisor_core.events import EventsWriter, writer_thread


@pytest.fixture
def make_writer(tmp_path: Path, faulty: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., EventsWriter]:
    """Returns a function that makes a writer which retries only when asked."""
    monkeypatch.setattr(writer_thread, "RETRY_SECS", 1000.0)

    def make(**options: Any) -> EventsWriter:
        return EventsWriter(tmp_path, filesystem=faulty, **options)

    return make


def test_a_full_disk_loses_nothing_that_fits_in_memory(
    make_writer: Callable[..., EventsWriter], faulty: Any, read_logdir: Any
) -> None:
    """The training goes on adding, flush says what is held and why, and all of it is written when there is room."""
    writer = make_writer()
    writer.scalar("a", 1.0, 1)
    writer.flush()
    faulty.room = 20
    for step in range(2, 52):
        writer.scalar("a", 1.0, step)
    with pytest.raises(
        EventsWriteError, match=r"50 events could not be written to .*tfevents.*No space left"
    ) as caught:
        writer.flush()
    assert (caught.value.lost, caught.value.pending) == (0, 50)
    assert (writer.failing, writer.dropped, writer.pending, writer.written) == (True, 0, 50, 1)
    assert read_logdir(writer.logdir)[0].torn_bytes == 0
    faulty.room = None
    writer.flush()
    assert (writer.failing, writer.dropped, writer.pending) == (False, 0, 0)
    assert isinstance(writer.last_error, EventsWriteError)
    writer.close()
    assert [contents.steps for contents in read_logdir(writer.logdir)] == [list(range(1, 52))]


def test_writing_resumes_by_itself(
    tmp_path: Path, faulty: Any, read_logdir: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No request is needed: a retry finds the room."""
    monkeypatch.setattr(writer_thread, "RETRY_SECS", 0.005)
    writer = EventsWriter(tmp_path, filesystem=faulty)
    faulty.room = 0
    writer.scalar("a", 1.0, 1)
    assert faulty.failed.wait(30)
    faulty.room = None
    assert faulty.appended.wait(30)
    assert [contents.steps for contents in read_logdir(tmp_path)] == [[1]]
    writer.close()


def test_retries_back_off_and_start_over(tmp_path: Path, faulty: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait doubles up to its bound during an outage, and the next outage begins with the shortest again."""
    monkeypatch.setattr(writer_thread, "MOST_RETRY_SECS", 4.0)
    writer = EventsWriter(tmp_path, filesystem=faulty)
    waits: list[float] = []
    waited = threading.Event()

    def pause(secs: float) -> bool:
        waits.append(secs)
        if len(waits) >= 5:
            faulty.room = None
            waited.set()
        return False

    monkeypatch.setattr(writer._writer_thread.queue, "pause", pause)
    for step in (1, 2):
        faulty.room = 0
        waited.clear()
        writer.scalar("a", 1.0, step)
        assert waited.wait(30)
        writer.flush()
        assert waits == [1.0, 2.0, 4.0, 4.0, 4.0]
        waits.clear()
    writer.close()


def test_beyond_the_bound_the_newest_are_dropped_counted_and_said_once(
    make_writer: Callable[..., EventsWriter], faulty: Any, read_logdir: Any, caplog: Any
) -> None:
    """What cannot be kept is counted; the caller hears of it once, the log when it begins and when it is over."""
    writer = make_writer(max_queue=10)
    faulty.room = 0
    writer.scalar("a", 1.0, 1)
    with pytest.raises(EventsWriteError):
        writer.flush()
    with caplog.at_level(logging.WARNING):
        for step in range(2, 102):
            writer.scalar("a", 1.0, step)
        assert (writer.dropped, writer.pending) == (90, 11)
        with pytest.raises(EventsWriteError, match=r"90 events for .* are lost") as caught:
            writer.flush()
        assert (caught.value.lost, caught.value.pending) == (90, 11)
        with pytest.raises(EventsWriteError) as caught:
            writer.flush()
        assert (caught.value.lost, caught.value.pending) == (0, 11)
        faulty.room = None
        writer.flush()
        writer.flush()
    assert caplog.text.count("written again") == 1
    assert "90 were lost" in caplog.text
    writer.close()
    assert [contents.steps for contents in read_logdir(writer.logdir)] == [list(range(1, 12))]


def test_an_outage_is_logged_once(make_writer: Callable[..., EventsWriter], faulty: Any, caplog: Any) -> None:
    """However many retries fail; the next outage is another one."""
    writer = make_writer()
    for outage in (1, 2):
        faulty.room = 0
        writer.scalar("a", 1.0, outage)
        for _ in range(3):
            with pytest.raises(EventsWriteError) as caught:
                writer.flush()
        assert caplog.text.count("Events cannot be written") == outage
        assert caught.value.pending == 1 and isinstance(caught.value.__cause__, OSError)
        faulty.room = None
        writer.flush()
    writer.close()


def test_closing_during_an_outage_says_what_is_lost(
    make_writer: Callable[..., EventsWriter], faulty: Any, read_logdir: Any
) -> None:
    """A close is the last attempt; it counts what it leaves behind, and reopening starts afresh."""
    writer = make_writer()
    writer.scalar("a", 1.0, 1)
    writer.flush()
    faulty.room = 0
    for step in range(2, 7):
        writer.scalar("a", 1.0, step)
    with pytest.raises(EventsWriteError, match=r"5 events for .* are lost: .*No space left") as caught:
        writer.close()
    assert (caught.value.lost, caught.value.pending) == (5, 0)
    assert (writer.closed, writer.dropped, writer.pending) == (True, 5, 0)
    with pytest.raises(EventsWriteError, match="No events file can be created"):
        writer.reopen()
    faulty.room = None
    writer.reopen()
    writer.scalar("a", 1.0, 7)
    writer.close()
    assert [contents.steps for contents in read_logdir(writer.logdir)] == [[1], [7]]
    assert (writer.written, writer.dropped) == (2, 5)


def test_a_broken_disk_loses_nothing_either(
    make_writer: Callable[..., EventsWriter], faulty: Any, io_error: OSError, read_logdir: Any
) -> None:
    """An I/O error in the middle of a record ends that file with a whole one; the rest is in the next."""
    writer = make_writer()
    for step in range(1, 5):
        writer.scalar("a", 1.0, step)
    writer.flush()
    faulty.append_error = io_error
    for step in range(5, 9):
        writer.scalar("a", 1.0, step)
    with pytest.raises(EventsWriteError, match="Input/output error"):
        writer.flush()
    faulty.append_error = None
    writer.close()
    files = read_logdir(writer.logdir)
    assert [step for contents in files for step in contents.steps] == list(range(1, 9))
    assert len(files) == 2
    assert not any(contents.torn_bytes for contents in files)


def test_a_failed_sync_comes_back_to_who_asked_for_it(
    make_writer: Callable[..., EventsWriter], faulty: Any, io_error: OSError
) -> None:
    """sync raises when the disk cannot promise; flush does not care; the next sync is of a sound file."""
    writer = make_writer()
    faulty.sync_error = io_error
    writer.scalar("a", 1.0, 1)
    writer.flush()
    with pytest.raises(EventsWriteError, match="may not survive a power cut") as caught:
        writer.sync()
    assert (caught.value.lost, caught.value.pending, caught.value.__cause__) == (0, 0, io_error)
    faulty.sync_error = None
    writer.scalar("a", 1.0, 2)
    writer.sync()
    writer.close()
    assert (faulty.creations, writer.written, writer.dropped) == (2, 2, 0)


def test_metadata_is_written_again_into_a_new_file(
    make_writer: Callable[..., EventsWriter], faulty: Any, io_error: OSError, read_logdir: Any
) -> None:
    """A file that takes over in the middle of a run can be read on its own."""
    from tensorboard.compat.proto.summary_pb2 import Summary

    value = Summary.Value(tag="a", simple_value=1.0)
    value.metadata.plugin_data.plugin_name = "p"
    data = Summary(value=[value]).SerializeToString()
    writer = make_writer()
    writer.summary(data, 1)
    writer.summary(data, 2)
    faulty.sync_error = io_error
    with pytest.raises(EventsWriteError):
        writer.sync()
    faulty.sync_error = None
    writer.summary(data, 3)
    writer.flush()
    writer.summary(data, 4)
    writer.close()
    found = [
        [event.summary.value[0].HasField("metadata") for event in contents.events]
        for contents in read_logdir(writer.logdir)
    ]
    assert found == [[True, False], [True, False]]
