from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from supervisor_core.events import writer_thread
from supervisor_core.events.writer_thread import EventQueue, WriteRequest
from tests.cases import each


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Queues of 800 bytes at most, whose adds wait long for room."""
    monkeypatch.setattr(writer_thread, "MAX_BYTES", 800)
    monkeypatch.setattr(writer_thread, "FULL_WAIT_SECS", 60.0)


def make() -> EventQueue:
    """A queue of eight events, of which four are a batch."""
    queue = EventQueue(8, full_batch_bytes=400)
    queue._full_batch_events = 4
    return queue


def add(queue: EventQueue, *steps: int) -> None:
    """Add scalars as the writer does."""
    for step in steps:
        queue.items.append(("a", 1.0, step, 1.0))
        if len(queue.items) > queue.wake_above:
            queue.wake()


def add_bytes(queue: EventQueue, size: int) -> None:
    """Add a serialized event as the writer does."""
    if queue.put_bytes((5, bytes(size), 1, 1.0)):
        queue.wake()


def steps(items: list[Any]) -> list[int]:
    """The steps of items."""
    return [item[2] for item in items]


@each("fill", [lambda queue: add(queue, *range(5)), lambda queue: add_bytes(queue, 401)])
def test_gathering_ends_early_when_much_has_come(fill: Any) -> None:
    """With a quarter of the bound waiting, in events or in bytes, the consumer does not wait out its time."""
    queue = make()
    with ThreadPoolExecutor() as pool:
        gathered = pool.submit(queue.gather, 1000.0)
        fill(queue)
        gathered.result(30)


def test_bytes_are_bounded_too() -> None:
    """Large events are dropped by their size, one that is alone is let in whatever its size."""
    queue = make()
    queue.take_requests()
    add_bytes(queue, 5000)
    assert (len(queue.items), queue.dropped) == (1, 0)
    add_bytes(queue, 1)
    assert (len(queue.items), queue.dropped) == (1, 1)
    queue.take()
    queue.take_requests()
    add_bytes(queue, 700)
    assert (len(queue.items), queue.dropped) == (1, 1)


def test_the_consumer_never_waits_for_itself() -> None:
    """An event added on the consumer's own thread (by a logging handler, say) to a full queue is dropped."""
    queue = make()
    queue.begin()
    add(queue, *range(9))
    assert (len(queue.items), queue.dropped) == (8, 1)
    with pytest.raises(RuntimeError, match="own thread"):
        queue.wait(WriteRequest(), None)


def test_closing_takes_in_what_was_waiting_to_get_in() -> None:
    """A producer held by a full queue when it is closed has its event accepted, and goes on."""
    queue = make()
    queue.begin()
    with ThreadPoolExecutor() as pool:
        held = pool.submit(add, queue, *range(9))
        while len(queue.items) < 9:
            queue.pause(0.001)
        queue.submit(WriteRequest(close=True))
        held.result(30)
    assert (steps(queue.take()[0]), queue.dropped) == (list(range(9)), 0)


def test_requests_to_a_queue_that_has_ended_are_answered() -> None:
    """A flush that comes a moment after the close does not wait."""
    queue = make()
    early, late = WriteRequest(), WriteRequest()
    queue.submit(early)
    queue.end()
    queue.submit(late)
    queue.wait(early, 0.0)
    queue.wait(late, 0.0)


def test_adding_from_within_adding_does_not_deadlock() -> None:
    """A signal handler (here: a finalizer) that adds an event while its own thread is inside the queue gets through."""
    queue = make()

    class Adds:
        def __del__(self) -> None:
            add_bytes(queue, 1)

    with queue._changed:
        Adds()
        gc.collect()
    assert len(queue.items) == 1
