"""Contract part 1, items 22 to 26, 32 and 33: how threads stop together, and how the first error is reported."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

OutOfRange = tf.errors.OutOfRangeError


class EndOfFile(OutOfRange):
    """An end of input of the program's own."""


def caught(error: BaseException) -> Any:
    """Return the exc_info of an error that was raised."""
    try:
        raise error
    except BaseException:
        return sys.exc_info()


def report(coord: Any, error: BaseException) -> None:
    """Report an error the usual way, from the handler that caught it."""
    try:
        raise error
    except BaseException as caught_error:
        coord.request_stop(caught_error)


def straggler() -> tuple[threading.Thread, Callable[[], None]]:
    """Return a running thread that ignores all stops, and a function that ends it."""
    end = threading.Event()
    thread = threading.Thread(target=end.wait, name="straggler", daemon=True)
    thread.start()

    def release() -> None:
        end.set()
        thread.join()

    return thread, release


@pytest.mark.parametrize("kind", [OutOfRange, EndOfFile])
def test_item_22_end_of_input_is_a_clean_stop(facade: Any, kind: Any) -> None:
    """OutOfRangeError and what derives from it stop the threads and are not raised."""
    coord = facade.Coordinator()
    report(coord, kind(None, None, "exhausted"))
    assert coord.should_stop()
    coord.join([])


def test_item_22_the_clean_types_can_be_chosen(facade: Any) -> None:
    """Types that the program names are clean, and then OutOfRangeError is not."""
    clean = facade.Coordinator(clean_stop_exception_types=(StopIteration,))
    report(clean, StopIteration())
    clean.join([])
    for types in ((StopIteration,), []):
        coord = facade.Coordinator(clean_stop_exception_types=types)
        error = OutOfRange(None, None, "exhausted")
        report(coord, error)
        with pytest.raises(OutOfRange) as raised:
            coord.join([])
        assert raised.value is error


def test_item_23_the_first_error_wins(facade: Any) -> None:
    """Of two errors the first is raised by join."""
    coord = facade.Coordinator()
    report(coord, KeyError("first"))
    report(coord, ValueError("second"))
    with pytest.raises(KeyError, match="first"):
        coord.join([])


def test_item_23_an_error_after_the_stop_is_ignored(facade: Any) -> None:
    """An error reported after a stop without one is not raised."""
    coord = facade.Coordinator()
    coord.request_stop()
    report(coord, ValueError("late"))
    coord.join([])


def test_item_23_an_error_after_join_is_raised(facade: Any) -> None:
    """After join it would not be seen any more, so it is raised at once; a clean one and a plain stop are not."""
    coord = facade.Coordinator()
    coord.join([])
    with pytest.raises(ValueError, match="late"):
        report(coord, ValueError("late"))
    with pytest.raises(ValueError, match="later"):
        coord.request_stop(caught(ValueError("later")))
    report(coord, OutOfRange(None, None, "exhausted"))
    coord.request_stop()
    assert coord.should_stop()


def test_item_24_the_recorded_error_beats_the_stragglers(facade: Any) -> None:
    """With an error and a thread that does not end, join raises the error."""
    thread, release = straggler()
    coord = facade.Coordinator()
    report(coord, KeyError("the cause"))
    with pytest.raises(KeyError, match="the cause"):
        coord.join([thread], stop_grace_period_secs=0.01)
    release()


@pytest.mark.parametrize("registered", [False, True])
def test_item_24_stragglers_are_named(facade: Any, registered: bool) -> None:
    """Without an error, threads that outlive the grace period are an error that names them; or not, if so wished."""
    thread, release = straggler()
    coord = facade.Coordinator()
    coord.request_stop()
    if registered:
        coord.register_thread(thread)
    with pytest.raises(RuntimeError, match="Coordinator stopped with threads still running: straggler"):
        coord.join(None if registered else [thread], stop_grace_period_secs=0.01)
    coord.join([thread], stop_grace_period_secs=0.01, ignore_live_threads=True)
    release()


def test_item_24_join_clears_the_registrations(facade: Any) -> None:
    """A thread is joined by the next join, not by the one after."""
    thread, release = straggler()
    coord = facade.Coordinator()
    coord.register_thread(thread)
    coord.request_stop()
    coord.join(stop_grace_period_secs=0.01, ignore_live_threads=True)
    coord.join(stop_grace_period_secs=0.01)
    release()


def test_item_24_clear_stop_resets_joined_error_and_stop_and_nothing_else(facade: Any) -> None:
    """After clear_stop the coordinator is as new, but for the threads that were registered."""
    thread, release = straggler()
    coord = facade.Coordinator()
    report(coord, ValueError("old"))
    with pytest.raises(ValueError, match="old"):
        coord.join([])
    assert coord.joined
    coord.clear_stop()
    assert not coord.joined
    assert not coord.should_stop()
    coord.raise_requested_exception()
    coord.register_thread(thread)
    coord.clear_stop()
    report(coord, KeyError("new"))
    with pytest.raises(KeyError, match="new"):
        coord.join(stop_grace_period_secs=0.01)
    coord.clear_stop()
    coord.register_thread(thread)
    coord.clear_stop()
    coord.request_stop()
    with pytest.raises(RuntimeError, match="straggler"):
        coord.join(stop_grace_period_secs=0.01)
    release()


@pytest.mark.parametrize("error", [ValueError("x"), KeyboardInterrupt(), SystemExit(3)])
def test_item_25_stop_on_exception_keeps_everything_for_join(facade: Any, error: BaseException) -> None:
    """Whatever the body raises is swallowed, stops the threads, and comes back from join, the very object."""
    coord = facade.Coordinator()
    with coord.stop_on_exception():
        raise error
    assert coord.should_stop()
    with pytest.raises(type(error)) as raised:
        coord.join([])
    assert raised.value is error


def test_item_26_a_looper_is_a_registered_daemon(facade: Any) -> None:
    """A looper is a daemon thread that the coordinator's join waits for without being asked."""
    coord = facade.Coordinator()
    started, end = threading.Event(), threading.Event()
    looper = facade.LooperThread.loop(coord, 60, lambda: (started.set(), end.wait()))
    assert looper.daemon
    assert isinstance(looper, facade.LooperThread)
    assert started.wait(30)
    coord.request_stop()
    with pytest.raises(RuntimeError, match=re.escape(looper.name)):
        coord.join(stop_grace_period_secs=0.01)
    end.set()
    looper.join()


def test_item_26_the_first_call_is_now(facade: Any) -> None:
    """However long the interval, the first call comes at once, with the arguments given."""
    coord = facade.Coordinator()
    called: list[Any] = []
    done = threading.Event()
    facade.LooperThread.loop(coord, 9999, lambda *a, **k: (called.append((a, k)), done.set()), (1,), {"b": 2})
    assert done.wait(30)
    coord.request_stop()
    coord.join()
    assert called == [((1,), {"b": 2})]


@pytest.mark.parametrize("interval", [None, 0.001])
def test_item_26_calls_go_on_until_the_stop(facade: Any, interval: float | None) -> None:
    """None calls back to back, a number calls on that interval; both until the stop."""
    coord = facade.Coordinator()
    calls: list[int] = []

    def target() -> None:
        calls.append(1)
        if len(calls) == 5:
            coord.request_stop()

    facade.LooperThread.loop(coord, interval, target)
    coord.join()
    assert len(calls) == 5


@pytest.mark.parametrize("fails", [False, True])
def test_item_26_stop_loop_comes_only_at_a_clean_end(facade: Any, fails: bool) -> None:
    """start_loop, run_loop and then stop_loop, which is left out after an exception; the exception comes from join."""
    coord = facade.Coordinator()
    calls: list[str] = []

    class Looper(facade.LooperThread):  # type: ignore[misc,name-defined]
        def start_loop(self) -> None:
            calls.append("start")

        def run_loop(self) -> None:
            calls.append("run")
            if fails:
                raise ValueError("in the loop")
            coord.request_stop()

        def stop_loop(self) -> None:
            calls.append("stop")

    Looper(coord, 0.001).start()
    if fails:
        with pytest.raises(ValueError, match="in the loop"):
            coord.join()
    else:
        coord.join()
    assert calls == ["start", "run", *([] if fails else ["stop"])]


def test_item_32_tensorflows_own_checks_pass(facade: Any) -> None:
    """TensorFlow's looper and any isinstance check take the coordinator, and it is true."""
    coord = facade.Coordinator()
    assert isinstance(coord, tf.train.Coordinator)
    assert isinstance(coord, tf.compat.v1.train.Coordinator)
    assert bool(coord)
    coord.request_stop()
    assert bool(coord)
    done = threading.Event()
    other = facade.Coordinator()
    tf.compat.v1.train.LooperThread.loop(other, 9999, done.set)
    assert done.wait(30)
    other.request_stop()
    other.join()
    assert issubclass(facade.LooperThread, tf.compat.v1.train.LooperThread)


@pytest.mark.parametrize("how", ["none", "error", "exc_info", "ex=error", "ex=exc_info"])
def test_item_32_every_way_to_request_a_stop(facade: Any, how: str) -> None:
    """None, an exception or an exc_info, positional or by name, from any thread; the identity is kept."""
    coord = facade.Coordinator()
    error = tf.errors.AbortedError(None, None, "preempted")

    def request() -> None:
        try:
            raise error
        except tf.errors.AbortedError as ex:
            what = {"none": None, "error": ex}.get(how.removeprefix("ex="), sys.exc_info())
            if how.startswith("ex="):
                coord.request_stop(ex=what)
            else:
                coord.request_stop(what)

    thread = threading.Thread(target=request)
    thread.start()
    thread.join()
    assert coord.should_stop()
    if how == "none":
        coord.join([])
        return
    with pytest.raises(tf.errors.AbortedError) as raised:
        coord.join([])
    assert raised.value is error


def test_item_32_an_error_without_a_text_stops_all_the_same(ours: Any) -> None:
    """A stop is never lost for want of a traceback or a text, as it is in the original."""
    for error in (RuntimeError("never raised"), type("Mute", (Exception,), {"__str__": lambda self: 1 / 0})()):
        coord = ours.Coordinator()
        coord.request_stop(error)
        assert coord.should_stop()
        with pytest.raises(type(error)) as raised:
            coord.join([])
        assert raised.value is error


def test_item_32_waiting_for_no_time_answers_at_once(facade: Any) -> None:
    """A timeout of 0 or less returns whether a stop was requested."""
    coord = facade.Coordinator()
    assert [coord.wait_for_stop(secs) for secs in (0, -1.5)] == [False, False]
    coord.request_stop()
    assert [coord.wait_for_stop(secs) for secs in (0, -1.5, None)] == [True] * 3


def test_item_32_threads_that_never_started_and_a_second_join(facade: Any) -> None:
    """A thread that was never started is not waited for, and join can be called again and raises again."""
    coord = facade.Coordinator()
    coord.register_thread(threading.Thread(target=int))
    coord.join([threading.Thread(target=int)])
    coord.join()
    again = facade.Coordinator()
    report(again, ValueError("still there"))
    for _ in range(2):
        with pytest.raises(ValueError, match="still there"):
            again.join([])


def test_item_33_asking_clears_nothing(facade: Any) -> None:
    """should_stop and raise_requested_exception answer the same at every step."""
    coord = facade.Coordinator()
    for _ in range(2):
        coord.raise_requested_exception()
        assert not coord.should_stop()
    error = ValueError("kept")
    report(coord, error)
    for _ in range(3):
        assert coord.should_stop()
        with pytest.raises(ValueError, match="kept") as raised:
            coord.raise_requested_exception()
        assert raised.value is error


def test_item_26_what_a_looper_refuses(facade: Any) -> None:
    """No coordinator, or arguments without a target."""
    with pytest.raises(ValueError, match="'coord' argument must be a Coordinator"):
        facade.LooperThread(object(), 1)
    with pytest.raises(ValueError, match="require that you also pass 'target'"):
        facade.LooperThread(facade.Coordinator(), 1, args=(1,))
