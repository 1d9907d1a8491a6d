"""Threads stop together, and the first error reaches whoever joins."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from supervisor_core.runtime.coordinator import Coordinator


class EndOfInputError(Exception):
    pass


class AbortedError(Exception):
    """As TensorFlow's, which training loops retry."""


class ScriptedThread:
    """A thread that ends at a given moment of the clock, which joining it moves."""

    ident = None

    def __init__(self, clock: Any, ends_in_secs: float, name: str = "scripted") -> None:
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


@pytest.fixture
def blocked() -> Any:
    """A running thread that is blocked until the test is over."""
    thread = BlockedThread()
    thread.start()
    yield thread
    thread.blocks_on.set()
    thread.join()


def raised_by(call: Callable[[], object]) -> BaseException:
    """Call, and return what was raised."""
    with pytest.raises(BaseException) as caught:
        call()
    return caught.value


def test_starts_clear() -> None:
    """Nothing is requested, joined or reported at first, and it counts as true."""
    coord = Coordinator()
    assert (coord.should_stop(), coord.joined, bool(coord)) == (False, False, True)
    coord.raise_requested_exception()


# Contract 22: clean stops.


def test_22_clean_stop_types_and_their_subclasses() -> None:
    """Contract 22: an exception of a clean type, or of a subclass, stops the threads and is never raised."""

    class SubError(EndOfInputError):
        pass

    for error in (EndOfInputError("done"), SubError("done")):
        coord = Coordinator([EndOfInputError])
        coord.request_stop(error)
        assert coord.should_stop()
        assert coord.is_clean_stop(error)
        coord.join()


def test_22_no_clean_stop_types() -> None:
    """Contract 22: with an empty list every exception is an error."""
    coord = Coordinator(clean_stop_exception_types=[])
    error = StopIteration()
    coord.request_stop(error)
    assert raised_by(coord.join) is error


def test_22_clean_stop_from_exc_info() -> None:
    """Contract 22: a clean exception passed as exc_info is one too."""
    coord = Coordinator((EndOfInputError,))
    with coord.stop_on_exception():
        raise EndOfInputError
    assert coord.should_stop()
    coord.join()


# Contract 23: which exception is raised.


def test_23_first_exception_wins() -> None:
    """Contract 23: of two errors the first is raised; the second came after the stop and is ignored."""
    coord = Coordinator()
    first = ValueError("first")
    coord.request_stop(first)
    coord.request_stop(ValueError("second"))
    assert raised_by(coord.join) is first


def test_23_after_the_stop_is_ignored() -> None:
    """Contract 23: an error reported after a plain stop is ignored."""
    coord = Coordinator()
    coord.request_stop()
    coord.request_stop(ValueError("late"))
    coord.join()
    coord.raise_requested_exception()


@pytest.mark.parametrize("stopped", [False, True])
def test_23_after_join_is_raised(stopped: bool) -> None:
    """Contract 23: an error reported after the join is raised where it is reported, in whatever form."""
    coord = Coordinator()
    if stopped:
        coord.request_stop()
    coord.join()
    error = ValueError("after the join")
    assert raised_by(lambda: coord.request_stop(error)) is error
    try:
        raise error
    except ValueError:
        info = sys.exc_info()
    assert raised_by(lambda: coord.request_stop(info)) is error
    assert coord.should_stop() == stopped


def test_23_clean_after_join() -> None:
    """Contract 23: a clean stop or a plain request after the join raises nothing, and stops."""
    coord = Coordinator([EndOfInputError])
    coord.join()
    coord.request_stop(EndOfInputError())
    assert coord.should_stop()


# Contract 24: join and clear_stop.


def test_24_error_beats_stragglers(blocked: BlockedThread) -> None:
    """Contract 24: with a recorded error and a straggler, the error is raised."""
    coord = Coordinator()
    coord.register_thread(blocked)
    error = ValueError("cause")
    coord.request_stop(error)
    assert raised_by(lambda: coord.join(stop_grace_period_secs=0)) is error


def test_24_join_clears_registrations(blocked: BlockedThread) -> None:
    """Contract 24: threads registered before a join are not waited for by the next; also after a join that raises."""
    coord = Coordinator()
    coord.register_thread(blocked)
    coord.request_stop()
    with pytest.raises(RuntimeError):
        coord.join(stop_grace_period_secs=0)
    coord.join(stop_grace_period_secs=0)


def test_24_clear_stop_resets_joined_exception_and_event() -> None:
    """Contract 24: clear_stop forgets the stop, the error and the join."""
    coord = Coordinator()
    coord.request_stop(ValueError("old"))
    with pytest.raises(ValueError, match="old"):
        coord.join()
    assert coord.joined
    coord.clear_stop()
    assert (coord.should_stop(), coord.joined) == (False, False)
    coord.raise_requested_exception()
    new = ValueError("new")
    coord.request_stop(new)
    assert raised_by(coord.join) is new


def test_24_clear_stop_keeps_registrations(blocked: BlockedThread) -> None:
    """Contract 24: clear_stop leaves registered threads registered."""
    coord = Coordinator()
    coord.register_thread(blocked)
    coord.clear_stop()
    coord.request_stop()
    with pytest.raises(RuntimeError, match="blocked"):
        coord.join(stop_grace_period_secs=0)


# Contract 25: stop_on_exception.


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit, StopIteration])
def test_25_stop_on_exception(kind: type[BaseException]) -> None:
    """Contract 25: whatever the body raises is swallowed there, and raised by join: the same object."""
    coord = Coordinator()
    error = kind()
    with coord.stop_on_exception():
        raise error
    assert coord.should_stop()
    assert raised_by(coord.join) is error


def test_25_after_join_it_passes() -> None:
    """Contract 25, 23: once joined, nobody would raise it later, so it is raised here."""
    coord = Coordinator()
    coord.join()
    error = StopIteration()

    def body() -> None:
        with coord.stop_on_exception():
            raise error

    assert raised_by(body) is error


def test_25_no_exception_no_stop() -> None:
    """A body that raises nothing stops nothing."""
    coord = Coordinator()
    with coord.stop_on_exception():
        pass
    assert not coord.should_stop()


# Contract 32: what request_stop takes, and what must not break it.


def test_32_never_falsy() -> None:
    """Contract 32: it counts as true, whatever its state: queue runners ask ``if coord``."""
    coord = Coordinator()
    assert bool(coord) is True
    coord.request_stop()
    coord.join()
    assert bool(coord) is True


@pytest.mark.parametrize("form", ["positional", "ex", "exc_info", "exc_info ex"])
def test_32_forms_of_an_error(form: str) -> None:
    """Contract 32: an exception or exc_info, positional or as ``ex=``; join raises the very object."""
    coord = Coordinator()
    try:
        raise AbortedError("retry me")
    except AbortedError as caught:
        error = caught
        given: Any = sys.exc_info() if "exc_info" in form else caught
        if "ex" in form.split():
            coord.request_stop(ex=given)
        else:
            coord.request_stop(given)
    assert raised_by(coord.join) is error
    assert raised_by(coord.raise_requested_exception) is error


def test_32_without_traceback() -> None:
    """Contract part 2: request_stop(RuntimeError()) that was never raised stops, and is raised by join."""
    coord = Coordinator()
    error = RuntimeError("never raised")
    coord.request_stop(error)
    assert coord.should_stop()
    assert raised_by(coord.join) is error


def test_32_falsy_exception() -> None:
    """An exception that counts as false is an error all the same."""

    class EmptyError(Exception):
        def __bool__(self) -> bool:
            return False

    coord = Coordinator()
    error = EmptyError()
    coord.request_stop(error)
    assert raised_by(coord.join) is error


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise LookupError("no text")


def test_32_unprintable_exception(caplog: pytest.LogCaptureFixture) -> None:
    """Contract 32: an exception whose text cannot be made stops the threads and is raised; the log says so."""
    caplog.set_level(logging.INFO, "supervisor_core")
    coord = Coordinator()
    error = UnprintableError()
    coord.request_stop(error)
    assert coord.should_stop()
    assert raised_by(coord.join) is error
    assert "its __str__ raised LookupError" in caplog.text


def test_32_unusable_clean_types() -> None:
    """Contract 32: clean types that nothing can be compared with do not keep the threads from stopping."""
    coord = Coordinator(["OutOfRangeError"])  # type: ignore[list-item]
    error = ValueError("real")
    coord.request_stop(error)
    assert coord.should_stop()
    assert raised_by(coord.join) is error


@pytest.mark.parametrize("given", ["text", (None, None, None), (1, 2), ValueError])
def test_32_not_an_exception(given: Any) -> None:
    """What is no exception stops the threads too, and join says what was wrong with it."""
    coord = Coordinator()
    coord.request_stop(given)
    assert coord.should_stop()
    with pytest.raises(ValueError, match=f"request_stop.. got a {type(given).__name__} outside of an except block"):
        coord.join()


def test_32_not_an_exception_while_handling_one() -> None:
    """What is no exception, passed while one is being handled, means that one."""
    coord = Coordinator()
    try:
        raise AbortedError
    except AbortedError as caught:
        error = caught
        coord.request_stop("it failed")  # type: ignore[arg-type]
    assert raised_by(coord.join) is error


@pytest.mark.parametrize("timeout", [0, -1, -0.001, -1e9])
def test_32_negative_wait(timeout: float) -> None:
    """Contract 32: waiting for a negative time answers at once."""
    coord = Coordinator()
    assert not coord.wait_for_stop(timeout)
    coord.request_stop()
    assert coord.wait_for_stop(timeout)
    assert coord.wait_for_stop()


def test_32_threads_never_started() -> None:
    """Contract 32: threads that were never started are not waited for."""
    coord = Coordinator()
    coord.register_thread(threading.Thread())
    coord.join([threading.Thread()])
    coord.request_stop()
    coord.join([threading.Thread()], stop_grace_period_secs=1e9)


def test_32_joined_again() -> None:
    """Contract 32: it can be joined again, and raises the recorded error again."""
    coord = Coordinator()
    coord.join()
    coord.join()
    coord.clear_stop()
    error = ValueError()
    coord.request_stop(error)
    assert [raised_by(coord.join), raised_by(coord.join)] == [error, error]


def test_32_from_any_thread() -> None:
    """Contract 32: of threads that report at once exactly one error is recorded."""
    coord, barrier = Coordinator(), threading.Barrier(8)
    errors = [ValueError(number) for number in range(8)]

    def report(error: BaseException) -> None:
        barrier.wait()
        coord.request_stop(error)

    threads = [threading.Thread(target=report, args=(error,)) for error in errors]
    for thread in threads:
        thread.start()
    assert coord.wait_for_stop()
    assert raised_by(lambda: coord.join(threads)) in errors


# Contract 33: every step asks.


def test_33_asking_clears_nothing() -> None:
    """Contract 33: raise_requested_exception raises each time, and its traceback does not grow."""
    coord = Coordinator()
    with coord.stop_on_exception():
        raise ValueError("seen at every step")
    depths = []
    for _ in range(5):
        assert coord.should_stop()
        error = raised_by(coord.raise_requested_exception)
        depths.append(len(traceback.extract_tb(error.__traceback__)))
    assert len(set(depths)) == 1
    assert "test_33_asking_clears_nothing" in {frame.name for frame in traceback.extract_tb(error.__traceback__)[1:]}


# Contract part 2: joins.


def test_join_returns_when_the_last_thread_ends(clock: Any) -> None:
    """Contract part 2: a thread that needs 4.2 s is noticed at 4.2 s, and the threads share one grace period."""
    coord = Coordinator(clock=clock)
    coord.request_stop()
    start = clock.now
    threads: list[Any] = [ScriptedThread(clock, secs) for secs in (1.0, 4.2, 0.5)]
    coord.join(threads, stop_grace_period_secs=120)
    assert clock.now - start == pytest.approx(4.2)


def test_join_gives_up_when_the_grace_is_over(clock: Any) -> None:
    """One grace period holds for all threads together, and those alive after it are named."""
    coord = Coordinator(clock=clock)
    coord.request_stop()
    start = clock.now
    threads: list[Any] = [ScriptedThread(clock, secs, name) for secs, name in ((900, "slow"), (5, "ok"), (900, "dead"))]
    with pytest.raises(RuntimeError, match=r"^Coordinator stopped with threads still running: slow dead$"):
        coord.join(threads, stop_grace_period_secs=10)
    assert clock.now - start == pytest.approx(10)


@pytest.mark.parametrize("grace_secs", [0, -5])
def test_join_without_grace(clock: Any, grace_secs: float) -> None:
    """Without a grace period nobody is waited for."""
    coord = Coordinator(clock=clock)
    coord.request_stop()
    thread: Any = ScriptedThread(clock, 1)
    with pytest.raises(RuntimeError):
        coord.join([thread], stop_grace_period_secs=grace_secs)
    assert thread.joins == []


def test_join_endless_grace(clock: Any) -> None:
    """A grace period longer than any lock can wait is fine."""
    coord = Coordinator(clock=clock)
    coord.request_stop()
    coord.join([ScriptedThread(clock, 3)], stop_grace_period_secs=float("inf"))  # type: ignore[list-item]


def test_join_when_the_clock_is_set(clock: Any) -> None:
    """Setting the machine's clock while join waits neither shortens nor lengthens the grace period."""

    class ClockSetter(ScriptedThread):
        def join(self, timeout: float) -> None:
            super().join(min(timeout, 1.0))
            self.clock.wall_now -= 3600

    coord = Coordinator(clock=clock)
    coord.request_stop()
    start = clock.now
    with pytest.raises(RuntimeError):
        coord.join([ClockSetter(clock, 1e9)], stop_grace_period_secs=10)  # type: ignore[list-item]
    assert clock.now - start == 10


def test_join_names_stragglers_and_where_they_are(blocked: BlockedThread) -> None:
    """The error names each straggler, and the line at which it is."""
    coord = Coordinator()
    coord.request_stop()
    with pytest.raises(RuntimeError) as caught:
        coord.join([blocked], stop_grace_period_secs=0.01)
    first, second = str(caught.value).splitlines()
    assert first == "Coordinator stopped with threads still running: blocked"
    assert second.startswith("  blocked is at ")
    assert " in wait" in second


def test_join_may_ignore_stragglers(blocked: BlockedThread, caplog: pytest.LogCaptureFixture) -> None:
    """Contract part 2: a run that finished need not be failed by a straggler, which the log names."""
    coord = Coordinator()
    coord.register_thread(blocked)
    coord.request_stop()
    coord.join(stop_grace_period_secs=0, ignore_live_threads=True)
    assert coord.joined
    assert "Coordinator stopped with threads still running: blocked" in caplog.text


def test_join_logs_stragglers_that_an_error_hides(blocked: BlockedThread, caplog: pytest.LogCaptureFixture) -> None:
    """When the recorded error is raised, stragglers are named in the log."""
    coord = Coordinator()
    coord.request_stop(ValueError())
    with pytest.raises(ValueError):
        coord.join([blocked], stop_grace_period_secs=0)
    assert "threads still running: blocked" in caplog.text


def test_join_waits_for_threads_without_a_stop() -> None:
    """Before a stop is requested join waits for the threads' own end, however long, and ends with them."""
    coord = Coordinator()
    threads = [BlockedThread(name) for name in ("a", "b")]
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


def test_join_wakes_at_a_stop(blocked: BlockedThread) -> None:
    """A stop requested while join waits begins the grace period at once."""
    coord = Coordinator()
    error = ValueError()
    threading.Thread(target=coord.request_stop, args=(error,)).start()
    assert raised_by(lambda: coord.join([blocked], stop_grace_period_secs=0)) is error


def test_what_a_join_tells_is_told_once(blocked: BlockedThread, monkeypatch: pytest.MonkeyPatch) -> None:
    """The join that a stop wakes raises its error; whoever requested it is not told again, however late it looks."""
    coord, error, joined = Coordinator(), ValueError(), threading.Event()
    monkeypatch.setattr("supervisor_core.runtime.coordinator._log_report", lambda *_, **__: joined.wait(60))
    stopper = threading.Thread(target=coord.request_stop, args=(error,))
    stopper.start()
    assert raised_by(lambda: coord.join([blocked], stop_grace_period_secs=0)) is error
    joined.set()
    stopper.join()


def test_join_where_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Join needs a thread of its own to be woken by; without one it looks again and again."""
    coord = Coordinator()
    threads = [BlockedThread("a"), BlockedThread("b")]
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
    coord = Coordinator()
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


# Contract part 2: blocked runs are released before the grace is over.


def test_release_frees_blocked_threads(clock: Any) -> None:
    """Contract part 2: threads that block are released in the grace period, and joined as soon as they end."""
    coord = Coordinator(clock=clock)
    released = threading.Event()

    class ReleasedThread(ScriptedThread):
        def join(self, timeout: float) -> None:
            if self.joins:
                released.wait()
            super().join(timeout)

    thread: Any = ReleasedThread(clock, 1e9)
    start = clock.now
    released_at: list[float] = []

    def close_queues() -> None:
        released_at.append(clock.now - start)
        thread.ends_at = clock.now + 1
        released.set()

    coord.register_release(close_queues)
    coord.request_stop()
    coord.join([thread], stop_grace_period_secs=120)
    assert released_at == [5.0]
    assert clock.now - start == 6.0


@pytest.mark.parametrize(("after_secs", "grace_secs", "expected"), [(5, 120, 5), (5, 4, 2), (300, 120, 60), (0, 9, 0)])
def test_release_moment(clock: Any, after_secs: float, grace_secs: float, expected: float) -> None:
    """The release comes after its time, or after half the grace period if that is less."""
    coord = Coordinator(clock=clock)
    thread: Any = ScriptedThread(clock, 1e9)
    called = threading.Event()
    coord.register_release(called.set, after_secs)
    coord.request_stop()
    with pytest.raises(RuntimeError):
        coord.join([thread], stop_grace_period_secs=grace_secs)
    called.wait()
    before = [] if expected == 0 else [pytest.approx(expected)]
    assert thread.joins == [*before, pytest.approx(grace_secs - expected)]


def test_releases_in_the_order_of_their_times(clock: Any) -> None:
    """Several releases come each at its own time, whatever the order in which they were registered."""
    coord = Coordinator(clock=clock)
    thread: Any = ScriptedThread(clock, 1e9)
    for after_secs in (2, 1, 3):
        coord.register_release(lambda: None, after_secs)
    coord.request_stop()
    with pytest.raises(RuntimeError):
        coord.join([thread], stop_grace_period_secs=10)
    assert thread.joins == [1, 1, 1, 7]


def test_release_only_when_needed(clock: Any) -> None:
    """Threads that end in time are not released, and the release does not outlive the join."""
    coord = Coordinator(clock=clock)
    calls: list[str] = []
    coord.register_release(lambda: calls.append("released"))
    coord.request_stop()
    coord.join([ScriptedThread(clock, 4.9)])  # type: ignore[list-item]
    with pytest.raises(RuntimeError):
        coord.join([ScriptedThread(clock, 1e9)])  # type: ignore[list-item]
    assert calls == []


def test_release_that_fails(clock: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A release that raises is logged; the next one still runs, and the stragglers are still named."""
    coord = Coordinator(clock=clock)
    called = threading.Event()

    def fail() -> None:
        raise OSError("session is gone")

    coord.register_release(fail, 1)
    coord.register_release(called.set, 2)
    coord.request_stop()
    with pytest.raises(RuntimeError, match="scripted"):
        coord.join([ScriptedThread(clock, 1e9)])  # type: ignore[list-item]
    called.wait()
    for thread in threading.enumerate():  # the hand-set clock runs ahead of them
        if thread.name == "Coordinator-release":
            thread.join()
    assert "could not be released" in caplog.text
    assert "session is gone" in caplog.text


def test_release_that_blocks(blocked: BlockedThread) -> None:
    """A release that blocks itself does not hold up the join beyond the grace period."""
    coord = Coordinator()
    coord.register_release(blocked.blocks_on.wait, 0)
    coord.request_stop()
    with pytest.raises(RuntimeError, match="blocked"):
        coord.join([blocked], stop_grace_period_secs=0.05)


def test_release_is_over_when_join_returns() -> None:
    """What is released may take its time within the grace period: join waits for it too."""
    coord = Coordinator()
    thread = BlockedThread()
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


# Contract part 2: signal handlers.


def test_request_stop_in_a_signal_handler() -> None:
    """Contract part 2: a handler that interrupts a thread which waits, and reports an error, ends the wait."""
    coord = Coordinator()
    error = ValueError("from the handler")
    earlier = signal.signal(signal.SIGUSR1, lambda *_: coord.request_stop(error))

    def send() -> None:
        while not coord._latch._bells:
            pass
        os.kill(os.getpid(), signal.SIGUSR1)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        assert coord.wait_for_stop()
    finally:
        sender.join()
        signal.signal(signal.SIGUSR1, earlier)
    assert raised_by(coord.join) is error


def test_request_stop_interrupted_by_itself() -> None:
    """Contract part 2: a handler that interrupts request_stop at any line and calls it too never hangs."""
    module = sys.modules[Coordinator.__module__].__file__
    latch = sys.modules["supervisor_core.runtime.latch"].__file__
    errors = ValueError("body"), ValueError("handler")
    number, seen = 0, 0
    while seen >= number:
        coord = Coordinator()
        number, seen = number + 1, 0

        def trace(frame: Any, event: str, _arg: object) -> Any:
            nonlocal seen
            if frame.f_code.co_filename in (module, latch) and event == "line":
                seen += 1
                if seen == number:  # noqa: B023  # called within the same round
                    signal.raise_signal(signal.SIGUSR1)
            return trace

        earlier = signal.signal(signal.SIGUSR1, lambda *_, coord=coord: coord.request_stop(errors[1]))
        tracing = sys.gettrace()
        sys.settrace(trace)
        try:
            coord.request_stop(errors[0])
        finally:
            sys.settrace(tracing)
            signal.signal(signal.SIGUSR1, earlier)
        assert coord.wait_for_stop()
        assert raised_by(coord.join) in errors
    assert number > 20


# What is logged.


def test_error_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The recorded error is logged, with its traceback if there is one; an ignored one is not."""
    caplog.set_level(logging.INFO, "supervisor_core")
    coord = Coordinator()
    with coord.stop_on_exception():
        raise ValueError("seen")
    coord.request_stop(ValueError("ignored"))
    assert [record.getMessage() for record in caplog.records] == ["Error reported to Coordinator: seen"]
    assert caplog.records[0].exc_info
    caplog.clear()
    Coordinator().request_stop(ValueError("bare"))
    assert caplog.messages == ["Error reported to Coordinator: <class 'ValueError'>, bare"]
