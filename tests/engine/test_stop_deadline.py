"""How long what ends a session may take."""

from __future__ import annotations

import pytest

from supervisor_core.engine.deadline import StopDeadline


class Hands:
    """A clock that is set by the test."""

    now = 5000.0

    def wall(self) -> float:
        return 1.7e9 + self.now

    def monotonic(self) -> float:
        return self.now


@pytest.mark.parametrize(("stop_timeout_secs", "lingers"), [(25.0, 21.0), (5.0, 3.0)])
def test_metrics_linger_for_less_than_there_is_for_work(stop_timeout_secs: float, lingers: float) -> None:
    """A process that was scraped, and waits for Prometheus after SIGTERM, has ended before it is taken for one that
    hangs. Without a signal nothing presses."""
    clock = Hands()
    deadline = StopDeadline(stop_timeout_secs, clock)
    assert deadline.linger_secs(30.0) == 30.0
    deadline.signalled(clock.now)
    assert deadline.linger_secs(30.0) == pytest.approx(lingers)
    assert deadline.linger_secs(30.0) < deadline.for_work.remaining() < stop_timeout_secs
    assert deadline.linger_secs(1.0) == 1.0
    clock.now += stop_timeout_secs
    assert deadline.linger_secs(30.0) == 0.0
