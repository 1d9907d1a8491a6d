"""When a session counts as stalled, and what is said of it."""

from __future__ import annotations

import threading

import pytest

from supervisor_core.runtime.monitor import StallDetector, is_stalled, python_stacks


@pytest.mark.parametrize(("age", "timeout", "stalled"), [(10, 10, False), (10.1, 10, True), (1e9, None, False)])
def test_a_stall_is_longer_than_the_budget(age: float, timeout: float | None, stalled: bool) -> None:
    """At the budget is in time; a phase without one cannot stall."""
    assert is_stalled(age, timeout) is stalled


def test_a_stall_begins_once_and_ends_once() -> None:
    """However often one looks: one beginning, one end, and the whole time between two steps in it."""
    watch = StallDetector()
    readings = [(100.0, 5.0), (111.0, 11.0), (120.0, 20.0), (130.0, 1.0), (140.0, 2.0)]
    changes = [watch.look(now, age, 10.0) for now, age in readings]
    assert [change and (change.state, change.since, change.secs) for change in changes] == [
        None,
        ("begin", 100.0, 11.0),
        None,
        ("end", 100.0, 29.0),
        None,
    ]


def test_stacks_name_each_thread_and_where_it_is() -> None:
    """The stack of a thread that waits says in which function."""
    waiting, go = threading.Event(), threading.Event()

    def wait_here() -> None:
        waiting.set()
        go.wait()

    thread = threading.Thread(target=wait_here, name="the-one-that-waits")
    thread.start()
    waiting.wait()
    stacks = python_stacks()
    go.set()
    thread.join()
    assert any("wait_here" in line for line in stacks["the-one-that-waits"])
    assert any("test_stacks_name_each_thread" in line for line in stacks[threading.current_thread().name])
