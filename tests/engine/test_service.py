"""Calls on a timer: services that tick on time, can be woken, have a health and a name of their own."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from math import inf
from typing import Any

import pytest

from supervisor_core.engine.coordinator import RuntimeCoordinator
from supervisor_core.engine.retry import Backoff, is_outside_fault
from supervisor_core.engine.service import Policy, RuntimeLooperThread, RuntimeServiceThread, ServiceRegistry, next_due
from supervisor_core.events.telemetry import ThreadStatus

# Health.


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

    class Lazy(RuntimeCoordinator):
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
    coord = RuntimeCoordinator()

    def fail() -> None:
        raise OSError

    service = RuntimeServiceThread(
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
    coord, ticked = RuntimeCoordinator(), threading.Semaphore(0)
    names = set()

    def tick() -> None:
        names.add(threading.current_thread().name)
        ticked.release()

    service = RuntimeServiceThread(coord, 3600, tick, name="save")
    service.start()
    for _ in range(3):
        assert ticked.acquire(timeout=60)
        service.wake()
    assert ticked.acquire(timeout=60)
    coord.request_stop()
    coord.join()
    assert (service.status().state, names) == ("stopped", {"save"})
    assert service.status().ticks >= 4


class Recorded(RuntimeLooperThread):
    """Writes down what is called, and when; a call may take a while, or raise."""

    def __init__(
        self, coord: Any, interval_secs: float | None, clock: Any, takes: Callable[[int], float] | None = None
    ):
        super().__init__(coord, interval_secs, clock=clock)
        self.hands = clock
        self.takes = takes or (lambda _: 0.0)
        self.calls: list[str] = []
        self.at: list[float] = []
        self.start_at = clock.now

    def start_loop(self) -> None:
        self.calls.append("start")

    def run_loop(self) -> None:
        self.calls.append("run")
        self.at.append(round(self.hands.now - self.start_at, 6))
        self.hands.advance(self.takes(len(self.at)))

    def stop_loop(self) -> None:
        self.calls.append("stop")


@pytest.mark.parametrize(
    ("until_secs", "interval_secs", "takes", "at"),
    [
        (35, 10, lambda _: 0.0, [0, 10, 20, 30]),
        (5.5, None, lambda _: 2.0, [0, 2, 4]),
        (3.5, 0, lambda _: 1.0, [0, 1, 2, 3]),
        (3.5, -1, lambda _: 1.0, [0, 1, 2, 3]),
        (1.75, 0.1, lambda call: 1.03 if call == 3 else 0.0, [0, 0.1, 0.2, 1.3, 1.4, 1.5, 1.6, 1.7]),
        (8.5, 2, lambda _: 3.0, [0, 4, 8]),
    ],
    ids=["quick calls", "None", "0", "below 0", "a stall", "slow calls"],
)
def test_26_when_calls_come(
    coord_for: Any, clock: Any, until_secs: float, interval_secs: float | None, takes: Any, at: list[float]
) -> None:
    """Contract 26 and part 2: the first call comes at once, the next ones at the interval, without one back to back. A
    stall brings no burst, and slow calls come at every other moment: missed ones are left out, the phase is kept.
    Setting the machine's clock back an hour changes no call. A stop ends it cleanly."""

    def takes_and_sets_back(call: int) -> float:
        clock.wall_now -= 3600
        return takes(call)  # type: ignore[no-any-return]

    looper = Recorded(coord_for(until_secs), interval_secs, clock, takes_and_sets_back)
    looper.run()
    assert looper.at == at
    assert looper.calls == ["start", *["run"] * len(at), "stop"]


def test_26_stopped_before_it_starts(clock: Any) -> None:
    """Contract 26: under a coordinator that has stopped already nothing is run, but start and stop are."""
    for interval_secs in (None, 5):
        coord = RuntimeCoordinator()
        coord.request_stop()
        looper = Recorded(coord, interval_secs, clock)
        looper.run()
        assert looper.calls == ["start", "stop"]


@pytest.mark.parametrize(
    ("interval_secs", "now", "due"),
    [(2.0, 10.0, 12.0), (2.0, 11.9, 12.0), (2.0, 12.0, 12.0), (2.0, 12.1, 14.0), (0.0, 12.1, 12.1), (inf, 12.1, inf)],
)
def test_next_due(interval_secs: float, now: float, due: float) -> None:
    """The next moment of the schedule that is not past, but never the present one again."""
    assert next_due(10.0, interval_secs, now) == due


def test_wrong_arguments_are_refused() -> None:
    """Contract 26: with the original's words, and nothing is registered then."""
    coord = RuntimeCoordinator()
    for make, text in [
        (lambda: RuntimeLooperThread(7, 1.0), "^'coord' argument must be a Coordinator: 7$"),
        (
            lambda: RuntimeLooperThread(coord, 1.0, args=(1,)),
            "^'args' and 'kwargs' argument require that you also pass 'target'$",
        ),
        (lambda: RuntimeLooperThread(coord, 1.0, kwargs={"a": 1}), "^'args' and 'kwargs' argument require"),
        (lambda: RuntimeServiceThread(threading.Event(), 10, name="save"), "must be a supervisor_core Coordinator"),
    ]:
        with pytest.raises(ValueError, match=text):
            make()  # type: ignore[no-untyped-call]
    assert not coord._to_join


def test_26_what_is_a_coordinator() -> None:
    """Contract 26: anything with a coordinator's methods is one."""

    class Other:
        def __init__(self) -> None:
            self.inner = RuntimeCoordinator()

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

    other = Other()
    looper = RuntimeLooperThread(other, 1.0)  # type: ignore[arg-type]
    assert looper.daemon and list(other.inner._to_join) == [looper]


class Service:
    def __init__(self, name: str) -> None:
        self.name = name

    def status(self) -> ThreadStatus:
        return ThreadStatus(name=self.name, state="idle")


def evaluate() -> None:
    """Stand for a user's function."""


class Evaluator:
    def __call__(self) -> None: ...

    def run(self) -> None: ...


def test_names_are_used_once() -> None:
    """A name is given out once; the next who wants it gets a number. Functions, methods, partials and objects give
    their names; a lambda has none worth showing."""
    registry = ServiceRegistry()
    wanted = ["save", "save", evaluate, Evaluator().run, functools.partial(evaluate), Evaluator(), lambda: None]
    names = ["save", "save-2", "evaluate", "run", "evaluate-2", "Evaluator", "loop"]
    assert [registry.reserve_name(each) for each in wanted] == names


def test_reserved_by_many_threads() -> None:
    """Threads that want the same name at once get different ones."""
    registry, barrier = ServiceRegistry(), threading.Barrier(8)
    names: list[str] = []

    def reserve() -> None:
        barrier.wait()
        names.append(registry.reserve_name("loop"))

    threads = [threading.Thread(target=reserve) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(names)) == 8


def test_statuses_in_order() -> None:
    """Statuses come in the order of the names' reservation; names without a service yet are left out."""
    registry = ServiceRegistry()
    first = registry.reserve_name("first")
    registry.reserve_name("not yet")
    registry.add(Service("second"))
    registry.add(Service(first))
    assert [status.name for status in registry.statuses()] == ["first", "second"]


def test_same_name_twice() -> None:
    """Another service of the same name is refused; the same one again is fine."""
    registry = ServiceRegistry()
    service = registry.add(Service("save"))
    assert registry.add(service) is service
    with pytest.raises(ValueError, match="'save' already; take a name from reserve_name"):
        registry.add(Service("save"))
