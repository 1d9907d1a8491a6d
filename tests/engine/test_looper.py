"""Calls on a timer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from supervisor_core.clock import SystemClock
from supervisor_core.engine.coordinator import Coordinator
from supervisor_core.engine.service import LooperThread, next_due


class Recorded(LooperThread):
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


def test_26_registered_daemon() -> None:
    """Contract 26: a looper is a daemon thread, registered with its coordinator when it is made."""
    coord = Coordinator()
    looper = LooperThread(coord, 1.0)
    assert isinstance(looper, threading.Thread)
    assert looper.daemon
    assert list(coord._to_join) == [looper]


def test_26_first_call_now(coord_for: Any, clock: Any) -> None:
    """Contract 26: the first call comes at once, the next ones at the interval, a stop ends it cleanly."""
    looper = Recorded(coord_for(35), 10, clock)
    looper.run()
    assert looper.at == [0, 10, 20, 30]
    assert looper.calls == ["start", *["run"] * 4, "stop"]


def test_26_back_to_back(coord_for: Any, clock: Any) -> None:
    """Contract 26: with None the calls come back to back until the stop."""
    coord = coord_for(1e9)

    def takes(call: int) -> float:
        if call == 3:
            coord.request_stop()
        return 2.0

    looper = Recorded(coord, None, clock, takes)
    looper.run()
    assert looper.at == [0, 2, 4]
    assert looper.calls[-1] == "stop"


def test_26_stopped_before_it_starts(clock: Any) -> None:
    """Contract 26: under a coordinator that has stopped already nothing is run, but start and stop are."""
    for interval_secs in (None, 5):
        coord = Coordinator()
        coord.request_stop()
        looper = Recorded(coord, interval_secs, clock)
        looper.run()
        assert looper.calls == ["start", "stop"]


@pytest.mark.parametrize("interval_secs", [None, 5])
def test_26_no_stop_loop_after_an_error(coord_for: Any, clock: Any, interval_secs: float | None) -> None:
    """Contract 26: what a call raises stops everything and is raised by join; stop_loop is not called."""
    coord = coord_for(1e9)
    error = ValueError("body")

    def fail(_call: int) -> float:
        raise error

    looper = Recorded(coord, interval_secs, clock, fail)
    looper.run()
    assert looper.calls == ["start", "run"]
    with pytest.raises(ValueError) as caught:
        coord.join()
    assert caught.value is error


def test_26_not_a_coordinator() -> None:
    """Contract 26: what has not a coordinator's methods is refused, with the original's words."""
    with pytest.raises(ValueError, match=r"^'coord' argument must be a Coordinator: 7$"):
        LooperThread(7, 1.0)  # type: ignore[arg-type]


def test_26_duck_typed_coordinator() -> None:
    """Anything with a coordinator's methods is one."""

    class Other:
        def __init__(self) -> None:
            self.inner = Coordinator()

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

    other = Other()
    looper = LooperThread(other, 1.0)  # type: ignore[arg-type]
    assert list(other.inner._to_join) == [looper]


@pytest.mark.parametrize("given", [{"args": (1,)}, {"kwargs": {"a": 1}}])
def test_26_arguments_without_target(given: dict[str, Any]) -> None:
    """Contract 26: arguments need a target; nothing is registered then."""
    coord = Coordinator()
    with pytest.raises(ValueError, match=r"^'args' and 'kwargs' argument require that you also pass 'target'$"):
        LooperThread(coord, 1.0, **given)
    assert not coord._to_join


def test_26_a_target_gets_its_arguments() -> None:
    """Contract 26: the thread calls the target with its arguments, and is named after it."""
    coord = Coordinator()
    calls: list[Any] = []

    def target(*args: Any, **kwargs: Any) -> None:
        calls.append((args, kwargs))
        coord.request_stop()

    looper = LooperThread(coord, 60, target, args=(1, 2), kwargs={"c": 3})
    looper.start()
    coord.join()
    assert calls == [((1, 2), {"c": 3})]
    assert "target" in looper.name


def test_26_no_target_and_no_override(coord_for: Any, clock: Any) -> None:
    """A looper without a target and without overrides does nothing, until the stop."""
    coord = coord_for(3)
    start = clock.now
    LooperThread(coord, 1, clock=clock).run()
    assert clock.now - start == 3
    coord.join()


def test_stall_brings_no_burst(coord_for: Any, clock: Any) -> None:
    """Contract part 2: a stall of 1 s at an interval of 0.1 s: missed calls are left out, the phase is kept."""
    looper = Recorded(coord_for(1.75), 0.1, clock, lambda call: 1.03 if call == 3 else 0.0)
    looper.run()
    assert looper.at == [0, 0.1, 0.2, 1.3, 1.4, 1.5, 1.6, 1.7]


def test_slow_calls_keep_the_phase(coord_for: Any, clock: Any) -> None:
    """Calls that take 1.5 intervals come at every other moment of the schedule."""
    looper = Recorded(coord_for(8.5), 2, clock, lambda _: 3.0)
    looper.run()
    assert looper.at == [0, 4, 8]


def test_clock_set_back_has_no_effect(coord_for: Any, clock: Any) -> None:
    """Contract part 2: setting the machine's clock back an hour changes no call."""

    def takes(call: int) -> float:
        clock.wall_now -= 3600
        return 0.0

    looper = Recorded(coord_for(2.05), 0.1, clock, takes)
    looper.run()
    assert len(looper.at) == 21


@pytest.mark.parametrize("interval_secs", [0, -1])
def test_no_interval(coord_for: Any, clock: Any, interval_secs: float) -> None:
    """An interval of 0 or less calls back to back."""
    looper = Recorded(coord_for(3.5), interval_secs, clock, lambda _: 1.0)
    looper.run()
    assert looper.at == [0, 1, 2, 3]


def test_next_due() -> None:
    """The next moment of the schedule that is not past, but never the present one again."""
    assert next_due(10.0, 2.0, 10.0) == 12.0
    assert next_due(10.0, 2.0, 11.9) == 12.0
    assert next_due(10.0, 2.0, 12.0) == 12.0
    assert next_due(10.0, 2.0, 12.1) == 14.0
    assert next_due(10.0, float("inf"), 12.1) == float("inf")
    assert next_due(10.0, 0.0, 12.1) == 12.1


def test_monotonic_by_default() -> None:
    """Without an injected clock the machine's monotonic one is used."""
    assert isinstance(LooperThread(Coordinator(), 1)._clock, SystemClock)
