"""A process's heartbeat: written off the caller's thread, whatever the file system does."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.engine.liveness_writer import LivenessWriter
from supervisor_core.engine.progress import Progress
from supervisor_core.events.telemetry import HeartbeatRecord, Place, StallRecord, StopRecord
from supervisor_core.run.watch.liveness import CHIEF

SESSION = "6f1d3c0a9b7e4d21"
FILE = ".supervisor.live/worker-1.json"


def heartbeat(phase: str, **values: Any) -> HeartbeatRecord:
    """A record as the monitor writes it."""
    return HeartbeatRecord(session=SESSION, phase=phase, **values)


class Threads:
    """Runs what it is given in threads of their own, and waits for their ends."""

    def __init__(self) -> None:
        self.started: list[threading.Thread] = []

    def __call__(self, beat: Callable[[], None]) -> None:
        self.started.append(threading.Thread(target=beat))
        self.started[-1].start()

    def join(self) -> None:
        for thread in self.started:
            thread.join()


@pytest.fixture
def threads() -> Threads:
    """The threads of a test's heartbeat writers, for those that wait for their ends."""
    return Threads()


@pytest.fixture
def heartbeats(tmp_path: Path, filesystem, begun_threads) -> Iterator[Callable[..., LivenessWriter]]:
    """Starts a heartbeat writer in the test's logdir, which writes changes only; all have ended after it,
    so that none writes to the next test's log."""
    made: list[LivenessWriter] = []

    def start(session: str = SESSION, **options: Any) -> LivenessWriter:
        options = {"interval_secs": 600.0, "final_wait_secs": 60.0, "filesystem": filesystem, **options}
        made.append(LivenessWriter(str(tmp_path), "worker:1", session, **options))
        made[-1].start()
        return made[-1]

    yield start
    filesystem.free.set()
    for item in made:
        item.close()
    for thread in begun_threads("supervisor_heartbeat"):
        thread.join(60)


def test_a_beacon_says_who_it_is(tmp_path: Path, heartbeats, filesystem) -> None:
    """At once, in a file of the shared logdir, which is made where it is missing."""
    heartbeats(interval_secs=3.0)
    said = filesystem.written.get()
    assert (said["v"], said["task"], said["session"], said["beats"]) == (1, "worker:1", SESSION, 1)
    assert (said["phase"], said["interval_secs"], said["ended"]) == ("starting", 3.0, None)
    assert json.loads((tmp_path / FILE).read_bytes()) == said


def test_a_change_of_phase_is_said_at_once(heartbeats, filesystem) -> None:
    """With the steps; what else a heartbeat has to say can wait for the next beat."""
    worker = heartbeats()
    filesystem.written.get()
    worker.write(heartbeat("starting", step=3))
    worker.write(heartbeat("training", step=7, steps=4))
    said = filesystem.written.get()
    assert (said["phase"], said["step"], said["steps"], said["beats"]) == ("training", 7, 4, 2)
    assert filesystem.written.empty()


def test_a_beacon_beats_at_its_interval(heartbeats, filesystem) -> None:
    """At an interval, without a change; changes in between are in the next beat."""
    worker = heartbeats(interval_secs=0.001)
    worker.write(heartbeat("starting", step=3))
    beats = [filesystem.written.get()["beats"] for _ in range(3)]
    assert beats == [1, 2, 3]
    while filesystem.written.get()["step"] != 3:
        pass


@pytest.mark.parametrize(("asked", "interval_secs"), [(0.0, 10.0), (600.0, 10.0), (2.5, 2.5)])
def test_a_beacon_beats_often_enough_to_be_missed(heartbeats, filesystem, asked: float, interval_secs: float) -> None:
    """Every ten seconds at least, whatever the interval of the heartbeats is."""
    heartbeats(interval_secs=asked)
    assert filesystem.written.get()["interval_secs"] == interval_secs


def test_stalls_and_what_it_waits_for_are_said(heartbeats, filesystem) -> None:
    """When they begin and when they end."""
    worker = heartbeats()
    filesystem.written.get()
    worker.write(StallRecord(session=SESSION, state="begin", phase="training", since=0.0))
    assert filesystem.written.get()["stalled"] is True
    worker.write(StallRecord(session=SESSION, state="end", phase="training", since=0.0))
    assert filesystem.written.get()["stalled"] is False
    worker.note(waiting_for="the chief")
    assert filesystem.written.get()["waiting_for"] == "the chief"
    worker.note(waiting_for=None)
    assert filesystem.written.get()["waiting_for"] is None


def test_its_progress_is_said_at_once_when_it_is_known_and_then_with_each_beat(heartbeats, filesystem) -> None:
    """And at once where it is without progress: who has said nothing of it makes each verdict undecided."""
    worker = heartbeats()
    assert filesystem.written.get()["progress_age_secs"] is None
    progress = Progress()
    worker.note_place(None, progress.snapshot())
    assert filesystem.written.get()["progress_age_secs"] is not None
    worker.note_place(None, progress.snapshot())
    worker.note_place(Place(digest="a"), progress.snapshot())
    assert filesystem.written.get()["place"]["digest"] == "a"
    worker.note_place(None, progress.snapshot())
    assert filesystem.written.get()["place"] is None and filesystem.written.empty()


def test_the_last_word_is_there_when_the_process_ends(tmp_path: Path, heartbeats, threads) -> None:
    """The caller waits for it; nothing comes after it."""
    worker = heartbeats(spawn=threads)
    worker.note(waiting_for="the chief")
    worker.write(heartbeat("stopped", step=9))
    worker.write(StopRecord(session=SESSION, reason="error", error="ValueError: NaN" + "." * 10_000, step=10, steps=5))
    before = (tmp_path / FILE).read_bytes()
    worker.write(heartbeat("training"))
    worker.note(waiting_for="more")
    worker.close()
    threads.join()
    assert (tmp_path / FILE).read_bytes() == before
    said = json.loads((tmp_path / FILE).read_bytes())
    assert (said["phase"], said["ended"], said["step"], said["steps"]) == ("stopped", "error", 10, 5)
    assert said["error"].startswith("ValueError: NaN")
    assert len(said["error"]) == 2000
    assert said["ended_at"] >= said["started_at"]
    assert said["waiting_for"] is None


def test_an_end_that_knows_no_step_leaves_the_last_one(tmp_path: Path, heartbeats) -> None:
    """What was known stays known."""
    worker = heartbeats()
    worker.write(heartbeat("training", step=7, steps=4))
    worker.write(StopRecord(session=SESSION, reason="signal"))
    said = json.loads((tmp_path / FILE).read_bytes())
    assert (said["step"], said["steps"]) == (7, 4)


def test_a_long_story_is_cut(heartbeats, filesystem) -> None:
    """The file stays small, whatever the process waits for."""
    worker = heartbeats()
    filesystem.written.get()
    worker.note(waiting_for="x" * 100_000)
    assert filesystem.written.get()["waiting_for"] == "x" * 2000


def test_a_process_without_a_monitor_has_a_phase_of_its_own(heartbeats, filesystem) -> None:
    """A parameter server does no steps, and says so until it stops."""
    server = heartbeats(phase="serving")
    assert filesystem.written.get()["phase"] == "serving"
    server.write(StopRecord(session=SESSION, reason="requested"))
    said = filesystem.written.get()
    assert (said["ended"], said["steps"]) == ("requested", None)


def test_a_write_that_hangs_is_not_doubled_and_the_last_state_wins(heartbeats, filesystem) -> None:
    """No caller waits for it; once the file system is back, one write has the present state."""
    filesystem.free.clear()
    worker = heartbeats(interval_secs=0.001)
    filesystem.writing.acquire()
    for step, phase in enumerate(["restoring", "training", "evaluating"]):
        worker.write(heartbeat(phase, step=step))
    filesystem.free.set()
    assert filesystem.written.get()["phase"] == "starting"
    said = filesystem.written.get()
    assert (said["phase"], said["step"], said["beats"]) == ("evaluating", 2, 2)


def test_the_end_has_a_time_limit(heartbeats, filesystem) -> None:
    """Not for a file system that hangs."""
    filesystem.free.clear()
    worker = heartbeats(final_wait_secs=0.001)
    filesystem.writing.acquire()
    worker.write(StopRecord(session=SESSION, reason="completed"))
    worker.close()
    filesystem.free.set()
    filesystem.written.get()
    assert filesystem.written.get()["ended"] == "completed"


def test_a_fault_is_said_once_until_it_has_gone(heartbeats, filesystem, caplog) -> None:
    """A full file system is one line in the log, not one with every beat, and blocks no caller."""
    filesystem.fault = OSError(28, "No space left on device")
    worker = heartbeats(interval_secs=0.001)
    for _ in range(3):
        assert "No space" in filesystem.written.get()["fault"]
    filesystem.fault = None
    while "fault" in filesystem.written.get():
        pass
    filesystem.fault = RuntimeError("no such client")
    while "fault" not in filesystem.written.get():
        pass
    worker.write(StopRecord(session=SESSION, reason="completed"))
    texts = [record.message for record in caplog.records]
    assert len(texts) == 2
    assert "worker-1.json could not be written" in texts[0]
    assert "No space left on device" in texts[0]
    assert "no such client" in texts[1]


def test_a_directory_that_was_deleted_is_made_again(tmp_path: Path, heartbeats, filesystem) -> None:
    """A logdir that is cleared under a living process gets its file back."""
    worker = heartbeats()
    filesystem.written.get()
    (tmp_path / FILE).unlink()
    (tmp_path / ".supervisor.live").rmdir()
    worker.write(heartbeat("restoring"))
    assert filesystem.written.get()["phase"] == "restoring"
    assert (tmp_path / FILE).exists()


def test_of_two_of_one_name_the_later_wins(heartbeats, filesystem, threads, caplog) -> None:
    """The earlier says so once, and is silent from then on; it does not hold up its own end."""
    earlier = heartbeats("a" * 16, spawn=threads, final_wait_secs=3600.0)
    assert filesystem.written.get()["session"] == "a" * 16
    later = heartbeats("b" * 16)
    assert filesystem.written.get()["session"] == "b" * 16
    earlier.write(heartbeat("training"))
    threads.join()
    earlier.write(StopRecord(session="a" * 16, reason="completed"))
    later.write(heartbeat("training"))
    assert filesystem.written.get()["session"] == "b" * 16
    assert filesystem.written.empty()
    (record,) = caplog.records
    assert "session " + "b" * 16 in record.message
    assert "worker_name" in record.message


def test_the_later_wins_though_the_earlier_wrote_once_more(tmp_path: Path, heartbeats, filesystem) -> None:
    """A write of the earlier that was under way does not make the later give way."""
    heartbeats("a" * 16)
    filesystem.written.get()
    before = (tmp_path / FILE).read_bytes()
    later = heartbeats("b" * 16)
    filesystem.written.get()
    (tmp_path / FILE).write_bytes(before)
    later.write(heartbeat("training"))
    assert filesystem.written.get()["session"] == "b" * 16


def test_what_the_killed_left_is_cleared(tmp_path: Path, heartbeats, filesystem) -> None:
    """Half-written files of this task go; other tasks' stay."""
    directory = tmp_path / ".supervisor.live"
    directory.mkdir()
    (directory / "worker-1.json.tmp123").write_bytes(b"{")
    (directory / "worker-10.json.tmp123").write_bytes(b"{")
    heartbeats()
    filesystem.written.get()
    assert sorted(path.name for path in directory.iterdir()) == ["worker-1.json", "worker-10.json.tmp123"]


def test_no_thread_no_heartbeat_no_error(tmp_path: Path, caplog) -> None:
    """If no thread can be started, a warning is logged, and the end does not wait. A chief, which is taken over without
    heartbeats, tries again each second."""
    started: list[Callable[[], None]] = []

    def refuse(beat: Callable[[], None]) -> None:
        started.append(beat)
        if len(started) < 3:
            raise RuntimeError("can't start new thread")

    worker = LivenessWriter(str(tmp_path), "worker:1", SESSION, interval_secs=1.0, spawn=refuse)
    worker.start()
    worker.write(StopRecord(session=SESSION, reason="completed"))
    assert "can't start new thread" in caplog.text
    chief = LivenessWriter(str(tmp_path), CHIEF, SESSION, interval_secs=1.0, spawn=refuse)
    chief.start()
    for _ in range(3):
        chief.chief_lives(1, None)
    assert len(started) == 3


def test_a_beacon_stops_with_its_thread(tmp_path: Path, threads) -> None:
    """Closed, it leaves no thread behind; closing again, or starting, changes nothing."""
    worker = LivenessWriter(str(tmp_path), "worker:1", SESSION, interval_secs=1.0, spawn=threads)
    worker.start()
    worker.start()
    worker.close()
    worker.close()
    worker.start()
    threads.join()
    assert len(threads.started) == 1


def test_a_forked_child_says_nothing(heartbeats, filesystem, monkeypatch, caplog) -> None:
    """The heartbeat stays the parent's: the child neither writes nor waits."""
    caplog.set_level(logging.INFO)
    worker = heartbeats()
    filesystem.written.get()
    with monkeypatch.context() as patch:
        patch.setattr("os.getpid", lambda: 1)
        worker.write(StopRecord(session=SESSION, reason="completed"))
        worker.close()
    worker.write(heartbeat("training"))
    assert filesystem.written.get()["ended"] is None
