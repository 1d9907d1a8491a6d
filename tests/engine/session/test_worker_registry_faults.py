"""A chief sees its cluster though files are damaged, and the file system or itself was away."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from supervisor_core.run.watch.liveness import MAX_TASKS


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("worker-1.json", b'{"v": 1, "tas', "cannot be decoded: it is not JSON"),
        ("worker-1.json", b'{"v": 2}', "not of version 1"),
        ("worker-1.json", b" " * 70_000, "more than 65,536"),
        ("worker-1.json", None, "cannot be read"),
        ("notes.json", b"[]", "cannot be decoded"),
        ("worker-2.json", b"copy", "another task's"),
    ],
)
def test_what_makes_no_sense_is_skipped_and_said_once(
    registry, say, directory: Path, caplog, name: str, data: bytes | None, message: str
) -> None:
    """The others are seen all the same."""
    say("worker:7")
    if data is None:
        (directory / name).mkdir()
    else:
        (directory / name).write_bytes((directory / "worker-7.json").read_bytes() if data == b"copy" else data)
    chief = registry()
    for _ in range(3):
        assert chief.states() == {"worker:7": "running"}
    (text,) = [record.message for record in caplog.records]
    assert name in text
    assert message in text


def test_what_is_not_ours_is_left_alone(registry, say, directory: Path, caplog) -> None:
    """A file that is being written, or left by a killed process, is no heartbeat."""
    (directory / "worker-1.json.tmp123").write_bytes(b"{")
    (directory / "README").write_bytes(b"hello")
    assert registry().states() == {}
    assert caplog.records == []


def test_a_torn_file_is_silence(registry, say, clock, directory: Path) -> None:
    """The process stays what it was until it has been silent for too long, and is back with its next beat."""
    chief = registry()
    say()
    chief.scan()
    (directory / "worker-1.json").write_bytes(b"")
    assert chief.states() == {"worker:1": "running"}
    assert chief.watch(61) == {"worker:1": "lost"}
    say()
    assert chief.states() == {"worker:1": "running"}


def test_a_fault_of_the_chiefs_own_is_nobodys_silence(registry, say, clock, shared, caplog) -> None:
    """While it cannot read nothing changes; nor at the first read afterwards, though no process could write either."""
    chief = registry()
    say()
    chief.scan()
    shared.faults["list_names"] = PermissionError(13, "Permission denied")
    for _ in range(100):
        clock.now += 5
        assert chief.scan() is False
        assert chief.only().state == "running"
    shared.faults.clear()
    assert chief.states() == {"worker:1": "running"}
    assert chief.watch(31) == {"worker:1": "lost"}
    (record,) = caplog.records
    assert "cannot be listed" in record.message


def test_a_file_that_cannot_be_read_leaves_its_process_as_it_was(registry, say, clock, shared, caplog) -> None:
    """It is said once; and again only after it could be read."""
    chief = registry()
    say()
    chief.scan()
    for _ in range(2):
        shared.faults["worker-1.json"] = RuntimeError("a client of an object store")
        assert chief.states() == chief.states() == {"worker:1": "running"}
        shared.faults.clear()
        assert chief.states() == {"worker:1": "running"}
    shared.faults["worker-1.json"] = FileNotFoundError("deleted since it was listed")
    assert chief.states() == {"worker:1": "running"}
    assert len(caplog.records) == 2


def test_a_file_that_is_replaced_while_it_is_read_is_read_again(registry, say, shared, caplog) -> None:
    """That is no fault worth a word."""
    chief = registry()
    say()
    shared.passing_faults["worker-1.json"] = OSError(116, "Stale file handle")
    assert chief.states() == {"worker:1": "running"}
    assert caplog.records == []


def test_stopping_has_a_time_limit(registry, say, shared, monkeypatch) -> None:
    """Not for a file system that hangs; the last state is returned without waiting."""
    monkeypatch.setattr("supervisor_core.engine.worker_registry.LAST_READ_SECS", 0.001)
    changed = threading.Event()
    chief = registry(interval_secs=3600.0, on_change=changed.set)
    say()
    chief.start()
    changed.wait()
    shared.free.clear()
    chief.stop()
    assert chief._thread.is_alive()
    assert chief.only().state == "running"
    shared.free.set()
    chief._thread.join()


def test_a_chief_that_was_suspended_calls_no_worker_lost(registry, say, clock) -> None:
    """It looks again after an hour, before the others, suspended like it, have written."""
    chief = registry()
    say()
    chief.scan()
    clock.now += 3600
    assert chief.states() == {"worker:1": "running"}
    assert chief.watch(31) == {"worker:1": "lost"}


def test_the_number_of_files_is_bounded(registry, directory: Path, say, caplog) -> None:
    """The first by name; it is said once."""
    say("a:0")
    data = json.loads((directory / "a-0.json").read_bytes())
    for index in range(1, MAX_TASKS + 1):
        (directory / f"a-{index}.json").write_text(json.dumps({**data, "task": f"a:{index}"}))
    chief = registry()
    for _ in range(2):
        assert len(chief.states()) == MAX_TASKS
    (record,) = caplog.records
    assert "holds 1,001 tasks" in record.message
