"""Calls on a timer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from math import inf
from typing import Any

import pytest

from supervisor_core.base.clock import SystemClock
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


def test_26_what_is_a_coordinator() -> None:
    """Contract 26: a looper is a daemon thread, registered with its coordinator when it is made. Anything with a
    coordinator's methods is one; what has not is refused, with the original's words."""

    class Other:
        def __init__(self) -> None:
            self.inner = Coordinator()

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

    for coord in (Coordinator(), Other()):
        looper = LooperThread(coord, 1.0)  # type: ignore[arg-type]
        assert isinstance(looper, threading.Thread) and looper.daemon
        assert list(coord._to_join) == [looper]
    with pytest.raises(ValueError, match=r"^'coord' argument must be a Coordinator: 7$"):
        LooperThread(7, 1.0)  # type: ignore[arg-type]


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


@pytest.mark.parametrize(
    ("interval_secs", "now", "due"),
    [(2.0, 10.0, 12.0), (2.0, 11.9, 12.0), (2.0, 12.0, 12.0), (2.0, 12.1, 14.0), (0.0, 12.1, 12.1), (inf, 12.1, inf)],
)
def test_next_due(interval_secs: float, now: float, due: float) -> None:
    """The next moment of the schedule that is not past, but never the present one again."""
    assert next_due(10.0, interval_secs, now) == due


def test_monotonic_by_default() -> None:
    """Without an injected clock the machine's monotonic one is used."""
    assert isinstance(LooperThread(Coordinator(), 1)._clock, SystemClock)
