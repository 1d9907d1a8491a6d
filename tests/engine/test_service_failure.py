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
    """The guide's promise: an exception in a service makes should_stop() true; join raises the very object, which names
    the service and the remedies (contract, part 2)."""
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
    if sys.version_info >= (3, 11):  # before, exceptions have no notes
        assert error.__notes__ == [
            "Raised in the service save, which stops the run. Feed it by Options.summary_feed_dict. "
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


@pytest.mark.parametrize("policy", [Policy(), Policy(transient=lambda _: True)], ids=["none", "all transient"])
def test_a_clean_stop_is_no_failure(coord_for: Any, scripted: Any, policy: Policy) -> None:
    """An exception that means the end of input stops the run cleanly, and is no failure of the service; nor is it tried
    again where every error counts as transient."""
    coord = coord_for(1e9, (EndOfInputError,))
    service = scripted(coord, 10, [0.0, EndOfInputError()], policy=policy)
    service.run()
    assert coord.should_stop()
    coord.join()
    status = service.status()
    assert (status.state, status.failures, status.ticks, status.last_error) == ("stopped", 0, 2, None)


@pytest.mark.parametrize("is_joined", [False, True])
def test_an_error_after_the_stop(coord_for: Any, scripted: Any, is_joined: bool) -> None:
    """A tick that fails since everything is being stopped is recorded, and the service has ended as asked; a
    straggler's error after the join is raised in no thread."""
    coord = coord_for(1e9)

    def cancelled() -> None:
        coord.request_stop()
        if is_joined:
            coord.join()
        raise ValueError("session was closed")

    reported: list[Any] = []
    service = scripted(coord, 10, [cancelled], on_failure=lambda *args: reported.append(args))
    service.run()
    coord.join()
    assert (service.status().state, service.status().failures, len(reported)) == ("stopped", 1, 1)


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


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise LookupError


@pytest.mark.parametrize(
    ("error", "last_error"),
    [
        (ValueError("own"), "ValueError: own"),
        (UnprintableError(), "UnprintableError: <no text: its __str__ raised LookupError>"),
        (ValueError("x" * 10_000), "ValueError: " + "x" * 488),
    ],
    ids=["plain", "unprintable", "long"],
)
def test_what_fails_beside_an_error_does_not_hide_it(
    coord_for: Any, raised_by: Any, scripted: Any, caplog: Any, error: Any, last_error: str
) -> None:
    """When the on_failure callback raises, or the remedy cannot be built, the service's own error counts. One whose
    text cannot be made is recorded by its type; of a long text a status carries the first 500 characters."""
    coord = coord_for(1e9)

    def fail(*_: object) -> str:
        raise KeyError("telemetry")

    service = scripted(coord, 10, [error], policy=Policy(explain=fail), on_failure=fail)
    service.run()
    assert raised_by(coord.join) is error
    assert "telemetry" in caplog.text
    assert service.status().last_error == last_error


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
