"""Where the stacks of a session go besides its events file: a file in memory."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.engine import stall_stacks
from supervisor_core.engine.stall_stacks import StallStacks
from supervisor_core.process.stacks_file import StacksLook, read_stacks, stacks_path

STACKS = {"MainThread": ("/x/train.py:88 main", "/x/input.py:12 next")}


def test_a_look_is_in_memory(tmp_path: Path, clock: Any) -> None:
    """Until a clean end, after which nothing does anything."""
    stacks = StallStacks("s1", clock)
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
        stacks = StallStacks("s1", clock)
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
    monkeypatch.setattr(stall_stacks.DeadManTimer, "arm", lambda self, secs: armed.append(secs))
    stacks = StallStacks("s1", clock)
    stacks.open(tmp_path)
    for budget in (6.0, 20.0, 300.0, None):
        stacks.arm(budget)
    stacks.close()
    assert armed == [60.0, 10.0, 20.0, 60.0, 60.0]


def test_a_forked_child_leaves_the_files_to_its_parent(
    tmp_path: Path, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end removes neither the file nor the timer, which it does not have."""
    stacks = StallStacks("s1", clock)
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
