"""Where the stacks of a session go besides its events file: a file in memory, and one in the logdir."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.engine import stall_stacks
from supervisor_core.engine.stall_stacks import KEPT_FILES, KEPT_LOOKS, LOOK_BYTES, StallStacks
from supervisor_core.process.stacks_file import StacksLook, parse, read_stacks, stacks_path
from supervisor_core.storage.local import LOCAL

STACKS = {"MainThread": ("/x/train.py:88 main", "/x/input.py:12 next")}


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Returns a function that waits until all threads that write into the logdir have ended."""

    def wait() -> None:
        for thread in threading.enumerate():
            if thread.name == "supervisor_stacks":
                thread.join()

    return wait


def test_a_look_is_in_memory_and_in_the_logdir(tmp_path: Path, clock: Any, written: Any) -> None:
    """The same text in both. A clean end takes the one in memory away, not the other."""
    memory, logdir = tmp_path / "memory", tmp_path / "run"
    memory.mkdir()
    logdir.mkdir()
    stacks = StallStacks("s1", str(logdir), clock)
    stacks.open(memory)
    stacks.add("no progress", STACKS)
    written()
    reading = read_stacks(stacks_path(memory, "s1"))
    copy = logdir / "supervisor-stacks.s1.txt"
    assert reading is not None
    assert (
        reading.looks
        == parse(copy.read_bytes()).looks
        == (StacksLook(title="no progress", at=clock.wall_now, stacks=STACKS),)
    )
    stacks.close()
    assert list(memory.iterdir()) == [] and copy.exists()
    stacks.close()
    stacks.arm(5.0)
    assert stacks.by_timer() is None


def test_the_file_in_the_logdir_is_bounded(tmp_path: Path, clock: Any, written: Any) -> None:
    """The newest looks are kept, a long one is cut; of many sessions that stalled the newest keep theirs."""
    stacks = StallStacks("s1", str(tmp_path), clock)
    for number in range(KEPT_LOOKS + 3):
        stacks.add(f"look {number}", {"MainThread": ("f.py:1 " + "x" * 2 * LOOK_BYTES,)} if number == 9 else STACKS)
        written()
    data = (tmp_path / "supervisor-stacks.s1.txt").read_bytes()
    assert [look.title for look in parse(data).looks] == [f"look {number}" for number in range(3, KEPT_LOOKS + 3)]
    assert len(data) < LOOK_BYTES + KEPT_LOOKS * 1000
    for number in range(KEPT_FILES + 5):
        old = tmp_path / f"supervisor-stacks.old{number}.txt"
        old.write_text("")
        os.utime(old, (1000.0 + number, 1000.0 + number))
    stacks.add("the last", STACKS)
    written()
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"supervisor-stacks.s1.txt"} | {
        f"supervisor-stacks.old{number}.txt" for number in range(6, KEPT_FILES + 5)
    }


def test_a_logdir_that_hangs_holds_up_nothing(
    tmp_path: Path, clock: Any, written: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One thread waits for it. When it answers again it gets all that was meant for it."""
    reached, answers = threading.Event(), threading.Event()
    replace, calls = type(LOCAL).replace, []

    def hang(self: Any, path: str, data: bytes, *rest: Any) -> None:
        calls.append(threading.current_thread())
        reached.set()
        answers.wait()
        replace(self, path, data, *rest)

    monkeypatch.setattr(type(LOCAL), "replace", hang)
    stacks = StallStacks("s1", str(tmp_path), clock)
    stacks.add("first", STACKS)
    reached.wait()
    for title in ("second", "third"):
        stacks.add(title, STACKS)
    answers.set()
    written()
    assert len(set(calls)) == 1 and len(calls) == 2
    data = (tmp_path / "supervisor-stacks.s1.txt").read_bytes()
    assert [look.title for look in parse(data).looks] == ["first", "second", "third"]


def test_what_cannot_be_written_is_said_once(tmp_path: Path, clock: Any, written: Any, caplog: Any) -> None:
    """Neither the memory nor the logdir: the session goes on, with a line in the log for each."""
    stacks = StallStacks("s1", str(tmp_path / "missing"), clock)
    stacks.open(tmp_path / "missing")
    for title in ("first", "second"):
        stacks.add(title, STACKS)
        written()
        stacks.arm(1.0)
        assert stacks.by_timer() is None
    stacks.close()
    assert len(caplog.records) == 2
    assert "may leave no stacks in memory" in caplog.text and "cannot be written to" in caplog.text


def test_without_directories_nothing_is_written(clock: Any, caplog: Any, begun_threads: Any) -> None:
    """A remote logdir, a system without a directory in memory."""
    stacks = StallStacks("s1", "gs://bucket/run", clock)
    stacks.open(None)
    stacks.add("look", STACKS)
    stacks.close()
    assert caplog.records == [] and begun_threads("supervisor_stacks") == []


@pytest.mark.skipif(sys.platform != "linux", reason="the timer is Linux's")
def test_the_timer_is_armed_with_the_budget_within_bounds(
    tmp_path: Path, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At first with the longest; never shorter than a starved monitor may need."""
    armed: list[float] = []
    monkeypatch.setattr(stall_stacks.DeadManTimer, "arm", lambda self, secs: armed.append(secs))
    stacks = StallStacks("s1", None, clock)
    stacks.open(tmp_path)
    for budget in (6.0, 20.0, 300.0, None):
        stacks.arm(budget)
    stacks.close()
    assert armed == [60.0, 10.0, 20.0, 60.0, 60.0]


def test_without_the_dump_no_signal_is_taken(tmp_path: Path, clock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """`Options.dump_blocked_stacks` is False: no timer, no handler; looks go to the same places as before."""

    def timer(descriptor: int) -> None:
        raise AssertionError("a timer was created")

    monkeypatch.setattr(stall_stacks, "DeadManTimer", timer)
    stacks = StallStacks("s1", None, clock, dump_blocked=False)
    stacks.open(tmp_path)
    stacks.arm(30.0)
    stacks.add("no progress", STACKS)
    reading = read_stacks(stacks_path(tmp_path, "s1"))
    assert reading is not None and [look.title for look in reading.looks] == ["no progress"]
    assert stacks.by_timer() is None
    stacks.close()


def test_a_forked_child_leaves_the_files_to_its_parent(
    tmp_path: Path, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end removes neither the file nor the timer, which it does not have."""
    stacks = StallStacks("s1", None, clock)
    stacks.open(tmp_path)
    path = stacks_path(tmp_path, "s1")
    with monkeypatch.context() as child:
        child.setattr(os, "getpid", lambda: 1)
        parent_only = StallStacks.__new__(StallStacks)
        vars(parent_only).update(vars(stacks))
        parent_only.close()
    assert path.exists()
    stacks.add("still there", STACKS)
    stacks.close()
    assert not path.exists()
