"""A service's error stops the run, or ends the service alone."""

from __future__ import annotations

import logging
import sys
from typing import Any

import pytest

from supervisor_core.engine.service import Policy, ServiceThread


class EndOfInputError(Exception):
    pass


# What stops the run, and what does not.


def test_an_error_stops_the_run(
    coord_for: Any, clock: Any, caplog: pytest.LogCaptureFixture, raised_by: Any, scripted: Any
) -> None:
    """The guide's promise: an exception in a service makes should_stop() true; join raises the very object."""
    coord = coord_for(1e9)
    error = ValueError("placeholder x was not fed\nand forty more lines")
    service = scripted(
        coord, 10, [0.0, error], policy=Policy(explain=lambda _: "Feed it by Options.summary_feed_dict.")
    )
    service.run()
    assert coord.should_stop()
    assert raised_by(coord.join) is error
    status = service.status()
    assert (status.state, status.ticks, status.failures) == ("failed", 2, 1)
    assert status.last_error == "ValueError: placeholder x was not fed"
    assert status.last_failure_at == clock.wall_now == status.last_tick_at
    assert not service.stopped_cleanly
    assert "Service save: failed, which stops the run: ValueError: placeholder x was not fed" in caplog.text
    assert "Feed it by Options.summary_feed_dict." in caplog.text


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exceptions have notes from Python 3.11")
def test_the_error_names_the_service(coord_for: Any, scripted: Any) -> None:
    """Contract part 2: the error that stops the run names the service and the remedies."""
    coord = coord_for(1e9)
    error = ValueError("no feed")
    scripted(coord, 10, [error], policy=Policy(explain=lambda _: "Feed x.")).run()
    assert error.__notes__ == [  # type: ignore[attr-defined,unused-ignore]
        "Raised in the service save, which stops the run. Feed x. "
        "With Options(service_errors='continue') it would end the service alone."
    ]


def test_a_target_fails_the_same_way(coord_for: Any, clock: Any, raised_by: Any) -> None:
    """What holds for the standard services holds for targets of ``sv.loop``."""
    coord = coord_for(1e9)
    error = ValueError("mine")

    def target(text: str, *, more: int) -> None:
        assert (text, more) == ("a", 1)
        raise error

    service = ServiceThread(coord, 10, target, ["a"], {"more": 1}, name="target", clock=clock)
    service.run()
    assert raised_by(coord.join) is error
    assert service.status().state == "failed"


@pytest.mark.parametrize("hook", ["start_loop", "stop_loop"])
def test_an_error_around_the_ticks(coord_for: Any, hook: str, raised_by: Any, scripted: Any) -> None:
    """What is raised before the first tick stops the run like a tick's error; after the stop it is recorded only."""
    coord = coord_for(15)
    reported: list[tuple[str, BaseException, int]] = []
    error = ValueError("outside of a tick")
    service = scripted(coord, 10, [], on_failure=lambda *args: reported.append(args))

    def fail() -> None:
        raise error

    setattr(service, hook, fail)
    service.run()
    if hook == "start_loop":
        assert raised_by(coord.join) is error
        assert reported == [("save", error, 0)]
        assert service.status().state == "failed"
    else:
        coord.join()
        assert reported == [("save", error, 2)]
        assert service.status().state == "stopped"
    assert service.status().failures == 1


def test_a_clean_stop_is_no_failure(coord_for: Any, scripted: Any) -> None:
    """An exception that means the end of input stops the run cleanly, and the service is no failure."""
    coord = coord_for(1e9, (EndOfInputError,))
    service = scripted(coord, 10, [0.0, EndOfInputError()])
    service.run()
    assert coord.should_stop()
    coord.join()
    status = service.status()
    assert (status.state, status.failures, status.ticks, status.last_error) == ("stopped", 0, 2, None)


def test_a_clean_stop_is_not_retried(coord_for: Any, scripted: Any) -> None:
    """Even where every error counts as transient, the end of input is the end."""
    coord = coord_for(1e9, (EndOfInputError,))
    service = scripted(coord, 10, [EndOfInputError()], policy=Policy(transient=lambda _: True))
    service.run()
    assert service.at == [0]


def test_an_error_after_the_stop(coord_for: Any, scripted: Any) -> None:
    """A tick that fails since everything is being stopped is recorded, and the service has ended as asked."""
    coord = coord_for(1e9)

    def cancelled() -> None:
        coord.request_stop()
        raise ValueError("session was closed")

    reported: list[Any] = []
    service = scripted(coord, 10, [cancelled], on_failure=lambda *args: reported.append(args))
    service.run()
    coord.join()
    assert (service.status().state, service.status().failures, len(reported)) == ("stopped", 1, 1)


def test_an_error_after_the_join(coord_for: Any, scripted: Any) -> None:
    """A straggler's error after the join is recorded, and raised in no thread."""
    coord = coord_for(1e9)

    def too_late() -> None:
        coord.request_stop()
        coord.join()
        raise ValueError("session was closed")

    service = scripted(coord, 10, [too_late])
    service.run()
    assert (service.status().state, service.status().failures) == ("stopped", 1)


# What ends the service alone.


def test_continue_ends_the_service_alone(coord_for: Any, caplog: pytest.LogCaptureFixture, scripted: Any) -> None:
    """Options.service_errors="continue": the service is marked failed, the log says so, and training goes on."""
    coord = coord_for(1e9)
    service = scripted(coord, 10, [ValueError("broken")], policy=Policy(on_error="continue"))
    service.run()
    assert not coord.should_stop()
    assert (service.status().state, service.at, service.stopped_cleanly) == ("failed", [0], False)
    assert service.status().last_error == "ValueError: broken"
    assert "training continues without it" in caplog.text
    assert caplog.records[-1].levelno == logging.ERROR
    assert caplog.records[-1].exc_info


def test_continue_does_not_swallow_exits(coord_for: Any, raised_by: Any, scripted: Any) -> None:
    """Who raises SystemExit in a service means the process, not the service."""
    coord = coord_for(1e9)
    error = SystemExit(3)
    scripted(coord, 10, [error], policy=Policy(on_error="continue")).run()
    assert raised_by(coord.join) is error


# What must not make it worse.


def test_a_listener_that_fails(coord_for: Any, caplog: pytest.LogCaptureFixture, raised_by: Any, scripted: Any) -> None:
    """When the on_failure callback raises, the service's own error counts."""
    coord = coord_for(1e9)
    error = ValueError("own")

    def listen(*_: object) -> None:
        raise KeyError("telemetry")

    scripted(coord, 10, [error], on_failure=listen).run()
    assert raised_by(coord.join) is error
    assert "telemetry" in caplog.text


def test_an_explanation_that_fails(coord_for: Any, raised_by: Any, scripted: Any) -> None:
    """When the remedy cannot be built, the error is raised without it."""
    coord = coord_for(1e9)
    error = ValueError("own")

    def explain(_: BaseException) -> str:
        raise KeyError

    scripted(coord, 10, [error], policy=Policy(explain=explain)).run()
    assert raised_by(coord.join) is error


def test_an_unprintable_error(coord_for: Any, raised_by: Any, scripted: Any) -> None:
    """An error whose text cannot be made is recorded by its type, and raised."""

    class UnprintableError(Exception):
        def __str__(self) -> str:
            raise LookupError

    coord = coord_for(1e9)
    error = UnprintableError()
    service = scripted(coord, 10, [error])
    service.run()
    assert raised_by(coord.join) is error
    assert service.status().last_error == "UnprintableError: <no text: its __str__ raised LookupError>"


def test_a_long_error_is_cut(coord_for: Any, scripted: Any) -> None:
    """A status carries the first 500 characters of an error's first line."""
    service = scripted(coord_for(1e9), 10, [ValueError("x" * 10_000)])
    service.run()
    assert service.status().last_error == "ValueError: " + "x" * 488


def test_a_service_without_anything_left_to_work_on_ends(coord_for: Any, scripted: Any) -> None:
    """What the policy says is the end of its work is no failure: the service stops, the run goes on."""
    coord = coord_for(1e9)
    service = scripted(
        coord, 10, [0.0, RuntimeError("closed")], policy=Policy(over=lambda error: "closed" in str(error))
    )
    service.run()
    status = service.status()
    assert (status.state, status.failures, status.last_error) == ("stopped", 0, None)
    assert not coord.should_stop()
    coord.request_stop()
    coord.join()
