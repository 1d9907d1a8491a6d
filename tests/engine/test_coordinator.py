"""Threads stop together, and the first error reaches whoever joins."""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from typing import Any

import pytest

from supervisor_core.engine.coordinator import Coordinator


class EndOfInputError(Exception):
    pass


# Contract 22: clean stops.


def test_22_clean_stop_types_and_their_subclasses() -> None:
    """Contract 22: an exception of a clean type, or of a subclass, stops the threads and is never raised; nor is one
    that comes with its traceback."""

    class SubError(EndOfInputError):
        pass

    for error in (EndOfInputError("done"), SubError("done")):
        coord = Coordinator([EndOfInputError])
        coord.request_stop(error)
        assert coord.should_stop()
        assert coord.is_clean_stop(error)
        coord.join()
        coord = Coordinator([EndOfInputError])
        with coord.stop_on_exception():
            raise error
        assert coord.should_stop()
        coord.join()


# Contract 23: which exception is raised.


@pytest.mark.parametrize("first", [ValueError("first"), None])
def test_23_the_first_request_counts(first: ValueError | None, raised_by: Any) -> None:
    """Contract 23: of two errors the first is raised; one that is reported after a plain stop is ignored."""
    coord = Coordinator()
    coord.request_stop(first)
    coord.request_stop(ValueError("second"))
    if first is None:
        coord.join()
        coord.raise_requested_exception()
    else:
        assert raised_by(coord.join) is first


@pytest.mark.parametrize("stopped", [False, True])
def test_23_after_join_is_raised(stopped: bool, raised_by: Any) -> None:
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


# Contract 24: clear_stop.


def test_24_clear_stop_resets_all_but_registrations(raised_by: Any, blocked: Any) -> None:
    """Contract 24: clear_stop resets the stop, the error and the join; registered threads stay registered. Contract 32:
    it counts as true, whatever its state: queue runners ask ``if coord``."""
    coord = Coordinator()
    coord.request_stop(ValueError("old"))
    with pytest.raises(ValueError, match="old"):
        coord.join()
    assert (coord.joined, bool(coord)) == (True, True)
    coord.register_thread(blocked)
    coord.clear_stop()
    assert (coord.should_stop(), coord.joined, bool(coord)) == (False, False, True)
    coord.raise_requested_exception()
    new = ValueError("new")
    coord.request_stop(new)
    assert raised_by(lambda: coord.join(stop_grace_period_secs=0)) is new
    coord.clear_stop()
    coord.register_thread(blocked)
    coord.clear_stop()
    coord.request_stop()
    with pytest.raises(RuntimeError, match="blocked"):
        coord.join(stop_grace_period_secs=0)


# Contract 25: stop_on_exception.


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit, StopIteration])
def test_25_stop_on_exception(kind: type[BaseException], raised_by: Any) -> None:
    """Contract 25: whatever the body raises is swallowed there, and raised by join: the same object."""
    coord = Coordinator()
    error = kind()
    with coord.stop_on_exception():
        pass
    assert not coord.should_stop()
    with coord.stop_on_exception():
        raise error
    assert coord.should_stop()
    assert raised_by(coord.join) is error


def test_25_after_join_it_passes(raised_by: Any) -> None:
    """Contract 25, 23: after a join no later one would raise it, so it is raised here."""
    coord = Coordinator()
    coord.join()
    error = StopIteration()

    def body() -> None:
        with coord.stop_on_exception():
            raise error

    assert raised_by(body) is error


# Contract 33: every step asks.


def test_33_asking_clears_nothing(raised_by: Any) -> None:
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


def test_whether_the_main_thread_asks(clock: Any) -> None:
    """A coordinator knows whether the main thread asks for, or waits for, a stop; what other threads ask counts for
    nothing, and neither does what was asked before `reset_loop_checks`."""
    for ask in (Coordinator.should_stop, lambda coord: coord.wait_for_stop(0), lambda coord: coord.join()):
        coord = Coordinator(clock=clock)
        service = threading.Thread(target=coord.should_stop)
        service.start()
        service.join()
        assert not coord.loop_checks_stop
        ask(coord)
        assert coord.loop_checks_stop
        coord.reset_loop_checks()
        assert not coord.loop_checks_stop
