"""What a service retries, when, and how often."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor_core.base.errors import SaveFailedError, ServiceError
from supervisor_core.engine.coordinator import Coordinator
from supervisor_core.engine.retry import Backoff, is_outside_fault
from supervisor_core.engine.service import Policy

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

    class Looking(Coordinator):
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
