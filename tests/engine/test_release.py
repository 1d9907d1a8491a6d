"""Threads that block are released before a join gives them up (contract, part 2)."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from supervisor_core.engine.coordinator import Coordinator


def test_release_frees_blocked_threads(clock: Any, scripted_thread: Any) -> None:
    """Contract part 2: threads that block are released in the grace period, and joined as soon as they end."""
    coord = Coordinator(clock=clock)
    released = threading.Event()

    class ReleasedThread(scripted_thread):
        def join(self, timeout: float) -> None:
            if self.joins:
                released.wait()
            super().join(timeout)

    thread: Any = ReleasedThread(clock, 1e9)
    start = clock.now
    released_at: list[float] = []

    def close_queues() -> None:
        released_at.append(clock.now - start)
        thread.ends_at = clock.now + 1
        released.set()

    coord.register_release(close_queues)
    coord.request_stop()
    coord.join([thread], stop_grace_period_secs=120)
    assert released_at == [5.0]
    assert clock.now - start == 6.0


@pytest.mark.parametrize(
    ("after_secs", "grace_secs", "joins"),
    [
        ([5], 120, [5, 115]),
        ([5], 4, [2, 2]),
        ([300], 120, [60, 60]),
        ([0], 9, [9]),
        ([2, 1, 3], 10, [1, 1, 1, 7]),
    ],
)
def test_release_moment(clock: Any, after_secs: Any, grace_secs: float, joins: Any, scripted_thread: Any) -> None:
    """The release comes after its time, or after half the grace period if that is less; of several each at its own
    time, whatever the order in which they were registered."""
    coord = Coordinator(clock=clock)
    thread: Any = scripted_thread(clock, 1e9)
    called = threading.Semaphore(0)
    for secs in after_secs:
        coord.register_release(called.release, secs)
    coord.request_stop()
    with pytest.raises(RuntimeError):
        coord.join([thread], stop_grace_period_secs=grace_secs)
    for _ in after_secs:
        called.acquire()
    assert thread.joins == pytest.approx(joins)


def test_release_only_when_needed(clock: Any, scripted_thread: Any) -> None:
    """Threads that end in time are not released, and the release does not outlive the join."""
    coord = Coordinator(clock=clock)
    calls: list[str] = []
    coord.register_release(lambda: calls.append("released"))
    coord.request_stop()
    coord.join([scripted_thread(clock, 4.9)])
    with pytest.raises(RuntimeError):
        coord.join([scripted_thread(clock, 1e9)])
    assert calls == []


def test_release_that_fails(clock: Any, caplog: pytest.LogCaptureFixture, scripted_thread: Any) -> None:
    """A release that raises is logged; the next one still runs, and the stragglers are still named."""
    coord = Coordinator(clock=clock)
    called = threading.Event()

    def fail() -> None:
        raise OSError("session is gone")

    coord.register_release(fail, 1)
    coord.register_release(called.set, 2)
    coord.request_stop()
    with pytest.raises(RuntimeError, match="scripted"):
        coord.join([scripted_thread(clock, 1e9)])
    called.wait()
    for thread in threading.enumerate():  # the hand-set clock runs ahead of them
        if thread.name == "Coordinator-release":
            thread.join()
    assert "did not stop raised" in caplog.text
    assert "session is gone" in caplog.text


def test_release_that_blocks(blocked: Any) -> None:
    """A release that blocks itself does not hold up the join beyond the grace period."""
    coord = Coordinator()
    coord.register_release(blocked.blocks_on.wait, 0)
    coord.request_stop()
    with pytest.raises(RuntimeError, match="blocked"):
        coord.join([blocked], stop_grace_period_secs=0.05)


def test_release_is_over_when_join_returns(blocked_thread: Any) -> None:
    """What is released may take its time within the grace period: join waits for it too."""
    coord = Coordinator()
    thread = blocked_thread()
    thread.start()
    done: list[str] = []

    def release() -> None:
        thread.blocks_on.set()
        thread.join()
        sum(range(3_000_000))
        done.append("closed")

    coord.register_release(release, 0)
    coord.request_stop()
    coord.join([thread])
    assert done == ["closed"]
