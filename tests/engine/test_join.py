"""Joining waits for every thread as long as it may, names those that are left, and raises the first error."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from supervisor_core.engine.coordinator import Coordinator

# Contracts 24 and 32: what a join raises, and whom it waits for.


def test_24_error_beats_stragglers(blocked: Any, raised_by: Any) -> None:
    """Contract 24: with a recorded error and a straggler, the error is raised."""
    coord = Coordinator()
    coord.register_thread(blocked)
    error = ValueError("cause")
    coord.request_stop(error)
    assert raised_by(lambda: coord.join(stop_grace_period_secs=0)) is error


def test_24_join_clears_registrations(blocked: Any) -> None:
    """Contract 24: threads registered before a join are not waited for by the next; also after a join that raises."""
    coord = Coordinator()
    coord.register_thread(blocked)
    coord.request_stop()
    with pytest.raises(RuntimeError):
        coord.join(stop_grace_period_secs=0)
    coord.join(stop_grace_period_secs=0)


def test_32_threads_never_started() -> None:
    """Contract 32: threads that were never started are not waited for."""
    coord = Coordinator()
    coord.register_thread(threading.Thread())
    coord.join([threading.Thread()])
    coord.request_stop()
    coord.join([threading.Thread()], stop_grace_period_secs=1e9)


def test_32_joined_again(raised_by: Any) -> None:
    """Contract 32: it can be joined again, and raises the recorded error again."""
    coord = Coordinator()
    coord.join()
    coord.join()
    coord.clear_stop()
    error = ValueError()
    coord.request_stop(error)
    assert [raised_by(coord.join), raised_by(coord.join)] == [error, error]


# Contract part 2: joins.


def test_join_returns_when_the_last_thread_ends(clock: Any, scripted_thread: Any) -> None:
    """Contract part 2: a thread that needs 4.2 s is noticed at 4.2 s, and the threads share one grace period."""
    coord = Coordinator(clock=clock)
    coord.request_stop()
    start = clock.now
    threads: list[Any] = [scripted_thread(clock, secs) for secs in (1.0, 4.2, 0.5)]
    coord.join(threads, stop_grace_period_secs=120)
    assert clock.now - start == pytest.approx(4.2)


def test_join_gives_up_when_the_grace_is_over(clock: Any, scripted_thread: Any) -> None:
    """One grace period holds for all threads together, and those alive after it are named."""
    coord = Coordinator(clock=clock)
    coord.request_stop()
    start = clock.now
    threads: list[Any] = [
        scripted_thread(clock, secs, name) for secs, name in ((900, "slow"), (5, "ok"), (900, "dead"))
    ]
    with pytest.raises(RuntimeError, match=r"^Coordinator stopped with threads still running: slow dead$"):
        coord.join(threads, stop_grace_period_secs=10)
    assert clock.now - start == pytest.approx(10)


@pytest.mark.parametrize("grace_secs", [0, -5])
def test_join_without_grace(clock: Any, grace_secs: float, scripted_thread: Any) -> None:
    """Without a grace period no thread is waited for."""
    coord = Coordinator(clock=clock)
    coord.request_stop()
    thread: Any = scripted_thread(clock, 1)
    with pytest.raises(RuntimeError):
        coord.join([thread], stop_grace_period_secs=grace_secs)
    assert thread.joins == []


def test_join_endless_grace(clock: Any, scripted_thread: Any) -> None:
    """A grace period longer than any lock can wait is fine."""
    coord = Coordinator(clock=clock)
    coord.request_stop()
    thread = scripted_thread(clock, 3)
    coord.join([thread], stop_grace_period_secs=float("inf"))
    assert thread.joins == [threading.TIMEOUT_MAX]


def test_join_when_the_clock_is_set(clock: Any, scripted_thread: Any) -> None:
    """Setting the machine's clock while join waits neither shortens nor lengthens the grace period."""

    class ClockSetter(scripted_thread):
        def join(self, timeout: float) -> None:
            super().join(min(timeout, 1.0))
            self.clock.wall_now -= 3600

    coord = Coordinator(clock=clock)
    coord.request_stop()
    start = clock.now
    with pytest.raises(RuntimeError):
        coord.join([ClockSetter(clock, 1e9)], stop_grace_period_secs=10)
    assert clock.now - start == 10


def test_join_names_stragglers_and_where_they_are(blocked: Any) -> None:
    """The error names each straggler, and the line at which it is."""
    coord = Coordinator()
    coord.request_stop()
    with pytest.raises(RuntimeError) as caught:
        coord.join([blocked], stop_grace_period_secs=0.01)
    first, second = str(caught.value).splitlines()
    assert first == "Coordinator stopped with threads still running: blocked"
    assert second.startswith("  blocked is at ")
    assert " in wait" in second


def test_join_may_ignore_stragglers(blocked: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Contract part 2: a run that finished need not be failed by a straggler, which the log names."""
    coord = Coordinator()
    coord.register_thread(blocked)
    coord.request_stop()
    coord.join(stop_grace_period_secs=0, ignore_live_threads=True)
    assert coord.joined
    assert "Coordinator stopped with threads still running: blocked" in caplog.text


def test_join_logs_stragglers_that_an_error_hides(blocked: Any, caplog: pytest.LogCaptureFixture) -> None:
    """When the recorded error is raised, stragglers are named in the log."""
    coord = Coordinator()
    coord.request_stop(ValueError())
    with pytest.raises(ValueError):
        coord.join([blocked], stop_grace_period_secs=0)
    assert "threads still running: blocked" in caplog.text


def test_join_waits_for_threads_without_a_stop(blocked_thread: Any) -> None:
    """Before a stop is requested join waits for the threads' own end, however long, and ends with them."""
    coord = Coordinator()
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
    coord = Coordinator()
    error = ValueError()
    stopper = threading.Thread(target=coord.request_stop, args=(error,))
    stopper.start()
    assert raised_by(lambda: coord.join([blocked], stop_grace_period_secs=0)) is error
    stopper.join()


def test_what_a_join_raises_is_raised_once(blocked: Any, monkeypatch: pytest.MonkeyPatch, raised_by: Any) -> None:
    """The join that a stop wakes raises its error; the requesting thread does not raise it again."""
    coord, error, joined = Coordinator(), ValueError(), threading.Event()
    monkeypatch.setattr("supervisor_core.engine.coordinator._log_report", lambda *_, **__: joined.wait(60))
    stopper = threading.Thread(target=coord.request_stop, args=(error,))
    stopper.start()
    assert raised_by(lambda: coord.join([blocked], stop_grace_period_secs=0)) is error
    joined.set()
    stopper.join()


def test_join_where_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch, blocked_thread: Any) -> None:
    """Join needs a thread of its own to be woken by; without one it looks again and again."""
    coord = Coordinator()
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
