"""What a chief sees of its cluster, by its own clock, whatever the files and their machines are like."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.checkpoint.filesystem import LocalFilesystem, Reader
from supervisor_core.checkpoint.machine import Machine, this_machine
from supervisor_core.run.status import WorkerStatus
from supervisor_core.supervision.roster import MAX_TASKS, Roster
from supervisor_core.supervision.task_record import TaskRecord, encode, file_name

WORKER = """
import sys
from supervisor_core.supervision.beacon import Beacon
beacon = Beacon(sys.argv[1], "worker:1", "6f1d3c0a9b7e4d21", interval_secs=10, phase="training")
beacon.start()
print("begun", flush=True)
sys.stdin.read()
"""


class Hands:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def wall(self) -> float:
        return self.now + 7e8

    def monotonic(self) -> float:
        return self.now


class Shared(LocalFilesystem):
    """Local files; what is asked of them fails on demand."""

    def __init__(self) -> None:
        self.faults: dict[str, Exception] = {}
        self.passing_faults: dict[str, Exception] = {}
        """Each raised once."""
        self.free = threading.Event()
        self.free.set()

    def list_names(self, directory: str) -> list[str]:
        self.free.wait()
        if "list_names" in self.faults:
            raise self.faults["list_names"]
        return super().list_names(directory)

    def open(self, path: str) -> Reader:
        if os.path.basename(path) in self.faults:
            raise self.faults[os.path.basename(path)]
        if os.path.basename(path) in self.passing_faults:
            raise self.passing_faults.pop(os.path.basename(path))
        return super().open(path)


@pytest.fixture
def clock() -> Hands:
    """The chief's."""
    return Hands()


@pytest.fixture
def shared() -> Shared:
    """The file system that the cluster shares."""
    return Shared()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Where the processes' files are."""
    path = tmp_path / ".supervisor.tasks"
    path.mkdir()
    return path


@pytest.fixture
def say(directory: Path, clock: Hands) -> Callable[..., None]:
    """Write what a process on another machine says, now by a clock that is right; once more with each call."""
    said: dict[str, TaskRecord] = {}

    def say(task: str = "worker:1", **values: Any) -> None:
        if task not in said:
            said[task] = TaskRecord(
                task=task,
                session="a" * 16,
                host="elsewhere",
                pid=4711,
                started_at=clock.wall(),
                written_at=clock.wall(),
                beats=0,
                interval_secs=10.0,
                phase="training",
            )
        beats = said[task].beats + 1
        said[task] = replace(said[task], **{"beats": beats, "written_at": clock.wall(), **values})
        (directory / file_name(task)).write_bytes(encode(said[task]))

    return say


@pytest.fixture
def roster(tmp_path: Path, clock: Hands, shared: Shared) -> Callable[..., Roster]:
    """Make a chief's roster of the test's logdir."""

    def make(**options: Any) -> Roster:
        options = {"lost_after_secs": 60.0, "interval_secs": 5.0, "clock": clock, "filesystem": shared, **options}
        return Roster(str(tmp_path), **options)

    return make


def states(roster: Roster) -> dict[str, str]:
    """State by name, as of a new look."""
    roster.look()
    return {worker.name: worker.state for worker in roster.workers()}


def watch(roster: Roster, clock: Hands, secs: float) -> dict[str, str]:
    """State by name after so many seconds in which the chief has looked every five."""
    until = clock.now + secs
    while clock.now < until:
        clock.now = min(clock.now + 5, until)
        roster.look()
    return {worker.name: worker.state for worker in roster.workers()}


def only(roster: Roster) -> WorkerStatus:
    """The one process that is listed."""
    (worker,) = roster.workers()
    return worker


def test_a_process_on_its_own_has_no_cluster(roster, tmp_path: Path, caplog) -> None:
    """No directory, no workers, no word."""
    chief = roster()
    assert chief.look() is False
    assert chief.workers() == ()
    assert caplog.records == []
    assert list(tmp_path.iterdir()) == []


def test_what_the_processes_say_is_listed(roster, say) -> None:
    """In the order of their names, with what each does."""
    say("worker:10", phase="starting", waiting_for="the chief")
    say("worker:2", step=30, steps=12)
    say("ps:0", phase="serving")
    chief = roster()
    assert chief.look() is True
    assert [(worker.name, worker.state) for worker in chief.workers()] == [
        ("ps:0", "running"),
        ("worker:2", "running"),
        ("worker:10", "waiting"),
    ]
    assert (chief.workers()[1].step, chief.workers()[1].steps) == (30, 12)
    assert chief.workers()[2].waiting_for == "the chief"
    assert chief.look() is False


def test_asking_costs_no_look(roster, say) -> None:
    """Between two looks the same is told."""
    chief = roster()
    say()
    assert chief.workers() == ()
    chief.look()
    say(stalled=True)
    assert only(chief).state == "running"
    assert states(chief) == {"worker:1": "stalled"}


def test_a_silent_process_is_lost_and_one_that_speaks_again_is_not(roster, say, clock) -> None:
    """By the chief's clock; when it was seen last stays what it was."""
    chief = roster()
    say()
    chief.look()
    seen_at = clock.wall()
    assert watch(chief, clock, 60) == {"worker:1": "running"}
    clock.now += 1
    assert chief.look() is True
    assert (only(chief).state, only(chief).last_seen_at) == ("lost", seen_at)
    say()
    assert chief.look() is True
    assert (only(chief).state, only(chief).last_seen_at) == ("running", clock.wall())


@pytest.mark.parametrize("skew_secs", [-86_400.0, 86_400.0])
def test_the_clocks_need_not_agree(roster, say, clock, skew_secs: float) -> None:
    """A process whose clock is a day off is alive while its file changes, and was seen when the chief saw it."""
    chief = roster()
    say(written_at=clock.wall() + skew_secs)
    chief.look()
    for _ in range(20):
        clock.now += 10
        say(written_at=clock.wall() + skew_secs)
        chief.look()
        assert (only(chief).state, only(chief).last_seen_at) == ("running", clock.wall())


def test_one_that_was_lost_before_is_lost_at_first_sight(roster, say, clock) -> None:
    """A chief that starts anew does not take the dead for the living; seen last is when it wrote last."""
    say()
    written_at = clock.wall()
    clock.now += 3600
    chief = roster()
    chief.look()
    assert (only(chief).state, only(chief).last_seen_at) == ("lost", written_at)


def test_a_file_from_the_future_was_not_seen_there(roster, say, clock) -> None:
    """A clock that is ahead of the chief's does not make anybody seen later than now."""
    say(written_at=clock.wall() + 500)
    chief = roster()
    chief.look()
    assert only(chief).last_seen_at == clock.wall()


def test_a_restarted_process_is_another_one(roster, say, clock) -> None:
    """Its beats begin anew, its session tells."""
    chief = roster()
    say()
    chief.look()
    assert watch(chief, clock, 61) == {"worker:1": "lost"}
    say(session="b" * 16, beats=1, phase="starting")
    assert states(chief) == {"worker:1": "waiting"}


def test_the_ends_of_this_session_are_told_those_of_an_earlier_one_not(roster, say, clock) -> None:
    """What ended in good order before the chief began is history; what failed or was lost is not."""
    say("worker:0", ended="completed")
    say("worker:1", ended="error", error="ValueError: NaN")
    say("worker:2")
    clock.now += 100
    say("worker:3")
    chief = roster()
    assert states(chief) == {"worker:1": "failed", "worker:2": "lost", "worker:3": "running"}
    assert chief.workers()[0].error == "ValueError: NaN"
    say("worker:3", ended="signal")
    say("worker:4", ended="completed")
    assert states(chief) == {"worker:1": "failed", "worker:2": "lost", "worker:3": "stopped", "worker:4": "stopped"}
    clock.now += 1000
    say("worker:0", session="b" * 16, ended=None)
    assert states(chief)["worker:0"] == "running"


def test_a_process_whose_file_is_deleted_is_forgotten(roster, say, directory: Path) -> None:
    """That is how to strike one off the list."""
    chief = roster()
    say()
    chief.look()
    (directory / "worker-1.json").unlink()
    assert chief.look() is True
    assert chief.workers() == ()


def test_a_process_of_this_machine_that_is_gone_is_lost_at_once(roster, say) -> None:
    """A process id says nothing on another machine, after another boot, or in another container."""
    here = Machine(host="here", boot="b1", pids="pid:[1]")
    chief = roster(machine=here, runs=lambda pid: pid == 1)
    say("worker:0", host="here", boot="b1", pids="pid:[1]", pid=1)
    say("worker:1", host="here", boot="b1", pids="pid:[1]", pid=2)
    say("worker:2", host="there", boot="b1", pids="pid:[1]", pid=2)
    say("worker:3", host="here", boot="b2", pids="pid:[1]", pid=2)
    say("worker:4", host="here", boot="b1", pids="pid:[2]", pid=2)
    assert [name for name, state in states(chief).items() if state == "lost"] == ["worker:1"]


def test_the_last_word_of_a_process_that_has_just_ended_is_heard(roster, say) -> None:
    """It is gone, and its file said at first that it runs: it is read again before the process counts as lost."""
    here = this_machine()
    where = {"host": here.host, "boot": here.boot, "pids": here.pids}

    def end_while_asked(pid: int) -> bool:
        say(ended="completed")
        return False

    say(**where)
    assert states(roster(runs=end_while_asked)) == {}
    say(ended=None)
    chief = roster(runs=lambda pid: True)
    chief.look()
    chief._runs = end_while_asked
    assert states(chief) == {"worker:1": "stopped"}


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process of this machine that beats in the test's logdir."""
    process = subprocess.Popen(
        [sys.executable, "-c", WORKER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    yield process
    process.kill()
    process.communicate()


def test_a_killed_process_of_this_machine_is_lost_at_once(tmp_path: Path, worker) -> None:
    """A real one, with SIGKILL, which nobody has reaped yet."""
    changed = threading.Semaphore(0)
    chief = Roster(tmp_path, lost_after_secs=60.0, interval_secs=0.01, on_change=changed.release)
    chief.start()
    changed.acquire()
    assert (only(chief).state, only(chief).pid) == ("running", worker.pid)
    worker.kill()
    changed.acquire()
    assert only(chief).state == "lost"
    chief.stop()


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("worker-1.json", b'{"v": 1, "tas', "makes no sense: it is not JSON"),
        ("worker-1.json", b'{"v": 2}', "not of version 1"),
        ("worker-1.json", b" " * 70_000, "more than 65,536"),
        ("worker-1.json", None, "cannot be read"),
        ("notes.json", b"[]", "makes no sense"),
        ("worker-2.json", b"copy", "another task's"),
    ],
)
def test_what_makes_no_sense_is_skipped_and_said_once(
    roster, say, directory: Path, caplog, name: str, data: bytes | None, message: str
) -> None:
    """The others are seen all the same."""
    say("worker:7")
    if data is None:
        (directory / name).mkdir()
    else:
        (directory / name).write_bytes((directory / "worker-7.json").read_bytes() if data == b"copy" else data)
    chief = roster()
    for _ in range(3):
        assert states(chief) == {"worker:7": "running"}
    (text,) = [record.message for record in caplog.records]
    assert name in text
    assert message in text


def test_what_is_not_ours_is_left_alone(roster, say, directory: Path, caplog) -> None:
    """A file that is being written, or left behind by the killed, is nobody's heartbeat."""
    (directory / "worker-1.json.tmp123").write_bytes(b"{")
    (directory / "README").write_bytes(b"hello")
    assert states(roster()) == {}
    assert caplog.records == []


def test_a_torn_file_is_silence(roster, say, clock, directory: Path) -> None:
    """The process stays what it was until it has been silent for too long, and is back with its next beat."""
    chief = roster()
    say()
    chief.look()
    (directory / "worker-1.json").write_bytes(b"")
    assert states(chief) == {"worker:1": "running"}
    assert watch(chief, clock, 61) == {"worker:1": "lost"}
    say()
    assert states(chief) == {"worker:1": "running"}


def test_a_fault_of_the_chiefs_own_is_nobodys_silence(roster, say, clock, shared, caplog) -> None:
    """While it cannot look nothing changes; nor at the first look afterwards, though nobody could write either."""
    chief = roster()
    say()
    chief.look()
    shared.faults["list_names"] = PermissionError(13, "Permission denied")
    for _ in range(100):
        clock.now += 5
        assert chief.look() is False
        assert only(chief).state == "running"
    shared.faults.clear()
    assert states(chief) == {"worker:1": "running"}
    assert watch(chief, clock, 31) == {"worker:1": "lost"}
    (record,) = caplog.records
    assert "cannot be listed" in record.message


def test_a_file_that_cannot_be_read_leaves_its_process_as_it_was(roster, say, clock, shared, caplog) -> None:
    """It is said once; and again only after it could be read."""
    chief = roster()
    say()
    chief.look()
    for _ in range(2):
        shared.faults["worker-1.json"] = RuntimeError("a client of an object store")
        assert states(chief) == states(chief) == {"worker:1": "running"}
        shared.faults.clear()
        assert states(chief) == {"worker:1": "running"}
    shared.faults["worker-1.json"] = FileNotFoundError("deleted since it was listed")
    assert states(chief) == {"worker:1": "running"}
    assert len(caplog.records) == 2


def test_a_file_that_is_replaced_while_it_is_read_is_read_again(roster, say, shared, caplog) -> None:
    """That is no fault worth a word."""
    chief = roster()
    say()
    shared.passing_faults["worker-1.json"] = OSError(116, "Stale file handle")
    assert states(chief) == {"worker:1": "running"}
    assert caplog.records == []


def test_stopping_does_not_wait_for_ever(roster, say, shared, monkeypatch) -> None:
    """Not for a file system that hangs; what was seen last stays, and is told without waiting."""
    monkeypatch.setattr("supervisor_core.supervision.roster.LAST_LOOK_SECS", 0.001)
    changed = threading.Event()
    chief = roster(interval_secs=3600.0, on_change=changed.set)
    say()
    chief.start()
    changed.wait()
    shared.free.clear()
    chief.stop()
    assert chief._thread.is_alive()
    assert only(chief).state == "running"
    shared.free.set()
    chief._thread.join()


def test_a_chief_that_was_suspended_takes_nobody_for_lost(roster, say, clock) -> None:
    """It looks again after an hour, before the others, suspended like it, have written."""
    chief = roster()
    say()
    chief.look()
    clock.now += 3600
    assert states(chief) == {"worker:1": "running"}
    assert watch(chief, clock, 31) == {"worker:1": "lost"}


def test_so_many_are_looked_at_and_no_more(roster, directory: Path, say, caplog) -> None:
    """The first by name; it is said once."""
    say("a:0")
    data = json.loads((directory / "a-0.json").read_bytes())
    for index in range(1, MAX_TASKS + 1):
        (directory / f"a-{index}.json").write_text(json.dumps({**data, "task": f"a:{index}"}))
    chief = roster()
    for _ in range(2):
        assert len(states(chief)) == MAX_TASKS
    (record,) = caplog.records
    assert "holds 1,001 tasks" in record.message


def test_the_thread_looks_and_stops(roster, say) -> None:
    """What goes wrong does not end it; the last look, when it stops, is told nobody."""
    looked: threading.Semaphore = threading.Semaphore(0)
    changed: list[str] = []

    def tell() -> None:
        changed.append(only(chief).state)
        looked.release()
        if len(changed) == 1:
            raise ZeroDivisionError

    chief = roster(interval_secs=0.001, on_change=tell)
    say()
    chief.start()
    looked.acquire()
    say(stalled=True)
    looked.acquire()
    assert changed[-1] == "stalled"
    chief.stop()
    assert not chief._thread.is_alive()


def test_stopping_looks_once_more(roster, say) -> None:
    """Who ends together with the chief is seen to have ended; the chief's own end tells of it."""
    changed = threading.Event()
    chief = roster(interval_secs=3600.0, on_change=changed.set)
    say()
    chief.start()
    changed.wait()
    say(ended="completed")
    changed.clear()
    chief.stop()
    assert only(chief).state == "stopped"
    assert not changed.is_set()
