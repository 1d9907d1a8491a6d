"""Snapshots and steps exclude each other, and no thread is locked out."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from supervisor_core.engine.step_lock import ExclusiveSection, StepLock


class Holder:
    """A thread that holds the lock until it is let out: shared, or exclusively after a timeout."""

    def __init__(self, step_lock: StepLock, timeout_secs: float | None = None) -> None:
        self.may_leave = threading.Event()
        self.is_inside = threading.Event()
        self.held: ExclusiveSection | None = None
        self.step_lock = step_lock
        self.timeout_secs = timeout_secs
        self.thread = threading.Thread(target=self._stay, daemon=True)
        self.thread.start()

    def _stay(self) -> None:
        secs = self.timeout_secs
        with shared(self.step_lock) if secs is None else self.step_lock.exclusive(secs) as self.held:
            self.is_inside.set()
            self.may_leave.wait()

    def leave(self) -> ExclusiveSection | None:
        """Let the thread out once it is inside, wait for its end, and return how its section went."""
        self.is_inside.wait()
        self.may_leave.set()
        self.thread.join()
        return self.held


@contextmanager
def shared(step_lock: StepLock) -> Iterator[None]:
    """Hold the lock as a step does."""
    step_lock.acquire_shared()
    try:
        yield
    finally:
        step_lock.release_shared()


def is_consistent(step_lock: StepLock) -> bool:
    """Whether a section that does not wait has the lock to itself."""
    with step_lock.exclusive(timeout_secs=0) as held:
        return held.consistent


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
def inside(step_lock: StepLock) -> Iterator[Holder]:
    """A thread that is inside."""
    holder = Holder(step_lock)
    holder.is_inside.wait()
    yield holder
    holder.leave()


def test_new_ones_wait_for_a_pending_section(step_lock: StepLock, inside: Holder) -> None:
    """A section waits until everybody inside has left. Who enters while it is pending or running waits until it has
    ended."""
    snapshot = Holder(step_lock, 1e6)
    wait_until(lambda: step_lock._pending)
    section: Any = step_lock._pending
    newcomer = Holder(step_lock)
    wait_until(lambda: section.over._waiters)
    assert not snapshot.is_inside.is_set()
    inside.leave()
    snapshot.is_inside.wait()
    late = Holder(step_lock)
    wait_until(lambda: len(section.over._waiters) == 2)
    assert not newcomer.is_inside.is_set()
    assert not late.is_inside.is_set()
    held = snapshot.leave()
    assert held is not None and held.consistent
    newcomer.leave(), late.leave()


def test_a_wait_is_bounded(step_lock: StepLock, inside: Holder) -> None:
    """After the timeout the section runs inconsistently. Others can acquire the lock, those that wait for it, too: a
    blocked enqueue inside, and a dequeue that waits at the step lock for the snapshot."""
    snapshot = Holder(step_lock, 0.05)
    waiting = Holder(step_lock)
    waiting.leave()
    snapshot.is_inside.wait()
    Holder(step_lock).leave()
    held = snapshot.leave()
    assert held is not None and not held.consistent


def test_nested_run_passes(step_lock: StepLock) -> None:
    """A thread that is inside enters again while a section is pending: it would wait for itself otherwise."""
    with shared(step_lock):
        snapshot = Holder(step_lock, 1e6)
        wait_until(lambda: step_lock._pending)
        with shared(step_lock):
            pass
        assert not snapshot.is_inside.is_set()
    snapshot.leave()


def test_runs_within_the_section_pass(step_lock: StepLock) -> None:
    """The thread of a section can run steps itself. One that starts a section within its own step does not wait for
    itself; the section is inconsistent."""
    with step_lock.exclusive(0) as held, shared(step_lock):
        pass
    assert held.consistent
    with shared(step_lock), step_lock.exclusive(timeout_secs=1e6) as held:
        assert not held.consistent
    assert is_consistent(step_lock)


def test_sections_exclude_each_other(step_lock: StepLock) -> None:
    """A section waits for another one to end, however short its own bound."""
    first = Holder(step_lock, 1e6)
    first.is_inside.wait()
    second = Holder(step_lock, 0)
    assert not second.is_inside.is_set()
    first.leave()
    held = second.leave()
    assert held is not None and held.consistent


def test_inconsistent_sections_exclude_each_other(step_lock: StepLock, inside: Holder) -> None:
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
        newcomer = Holder(step_lock)
        section: Any = step_lock._pending
        wait_until(lambda: section.over._waiters)
        assert not newcomer.is_inside.is_set()
    assert outer.consistent
    newcomer.leave()


def test_an_error_in_the_section_releases_the_lock(step_lock: StepLock) -> None:
    """What the body raises is raised, and the step lock is open again. So it is after an entry that was interrupted
    before it acquired, and is still followed by `release_shared`."""
    with pytest.raises(OSError, match="disk full"), step_lock.exclusive(0):
        raise OSError("disk full")
    Holder(step_lock).leave()
    step_lock.release_shared()
    assert is_consistent(step_lock)


def test_only_time_for_which_a_step_waited_is_blocked(clock: Any) -> None:
    """It counts from the first newcomer; without one there is none."""
    step_lock = StepLock(clock=clock)
    with step_lock.exclusive(10) as held:
        clock.advance(3)
    assert held.blocked_secs == 0
    with step_lock.exclusive(10) as held:
        clock.advance(3)
        section: Any = step_lock._pending
        newcomer = Holder(step_lock)
        wait_until(lambda: section.over._waiters)
        clock.advance(2)
    assert held.blocked_secs == 2
    newcomer.leave()


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
            with shared(step_lock), steps_lock:
                state["a"] += 1
                state["b"] += 1

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
