"""A stop can be requested with anything, from anywhere, in the middle of anything."""

from __future__ import annotations

import logging
import sys
from itertools import count
from typing import Any

import pytest

from supervisor_core.engine import coordinator
from supervisor_core.engine.coordinator import Coordinator


class AbortedError(Exception):
    """As TensorFlow's, which training loops retry."""


@pytest.mark.parametrize("form", ["positional", "ex", "exc_info", "exc_info ex"])
def test_32_forms_of_an_error(form: str, raised_by: Any) -> None:
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
    coord = Coordinator(clean_types)
    coord.request_stop(error)
    assert coord.should_stop()
    assert raised_by(coord.join) is error
    assert ("its __str__ raised LookupError" in caplog.text) == isinstance(error, UnprintableError)


@pytest.mark.parametrize("given", ["text", (None, None, None), (1, 2), ValueError])
def test_32_not_an_exception(given: Any) -> None:
    """What is no exception stops the threads too, and join says what was wrong with it."""
    coord = Coordinator()
    coord.request_stop(given)
    assert coord.should_stop()
    with pytest.raises(ValueError, match=f"request_stop.. got a {type(given).__name__} outside of an except block"):
        coord.join()


def test_32_not_an_exception_while_handling_one(raised_by: Any) -> None:
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


# Contract part 2: signal handlers.


def test_request_stop_interrupted_by_itself(raised_by: Any, signal_at_line: Any) -> None:
    """Contract part 2: a handler that interrupts request_stop at any line and calls it too never hangs."""
    errors = ValueError("body"), ValueError("handler")
    for number in count(1):
        coord = Coordinator()
        with signal_at_line(number, coordinator, lambda coord=coord: coord.request_stop(errors[1])) as seen:
            coord.request_stop(errors[0])
        assert coord.wait_for_stop()
        assert raised_by(coord.join) in errors
        if len(seen) < number:
            break
    assert number > 20
