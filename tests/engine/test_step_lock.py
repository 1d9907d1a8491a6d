"""Snapshots and steps exclude each other, and no thread is locked out."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from supervisor_core.engine.step_lock import ExclusiveSection, StepLock


class Inside:
    """A thread that is inside a step lock until it is let out."""

    def __init__(self, step_lock: StepLock) -> None:
        self.may_leave = threading.Event()
        self.is_inside = threading.Event()
        self.step_lock = step_lock
        self.thread = threading.Thread(target=self._stay, daemon=True)
        self.thread.start()

    def _stay(self) -> None:
        self.step_lock.acquire_shared()
        self.is_inside.set()
        self.may_leave.wait()
        self.step_lock.release_shared()

    def leave(self) -> None:
        """Let the thread out, and wait for its end."""
        self.may_leave.set()
        self.thread.join()


class Snapshot:
    """A thread that takes an exclusive section and stays in it until it is let out."""

    def __init__(self, step_lock: StepLock, timeout_secs: float = 1e6) -> None:
        self.may_end = threading.Event()
        self.has_begun = threading.Event()
        self.held: ExclusiveSection | None = None
        self.step_lock = step_lock
        self.timeout_secs = timeout_secs
        self.thread = threading.Thread(target=self._take, daemon=True)
        self.thread.start()

    def _take(self) -> None:
        with self.step_lock.exclusive(self.timeout_secs) as self.held:
            self.has_begun.set()
            self.may_end.wait()

    def end(self) -> None:
        """Let the section end, and wait for that."""
        self.may_end.set()
        self.thread.join()


def wait_until(condition: Callable[[], object]) -> None:
    """Poll until a condition holds that has no event."""
    pause = threading.Event()
    while not condition():
        pause.wait(0.001)


@pytest.fixture
def step_lock() -> StepLock:
    """An open step_lock."""
    return StepLock()


@pytest.fixture
def inside(step_lock: StepLock) -> Iterator[Inside]:
    """A thread that is inside."""
    holder = Inside(step_lock)
    holder.is_inside.wait()
    yield holder
    holder.leave()


def test_alone(step_lock: StepLock) -> None:
    """Without holders a section begins at once, and is consistent."""
    with step_lock.exclusive(timeout_secs=0) as held:
        assert held.consistent


def test_enter_and_leave(step_lock: StepLock) -> None:
    """Many are inside at once, each thread as often as it likes; when all have left a section is consistent."""
    others = [Inside(step_lock) for _ in range(3)]
    for other in others:
        other.is_inside.wait()
    step_lock.acquire_shared()
    step_lock.acquire_shared()
    step_lock.release_shared()
    step_lock.release_shared()
    with step_lock.exclusive(0) as held:
        assert not held.consistent
    for other in others:
        other.leave()
    with step_lock.exclusive(0) as held:
        assert held.consistent


def test_waits_for_those_inside(step_lock: StepLock, inside: Inside) -> None:
    """A section waits until everybody inside has left, and is consistent then."""
    snapshot = Snapshot(step_lock)
    wait_until(lambda: step_lock._pending)
    assert not snapshot.has_begun.is_set()
    inside.leave()
    snapshot.has_begun.wait()
    snapshot.end()
    assert snapshot.held is not None
    assert snapshot.held.consistent


def test_new_ones_wait_for_a_pending_section(step_lock: StepLock, inside: Inside) -> None:
    """Who enters while a section is pending or running waits until it has ended."""
    snapshot = Snapshot(step_lock)
    wait_until(lambda: step_lock._pending)
    section: Any = step_lock._pending
    newcomer = Inside(step_lock)
    wait_until(lambda: section.over._waiters)
    inside.leave()
    snapshot.has_begun.wait()
    late = Inside(step_lock)
    wait_until(lambda: len(section.over._waiters) == 2)
    assert not newcomer.is_inside.is_set()
    assert not late.is_inside.is_set()
    snapshot.end()
    for other in (newcomer, late):
        other.is_inside.wait()
        other.leave()


def test_bounded_wait(step_lock: StepLock, inside: Inside) -> None:
    """After the timeout the section runs inconsistently, and others can acquire the lock."""
    snapshot = Snapshot(step_lock, timeout_secs=0.01)
    snapshot.has_begun.wait()
    assert snapshot.held is not None
    assert not snapshot.held.consistent
    newcomer = Inside(step_lock)
    newcomer.is_inside.wait()
    newcomer.leave()
    snapshot.end()


def test_waiting_newcomers_are_let_in_when_the_wait_is_over(step_lock: StepLock, inside: Inside) -> None:
    """A blocked enqueue inside, and a dequeue that waits at the step lock for the snapshot: the bound resolves it."""
    snapshot = Snapshot(step_lock, timeout_secs=0.05)
    newcomer = Inside(step_lock)
    newcomer.is_inside.wait()
    newcomer.leave()
    inside.leave()
    snapshot.end()


def test_nested_run_passes(step_lock: StepLock) -> None:
    """A thread that is inside enters again while a section is pending: it would wait for itself otherwise."""
    step_lock.acquire_shared()
    snapshot = Snapshot(step_lock)
    wait_until(lambda: step_lock._pending)
    step_lock.acquire_shared()
    step_lock.release_shared()
    assert not snapshot.has_begun.is_set()
    step_lock.release_shared()
    snapshot.has_begun.wait()
    snapshot.end()


def test_runs_within_the_section_pass(step_lock: StepLock) -> None:
    """The thread of a section can run steps itself."""
    with step_lock.exclusive(0) as held:
        step_lock.acquire_shared()
        step_lock.release_shared()
    assert held.consistent


def test_section_by_a_thread_that_is_inside(step_lock: StepLock) -> None:
    """A thread that starts a section within its own step does not wait for itself; the section is inconsistent."""
    step_lock.acquire_shared()
    with step_lock.exclusive(timeout_secs=1e6) as held:
        assert not held.consistent
    step_lock.release_shared()
    with step_lock.exclusive(0) as held:
        assert held.consistent


def test_sections_exclude_each_other(step_lock: StepLock) -> None:
    """A section waits for another one to end, however short its own bound."""
    first = Snapshot(step_lock)
    first.has_begun.wait()
    second = Snapshot(step_lock, timeout_secs=0)
    assert not second.has_begun.is_set()
    first.end()
    second.has_begun.wait()
    second.end()
    assert second.held is not None
    assert second.held.consistent


def test_inconsistent_sections_exclude_each_other(step_lock: StepLock, inside: Inside) -> None:
    """Also sections that did not get the step lock to themselves exclude each other."""
    running: list[int] = []

    def take() -> None:
        with step_lock.exclusive(0) as held:
            assert not held.consistent
            running.append(1)
            assert len(running) == 1
            running.pop()

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_section_within_a_section(step_lock: StepLock) -> None:
    """A section within another one of the same thread is let through; others stay out until the outer one ends."""
    with step_lock.exclusive(0) as outer:
        with step_lock.exclusive(0) as inner:
            assert inner.consistent
        newcomer = Inside(step_lock)
        section: Any = step_lock._pending
        wait_until(lambda: section.over._waiters)
        assert not newcomer.is_inside.is_set()
    assert outer.consistent
    newcomer.leave()


def test_an_error_in_the_section_releases_the_lock(step_lock: StepLock) -> None:
    """What the body raises is raised, and the step lock is open again."""
    with pytest.raises(OSError, match="disk full"), step_lock.exclusive(0):
        raise OSError("disk full")
    newcomer = Inside(step_lock)
    newcomer.is_inside.wait()
    newcomer.leave()


def test_times(clock: Any) -> None:
    """The time waited is from the call to the section; without a wait it is 0."""
    step_lock = StepLock(clock=clock)
    with step_lock.exclusive(10) as held:
        assert held.waited_secs == 0
        clock.advance(3)
    assert held.waited_secs == 0


def test_only_time_for_which_a_step_waited_is_blocked(clock: Any) -> None:
    """It counts from the first newcomer; without one there is none."""
    step_lock = StepLock(clock=clock)
    with step_lock.exclusive(10) as held:
        clock.advance(3)
    assert held.blocked_secs == 0
    with step_lock.exclusive(10) as held:
        clock.advance(3)
        section: Any = step_lock._pending
        newcomer = Inside(step_lock)
        wait_until(lambda: section.over._waiters)
        clock.advance(2)
    assert held.blocked_secs == 2
    newcomer.is_inside.wait()
    newcomer.leave()


def test_leaving_after_an_interrupted_entry(step_lock: StepLock) -> None:
    """An interrupted `acquire_shared` is still followed by `release_shared`, which does nothing."""
    step_lock.release_shared()
    with step_lock.exclusive(0) as held:
        assert held.consistent


@pytest.fixture
def nervous() -> Iterator[None]:
    """Threads take turns after 10 microseconds, for as many interleavings as can be had."""
    interval_secs = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval_secs)


@pytest.mark.usefixtures("nervous")
def test_never_mixed(step_lock: StepLock) -> None:
    """Design part 8: of many snapshots among many steps, not one sees a step half done; and steps go on."""
    state = {"a": 0, "b": 0}
    steps_lock = threading.Lock()
    stop = threading.Event()

    def train() -> None:
        while not stop.is_set():
            step_lock.acquire_shared()
            try:
                with steps_lock:
                    state["a"] += 1
                    state["b"] += 1
            finally:
                step_lock.release_shared()

    threads = [threading.Thread(target=train) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(100):
        with step_lock.exclusive(timeout_secs=60) as held:
            assert held.consistent
            a = state["a"]
            for _ in range(20):
                assert state == {"a": a, "b": a}
        wait_until(lambda: state["a"] > a)  # noqa: B023  # called at once
    stop.set()
    for thread in threads:
        thread.join()
