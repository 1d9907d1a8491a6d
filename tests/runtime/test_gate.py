"""Snapshots and steps do not meet, and nobody is locked out."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from supervisor_core.runtime.gate import Gate, Held


class Inside:
    """A thread that is inside a gate until it is let out."""

    def __init__(self, gate: Gate) -> None:
        self.may_leave = threading.Event()
        self.is_inside = threading.Event()
        self.gate = gate
        self.thread = threading.Thread(target=self._stay, daemon=True)
        self.thread.start()

    def _stay(self) -> None:
        self.gate.enter()
        self.is_inside.set()
        self.may_leave.wait()
        self.gate.leave()

    def leave(self) -> None:
        """Let the thread out, and wait for its end."""
        self.may_leave.set()
        self.thread.join()


class Snapshot:
    """A thread that takes an exclusive section and stays in it until it is let out."""

    def __init__(self, gate: Gate, timeout_secs: float = 1e6) -> None:
        self.may_end = threading.Event()
        self.has_begun = threading.Event()
        self.held: Held | None = None
        self.gate = gate
        self.timeout_secs = timeout_secs
        self.thread = threading.Thread(target=self._take, daemon=True)
        self.thread.start()

    def _take(self) -> None:
        with self.gate.exclusive(self.timeout_secs) as self.held:
            self.has_begun.set()
            self.may_end.wait()

    def end(self) -> None:
        """Let the section end, and wait for that."""
        self.may_end.set()
        self.thread.join()


def wait_until(condition: Callable[[], object]) -> None:
    """Look until a condition holds that no event tells of."""
    pause = threading.Event()
    while not condition():
        pause.wait(0.001)


@pytest.fixture
def gate() -> Gate:
    """An open gate."""
    return Gate()


@pytest.fixture
def inside(gate: Gate) -> Iterator[Inside]:
    """A thread that is inside."""
    holder = Inside(gate)
    holder.is_inside.wait()
    yield holder
    holder.leave()


def test_alone(gate: Gate) -> None:
    """With nobody inside a section begins at once, and is consistent."""
    with gate.exclusive(timeout_secs=0) as held:
        assert held.consistent


def test_enter_and_leave(gate: Gate) -> None:
    """Many are inside at once, each thread as often as it likes; when all have left a section is consistent."""
    others = [Inside(gate) for _ in range(3)]
    for other in others:
        other.is_inside.wait()
    gate.enter()
    gate.enter()
    gate.leave()
    gate.leave()
    with gate.exclusive(0) as held:
        assert not held.consistent
    for other in others:
        other.leave()
    with gate.exclusive(0) as held:
        assert held.consistent


def test_waits_for_those_inside(gate: Gate, inside: Inside) -> None:
    """A section waits until everybody inside has left, and is consistent then."""
    snapshot = Snapshot(gate)
    wait_until(lambda: gate._turn)
    assert not snapshot.has_begun.is_set()
    inside.leave()
    snapshot.has_begun.wait()
    snapshot.end()
    assert snapshot.held is not None
    assert snapshot.held.consistent


def test_new_ones_wait_for_a_pending_section(gate: Gate, inside: Inside) -> None:
    """Who enters while a section is pending or running waits until it has ended."""
    snapshot = Snapshot(gate)
    wait_until(lambda: gate._turn)
    turn: Any = gate._turn
    newcomer = Inside(gate)
    wait_until(lambda: turn.over._bells)
    inside.leave()
    snapshot.has_begun.wait()
    late = Inside(gate)
    wait_until(lambda: len(turn.over._bells) == 2)
    assert not newcomer.is_inside.is_set()
    assert not late.is_inside.is_set()
    snapshot.end()
    for other in (newcomer, late):
        other.is_inside.wait()
        other.leave()


def test_bounded_wait(gate: Gate, inside: Inside) -> None:
    """When the wait is over the section runs inconsistently, and others can enter: nobody is locked out."""
    snapshot = Snapshot(gate, timeout_secs=0.01)
    snapshot.has_begun.wait()
    assert snapshot.held is not None
    assert not snapshot.held.consistent
    newcomer = Inside(gate)
    newcomer.is_inside.wait()
    newcomer.leave()
    snapshot.end()


def test_waiting_newcomers_are_let_in_when_the_wait_is_over(gate: Gate, inside: Inside) -> None:
    """A blocked enqueue inside, and a dequeue that waits at the gate for the snapshot: the bound resolves it."""
    snapshot = Snapshot(gate, timeout_secs=0.05)
    newcomer = Inside(gate)
    newcomer.is_inside.wait()
    newcomer.leave()
    inside.leave()
    snapshot.end()


def test_nested_run_passes(gate: Gate) -> None:
    """A thread that is inside enters again while a section is pending: it would wait for itself otherwise."""
    gate.enter()
    snapshot = Snapshot(gate)
    wait_until(lambda: gate._turn)
    gate.enter()
    gate.leave()
    assert not snapshot.has_begun.is_set()
    gate.leave()
    snapshot.has_begun.wait()
    snapshot.end()


def test_runs_within_the_section_pass(gate: Gate) -> None:
    """The thread of a section can run steps itself."""
    with gate.exclusive(0) as held:
        gate.enter()
        gate.leave()
    assert held.consistent


def test_section_by_a_thread_that_is_inside(gate: Gate) -> None:
    """A thread that takes a section within its own step does not wait for itself, and is told so."""
    gate.enter()
    with gate.exclusive(timeout_secs=1e6) as held:
        assert not held.consistent
    gate.leave()
    with gate.exclusive(0) as held:
        assert held.consistent


def test_sections_exclude_each_other(gate: Gate) -> None:
    """A section waits for another one to end, however short its own bound."""
    first = Snapshot(gate)
    first.has_begun.wait()
    second = Snapshot(gate, timeout_secs=0)
    assert not second.has_begun.is_set()
    first.end()
    second.has_begun.wait()
    second.end()
    assert second.held is not None
    assert second.held.consistent


def test_inconsistent_sections_exclude_each_other(gate: Gate, inside: Inside) -> None:
    """Also sections that did not get the gate to themselves exclude each other."""
    running: list[int] = []

    def take() -> None:
        with gate.exclusive(0) as held:
            assert not held.consistent
            running.append(1)
            assert len(running) == 1
            running.pop()

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_section_within_a_section(gate: Gate) -> None:
    """A section within another one of the same thread is let through; others stay out until the outer one ends."""
    with gate.exclusive(0) as outer:
        with gate.exclusive(0) as inner:
            assert inner.consistent
        newcomer = Inside(gate)
        turn: Any = gate._turn
        wait_until(lambda: turn.over._bells)
        assert not newcomer.is_inside.is_set()
    assert outer.consistent
    newcomer.leave()


def test_an_error_in_the_section_opens_the_gate(gate: Gate) -> None:
    """What the body raises is raised, and the gate is open again."""
    with pytest.raises(OSError, match="disk full"), gate.exclusive(0):
        raise OSError("disk full")
    newcomer = Inside(gate)
    newcomer.is_inside.wait()
    newcomer.leave()


def test_times(clock: Any) -> None:
    """The time waited, and the time during which others were kept waiting, are told."""
    gate = Gate(clock=clock)
    with gate.exclusive(10) as held:
        assert (held.waited_secs, held.held_secs) == (0, 0)
        clock.advance(3)
    assert (held.waited_secs, held.held_secs) == (0, 3)
    holder = Inside(gate)
    holder.is_inside.wait()
    with gate.exclusive(0) as held:
        clock.advance(5)
    assert (held.consistent, held.held_secs) == (False, 0)
    holder.leave()


def test_who_was_blocked_is_told_from_who_might_have_been(clock: Any) -> None:
    """Only the time from the first newcomer on is time for which anybody was held up; without one there is none."""
    gate = Gate(clock=clock)
    with gate.exclusive(10) as held:
        clock.advance(3)
    assert (held.held_secs, held.blocked_secs) == (3, 0)
    with gate.exclusive(10) as held:
        clock.advance(3)
        turn: Any = gate._turn
        newcomer = Inside(gate)
        wait_until(lambda: turn.over._bells)
        clock.advance(2)
    assert (held.held_secs, held.blocked_secs) == (5, 2)
    newcomer.is_inside.wait()
    newcomer.leave()


def test_leaving_after_an_interrupted_entry(gate: Gate) -> None:
    """An `enter` that an interrupt has kept from going inside is still followed by `leave`, which does nothing."""
    gate.leave()
    with gate.exclusive(0) as held:
        assert held.consistent


@pytest.fixture
def nervous() -> Iterator[None]:
    """Threads take turns after 10 microseconds, for as many interleavings as can be had."""
    interval_secs = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval_secs)


@pytest.mark.usefixtures("nervous")
def test_never_mixed(gate: Gate) -> None:
    """Design part 8: of many snapshots among many steps, not one sees a step half done; and steps go on."""
    state = {"a": 0, "b": 0}
    steps_lock = threading.Lock()
    stop = threading.Event()

    def train() -> None:
        while not stop.is_set():
            gate.enter()
            try:
                with steps_lock:
                    state["a"] += 1
                    state["b"] += 1
            finally:
                gate.leave()

    threads = [threading.Thread(target=train) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(100):
        with gate.exclusive(timeout_secs=60) as held:
            assert held.consistent
            a = state["a"]
            for _ in range(20):
                assert state == {"a": a, "b": a}
        wait_until(lambda: state["a"] > a)  # noqa: B023  # called at once
    stop.set()
    for thread in threads:
        thread.join()
