"""Services whose health can be seen, and whose errors are retried, stop the run, or end them alone."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from supervisor_core.errors import SaveFailedError, ServiceError
from supervisor_core.run.status import ThreadStatus
from supervisor_core.runtime.coordinator import Coordinator
from supervisor_core.runtime.policy import Policy
from supervisor_core.runtime.retry import Backoff, is_outside_fault
from supervisor_core.runtime.service import ServiceThread

PLAIN_BACKOFF = Backoff(initial_secs=1.0, max_secs=8.0, jitter=0.0)
RETRY = Policy(transient=is_outside_fault, backoff=PLAIN_BACKOFF)


class EndOfInputError(Exception):
    pass


class Scripted(ServiceThread):
    """Each tick does what the script says next: take so many seconds, raise, or call; then nothing for ever."""

    def __init__(self, coord: Any, interval_secs: float | None, script: Any, *, clock: Any, **options: Any) -> None:
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


def raised_by_join(coord: Coordinator) -> BaseException:
    """Join, and return what was raised."""
    with pytest.raises(BaseException) as caught:
        coord.join()
    return caught.value


# Health.


def test_status_before_the_start() -> None:
    """A service that was made and not started is starting, under its name, and known to its coordinator."""
    coord = Coordinator()
    service = ServiceThread(coord, 600, name="checkpoint")
    assert service.status() == ThreadStatus(name="checkpoint", state="starting", interval_secs=600)
    assert service.name == "checkpoint"
    assert service.daemon
    assert list(coord._to_join) == [service]


def test_status_after_a_good_life(coord_for: Any, clock: Any) -> None:
    """Ticks, the end of the last one and its duration are counted; at the stop it is stopped."""
    service = Scripted(coord_for(25), 10, [1.0, 2.0, 3.0], clock=clock)
    wall = clock.wall_now
    service.run()
    assert service.at == [0, 10, 20]
    assert service.stopped_cleanly
    assert service.status() == ThreadStatus(
        name="save", state="stopped", interval_secs=10, ticks=3, last_tick_at=wall + 23, last_tick_secs=3.0
    )


def test_status_while_ticking(coord_for: Any, clock: Any) -> None:
    """Within a tick it is ticking; overdue when its end is late by more than the interval, and by how much."""
    seen: list[tuple[str, float]] = []

    def look() -> None:
        for secs in (0, 10, 5, 5, 1):
            clock.advance(secs)
            status = service.status()
            seen.append((status.state, status.overdue_secs))

    service = Scripted(coord_for(25), 10, [look], clock=clock)
    service.run()
    assert seen == [("ticking", 0), ("ticking", 0), ("ticking", 5), ("ticking", 10), ("overdue", 11)]


def test_status_while_idle(clock: Any) -> None:
    """Between ticks it is idle; overdue when the next is late by more than the interval."""
    seen: list[tuple[str, float]] = []

    class Lazy(Coordinator):
        def wait_for_stop(self, timeout: Any = None, *, bell: Any = None) -> bool:
            if timeout <= 0:
                return False
            for secs in (0, 10, 5, 5, 1):
                clock.advance(secs)
                status = service.status()
                seen.append((status.state, status.overdue_secs))
            return True

    service = Scripted(Lazy(), 10, [], clock=clock)
    service.run()
    assert seen == [("idle", 0), ("idle", 0), ("idle", 5), ("idle", 10), ("overdue", 11)]


@pytest.mark.parametrize("interval_secs", [None, 0])
def test_back_to_back_is_never_overdue(coord_for: Any, clock: Any, interval_secs: float | None) -> None:
    """A service without an interval ticks back to back, and is not overdue however long a tick takes."""
    coord = coord_for(1e9)

    def look() -> None:
        clock.advance(1e6)
        assert (service.status().state, service.status().overdue_secs) == ("ticking", 0)
        coord.request_stop()

    service = Scripted(coord, interval_secs, [5.0, 5.0, look], clock=clock)
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


def test_wake_ticks_at_once_and_moves_nothing(coord_for: Any, clock: Any) -> None:
    """Woken within a tick it ticks once more right after it, however often it was woken; the schedule stays."""

    def wake_twice() -> None:
        clock.advance(1)
        service.wake()
        service.wake()

    service = Scripted(coord_for(25), 10, [wake_twice], clock=clock)
    service.run()
    assert service.at == [0, 1, 10, 20]


def test_wake_before_the_start(coord_for: Any, clock: Any) -> None:
    """Waking before the first tick makes no second one."""
    service = Scripted(coord_for(15), 10, [], clock=clock)
    service.wake()
    service.run()
    assert service.at == [0, 10]


def test_wake_from_another_thread() -> None:
    """A real service that waits for an hour ticks when it is woken, and ends when it is asked to stop."""
    coord, ticked = Coordinator(), threading.Semaphore(0)
    service = ServiceThread(coord, 3600, ticked.release, name="save")
    service.start()
    for _ in range(3):
        assert ticked.acquire(timeout=60)
        service.wake()
    assert ticked.acquire(timeout=60)
    coord.request_stop()
    coord.join()
    assert service.status().state == "stopped"
    assert service.status().ticks >= 4


def test_no_burst_after_a_long_tick(coord_for: Any, clock: Any) -> None:
    """Contract part 2: ticks missed during a long one are left out, and the schedule keeps its phase."""
    service = Scripted(coord_for(65), 10, [0.0, 34.0], clock=clock)
    service.run()
    assert service.at == [0, 10, 50, 60]


# Errors: stop.


def test_an_error_stops_the_run(coord_for: Any, clock: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The guide's promise: an exception in a service makes should_stop() true; join raises the very object."""
    coord = coord_for(1e9)
    error = ValueError("placeholder x was not fed\nand forty more lines")
    service = Scripted(
        coord, 10, [0.0, error], clock=clock, policy=Policy(explain=lambda _: "Feed it by Options.summary_feed_dict.")
    )
    service.run()
    assert coord.should_stop()
    assert raised_by_join(coord) is error
    status = service.status()
    assert (status.state, status.ticks, status.failures) == ("failed", 2, 1)
    assert status.last_error == "ValueError: placeholder x was not fed"
    assert status.last_failure_at == clock.wall_now == status.last_tick_at
    assert not service.stopped_cleanly
    assert "Service save: failed, which stops the run: ValueError: placeholder x was not fed" in caplog.text
    assert "Feed it by Options.summary_feed_dict." in caplog.text


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exceptions take notes from Python 3.11")
def test_the_error_names_the_service(coord_for: Any, clock: Any) -> None:
    """Contract part 2: the error that stops the run names the service and the remedies."""
    coord = coord_for(1e9)
    error = ValueError("no feed")
    Scripted(coord, 10, [error], clock=clock, policy=Policy(explain=lambda _: "Feed x.")).run()
    assert error.__notes__ == [  # type: ignore[attr-defined,unused-ignore]
        "Raised in the service save, which stops the run. Feed x. "
        "With Options(service_errors='continue') it would end the service alone."
    ]


def test_a_target_fails_the_same_way(coord_for: Any, clock: Any) -> None:
    """What holds for the standard services holds for targets of ``sv.loop``."""
    coord = coord_for(1e9)
    error = ValueError("mine")

    def target(text: str, *, more: int) -> None:
        assert (text, more) == ("a", 1)
        raise error

    service = ServiceThread(coord, 10, target, ["a"], {"more": 1}, name="target", clock=clock)
    service.run()
    assert raised_by_join(coord) is error
    assert service.status().state == "failed"


@pytest.mark.parametrize("hook", ["start_loop", "stop_loop"])
def test_an_error_around_the_ticks(coord_for: Any, clock: Any, hook: str) -> None:
    """What is raised before the first tick stops the run like a tick's error; after the stop it is recorded only."""
    coord = coord_for(15)
    told: list[tuple[str, BaseException, int]] = []
    error = ValueError("outside of a tick")
    service = Scripted(coord, 10, [], clock=clock, on_failure=lambda *args: told.append(args))

    def fail() -> None:
        raise error

    setattr(service, hook, fail)
    service.run()
    if hook == "start_loop":
        assert raised_by_join(coord) is error
        assert told == [("save", error, 0)]
        assert service.status().state == "failed"
    else:
        coord.join()
        assert told == [("save", error, 2)]
        assert service.status().state == "stopped"
    assert service.status().failures == 1


def test_a_clean_stop_is_no_failure(coord_for: Any, clock: Any) -> None:
    """An exception that means the end of input stops the run cleanly, and the service is no failure."""
    coord = coord_for(1e9, (EndOfInputError,))
    service = Scripted(coord, 10, [0.0, EndOfInputError()], clock=clock)
    service.run()
    assert coord.should_stop()
    coord.join()
    status = service.status()
    assert (status.state, status.failures, status.ticks, status.last_error) == ("stopped", 0, 2, None)


def test_a_clean_stop_is_not_retried(coord_for: Any, clock: Any) -> None:
    """Even where every error counts as transient, the end of input is the end."""
    coord = coord_for(1e9, (EndOfInputError,))
    service = Scripted(coord, 10, [EndOfInputError()], clock=clock, policy=Policy(transient=lambda _: True))
    service.run()
    assert service.at == [0]


def test_an_error_after_the_stop(coord_for: Any, clock: Any) -> None:
    """A tick that fails since everything is being stopped is recorded, and the service has ended as asked."""
    coord = coord_for(1e9)

    def cancelled() -> None:
        coord.request_stop()
        raise ValueError("session was closed")

    told: list[Any] = []
    service = Scripted(coord, 10, [cancelled], clock=clock, on_failure=lambda *args: told.append(args))
    service.run()
    coord.join()
    assert (service.status().state, service.status().failures, len(told)) == ("stopped", 1, 1)


def test_an_error_after_the_join(coord_for: Any, clock: Any) -> None:
    """A straggler's error after the join is recorded, and raised in no thread."""
    coord = coord_for(1e9)

    def too_late() -> None:
        coord.request_stop()
        coord.join()
        raise ValueError("session was closed")

    service = Scripted(coord, 10, [too_late], clock=clock)
    service.run()
    assert (service.status().state, service.status().failures) == ("stopped", 1)


# Errors: continue.


def test_continue_ends_the_service_alone(coord_for: Any, clock: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Options.service_errors="continue": the service is marked failed, the log says so, and training goes on."""
    coord = coord_for(1e9)
    service = Scripted(coord, 10, [ValueError("broken")], clock=clock, policy=Policy(on_error="continue"))
    service.run()
    assert not coord.should_stop()
    assert (service.status().state, service.at, service.stopped_cleanly) == ("failed", [0], False)
    assert service.status().last_error == "ValueError: broken"
    assert "training goes on without it" in caplog.text
    assert caplog.records[-1].levelno == logging.ERROR
    assert caplog.records[-1].exc_info


def test_continue_does_not_swallow_exits(coord_for: Any, clock: Any) -> None:
    """Who raises SystemExit in a service means the process, not the service."""
    coord = coord_for(1e9)
    error = SystemExit(3)
    Scripted(coord, 10, [error], clock=clock, policy=Policy(on_error="continue")).run()
    assert raised_by_join(coord) is error


# Errors: retry.


def test_retried_with_backoff(coord_for: Any, clock: Any) -> None:
    """Contract part 2: faults of the outside world are retried after 1, 2, 4 s while training goes on."""
    coord = coord_for(1250)
    full = OSError(28, "No space left on device")
    service = Scripted(coord, 600, [0.0, full, full, full, 0.5], clock=clock, policy=RETRY)
    service.run()
    assert service.at == [0, 600, 601, 603, 607, 1200]
    coord.join()
    status = service.status()
    assert (status.state, status.ticks, status.failures) == ("stopped", 6, 3)
    assert status.last_error == "OSError: [Errno 28] No space left on device"


def test_retries_of_a_short_interval(coord_for: Any, clock: Any) -> None:
    """A service that ticks often backs off beyond its interval while the fault lasts."""
    service = Scripted(coord_for(17.5), 2, [OSError()] * 4, clock=clock, policy=RETRY)
    service.run()
    assert service.at == [0, 1, 3, 7, 15, 16]


def test_retries_back_to_back(coord_for: Any, clock: Any) -> None:
    """A service without an interval waits before a retry too."""
    coord = coord_for(1e9)
    service = Scripted(coord, None, [OSError(), OSError(), 0.0, coord.request_stop], clock=clock, policy=RETRY)
    service.run()
    assert service.at == [0, 1, 3, 3]


def test_backoff_begins_anew(coord_for: Any, clock: Any) -> None:
    """After a good tick the first retry comes after the shortest wait again."""
    script = [OSError(), OSError(), 0.0, OSError(), 0.0]
    service = Scripted(coord_for(25), 10, script, clock=clock, policy=RETRY)
    service.run()
    assert service.at == [0, 1, 3, 10, 11, 20]


def test_keeps_failing(clock: Any) -> None:
    """One failed tick is a failure counted; from the second in a row on, until a good one, the state is failed."""
    states: list[str] = []

    class Looking(Coordinator):
        def wait_for_stop(self, timeout: Any = None, *, bell: Any = None) -> bool:
            states.append(service.status().state)
            clock.advance(max(timeout, 0.0))
            return len(states) == 6

    service = Scripted(Looking(), 10, [OSError(), OSError(), OSError()], clock=clock, policy=RETRY)
    service.run()
    assert states == ["idle", "idle", "failed", "failed", "idle", "idle"]


def test_every_failed_tick_is_told(coord_for: Any, clock: Any) -> None:
    """Every failed tick is told with its number, retried or not."""
    errors = [OSError("a"), OSError("b"), ValueError("c")]
    told: list[tuple[str, BaseException, int]] = []
    service = Scripted(
        coord_for(1e9), 600, [0.0, *errors], clock=clock, policy=RETRY, on_failure=lambda *args: told.append(args)
    )
    service.run()
    assert told == [("save", errors[0], 2), ("save", errors[1], 3), ("save", errors[2], 4)]


@pytest.mark.parametrize("bound", [0, 2])
@pytest.mark.parametrize("on_error", ["stop", "continue"])
def test_bounded_failures(coord_for: Any, clock: Any, bound: int, on_error: Any) -> None:
    """Contract part 2: more failures in a row than max_save_failures allows stop the run, with the caller's error."""
    coord = coord_for(1e9)
    errors = [OSError(number) for number in range(5)]

    def give_up(name: str, failures: int, error: BaseException) -> BaseException:
        return SaveFailedError(f"{name} failed {failures} times: {error}")

    policy = Policy(
        transient=is_outside_fault, backoff=PLAIN_BACKOFF, max_failures=bound, give_up=give_up, on_error=on_error
    )
    service = Scripted(coord, 600, errors, clock=clock, policy=policy)
    service.run()
    raised = raised_by_join(coord)
    assert isinstance(raised, SaveFailedError)
    assert str(raised) == f"save failed {bound + 1} times: {bound}"
    assert raised.__cause__ is errors[bound]
    assert (service.status().state, service.status().failures) == ("failed", bound + 1)


def test_bounded_failures_by_default(coord_for: Any, clock: Any) -> None:
    """Without a maker of errors the run is stopped by a ServiceError that names the service and the last error."""
    coord = coord_for(1e9)
    policy = Policy(transient=is_outside_fault, backoff=PLAIN_BACKOFF, max_failures=0)
    Scripted(coord, 600, [OSError("full")], clock=clock, policy=policy).run()
    with pytest.raises(ServiceError, match="The service save failed 1 times in a row: OSError: full"):
        coord.join()


def test_a_retry_can_be_woken(coord_for: Any, clock: Any) -> None:
    """Woken while it waits for a retry, the service tries at once."""

    def fail_and_wake() -> None:
        service.wake()
        raise OSError

    service = Scripted(coord_for(5), 600, [fail_and_wake, 0.0], clock=clock, policy=RETRY)
    service.run()
    assert service.at == [0, 0]


# What must not make it worse.


def test_a_listener_that_fails(coord_for: Any, clock: Any, caplog: pytest.LogCaptureFixture) -> None:
    """When what is told of failures fails itself, the service's own error counts."""
    coord = coord_for(1e9)
    error = ValueError("own")

    def listen(*_: object) -> None:
        raise KeyError("telemetry")

    Scripted(coord, 10, [error], clock=clock, on_failure=listen).run()
    assert raised_by_join(coord) is error
    assert "telemetry" in caplog.text


def test_an_explanation_that_fails(coord_for: Any, clock: Any) -> None:
    """When the remedy cannot be told, the error is raised without."""
    coord = coord_for(1e9)
    error = ValueError("own")

    def explain(_: BaseException) -> str:
        raise KeyError

    Scripted(coord, 10, [error], clock=clock, policy=Policy(explain=explain)).run()
    assert raised_by_join(coord) is error


def test_an_unprintable_error(coord_for: Any, clock: Any) -> None:
    """An error whose text cannot be made is recorded by its type, and raised."""

    class UnprintableError(Exception):
        def __str__(self) -> str:
            raise LookupError

    coord = coord_for(1e9)
    error = UnprintableError()
    service = Scripted(coord, 10, [error], clock=clock)
    service.run()
    assert raised_by_join(coord) is error
    assert service.status().last_error == "UnprintableError: <no text: its __str__ raised LookupError>"


def test_a_long_error_is_cut(coord_for: Any, clock: Any) -> None:
    """A status carries the first 500 characters of an error's first line."""
    service = Scripted(coord_for(1e9), 10, [ValueError("x" * 10_000)], clock=clock)
    service.run()
    assert service.status().last_error == "ValueError: " + "x" * 488


def test_foreign_coordinator() -> None:
    """A service needs this project's coordinator, and says so."""
    with pytest.raises(ValueError, match="must be a supervisor_core Coordinator"):
        ServiceThread(threading.Event(), 10, name="save")  # type: ignore[arg-type]


def test_start_is_a_real_thread() -> None:
    """Started, it ticks in a thread of its name."""
    coord = Coordinator()
    names: list[str] = []

    def tick() -> None:
        names.append(threading.current_thread().name)
        coord.request_stop()

    stop: Callable[[], None] = coord.join
    ServiceThread(coord, 60, tick, name="evaluate").start()
    stop()
    assert names == ["evaluate"]
