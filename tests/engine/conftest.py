"""A clock that is set by hand, and what moves it: coordinators that wait, services that tick, threads that end."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from queue import SimpleQueue
from types import FrameType, ModuleType
from typing import Any

import pytest

from supervisor_core.engine import signal_safe_event
from supervisor_core.engine.coordinator import RuntimeCoordinator
from supervisor_core.engine.service import RuntimeServiceThread


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
        """Advance both clocks."""
        self.now += secs
        self.wall_now += secs


class TimedCoordinator(RuntimeCoordinator):
    """Waits by moving the clock's hands, and stops by itself at a given moment."""

    def __init__(self, clock: HandClock, until: float, clean: tuple[type[BaseException], ...] = ()) -> None:
        super().__init__(clean, clock=clock)
        self.hands = clock
        self.until = until

    def wait_for_stop(self, timeout: float | None = None, *, wake_queue: SimpleQueue[bool] | None = None) -> bool:
        assert timeout is not None
        if self.should_stop():
            return True
        if self.hands.now + max(timeout, 0.0) >= self.until:
            self.hands.advance(max(self.until - self.hands.now, 0.0))
            self.request_stop()
            return True
        if wake_queue is None or wake_queue.empty():
            self.hands.advance(max(timeout, 0.0))
        return False


class ScriptedThread:
    """A thread that ends at a given moment of the clock, which joining it moves."""

    ident = None

    def __init__(self, clock: HandClock, ends_in_secs: float, name: str = "scripted") -> None:
        self.clock = clock
        self.ends_at = clock.now + ends_in_secs
        self.name = name
        self.joins: list[float] = []

    def is_alive(self) -> bool:
        return self.clock.now < self.ends_at

    def join(self, timeout: float) -> None:
        assert timeout > 0
        self.joins.append(timeout)
        self.clock.advance(max(0.0, min(timeout, self.ends_at - self.clock.now)))


class BlockedThread(threading.Thread):
    """A real thread that blocks on something which no stop request ends."""

    def __init__(self, name: str = "blocked") -> None:
        super().__init__(name=name, daemon=True)
        self.blocks_on = threading.Event()

    def run(self) -> None:
        self.blocks_on.wait()


class ScriptedService(RuntimeServiceThread):
    """Each tick does the script's next item: take some seconds, raise, or call; after the last, nothing."""

    def __init__(
        self, coord: Any, interval_secs: float | None, script: Any, *, clock: HandClock, **options: Any
    ) -> None:
        super().__init__(coord, interval_secs, name="save", clock=clock, **options)
        self.script: Iterator[Any] = iter(script)
        self.hands = clock
        self.start_at = clock.now
        self.at: list[float] = []
        self.stopped_cleanly = False

    def run_loop(self) -> None:
        self.at.append(round(self.hands.now - self.start_at, 6))
        item = next(self.script, 0.0)
        if isinstance(item, BaseException):
            raise item
        if callable(item):
            item()
        else:
            self.hands.advance(item)

    def stop_loop(self) -> None:
        self.stopped_cleanly = True


@pytest.fixture
def clock() -> HandClock:
    """A clock whose monotonic hand is at 1000 s and whose wall hand at 1,700,000,000 s."""
    return HandClock()


@pytest.fixture
def coord_for(clock: HandClock) -> Callable[..., TimedCoordinator]:
    """Makes a coordinator that stops after some seconds of the `clock`."""

    def make(secs: float, clean: tuple[type[BaseException], ...] = ()) -> TimedCoordinator:
        return TimedCoordinator(clock, clock.now + secs, clean)

    return make


@pytest.fixture
def raised_by() -> Callable[[Callable[[], object]], BaseException]:
    """Returns a function that calls what it is given, and returns what that raised."""

    def call(raising: Callable[[], object]) -> BaseException:
        with pytest.raises(BaseException) as caught:
            raising()
        return caught.value

    return call


@pytest.fixture
def scripted_thread() -> type[ScriptedThread]:
    """The class of threads that end at a given moment of a clock."""
    return ScriptedThread


@pytest.fixture
def blocked_thread() -> type[BlockedThread]:
    """The class of threads that block until their ``blocks_on`` is set."""
    return BlockedThread


@pytest.fixture
def blocked() -> Iterator[BlockedThread]:
    """A running thread that is blocked until the test is over."""
    thread = BlockedThread()
    thread.start()
    while not vars(thread.blocks_on)["_cond"]._waiters:  # it is started, but need not have come to its wait
        assert thread.is_alive()
    yield thread
    thread.blocks_on.set()
    thread.join()


@pytest.fixture
def scripted(clock: HandClock) -> Callable[..., ScriptedService]:
    """Returns a function that makes a service of a coordinator, an interval and a script, under the `clock`."""

    def make(coord: Any, interval_secs: float | None, script: Any, **options: Any) -> ScriptedService:
        return ScriptedService(coord, interval_secs, script, clock=clock, **options)

    return make


@contextmanager
def _signal_at_line(number: int, module: ModuleType, handler: Callable[[], object]) -> Iterator[list[int]]:
    """Send this process a real signal before the n-th line that a module executes, or the one of the event; yields the
    lines seen."""
    seen: list[int] = []

    def trace(frame: FrameType, event: str, _arg: Any) -> Any:
        if frame.f_code.co_filename not in (module.__file__, signal_safe_event.__file__):
            return None
        if event == "line":
            seen.append(frame.f_lineno)
            if len(seen) == number:
                signal.raise_signal(signal.SIGUSR1)
        return trace

    earlier = signal.signal(signal.SIGUSR1, lambda *_: handler())
    tracing = sys.gettrace()
    sys.settrace(trace)
    try:
        yield seen
    finally:
        sys.settrace(tracing)
        signal.signal(signal.SIGUSR1, earlier)


@pytest.fixture
def signal_at_line() -> Callable[..., AbstractContextManager[list[int]]]:
    """Within its block a signal comes before the n-th line that a module executes, and is handled as given."""
    return _signal_at_line
