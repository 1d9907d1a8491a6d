"""How far a session is, and how fast: `Speed`, from the steps that it counts and the readings of its global step.

`GlobalStep` extrapolates the global step between two readings of it by the steps that are counted here. `StepRate` is
steps per second over a window, correct for steps of a millisecond and of an hour.
"""

from __future__ import annotations

from collections import deque

STEPS_TO_JUDGE = 10
"""Number of steps after which the increment of the global step per step is determined."""


class GlobalStep:
    """The global step of a session, known from readings. Not thread-safe.

    Args:
        now: monotonic seconds.
    """

    def __init__(self, now: float) -> None:
        self.stride = 1
        """By how much a step changes it; 0 where the readings do not agree with the count of steps."""
        self.moved_at = now
        """Monotonic time of the reading that was the first to have the last value."""
        self._first: tuple[int, int] | None = None
        """A reading, and the steps counted then."""
        self._value: int | None = None
        self._steps = 0
        """Those counted at the last reading."""

    @property
    def before(self) -> int | None:
        """What it was before the first step of this session; None before the first reading."""
        return None if self._value is None else self._value - self.stride * self._steps

    def at(self, steps: int) -> int | None:
        """Return an estimate of it after a number of steps of this session; None before the first reading."""
        return None if self._value is None else self._value + self.stride * (steps - self._steps)

    def read(self, value: int, earliest: int, latest: int, now: float) -> None:
        """Take a reading.

        Args:
            value: its value.
            earliest: steps counted just before it was read.
            latest: steps counted now.
            now: monotonic seconds.
        """
        if self._first is None:
            self._first = (value, earliest)
        first_value, first_count = self._first
        ahead = (first_value - first_count) - (value - earliest)
        if self.stride == 1 and ahead > 0:  # the first reading included steps that were not counted yet
            first_value, first_count = self._first = (value, earliest)
        moved = value - first_value
        if earliest - first_count >= STEPS_TO_JUDGE:
            stride = round(moved / (earliest - first_count))
            # A step is counted just after it has ended, so either side may miss one or two.
            fits = stride * (earliest - first_count) - 2 <= moved <= stride * (latest - first_count) + 2
            self.stride = stride if fits else 0
        if value != self._value:
            self.moved_at = now
        self._value = value
        counted = first_count + moved // self.stride if self.stride else latest
        self._steps = min(max(counted, earliest), latest)

    def rewound(self, value: int, steps: int) -> None:
        """The model is at another step now: earlier readings are void."""
        self._first, self.stride = (value, steps), 1
        self._value, self._steps = value, steps


WINDOW_SECS = 30.0
"""The rate covers at least this time, if there is as much."""
WINDOW_STEPS = 10
"""And at least this many steps."""
OVERDUE_STEPS = 10
"""The rate is 0 once this many steps (or readings) are overdue and `WINDOW_SECS` have passed."""


class StepRate:
    """Training steps per second, correct for steps of a millisecond and of an hour. Not thread-safe.

    Measures from the end of one step to the end of another, never to a time between two.

    Args:
        now: monotonic seconds.
        count: steps counted until then.
    """

    __slots__ = ("_ends",)

    def __init__(self, now: float, count: int = 0) -> None:
        self._ends: deque[tuple[float, int]] = deque([(now, count)])

    def restart(self, now: float, count: int) -> None:
        """Drop all readings before this one."""
        self._ends = deque([(now, count)])

    def add(self, at: float, count: int) -> None:
        """Take a reading: the count and the end of its last step. A reading without a new step changes nothing."""
        last_at, last = self._ends[-1]
        if count < last:
            self.restart(at, count)
        if count <= last:
            return
        self._ends.append((max(at, last_at), count))
        while len(self._ends) > 2:
            next_at, next_count = self._ends[1]
            if at - next_at < WINDOW_SECS or count - next_count < WINDOW_STEPS:
                break
            self._ends.popleft()

    def exclude(self, secs: float) -> None:
        """Exclude the last ``secs`` seconds, which had no training."""
        self._ends = deque((at + secs, count) for at, count in self._ends)

    def value(self, now: float) -> float | None:
        """Return steps per second; None before a step has ended. While a step takes longer than those before it, the
        rate decreases."""
        (first_at, first), (last_at, last) = self._ends[0], self._ends[-1]
        secs, steps = last_at - first_at, last - first
        if steps <= 0 or secs <= 0:
            return None
        rate, waiting = steps / secs, now - last_at
        usual_secs = secs / (len(self._ends) - 1)  # between two readings that moved
        if waiting <= usual_secs:
            return rate
        if waiting > max(WINDOW_SECS, OVERDUE_STEPS * usual_secs):
            return 0.0
        return (steps + rate * usual_secs) / (now - first_at)


_NOT_TRAINING = ("restoring", "compiling", "checkpointing", "evaluating")
"""Phases without training: their time does not count for the steps per second."""


class Speed:
    """The global step and the steps per second of one session. Not thread-safe.

    Its methods take ``steps``, the number of steps counted until now, and ``ended_at``, the end of the last one.

    Args:
        now: monotonic seconds.
    """

    def __init__(self, now: float) -> None:
        self.global_step = GlobalStep(now)
        self._rate = StepRate(now)
        self._is_of_all = False
        """Whether the rate is of the global step: it does not change by one per step, or other processes change it."""
        self._paused_at: float | None = None

    def rewound(self, step: int, steps: int, now: float) -> None:
        """The model is at another step now."""
        self.global_step.rewound(step, steps)
        self._rate.restart(now, self._newest(now, steps)[1])

    def sample(self, ended_at: float, steps: int) -> None:
        """Take a reading for the rate."""
        if self._paused_at is not None:
            return
        at, count, is_of_all = self._newest(ended_at, steps)
        if is_of_all != self._is_of_all:
            self._is_of_all = is_of_all
            self._rate.restart(at, count)
        self._rate.add(at, count)

    def steps_per_second(self, now: float, ended_at: float, steps: int) -> float | None:
        """Return the rate; None before a step has ended."""
        self.sample(ended_at, steps)
        return self._rate.value(now if self._paused_at is None else self._paused_at)

    def enter(self, phase: str, now: float, ended_at: float, steps: int) -> None:
        """Exclude the phase that ends now, or the one that starts, from the rate."""
        if self._paused_at is not None:
            self._rate.exclude(now - self._paused_at)
            self._paused_at = None
        if phase in _NOT_TRAINING:
            self.sample(ended_at, steps)
            self._paused_at = now
        elif phase == "training" and not steps:
            self._rate.restart(now, self._newest(ended_at, steps)[1])

    def _newest(self, ended_at: float, steps: int) -> tuple[float, int, bool]:
        """Return the end of the last step, the count, and whether that is of the global step."""
        step = self.global_step.at(steps)
        if step is None or (self.global_step.stride == 1 and steps):
            return ended_at, steps, False
        return ended_at if self.global_step.stride and steps else self.global_step.moved_at, step, True
