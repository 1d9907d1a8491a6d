"""Joining waits for every thread as long as it may, names those that are left, and raises the first error."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from supervisor_core.engine.coordinator import Coordinator

# Contracts 24 and 32: what a join raises, and whom it waits for.


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

    coord = Coordinator(clock=clock)
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
    coord = Coordinator()
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
        coord = Coordinator()
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
