from __future__ import annotations

import gc
import math
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary

from supervisor_core.base.errors import EventsWriteError, WaitTimeoutError, WriterClosedError
from supervisor_core.events import EventsWriter, writer_thread
from tests.cases import each

ReadLogdir = Callable[..., Any]


def scalar(tag: str, value: float, step: int, wall_time: float) -> Event:
    """The event of one scalar."""
    return Event(wall_time=wall_time, step=step, summary=Summary(value=[Summary.Value(tag=tag, simple_value=value)]))


def test_the_file_is_there_from_the_start(tmp_path: Path, read_logdir: ReadLogdir) -> None:
    """Construction creates the directory and the file, version record included, before anything is added."""
    writer = EventsWriter(tmp_path / "run", filename_suffix=".x")
    (contents,) = read_logdir(tmp_path / "run")
    assert contents.events == []
    assert (writer.path or "").endswith(".x")
    assert writer.logdir == str(tmp_path / "run")
    writer.close()


def test_every_kind_of_event_reads_back_in_order(tmp_path: Path, clock: Any, read_logdir: ReadLogdir) -> None:
    """What is added is what is read, with the steps and the wall times given, else the clock's."""
    whole = Event(wall_time=7.0, step=7, file_version="x")
    with EventsWriter(tmp_path, clock=clock) as writer:
        writer.scalar("loss", 0.5, 1)
        writer.scalar("loss", 0.25, step=2, wall_time=5.0)
        writer.scalar("loss", 1.0)
        writer.payload("session_log", SessionLog(status=SessionLog.START).SerializeToString(), 3)
        writer.summary(Summary(value=[Summary.Value(tag="b", simple_value=2.0)]).SerializeToString(), 4, 6.0)
        writer.payload("graph_def", bytearray(b"graph"))  # type: ignore[arg-type]
        writer.event_bytes(whole.SerializeToString())
    (contents,) = read_logdir(tmp_path)
    now = clock.now
    assert contents.events == [
        scalar("loss", 0.5, 1, now),
        scalar("loss", 0.25, 2, 5.0),
        scalar("loss", 1.0, 0, now),
        Event(wall_time=now, step=3, session_log=SessionLog(status=SessionLog.START)),
        scalar("b", 2.0, 4, 6.0),
        Event(wall_time=now, graph_def=b"graph"),
        whole,
    ]
    assert (writer.written, writer.dropped, writer.pending) == (7, 0, 0)


@each("value", [2, np.float32(2), np.float64(2), np.array([[2.0]]), True + 1])
@each("step", [7, np.int64(7), np.int32(7), np.array([7]), np.array(7), 7.9])
def test_numbers_of_any_kind_are_taken(tmp_path: Path, value: Any, step: Any, read_logdir: ReadLogdir) -> None:
    """A step or a value may be what a session run returns."""
    with EventsWriter(tmp_path) as writer:
        writer.scalar("a", value.item() if isinstance(value, np.ndarray) else value, step)
        writer.payload("graph_def", b"", step)
    (contents,) = read_logdir(tmp_path)
    assert contents.steps == [7, 7]
    assert contents.events[0].summary.value[0].simple_value == 2.0


@each("tag", [b"loss", np.str_("loss")])
def test_a_tag_may_be_any_kind_of_text(tmp_path: Path, tag: Any, read_logdir: ReadLogdir) -> None:
    """A tag out of an array, or still in bytes, is the same tag."""
    with EventsWriter(tmp_path) as writer:
        writer.scalar(tag, 1.0, 1)
    (contents,) = read_logdir(tmp_path)
    assert contents.events[0].summary.value[0].tag == "loss"


@each(
    "arguments, error",
    [
        ((3, 1.0, 1), TypeError),
        (("a", "not a number", 1), ValueError),
        (("a", None, 1), TypeError),
        (("a", 1.0, "soon"), ValueError),
        (("a", 1.0, 2**63), ValueError),
        (("a", 1.0, -(2**63) - 1), ValueError),
    ],
)
def test_a_wrong_argument_is_the_caller_s_error(tmp_path: Path, arguments: Any, error: type[Exception]) -> None:
    """What cannot be written is refused where it is added, and does not disturb the writer."""
    with EventsWriter(tmp_path) as writer:
        with pytest.raises(error):
            writer.scalar(*arguments)
        writer.scalar("a", 1.0, 1)
    assert writer.written == 1


@each("options", [{"max_queue": 0}, {"flush_secs": -1}, {"flush_secs": math.nan}])
def test_a_wrong_option_is_refused(tmp_path: Path, options: Any) -> None:
    """Bounds and times that make no sense are named."""
    with pytest.raises(ValueError, match=next(iter(options))):
        EventsWriter(tmp_path, **options)


def test_events_appear_without_a_flush(tmp_path: Path, faulty: Any, read_file: Any) -> None:
    """Each scalar is in the file a moment later by itself, the first as the later, though flush_secs is two minutes."""
    writer = EventsWriter(tmp_path, filesystem=faulty)
    for step in range(1, 4):
        faulty.appended.clear()
        writer.scalar("a", 1.0, step)
        assert faulty.appended.wait(30)
        assert read_file(writer.path).steps == list(range(1, step + 1))
    writer.close()


def test_dear_appends_are_gathered(
    tmp_path: Path, faulty: Any, read_file: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where each append is a request, nothing is appended until it is flushed or flush_secs are over."""
    faulty.prompt = False
    writer = EventsWriter(tmp_path, filesystem=faulty, flush_secs=1000.0)
    queue, lingers = writer._writer_thread.queue, SimpleQueue[float]()
    gather = queue.gather
    monkeypatch.setattr(queue, "gather", lambda secs: (lingers.put(secs), gather(secs)))
    writer.scalar("a", 1.0, 1)
    assert lingers.get(timeout=30) == 1000.0
    assert not faulty.appended.is_set()
    writer.flush()
    assert read_file(writer.path).steps == [1]
    writer.close()
    hasty = EventsWriter(tmp_path, filesystem=faulty, flush_secs=0.01)
    faulty.appended.clear()
    hasty.scalar("a", 1.0, 2)
    assert faulty.appended.wait(30)
    hasty.close()


def test_flush_and_sync_mean_what_they_say(tmp_path: Path, faulty: Any, read_file: Any) -> None:
    """After flush the file holds everything; after sync the disk does, which flush does not wait for."""
    writer = EventsWriter(tmp_path, filesystem=faulty)
    writer.scalar("a", 1.0, 1)
    writer.flush()
    assert (read_file(writer.path).steps, faulty.syncs) == ([1], 0)
    writer.scalar("a", 1.0, 2)
    writer.sync()
    assert (read_file(writer.path).steps, faulty.syncs) == ([1, 2], 1)
    writer.scalar("a", 1.0, 3)
    writer.close()
    assert (read_file(writer.path).steps, faulty.syncs) == ([1, 2, 3], 2)


def test_closed_means_closed(tmp_path: Path, read_logdir: ReadLogdir) -> None:
    """Adding to a closed writer raises; flushing, syncing and closing it again do nothing."""
    writer = EventsWriter(tmp_path)
    writer.scalar("a", 1.0, 1)
    writer.close()
    assert writer.closed
    for add in (lambda: writer.scalar("a", 1.0, 2), lambda: writer.summary(b""), lambda: writer.event_bytes(b"")):
        with pytest.raises(WriterClosedError):
            add()
    writer.flush()
    writer.sync()
    writer.close()
    assert [contents.steps for contents in read_logdir(tmp_path)] == [[1]]


def test_thirty_openings_in_one_second_lose_nothing(tmp_path: Path, clock: Any, read_logdir: ReadLogdir) -> None:
    """Each opening has a file of its own, in an order that TensorBoard reads them in (the original loses 20 of 30)."""
    writer = EventsWriter(tmp_path, clock=clock)
    for step in range(1, 31):
        writer.scalar("a", 1.0, step)
        writer.close()
        writer.reopen()
    writer.close()
    files = read_logdir(tmp_path)
    assert [contents.steps for contents in files] == [[step] for step in range(1, 31)] + [[]]
    assert (writer.written, writer.dropped) == (30, 0)


def test_reopening_an_open_writer_does_nothing(tmp_path: Path, read_logdir: ReadLogdir) -> None:
    """Only a closed writer begins another file."""
    writer = EventsWriter(tmp_path)
    path = writer.path
    writer.reopen()
    assert writer.path == path
    writer.close()
    assert len(read_logdir(tmp_path)) == 1


def test_a_file_that_cannot_be_created_is_an_error_at_once(tmp_path: Path) -> None:
    """A logdir that cannot be is refused by the constructor, and by reopen, which leaves the writer closed."""
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(EventsWriteError, match=r"No events file can be created in .*/file"):
        EventsWriter(tmp_path / "file")
    writer = EventsWriter(tmp_path / "run")
    writer.close()
    (tmp_path / "run").rename(tmp_path / "elsewhere")
    (tmp_path / "run").write_text("in the way")
    with pytest.raises(EventsWriteError, match="No events file can be created"):
        writer.reopen()
    assert writer.closed


def test_many_threads_lose_nothing_and_keep_their_order(tmp_path: Path, read_logdir: ReadLogdir) -> None:
    """Eight threads add as fast as they can to a queue far too small: the events of each are all there, in order."""
    each = 3_000
    with EventsWriter(tmp_path, max_queue=100) as writer:
        start = threading.Barrier(8)

        def produce(index: int) -> None:
            start.wait(30)
            for step in range(1, each + 1):
                if step % 7:
                    writer.scalar(f"t{index}", 1.0, step)
                else:
                    data = Summary(value=[Summary.Value(tag=f"t{index}", simple_value=1.0)]).SerializeToString()
                    writer.summary(data, step)
                if step % 500 == 0:
                    writer.flush()

        threads = [threading.Thread(target=produce, args=(index,)) for index in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert (writer.written, writer.dropped) == (8 * each, 0)
    (contents,) = read_logdir(tmp_path)
    by_tag: dict[str, list[int]] = {}
    for event in contents.events:
        by_tag.setdefault(event.summary.value[0].tag, []).append(event.step)
    assert by_tag == {f"t{index}": list(range(1, each + 1)) for index in range(8)}
    assert contents.torn_bytes == 0


def test_huge_events_pass_through_a_small_queue(
    tmp_path: Path, read_logdir: ReadLogdir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events larger than the queue's bound are written one after the other, between the small ones."""
    monkeypatch.setattr(writer_thread, "MAX_BYTES", 1000)
    with EventsWriter(tmp_path) as writer:
        for step in range(1, 6):
            writer.payload("graph_def", bytes([step]) * 3_000_000, step)
            writer.scalar("a", 1.0, step)
    (contents,) = read_logdir(tmp_path, check_large=False)
    assert contents.steps == [step for step in range(1, 6) for _ in range(2)]
    assert [event.graph_def for event in contents.events[::2]] == [bytes([step]) * 3_000_000 for step in range(1, 6)]
    assert writer.dropped == 0


def test_waiting_has_a_limit_and_the_thread_goes_on(tmp_path: Path, faulty: Any, read_logdir: ReadLogdir) -> None:
    """A disk that hangs makes flush, sync and close give up in time; what was added is written when it wakes up."""
    writer = EventsWriter(tmp_path, filesystem=faulty)
    faulty.may_append.clear()
    writer.scalar("a", 1.0, 1)
    for wait in (writer.flush, writer.sync, writer.close):
        with pytest.raises(WaitTimeoutError):
            wait(0.01)
    assert writer.closed
    faulty.may_append.set()
    thread = writer._writer_thread._thread
    assert thread is not None
    thread.join(30)
    assert [contents.steps for contents in read_logdir(tmp_path)] == [[1]]


def test_a_disk_that_hangs_does_not_hang_the_training(
    tmp_path: Path, faulty: Any, caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once the queue is full the training waits for the disk one bounded time, then drops, counts and says so."""
    monkeypatch.setattr(writer_thread, "FULL_WAIT_SECS", 0.01)
    writer = EventsWriter(tmp_path, filesystem=faulty, max_queue=10)
    faulty.may_append.clear()
    writer.scalar("a", 1.0, 0)
    assert faulty.appending.wait(30)
    for step in range(1, 101):
        writer.scalar("a", 1.0, step)
    assert (writer.dropped, writer.pending) == (90, 11)
    assert caplog.text.count("no progress") == 1
    faulty.may_append.set()
    with pytest.raises(EventsWriteError, match=r"90 events for .* are lost"):
        writer.close()
    assert writer.written == 11


def test_a_forgotten_writer_writes_what_it_has(tmp_path: Path, faulty: Any, read_logdir: ReadLogdir) -> None:
    """A writer without references loses nothing, closes its file and ends its thread."""
    writer = EventsWriter(tmp_path, filesystem=faulty)
    writer.scalar("a", 1.0, 1)
    thread = writer._writer_thread._thread
    assert thread is not None
    del writer
    gc.collect()
    thread.join(30)
    assert not thread.is_alive()
    assert faulty.log == ["close"]
    assert [contents.steps for contents in read_logdir(tmp_path)] == [[1]]


def test_a_writer_that_is_never_used_has_no_thread(tmp_path: Path, faulty: Any) -> None:
    """The thread comes with the first event; flushing, syncing and closing do without one."""
    writer = EventsWriter(tmp_path, filesystem=faulty)
    writer.flush()
    writer.sync()
    writer.close()
    assert writer._writer_thread._thread is None
    assert faulty.log == ["close"]


def test_without_threads_events_are_written_by_their_callers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read_file: Any, read_logdir: ReadLogdir
) -> None:
    """Where no thread can be had (an interpreter shutting down) adding writes at once; nothing is lost."""

    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    writer = EventsWriter(tmp_path)
    monkeypatch.setattr(threading.Thread, "start", start)
    writer.scalar("a", 1.0, 1)
    assert read_file(writer.path).steps == [1]
    writer.scalar("a", 1.0, 2)
    writer.payload("graph_def", b"", 3)
    assert read_file(writer.path).steps == [1, 2, 3]
    writer.close()
    with pytest.raises(WriterClosedError):
        writer.scalar("a", 1.0, 4)


def test_an_error_of_the_block_is_not_hidden(tmp_path: Path, faulty: Any, no_space: OSError, caplog: Any) -> None:
    """When the body of a ``with`` fails and the close too, the body's error is raised and the other logged."""
    with pytest.raises(KeyError, match="the body's"), EventsWriter(tmp_path, filesystem=faulty) as writer:
        faulty.room = 0
        writer.scalar("a", 1.0, 1)
        raise KeyError("the body's")
    assert "1 event for" in caplog.text


def test_an_encoder_that_runs_out_of_memory_costs_its_batch_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read_logdir: ReadLogdir
) -> None:
    """The thread outlives a batch that cannot be encoded; its events are counted as lost and the next are written."""
    writer = EventsWriter(tmp_path)
    with monkeypatch.context() as patch:

        def encode(items: Any) -> Any:
            raise MemoryError("no memory")

        patch.setattr(writer._writer_thread._encoder, "encode", encode)
        writer.scalar("a", 1.0, 1)
        with pytest.raises(EventsWriteError, match=r"1 event for .* is lost: no memory"):
            writer.flush()
    writer.scalar("a", 1.0, 2)
    writer.close()
    assert [contents.steps for contents in read_logdir(tmp_path)] == [[2]]
    assert (writer.written, writer.dropped) == (1, 1)
