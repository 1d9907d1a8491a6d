"""Services that tick on time, can be woken, and whose health can be seen."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from supervisor_core.engine.coordinator import Coordinator
from supervisor_core.engine.retry import Backoff, is_outside_fault
from supervisor_core.engine.service import Policy, ServiceThread
from supervisor_core.events.telemetry import ThreadStatus

# Health.


def test_status_before_the_start() -> None:
    """A service that was made and not started is starting, under its name, and known to its coordinator."""
    coord = Coordinator()
    service = ServiceThread(coord, 600, name="checkpoint")
    assert service.status() == ThreadStatus(name="checkpoint", state="starting", interval_secs=600)
    assert service.name == "checkpoint"
    assert service.daemon
    assert list(coord._to_join) == [service]


def test_status_after_a_good_life(coord_for: Any, clock: Any, scripted: Any) -> None:
    """Ticks, the end of the last one and its duration are counted; at the stop it is stopped. Contract part 2: ticks
    missed during a long one are left out, and the schedule keeps its phase."""
    service = scripted(coord_for(65), 10, [1.0, 34.0, 2.0, 3.0])
    wall = clock.wall_now
    service.run()
    assert service.at == [0, 10, 50, 60]
    assert service.stopped_cleanly
    assert service.status() == ThreadStatus(
        name="save", state="stopped", interval_secs=10, ticks=4, last_tick_at=wall + 63, last_tick_secs=3.0
    )


@pytest.mark.parametrize("state", ["ticking", "idle"])
def test_a_service_that_is_late_is_overdue(coord_for: Any, clock: Any, scripted: Any, state: str) -> None:
    """When the end of a tick, or the begin of the next, is late by more than the interval; and by how much."""
    seen: list[tuple[str, float]] = []

    def watch() -> None:
        for secs in (0, 10, 5, 5, 1):
            clock.advance(secs)
            status = service.status()
            seen.append((status.state, status.overdue_secs))

    class Lazy(Coordinator):
        def wait_for_stop(self, timeout: Any = None, *, wake_queue: Any = None) -> bool:
            if timeout > 0:
                watch()
            return timeout > 0  # type: ignore[no-any-return]

    service = scripted(*((coord_for(25), 10, [watch]) if state == "ticking" else (Lazy(), 10, [])))
    service.run()
    assert seen == [(state, 0), (state, 0), (state, 5), (state, 10), ("overdue", 11)]


@pytest.mark.parametrize("interval_secs", [None, 0])
def test_back_to_back_is_never_overdue(coord_for: Any, clock: Any, interval_secs: float | None, scripted: Any) -> None:
    """A service without an interval ticks back to back, and is not overdue however long a tick takes."""
    coord = coord_for(1e9)

    def look() -> None:
        clock.advance(1e6)
        assert (service.status().state, service.status().overdue_secs) == ("ticking", 0)
        coord.request_stop()

    service = scripted(coord, interval_secs, [5.0, 5.0, look])
    service.run()
    assert service.at == [0, 5, 10]
    coord.join()


def test_status_from_another_thread() -> None:
    """Any thread may ask at any time, and each answer is consistent in itself."""
    coord = Coordinator()

    def fail() -> None:
        raise OSError

    service = ServiceThread(
        coord, None, fail, name="x", policy=Policy(transient=is_outside_fault, backoff=Backoff(1e-6, 1e-6))
    )
    service.start()
    ticks = 0
    while ticks < 200:
        status = service.status()
        assert status.ticks - 1 <= status.failures <= status.ticks
        assert status.ticks >= ticks
        ticks = status.ticks
    coord.request_stop()
    coord.join()


# A timer that can be woken.


def test_wake_ticks_at_once_and_moves_nothing(coord_for: Any, clock: Any, scripted: Any) -> None:
    """Woken within a tick it ticks once more right after it, however often it was woken; the schedule stays. Waking
    before the first tick makes no second one."""

    def wake_twice() -> None:
        clock.advance(1)
        service.wake()
        service.wake()

    service = scripted(coord_for(25), 10, [wake_twice])
    service.wake()
    service.run()
    assert service.at == [0, 1, 10, 20]


def test_wake_from_another_thread() -> None:
    """A real service, in a thread of its name, ticks when it is woken, and ends when it is asked to stop."""
    coord, ticked = Coordinator(), threading.Semaphore(0)
    names = set()

    def tick() -> None:
        names.add(threading.current_thread().name)
        ticked.release()

    service = ServiceThread(coord, 3600, tick, name="save")
    service.start()
    for _ in range(3):
        assert ticked.acquire(timeout=60)
        service.wake()
    assert ticked.acquire(timeout=60)
    coord.request_stop()
    coord.join()
    assert (service.status().state, names) == ("stopped", {"save"})
    assert service.status().ticks >= 4


def test_foreign_coordinator() -> None:
    """A service needs this project's coordinator, and says so."""
    with pytest.raises(ValueError, match="must be a supervisor_core Coordinator"):
        ServiceThread(threading.Event(), 10, name="save")  # type: ignore[arg-type]
