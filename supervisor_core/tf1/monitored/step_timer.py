"""`StepTimer`: is it time again, by steps or by the clock?"""

from __future__ import annotations

import tensorflow as tf

from supervisor_core.clock import SYSTEM_CLOCK, Clock


class StepTimer(tf.compat.v1.train.SecondOrStepTimer):
    """Is due at first, and then at an interval of seconds or steps, whichever it was given.

    Source: ``tf.compat.v1.train.SecondOrStepTimer``, which goes by the wall clock and stops when that is set back.
    Here seconds have passed when either clock says so: the monotonic one goes on when the wall clock is set back, the
    wall clock when the machine was suspended. Durations are the monotonic clock's.

    Args:
        every_secs: seconds from one time to the next.
        every_steps: steps from one time to the next.
        clock: the time.

    Raises:
        ValueError: unless exactly one of the two is given.
    """

    def __init__(
        self, every_secs: float | None = None, every_steps: int | None = None, *, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        if every_secs is None and every_steps is None:
            raise ValueError("Either every_secs or every_steps should be provided.")
        if every_secs is not None and every_steps is not None:
            raise ValueError("Can not provide both every_secs and every_steps.")
        self.every_secs = every_secs
        self.every_steps = every_steps
        self._clock = clock
        self.reset()

    def reset(self) -> None:
        """Be due again, as at first."""
        self._last_step: int | None = None
        self._last_monotonic = self._last_wall = 0.0

    def should_trigger_for_step(self, step: int) -> bool:
        """Return whether it is time at this step; never twice at one step."""
        last = self._last_step
        if last is None:
            return True
        if step == last:
            return False
        if self.every_steps is not None:
            return step >= last + self.every_steps
        assert self.every_secs is not None
        clock = self._clock
        return (
            clock.monotonic() >= self._last_monotonic + self.every_secs
            or clock.wall() >= self._last_wall + self.every_secs
        )

    def update_last_triggered_step(self, step: int) -> tuple[float | None, int | None]:
        """Record that it was time at this step; return seconds and steps since the last time, (None, None) at first."""
        now, before = self._clock.monotonic(), self._last_step
        elapsed = (None, None) if before is None else (now - self._last_monotonic, step - before)
        self._last_step, self._last_monotonic, self._last_wall = step, now, self._clock.wall()
        return elapsed

    def last_triggered_step(self) -> int | None:
        """Return the step of the last time; None before the first."""
        return self._last_step
