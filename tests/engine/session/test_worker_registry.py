"""What a chief sees of its cluster, by its own clock, whatever the files and their machines are like."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor_core.process.identity import Machine, this_machine

WORKER = """
import sys
from supervisor_core.engine.liveness_writer import LivenessWriter
heartbeats = LivenessWriter(sys.argv[1], "worker:1", "6f1d3c0a9b7e4d21", interval_secs=10, phase="training")
heartbeats.start()
print("begun", flush=True)
sys.stdin.read()
"""


def test_a_process_on_its_own_has_no_cluster(registry, tmp_path: Path, caplog) -> None:
    """No directory, no workers, no word."""
    chief = registry()
    assert chief.scan() is False
    assert chief.workers() == ()
    assert caplog.records == []
    assert list(tmp_path.iterdir()) == []


def test_what_the_processes_say_is_listed(registry, say) -> None:
    """In the order of their names, with what each does."""
    say("worker:10", phase="starting", waiting_for="the chief")
    say("worker:2", step=30, steps=12)
    say("ps:0", phase="serving")
    chief = registry()
    assert chief.scan() is True
    assert [(worker.name, worker.state) for worker in chief.workers()] == [
        ("ps:0", "running"),
        ("worker:2", "running"),
        ("worker:10", "waiting"),
    ]
    assert (chief.workers()[1].step, chief.workers()[1].steps) == (30, 12)
    assert chief.workers()[2].waiting_for == "the chief"
    assert chief.scan() is False


def test_asking_costs_no_look(registry, say) -> None:
    """Between two looks the answer stays the same."""
    chief = registry()
    say()
    assert chief.workers() == ()
    chief.scan()
    say(stalled=True)
    assert chief.only().state == "running"
    assert chief.states() == {"worker:1": "stalled"}


def test_a_silent_process_is_lost_and_one_that_speaks_again_is_not(registry, say, clock) -> None:
    """By the chief's clock; when it was seen last stays what it was."""
    chief = registry()
    say()
    chief.scan()
    seen_at = clock.wall()
    assert chief.watch(60) == {"worker:1": "running"}
    clock.now += 1
    assert chief.scan() is True
    assert (chief.only().state, chief.only().last_seen_at) == ("lost", seen_at)
    say()
    assert chief.scan() is True
    assert (chief.only().state, chief.only().last_seen_at) == ("running", clock.wall())


@pytest.mark.parametrize("skew_secs", [-86_400.0, 86_400.0])
def test_the_clocks_need_not_agree(registry, say, clock, skew_secs: float) -> None:
    """A process whose clock is a day off is alive while its file changes, and was seen when the chief saw it."""
    chief = registry()
    say(written_at=clock.wall() + skew_secs)
    chief.scan()
    for _ in range(20):
        clock.now += 10
        say(written_at=clock.wall() + skew_secs)
        chief.scan()
        assert (chief.only().state, chief.only().last_seen_at) == ("running", clock.wall())


def test_one_that_was_lost_before_is_lost_at_first_sight(registry, say, clock) -> None:
    """A restarted chief does not take dead processes for live ones; last seen is the last write."""
    say()
    written_at = clock.wall()
    clock.now += 3600
    chief = registry()
    chief.scan()
    assert (chief.only().state, chief.only().last_seen_at) == ("lost", written_at)


def test_a_file_from_the_future_was_not_seen_there(registry, say, clock) -> None:
    """A clock that is ahead of the chief's does not make anybody seen later than now."""
    say(written_at=clock.wall() + 500)
    chief = registry()
    chief.scan()
    assert chief.only().last_seen_at == clock.wall()


def test_a_restarted_process_is_another_one(registry, say, clock) -> None:
    """Its beats start at 0; its session id shows it."""
    chief = registry()
    say()
    chief.scan()
    assert chief.watch(61) == {"worker:1": "lost"}
    say(session="b" * 16, beats=1, phase="starting")
    assert chief.states() == {"worker:1": "waiting"}


def test_ends_of_this_session_are_listed_and_earlier_ones_not(registry, say, clock) -> None:
    """What stopped without an error before the chief began is not listed; what failed or was lost is."""
    say("worker:0", ended="completed")
    say("worker:1", ended="error", error="ValueError: NaN")
    say("worker:2")
    clock.now += 100
    say("worker:3")
    chief = registry()
    assert chief.states() == {"worker:1": "failed", "worker:2": "lost", "worker:3": "running"}
    assert chief.workers()[0].error == "ValueError: NaN"
    say("worker:3", ended="signal")
    say("worker:4", ended="completed")
    assert chief.states() == {"worker:1": "failed", "worker:2": "lost", "worker:3": "stopped", "worker:4": "stopped"}
    clock.now += 1000
    say("worker:0", session="b" * 16, ended=None)
    assert chief.states()["worker:0"] == "running"


def test_a_process_whose_file_is_deleted_is_forgotten(registry, say, directory: Path) -> None:
    """That is how to strike one off the list."""
    chief = registry()
    say()
    chief.scan()
    (directory / "worker-1.json").unlink()
    assert chief.scan() is True
    assert chief.workers() == ()


def test_a_process_of_this_machine_that_is_gone_is_lost_at_once(registry, say) -> None:
    """A process id says nothing on another machine, after another boot, or in another container."""
    here = Machine(host="here", boot="b1", pids="pid:[1]")
    chief = registry(machine=here, runs=lambda pid: pid == 1)
    say("worker:0", host="here", boot="b1", pids="pid:[1]", pid=1)
    say("worker:1", host="here", boot="b1", pids="pid:[1]", pid=2)
    say("worker:2", host="there", boot="b1", pids="pid:[1]", pid=2)
    say("worker:3", host="here", boot="b2", pids="pid:[1]", pid=2)
    say("worker:4", host="here", boot="b1", pids="pid:[2]", pid=2)
    assert [name for name, state in chief.states().items() if state == "lost"] == ["worker:1"]


def test_the_last_heartbeat_of_a_process_that_has_just_ended_is_read(registry, say) -> None:
    """It is gone, and its file said at first that it runs: it is read again before the process counts as lost."""
    here = this_machine()
    where = {"host": here.host, "boot": here.boot, "pids": here.pids}

    def end_while_asked(pid: int) -> bool:
        say(ended="completed")
        return False

    say(**where)
    assert registry(runs=end_while_asked).states() == {}
    say(ended=None)
    chief = registry(runs=lambda pid: True)
    chief.scan()
    chief._runs = end_while_asked
    assert chief.states() == {"worker:1": "stopped"}


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


def test_the_thread_looks_and_stops(registry, say, monkeypatch) -> None:
    """Errors do not end it; the last read, when it stops, is not reported."""
    monkeypatch.setattr("supervisor_core.engine.worker_registry.LAST_READ_SECS", 60.0)
    looked: threading.Semaphore = threading.Semaphore(0)
    changed: list[str] = []

    def on_change() -> None:
        changed.append(chief.only().state)
        looked.release()
        if len(changed) == 1:
            raise ZeroDivisionError

    chief = registry(interval_secs=0.001, on_change=on_change)
    say()
    chief.start()
    looked.acquire()
    say(stalled=True)
    looked.acquire()
    assert changed[-1] == "stalled"
    chief.stop()
    assert not chief._thread.is_alive()


def test_stopping_looks_once_more(registry, say, monkeypatch) -> None:
    """A process that ends together with the chief is seen as ended, in the chief's last heartbeat."""
    monkeypatch.setattr("supervisor_core.engine.worker_registry.LAST_READ_SECS", 60.0)
    changed = threading.Event()
    chief = registry(interval_secs=3600.0, on_change=changed.set)
    say()
    chief.start()
    changed.wait()
    say(ended="completed")
    changed.clear()
    chief.stop()
    assert chief.only().state == "stopped"
    assert not changed.is_set()
