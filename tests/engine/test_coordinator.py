"""Threads stop together; the first error reaches whoever joins; who does not end is released, or named."""

from __future__ import annotations

import logging
import threading
import traceback
from itertools import count
from typing import Any

import pytest

from supervisor_core.engine import coordinator
from supervisor_core.engine.coordinator import RuntimeCoordinator


def test_25_after_join_it_passes(raised_by: Any) -> None:
    """Contract 25, 23: after a join no later one would raise it, so it is raised here."""
    coord = RuntimeCoordinator()
    coord.join()
    error = StopIteration()

    def body() -> None:
        with coord.stop_on_exception():
            raise error

    assert raised_by(body) is error


def test_33_a_traceback_does_not_grow(raised_by: Any) -> None:
    """Contract 33: every step may raise the same error."""
    coord = RuntimeCoordinator()
    with coord.stop_on_exception():
        raise ValueError("seen at every step")
    depths = {len(traceback.extract_tb(raised_by(coord.raise_requested_exception).__traceback__)) for _ in range(5)}
    assert len(depths) == 1


# What is logged.


def test_error_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The recorded error is logged, with its traceback if there is one; an ignored one is not."""
    caplog.set_level(logging.INFO, "supervisor_core")
    coord = RuntimeCoordinator()
    with coord.stop_on_exception():
        raise ValueError("seen")
    coord.request_stop(ValueError("ignored"))
    assert [record.getMessage() for record in caplog.records] == ["Error reported to Coordinator: seen"]
    assert caplog.records[0].exc_info
    caplog.clear()
    RuntimeCoordinator().request_stop(ValueError("bare"))
    assert caplog.messages == ["Error reported to Coordinator: <class 'ValueError'>, bare"]


def test_whether_the_main_thread_asks(clock: Any) -> None:
    """A coordinator knows whether the main thread asks for, or waits for, a stop; what other threads ask counts for
    nothing, and neither does what was asked before `reset_loop_checks`."""
    for ask in (RuntimeCoordinator.should_stop, lambda coord: coord.wait_for_stop(0), lambda coord: coord.join()):
        coord = RuntimeCoordinator(clock=clock)
        service = threading.Thread(target=coord.should_stop)
        service.start()
        service.join()
        assert not coord.loop_checks_stop
        ask(coord)
        assert coord.loop_checks_stop
        coord.reset_loop_checks()
        assert not coord.loop_checks_stop


class AbortedError(Exception):
    """As TensorFlow's, which training loops retry."""


class EmptyError(Exception):
    """Counts as false."""

    def __bool__(self) -> bool:
        return False


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise LookupError("no text")


@pytest.mark.parametrize("error", [RuntimeError("never raised"), EmptyError(), UnprintableError(), StopIteration()])
@pytest.mark.parametrize("clean_types", [None, [], ["OutOfRangeError"]], ids=["none", "empty", "unusable"])
def test_32_any_error_stops_and_is_raised(error: Any, clean_types: Any, raised_by: Any, caplog: Any) -> None:
    """Contract 22, 32: one that was never raised, that counts as false, whose text cannot be made; where no type is
    clean, and where the types are such that nothing can be compared with them. Join raises the very object."""
    caplog.set_level(logging.INFO, "supervisor_core")
    coord = RuntimeCoordinator(clean_types)
    coord.request_stop(error)
    assert coord.should_stop()
    assert raised_by(coord.join) is error
    assert ("its __str__ raised LookupError" in caplog.text) == isinstance(error, UnprintableError)


@pytest.mark.parametrize("given", ["text", (None, None, None), (1, 2), ValueError])
def test_32_not_an_exception(given: Any) -> None:
    """What is no exception stops the threads too, and join says what was wrong with it."""
    coord = RuntimeCoordinator()
    coord.request_stop(given)
    assert coord.should_stop()
    with pytest.raises(ValueError, match=f"request_stop.. got a {type(given).__name__} outside of an except block"):
        coord.join()


def test_32_not_an_exception_while_handling_one(raised_by: Any) -> None:
    """What is no exception, passed while one is being handled, means that one."""
    coord = RuntimeCoordinator()
    try:
        raise AbortedError
    except AbortedError as caught:
        error = caught
        coord.request_stop("it failed")  # type: ignore[arg-type]
    assert raised_by(coord.join) is error


# Contract part 2: signal handlers.


def test_request_stop_interrupted_by_itself(raised_by: Any, signal_at_line: Any) -> None:
    """Contract part 2: a handler that interrupts request_stop at any line and calls it too never hangs."""
    errors = ValueError("body"), ValueError("handler")
    for number in count(1):
        coord = RuntimeCoordinator()
        with signal_at_line(number, coordinator, lambda coord=coord: coord.request_stop(errors[1])) as seen:
            coord.request_stop(errors[0])
        assert coord.wait_for_stop()
        assert raised_by(coord.join) in errors
        if len(seen) < number:
            break
    assert number > 20


# Contract part 2: joins.


@pytest.mark.parametrize(
    ("thread_secs", "grace_secs", "took_secs", "left"),
    [
        ((1.0, 4.2, 0.5), 120, 4.2, ""),
        ((900, 5, 900), 10, 10, "t0 t2"),
        ((1,), 0, 0, "t0"),
        ((1,), -5, 0, "t0"),
        ((3,), float("inf"), 3, ""),
    ],
    ids=["all end", "some end", "no time", "less than none", "endless"],
)
def test_a_join_lasts_until_the_last_thread_ends_or_the_grace_is_over(
    clock: Any, scripted_thread: Any, thread_secs: Any, grace_secs: float, took_secs: float, left: str
) -> None:
    """Contract part 2: the threads share one grace period, and those alive after it are named. It may be longer than
    any lock can wait, and setting the machine's clock while join waits neither shortens nor lengthens it."""

    class ClockSetter(scripted_thread):
        def join(self, timeout: float) -> None:
            super().join(timeout)
            self.clock.wall_now -= 3600

    coord = RuntimeCoordinator(clock=clock)
    coord.request_stop()
    start = clock.now
    threads: list[Any] = [ClockSetter(clock, secs, f"t{number}") for number, secs in enumerate(thread_secs)]
    if left:
        with pytest.raises(RuntimeError, match=rf"^Coordinator stopped with threads still running: {left}$"):
            coord.join(threads, stop_grace_period_secs=grace_secs)
    else:
        coord.join(threads, stop_grace_period_secs=grace_secs)
    assert clock.now - start == pytest.approx(took_secs)


def test_join_names_stragglers_and_where_they_are(blocked: Any) -> None:
    """The error names each straggler, and the line at which it is."""
    coord = RuntimeCoordinator()
    coord.request_stop()
    with pytest.raises(RuntimeError) as caught:
        coord.join([blocked], stop_grace_period_secs=0.01)
    first, second = str(caught.value).splitlines()
    assert first == "Coordinator stopped with threads still running: blocked"
    assert second.startswith("  blocked is at ")
    assert " in wait" in second


def test_join_logs_stragglers_that_it_does_not_raise(blocked: Any, caplog: Any, raised_by: Any) -> None:
    """Contract part 2: a run that finished need not be failed by a straggler, which the log names; nor is an error
    hidden by one (contract 24)."""
    for error in (None, ValueError("cause")):
        coord = RuntimeCoordinator()
        coord.register_thread(blocked)
        coord.request_stop(error)
        if error is None:
            coord.join(stop_grace_period_secs=0, ignore_live_threads=True)
        else:
            assert raised_by(lambda: coord.join(stop_grace_period_secs=0)) is error  # noqa: B023  # called at once
        assert coord.joined
        assert "Coordinator stopped with threads still running: blocked" in caplog.text
        caplog.clear()


def test_join_waits_for_threads_without_a_stop(blocked_thread: Any) -> None:
    """Before a stop is requested join waits for the threads' own end, however long, and ends with them."""
    coord = RuntimeCoordinator()
    threads = [blocked_thread(name) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    joined = threading.Thread(target=coord.join, args=(threads, 0))
    joined.start()
    for thread in threads:
        assert not coord.joined
        thread.blocks_on.set()
    joined.join()
    assert coord.joined
    assert not coord.should_stop()


def test_join_wakes_at_a_stop(blocked: Any, raised_by: Any) -> None:
    """A stop requested while join waits begins the grace period at once."""
    coord = RuntimeCoordinator()
    error = ValueError()
    stopper = threading.Thread(target=coord.request_stop, args=(error,))
    stopper.start()
    assert raised_by(lambda: coord.join([blocked], stop_grace_period_secs=0)) is error
    stopper.join()


def test_what_a_join_raises_is_raised_once(blocked: Any, monkeypatch: pytest.MonkeyPatch, raised_by: Any) -> None:
    """The join that a stop wakes raises its error; the requesting thread does not raise it again."""
    coord, error, joined = RuntimeCoordinator(), ValueError(), threading.Event()
    monkeypatch.setattr("supervisor_core.engine.coordinator._log_report", lambda *_, **__: joined.wait(60))
    stopper = threading.Thread(target=coord.request_stop, args=(error,))
    stopper.start()
    assert raised_by(lambda: coord.join([blocked], stop_grace_period_secs=0)) is error
    joined.set()
    stopper.join()


def test_join_where_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch, blocked_thread: Any) -> None:
    """Join needs a thread of its own to be woken by; without one it looks again and again."""
    coord = RuntimeCoordinator()
    threads = [blocked_thread("a"), blocked_thread("b")]
    for thread in threads:
        thread.start()

    def refuse(_self: threading.Thread) -> None:
        for thread in threads:
            thread.blocks_on.set()
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    coord.join(threads)
    assert not any(thread.is_alive() for thread in threads)


def test_join_from_a_registered_thread() -> None:
    """A thread that is registered itself can join the others; it does not wait for its own end."""
    coord = RuntimeCoordinator()
    failures: list[BaseException] = []

    def stop_all() -> None:
        coord.request_stop()
        try:
            coord.join(stop_grace_period_secs=1e6)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=stop_all)
    coord.register_thread(thread)
    thread.start()
    thread.join()
    assert failures == []


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
    coord = RuntimeCoordinator(clock=clock)
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
    coord = RuntimeCoordinator(clock=clock)
    calls: list[str] = []
    coord.register_release(lambda: calls.append("released"))
    coord.request_stop()
    coord.join([scripted_thread(clock, 4.9)])
    with pytest.raises(RuntimeError):
        coord.join([scripted_thread(clock, 1e9)])
    assert calls == []


def test_release_that_fails(clock: Any, caplog: pytest.LogCaptureFixture, scripted_thread: Any) -> None:
    """A release that raises is logged; the next one still runs, and the stragglers are still named."""
    coord = RuntimeCoordinator(clock=clock)
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
    coord = RuntimeCoordinator()
    coord.register_release(blocked.blocks_on.wait, 0)
    coord.request_stop()
    with pytest.raises(RuntimeError, match="blocked"):
        coord.join([blocked], stop_grace_period_secs=0.05)


def test_release_is_over_when_join_returns(blocked_thread: Any) -> None:
    """What is released may take its time within the grace period: join waits for it too."""
    coord = RuntimeCoordinator()
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
