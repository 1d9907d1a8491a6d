"""The flag that threads wait for, and that signal handlers may set."""

from __future__ import annotations

import os
import signal
import threading
from itertools import count
from queue import Empty, SimpleQueue
from typing import Any

import pytest

from supervisor_core.engine import signal_safe_event as event_module
from supervisor_core.engine.signal_safe_event import SignalSafeEvent


@pytest.mark.parametrize("first", ["first", None])
def test_the_first_reason_is_kept(first: str | None) -> None:
    """Whatever comes later; None is a reason, too. Cleared it is as new."""
    event = SignalSafeEvent[Any]()
    assert (event.is_set(), event.reason) == (False, None)
    for _ in range(2):
        assert event.set(first)
        assert not event.set("second")
        assert (event.is_set(), event.reason) == (True, first)
        event.clear()
        assert not event.wait(0)


@pytest.mark.parametrize("timeout_secs", [None, 1e12, float("inf")])
def test_wakes_all(timeout_secs: float | None) -> None:
    """Setting wakes every thread that waits, with no timeout or one longer than a lock accepts."""
    event = SignalSafeEvent[None]()
    answers: SimpleQueue[bool] = SimpleQueue()
    threads = [threading.Thread(target=lambda: answers.put(event.wait(timeout_secs))) for _ in range(5)]
    for thread in threads:
        thread.start()
    while len(event._waiters) < 5:
        assert all(thread.is_alive() for thread in threads)
    event.set(None)
    assert [answers.get(timeout=60) for _ in threads] == [True] * 5
    for thread in threads:
        thread.join()
    assert not event._waiters


def test_waiters_outlive_a_clear() -> None:
    """Who waits while the flag is cleared is woken when it is set again."""
    event = SignalSafeEvent[None]()
    thread = threading.Thread(target=event.wait)
    thread.start()
    while not event._waiters:
        assert thread.is_alive()
    event.clear()
    event.set(None)
    thread.join()


def test_many_setters_one_winner() -> None:
    """Of threads that set it at once, `set` is True for exactly one: its reason was kept."""
    event, barrier = SignalSafeEvent[int](), threading.Barrier(8)
    winners: list[int] = []

    def compete(number: int) -> None:
        barrier.wait()
        if event.set(number):
            winners.append(number)

    threads = [threading.Thread(target=compete, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert winners == [event.reason]


class Bell(SimpleQueue[bool]):
    """Never waits, and notes whether it would have slept though the event is set."""

    def __init__(self, event: SignalSafeEvent[str]) -> None:
        self.event = event
        self.would_hang = False

    def get(self, block: bool = True, timeout: float | None = None) -> bool:
        if self.empty():
            self.would_hang = self.event.is_set() and self.empty()  # set, and nothing was put since
            return False
        return super().get()


def test_signal_at_every_line_of_wait(signal_at_line: Any) -> None:
    """Contract part 2, signal handlers: set by a handler at any line of `wait`, no wake-up is lost."""
    for number in count(1):
        event = SignalSafeEvent[str]()
        wake_queue = Bell(event)
        with signal_at_line(number, event_module, lambda event=event: event.set("handler")) as seen:
            event.wait(wake_queue=wake_queue)
        assert not wake_queue.would_hang
        if len(seen) < number:
            break
        assert event.reason == "handler"
    assert number > 5


def test_signal_at_every_line_of_set(signal_at_line: Any) -> None:
    """Contract part 2, signal handlers: set by a handler at any line of `set`, one reason wins and all are woken."""
    for number in count(1):
        event = SignalSafeEvent[str]()
        bells = [SimpleQueue[bool](), SimpleQueue[bool]()]
        event._waiters.extend(bells)
        with signal_at_line(number, event_module, lambda event=event: event.set("handler")) as seen:
            won = event.set("body")
        assert event.reason == ("body" if won else "handler")
        assert all(wake_queue.get_nowait() for wake_queue in bells)
        if len(seen) < number:
            break
    assert number > 5


def test_signal_while_blocked() -> None:
    """Contract part 2, signal handlers: a handler that interrupts the very thread that waits wakes it."""
    event = SignalSafeEvent[None]()
    earlier = signal.signal(signal.SIGUSR1, lambda *_: event.set(None))

    def send() -> None:
        while not event._waiters:
            pass
        os.kill(os.getpid(), signal.SIGUSR1)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        assert event.wait()
    finally:
        sender.join()
        signal.signal(signal.SIGUSR1, earlier)


def test_a_signal_at_the_moment_of_falling_asleep() -> None:
    """A handler that no sleep is interrupted for runs when the thread looks again, and the wait is over."""
    event = SignalSafeEvent[None]()

    class Deaf(SimpleQueue[bool]):
        """Does not hear what rings while it sleeps, as a thread that a signal has just missed."""

        def get(self, block: bool = True, timeout: float | None = None) -> bool:
            event._first.setdefault(None, (None,))
            raise Empty

    assert event.wait(wake_queue=Deaf())


def test_a_long_wait_is_many_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """No single sleep is longer than a second, all together are as long as was asked, and the waiter is forgotten."""
    sleeps: list[float] = []
    now = [0.0]

    class Counted(SimpleQueue[bool]):
        def get(self, block: bool = True, timeout: float | None = None) -> bool:
            assert timeout is not None
            sleeps.append(timeout)
            now[0] += timeout
            raise Empty

    monkeypatch.setattr("supervisor_core.engine.signal_safe_event.monotonic", lambda: now[0])
    event = SignalSafeEvent[None]()
    assert not event.wait(2.5, wake_queue=Counted())
    assert (sleeps, len(event._waiters)) == ([1.0, 1.0, 0.5], 0)
