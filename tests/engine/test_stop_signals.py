"""Two signals in a row, where the thread of the first comes late."""

from __future__ import annotations

import signal
from types import SimpleNamespace
from typing import Any

import pytest

from supervisor_core.base.clock import SYSTEM_CLOCK
from supervisor_core.base.options import Options
from supervisor_core.engine.deadline import Deadline, StopDeadline
from supervisor_core.engine.ending import AGAIN_SECS, StopReason, StopSignals


class Timer:
    """An exit timer that ends nothing."""

    def __init__(self) -> None:
        self.armed = False

    def arm(self, deadline: Deadline) -> None:
        """It runs."""
        self.armed = True

    def disarm(self) -> None:
        """It does not."""
        self.armed = False


@pytest.fixture
def signals(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The signals of a session that was interrupted by its second Ctrl-C."""
    state: Any = SimpleNamespace(deadline=StopDeadline(3600.0, SYSTEM_CLOCK), reason=StopReason())
    made: Any = StopSignals(SimpleNamespace(), state, Options(), SYSTEM_CLOCK)  # type: ignore[arg-type]
    made._watch = SimpleNamespace(
        received_at=SYSTEM_CLOCK.monotonic(), received_again=True, interrupted=True, has_gone_on=False,
        ends_process=lambda signum: True, wait_interrupted=lambda secs: True, catch_up=lambda: signal.SIGINT,
    )  # fmt: skip
    made._exit_timer = Timer()
    monkeypatch.setattr(made, "_end_session", lambda watch, signum: None)
    return made


def test_no_timer_ends_a_program_that_was_interrupted(signals: Any) -> None:
    """Nor where the first signal's thread arms it when that of the second has disarmed it: the program's own clean-up
    takes the time that it takes."""
    signals._signalled_again(signal.SIGINT)
    signals._signalled(signal.SIGINT)
    assert not signals._exit_timer.armed


def test_a_late_first_signal_does_not_bring_the_stop_timeout_back(signals: Any) -> None:
    """After the second one the end is near, whichever thread notes the first."""
    signals.catch_up(5.0)
    assert signals._state.deadline.for_end.remaining() <= AGAIN_SECS
    signals._signalled(signal.SIGINT)
    assert signals._state.deadline.for_end.remaining() <= AGAIN_SECS
    assert signals._state.reason.signum == signal.SIGINT
