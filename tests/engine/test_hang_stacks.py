"""Where the stacks of a session go besides its events file, also while Python cannot run."""

from __future__ import annotations

import faulthandler
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.engine import hang_stacks
from supervisor_core.engine.hang_stacks import DeadManTimer, HangStacks
from supervisor_core.process.stacks_file import StacksFile, StacksLook, read_stacks, stacks_path

STACKS = {"MainThread": ("/x/train.py:88 main", "/x/input.py:12 next")}


def test_a_look_is_in_memory(tmp_path: Path, clock: Any) -> None:
    """Until a clean end, after which nothing does anything."""
    stacks = HangStacks("s1", clock)
    stacks.open(tmp_path)
    stacks.add("no progress", STACKS)
    reading = read_stacks(stacks_path(tmp_path, "s1"))
    assert reading is not None
    assert reading.looks == (StacksLook(title="no progress", at=clock.wall_now, stacks=STACKS),)
    stacks.close()
    assert list(tmp_path.iterdir()) == []
    stacks.close()
    stacks.arm(5.0)
    assert stacks.by_timer() is None


def test_what_cannot_be_written_is_said_once(tmp_path: Path, clock: Any, caplog: Any) -> None:
    """The session goes on. A system without a directory in memory is no failure."""
    for directory in (None, tmp_path / "missing"):
        stacks = HangStacks("s1", clock)
        stacks.open(directory)
        for title in ("first", "second"):
            stacks.add(title, STACKS)
            stacks.arm(1.0)
            assert stacks.by_timer() is None
        stacks.close()
        assert len(caplog.records) == (directory is not None)
    assert "may leave no stacks in memory" in caplog.text


@pytest.mark.skipif(sys.platform != "linux", reason="the timer is Linux's")
def test_the_timer_is_armed_with_the_budget_within_bounds(
    tmp_path: Path, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At first with the longest; never shorter than a starved monitor may need."""
    armed: list[float] = []
    monkeypatch.setattr(hang_stacks.DeadManTimer, "arm", lambda self, secs: armed.append(secs))
    stacks = HangStacks("s1", clock)
    stacks.open(tmp_path)
    for budget in (6.0, 20.0, 300.0, None):
        stacks.arm(budget)
    stacks.close()
    assert armed == [60.0, 10.0, 20.0, 60.0, 60.0]


def test_a_forked_child_leaves_the_files_to_its_parent(
    tmp_path: Path, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end removes neither the file nor the timer, which it does not have."""
    stacks = HangStacks("s1", clock)
    stacks.open(tmp_path)
    path = stacks_path(tmp_path, "s1")
    with monkeypatch.context() as child:
        child.setattr(os, "getpid", lambda: 1)
        parent_only = HangStacks.__new__(HangStacks)
        vars(parent_only).update(vars(stacks))
        parent_only.close()
    assert path.exists()
    stacks.add("still there", STACKS)
    stacks.close()
    assert not path.exists()


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="these timers are Linux's")


@pytest.fixture
def file(tmp_path: Path) -> Iterator[StacksFile]:
    """A file of stacks."""
    found = StacksFile(stacks_path(tmp_path, "s1"), "s1")
    yield found
    found.close(remove=True)


def wait_until(condition: Callable[[], bool]) -> None:
    """Return when something is true; the test's timeout ends it else."""
    pause = threading.Event()
    while not condition():
        pause.wait(0.01)


def test_a_timer_that_is_armed_again_does_not_fire(file: StacksFile) -> None:
    """Nor does one that was closed; and the program's own timer of `faulthandler` is not touched."""
    timer = DeadManTimer(file.descriptor)
    with open(os.devnull, "w") as nothing:
        faulthandler.dump_traceback_later(3600, file=nothing)
        for _ in range(100):
            timer.arm(3600.0)
        timer.arm(0.001)
        wait_until(lambda: file.by_timer() is not None)
        timer.arm(3600.0)
        timer.close()
        timer.close()
        timer.arm(0.0)
        faulthandler.cancel_dump_traceback_later()
    assert file.by_timer() is None


def test_a_signal_of_the_program_is_not_taken(file: StacksFile) -> None:
    """A number that has a handler, or that is ignored, is passed over, even if a timer had it before."""
    first = DeadManTimer(file.descriptor)
    was_ours = first._signal
    first.close()
    free = [  # and no timer of another session has it, which would end the process once the handlers are gone
        number
        for number in range(signal.SIGRTMAX, signal.SIGRTMAX - hang_stacks._TRIED, -1)
        if signal.getsignal(number) == signal.SIG_DFL and number not in hang_stacks._installed
    ]
    handled, ignored = free[:2]
    signal.signal(was_ours, lambda *_: None)
    signal.signal(handled, lambda *_: None)
    signal.signal(ignored, signal.SIG_IGN)
    try:
        timers = [DeadManTimer(file.descriptor), DeadManTimer(file.descriptor)]
        taken = {timer._signal for timer in timers}
        assert len(taken) == 2 and taken.isdisjoint({was_ours, handled, ignored})
        for timer in timers:
            timer.close()
        again = DeadManTimer(file.descriptor)
        assert again._signal in taken
        again.close()
    finally:
        for number in (was_ours, handled, ignored):
            signal.signal(number, signal.SIG_DFL)


def test_a_late_signal_of_a_closed_timer_does_no_harm(file: StacksFile) -> None:
    """It neither ends the process nor writes into what has the descriptor's number by then."""
    timer = DeadManTimer(file.descriptor)
    timer.close()
    signal.pthread_kill(threading.main_thread().ident or 0, timer._signal)
    assert file.by_timer() is None


def test_without_a_free_signal_it_is_refused(file: StacksFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller does without."""
    monkeypatch.setattr("supervisor_core.engine.hang_stacks._TRIED", 0)
    monkeypatch.setattr("supervisor_core.engine.hang_stacks._unused", [])
    with pytest.raises(OSError, match="No real-time signal is free"):
        DeadManTimer(file.descriptor)


def test_a_kernel_that_lists_no_signals_is_no_reason_to_do_without(
    file: StacksFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of a sandbox, whose ``/proc`` is less than Linux's."""
    monkeypatch.setattr("supervisor_core.process.identity.open", lambda *_: io.BytesIO(b"Pid:\t1\n"), raising=False)
    DeadManTimer(file.descriptor).close()
