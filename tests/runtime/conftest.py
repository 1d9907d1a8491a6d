"""A clock that tests set by hand, and a coordinator that waits by setting it."""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue

import pytest

from supervisor_core.runtime.coordinator import Coordinator


class HandClock:
    """Both hands stand still until a test moves them."""

    def __init__(self) -> None:
        self.wall_now = 1_700_000_000.0
        self.now = 1000.0

    def wall(self) -> float:
        return self.wall_now

    def monotonic(self) -> float:
        return self.now

    def advance(self, secs: float) -> None:
        """Let both hands go on by so many seconds."""
        self.now += secs
        self.wall_now += secs


class TimedCoordinator(Coordinator):
    """Waits by moving the clock's hands, and stops by itself at a given moment."""

    def __init__(self, clock: HandClock, until: float, clean: tuple[type[BaseException], ...] = ()) -> None:
        super().__init__(clean, clock=clock)
        self.hands = clock
        self.until = until

    def wait_for_stop(self, timeout: float | None = None, *, bell: SimpleQueue[bool] | None = None) -> bool:
        assert timeout is not None
        if self.should_stop():
            return True
        if self.hands.now + max(timeout, 0.0) >= self.until:
            self.hands.advance(max(self.until - self.hands.now, 0.0))
            self.request_stop()
            return True
        if bell is None or bell.empty():
            self.hands.advance(max(timeout, 0.0))
        return False


@pytest.fixture
def clock() -> HandClock:
    """A clock whose monotonic hand is at 1000 s and whose wall hand at 1,700,000,000 s."""
    return HandClock()


@pytest.fixture
def coord_for(clock: HandClock) -> Callable[..., TimedCoordinator]:
    """Makes a coordinator that stops after so many seconds of the `clock`."""

    def make(secs: float, clean: tuple[type[BaseException], ...] = ()) -> TimedCoordinator:
        return TimedCoordinator(clock, clock.now + secs, clean)

    return make
