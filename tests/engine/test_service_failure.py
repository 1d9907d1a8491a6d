"""A service's error is retried, stops the run, or ends the service alone."""

from __future__ import annotations

import errno
import io
import logging
import sys
from typing import Any

import pytest

from supervisor_core.base.errors import (
    DamagedCheckpointError,
    EventsWriteError,
    SaveFailedError,
    ServiceError,
    WriterClosedError,
)
from supervisor_core.engine.coordinator import RuntimeCoordinator
from supervisor_core.engine.retry import Backoff, is_outside_fault
from supervisor_core.engine.service import Policy


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


PLAIN_BACKOFF = Backoff(initial_secs=1.0, max_secs=8.0, jitter=0.0)
RETRY = Policy(transient=is_outside_fault, backoff=PLAIN_BACKOFF)


def test_retried_with_backoff(coord_for: Any, scripted: Any) -> None:
    """Contract part 2: faults of the outside world are retried after 1, 2, 4 s while training continues."""
    coord = coord_for(1250)
    full = OSError(28, "No space left on device")
    service = scripted(coord, 600, [0.0, full, full, full, 0.5], policy=RETRY)
    service.run()
    assert service.at == [0, 600, 601, 603, 607, 1200]
    coord.join()
    status = service.status()
    assert (status.state, status.ticks, status.failures) == ("stopped", 6, 3)
    assert status.last_error == "OSError: [Errno 28] No space left on device"


@pytest.mark.parametrize(
    ("secs", "interval_secs", "script", "at"),
    [
        (17.5, 2, [OSError()] * 4, [0, 1, 3, 7, 15, 16]),
        (3.5, None, [OSError(), OSError(), 0.0, 4.0], [0, 1, 3, 3]),
        (25, 10, [OSError(), OSError(), 0.0, OSError(), 0.0], [0, 1, 3, 10, 11, 20]),
    ],
    ids=["a short interval", "back to back", "again after a good tick"],
)
def test_when_a_tick_is_tried_again(coord_for: Any, scripted: Any, secs: Any, interval_secs: Any, script: Any, at: Any):
    """A service that ticks often backs off beyond its interval while the fault lasts; one without an interval waits
    before a retry, too; after a good tick the first retry comes after the shortest wait again."""
    service = scripted(coord_for(secs), interval_secs, script, policy=RETRY)
    service.run()
    assert service.at == at


def test_keeps_failing(clock: Any, scripted: Any) -> None:
    """One failed tick is a failure counted; from the second in a row on, until a good one, the state is failed."""
    states: list[str] = []

    class Looking(RuntimeCoordinator):
        def wait_for_stop(self, timeout: Any = None, *, wake_queue: Any = None) -> bool:
            states.append(service.status().state)
            clock.advance(max(timeout, 0.0))
            return len(states) == 6

    service = scripted(Looking(), 10, [OSError(), OSError(), OSError()], policy=RETRY)
    service.run()
    assert states == ["idle", "idle", "failed", "failed", "idle", "idle"]


def test_every_failed_tick_is_reported(coord_for: Any, scripted: Any) -> None:
    """Every failed tick is reported with its number, retried or not."""
    errors = [OSError("a"), OSError("b"), ValueError("c")]
    reported: list[tuple[str, BaseException, int]] = []
    service = scripted(
        coord_for(1e9), 600, [0.0, *errors], policy=RETRY, on_failure=lambda *args: reported.append(args)
    )
    service.run()
    assert reported == [("save", errors[0], 2), ("save", errors[1], 3), ("save", errors[2], 4)]


@pytest.mark.parametrize("bound", [0, 2])
@pytest.mark.parametrize("on_error", ["stop", "continue"])
def test_bounded_failures(coord_for: Any, bound: int, on_error: Any, raised_by: Any, scripted: Any) -> None:
    """Contract part 2: more failures in a row than max_save_failures allows stop the run, with the caller's error."""
    coord = coord_for(1e9)
    errors = [OSError(number) for number in range(5)]

    def give_up(name: str, failures: int, error: BaseException) -> BaseException:
        return SaveFailedError(f"{name} failed {failures} times: {error}")

    policy = Policy(
        transient=is_outside_fault, backoff=PLAIN_BACKOFF, max_failures=bound, give_up=give_up, on_error=on_error
    )
    service = scripted(coord, 600, errors, policy=policy)
    service.run()
    raised = raised_by(coord.join)
    assert isinstance(raised, SaveFailedError)
    assert str(raised) == f"save failed {bound + 1} times: {bound}"
    assert raised.__cause__ is errors[bound]
    assert (service.status().state, service.status().failures) == ("failed", bound + 1)


def test_bounded_failures_by_default(coord_for: Any, scripted: Any) -> None:
    """Without a maker of errors the run is stopped by a ServiceError that names the service and the last error."""
    coord = coord_for(1e9)
    policy = Policy(transient=is_outside_fault, backoff=PLAIN_BACKOFF, max_failures=0)
    scripted(coord, 600, [OSError("full")], policy=policy).run()
    with pytest.raises(ServiceError, match="The service save failed 1 times in a row: OSError: full"):
        coord.join()


def test_a_retry_can_be_woken(coord_for: Any, scripted: Any) -> None:
    """Woken while it waits for a retry, the service tries at once."""

    def fail_and_wake() -> None:
        service.wake()
        raise OSError

    service = scripted(coord_for(5), 600, [fail_and_wake, 0.0], policy=RETRY)
    service.run()
    assert service.at == [0, 0]


def test_doubles_up_to_the_bound() -> None:
    """Without jitter the waits double from the first to the longest, however many failures there are."""
    backoff = Backoff(initial_secs=0.5, max_secs=6.0, jitter=0.0)
    assert [backoff.next_delay(failures) for failures in range(1, 7)] == [0.5, 1.0, 2.0, 4.0, 6.0, 6.0]
    assert backoff.next_delay(10**9) == 6.0


@pytest.mark.parametrize(("chance", "expected"), [(0.0, 60.0), (0.5, 45.0), (1.0, 30.0)])
def test_jitter_only_shortens(chance: float, expected: float) -> None:
    """Jitter takes a random part off, so that the longest wait is never exceeded."""
    assert Backoff(1.0, 60.0, jitter=0.5, random=lambda: chance).next_delay(50) == expected


def test_default_jitter_is_random() -> None:
    """By default two workers that failed together do not come back together."""
    backoff = Backoff()
    delays = {backoff.next_delay(3) for _ in range(50)}
    assert len(delays) > 1
    assert all(3.0 <= delay <= 4.0 for delay in delays)


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EIO, "Input/output error"),
        OSError(errno.ESTALE, "Stale file handle"),
        OSError("without a number"),
        FileNotFoundError(errno.ENOENT, "the mount is gone"),
        PermissionError(errno.EACCES, "for a while"),
        TimeoutError("too slow"),
        ConnectionResetError(),
        EventsWriteError("3 events lost"),
        DamagedCheckpointError("did not read back"),
    ],
)
def test_faults_of_the_outside_world(error: BaseException) -> None:
    """Contract part 2: what the disk, the mount or the network did may pass, and is worth another try."""
    assert is_outside_fault(error)


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EBADF, "Bad file descriptor"),
        OSError(errno.EFAULT, "Bad address"),
        OSError(errno.EISDIR, "Is a directory"),
        OSError(errno.ENAMETOOLONG, "File name too long"),
        io.UnsupportedOperation("not writable"),
        ValueError("placeholder was not fed"),
        WriterClosedError("closed"),
        ServiceError("failed"),
        MemoryError(),
        KeyboardInterrupt(),
    ],
)
def test_mistakes_stay(error: BaseException) -> None:
    """Mistakes in the program are not the outside world's, even where they are OSErrors."""
    assert not is_outside_fault(error)
