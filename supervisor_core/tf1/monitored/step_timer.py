"""`StepTimer`: is it time again, by steps or by the clock?"""

from __future__ import annotations

from supervisor_core.clock import SYSTEM_CLOCK, Clock


class StepTimer:
    """Is due at first, and then every so many seconds or steps, whichever it was given.

    Source: ``tf.compat.v1.train.SecondOrStepTimer``, which goes by the wall clock and stops when that is set back; this
    one goes by the monotonic clock.

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
        self._monotonic = clock.monotonic
        self._last: tuple[int, float] | None = None

    def reset(self) -> None:
        """Be due again, as at first."""
        self._last = None

    def is_due(self, step: int) -> bool:
        """Tell whether it is time at this step; never twice at one step."""
        last = self._last
        if last is None:
            return True
        if self.every_steps is not None:
            return step >= last[0] + self.every_steps and step != last[0]
        assert self.every_secs is not None
        return step != last[0] and self._monotonic() >= last[1] + self.every_secs

    def triggered(self, step: int) -> tuple[float, int] | None:
        """Take note that it was time at this step; return seconds and steps since the last time, if there was one."""
        now, last = self._monotonic(), self._last
        self._last = (step, now)
        return None if last is None else (now - last[1], step - last[0])
