"""The two timeouts of a session, as they are in effect: what its options say, and what its environment says.

`tb-supervisor run` hands its own two down by the environment, so that one value counts from end to end:

    hang timeout   how long there may be no progress: the options' for the phases that they name, else the
                   environment's, else learned (`supervisor_core.engine.timeouts`)
    stop timeout   how long a stop may take: the shorter of the options' and the environment's, since whoever has set
                   the environment kills the process then

`HangTimeouts`: how long each phase may go without progress: as given, or learned from the session's own pauses.

A pause is the time between two signs of progress. A given hang timeout is fixed (`supervisor_core.engine.timeouts`).
The others begin with their default:

    training       max(6 s, 5 x the longest pause, 8 x the 99th percentile of all pauses), once 20 steps have ended
                   after 5 that warm up; it may be below the default
    other phases   max(default, 5 x the longest pause)

A learned hang timeout above half an hour is twice the longest pause, or half an hour.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Mapping

from supervisor_core.base.errors import OptionsError
from supervisor_core.base.options import HANG_TIMEOUT_SECS, STOP_TIMEOUT_SECS, Options

HANG_TIMEOUT_VARIABLE = "SUPERVISOR_HANG_TIMEOUT_SECS"
"""Environment variable: the hang timeout, as a number in `Options.hang_timeout_secs`, unless the options have one."""
STOP_TIMEOUT_VARIABLE = "SUPERVISOR_STOP_TIMEOUT_SECS"
"""Environment variable: the most that a stop may take, in seconds."""


def stop_timeout(options: Options) -> float:
    """Return how long a stop of a session may take, in seconds.

    Raises:
        OptionsError: if the environment's value cannot be used.
    """
    given, handed_down = options.stop_timeout_secs, _from_environment(STOP_TIMEOUT_VARIABLE)
    if given is None:
        return STOP_TIMEOUT_SECS if handed_down is None else handed_down
    return given if handed_down is None else min(given, handed_down)


def given_hang_timeouts(options: Options) -> Mapping[str, float]:
    """Return the hang timeouts of the phases for which one is given, in seconds: nothing is learned for these.

    Raises:
        OptionsError: if the environment's value cannot be used.
    """
    given, number = options.hang_timeout_secs, _number(options)
    by_phase = given if isinstance(given, Mapping) else {}
    return by_phase if number is None else {"training": number, **by_phase}


def first_hang_timeouts(options: Options) -> dict[str, float]:
    """Return the hang timeout of each phase before any is learned, in seconds. A number is that of training, and the
    least of the other phases.

    Raises:
        OptionsError: if the environment's value cannot be used.
    """
    least = _number(options) or 0.0
    defaults = {phase: max(secs, least) for phase, secs in HANG_TIMEOUT_SECS.items()}
    return defaults | dict(given_hang_timeouts(options))


def _number(options: Options) -> float | None:
    given = options.hang_timeout_secs
    return given if isinstance(given, (int, float)) else _from_environment(HANG_TIMEOUT_VARIABLE)


def _from_environment(variable: str) -> float | None:
    text = os.environ.get(variable)
    if not text:
        return None
    try:
        secs = float(text)
    except ValueError:
        secs = math.nan
    if not (math.isfinite(secs) and secs > 0):
        raise OptionsError(f"{variable} is {text!r} in the environment; expected a number of seconds above 0.")
    return secs


FLOOR_SECS = 6.0
"""No learned hang timeout is shorter."""
TIMES_LONGEST, TIMES_P99 = 5.0, 8.0
WARM_UP_STEPS = 5
"""The first steps after a start or a restore compile, fill queues and caches: their pauses are not learned."""
STEPS_TO_LEARN = 20
"""Number of steps after those until the learned hang timeout counts."""
MOST_SECS = 1800.0
"""A longer learned hang timeout is twice the longest pause, or this."""

LEAST_PAUSE_SECS = FLOOR_SECS / TIMES_P99
"""Shorter pauses change no hang timeout, so the caller need not report them."""

_PER_OCTAVE = 8
"""Buckets of pauses from one length to twice that: the percentile is at most 9 % too long."""


class HangTimeouts:
    """The hang timeouts of one session. Not thread-safe; it has no clock.

    Args:
        options: what they, or the environment, give is fixed.

    Example:
        >>> timeouts = HangTimeouts(Options())
        >>> timeouts.secs("training", steps=0)
        300.0
        >>> timeouts.secs("training", steps=25)
        6.0
        >>> timeouts.paused("training", 2.0, steps=25)
        >>> timeouts.secs("training", steps=26)
        16.0
    """

    def __init__(self, options: Options) -> None:
        self._fixed = frozenset(given_hang_timeouts(options))
        self._first = first_hang_timeouts(options)
        self._longest: dict[str, float] = {}
        self._pauses: Counter[int] = Counter()
        """Pauses of training from `LEAST_PAUSE_SECS`, by bucket."""
        self._warm_from = 0

    def warm_up(self, steps: int) -> None:
        """Begin a warm-up: the model was initialised or restored.

        Args:
            steps: steps done by the session until now.
        """
        self._warm_from = steps

    def paused(self, phase: str, secs: float, *, steps: int) -> None:
        """Learn from a pause that has ended, by progress or by a change of phase; not from one that a save explains.

        Args:
            steps: steps done by the session before its end.
        """
        if phase == "training":
            if steps - self._warm_from < WARM_UP_STEPS:
                return
            self._pauses[_bucket(secs)] += 1
        self._longest[phase] = max(secs, self._longest.get(phase, 0.0))

    def secs(self, phase: str, *, steps: int, is_held: bool = False) -> float | None:
        """Return the hang timeout of a phase in seconds; None if it cannot hang.

        Args:
            phase: one of `supervisor_core.base.options.PHASES`.
            steps: steps done by the session.
            is_held: whether something outside this thread may keep training waiting (a save that it waits for, other
                processes of the cluster): a learned hang timeout is not below the default then.
        """
        default = self._first.get(phase)
        if default is None or phase in self._fixed:
            return default
        longest = self._longest.get(phase, 0.0)
        learned = TIMES_LONGEST * longest
        if phase == "training":
            learned = max(FLOOR_SECS, learned, TIMES_P99 * min(longest, self._p99(steps)))
        learned = min(learned, max(MOST_SECS, 2 * longest))
        if phase == "training" and not is_held and steps - self._warm_from >= WARM_UP_STEPS + STEPS_TO_LEARN:
            return learned
        return max(default, learned)

    def act_after(self, phase: str, *, steps: int) -> float | None:
        """Return after how many seconds without progress the watchdog, or a restarter, acts; None: never. It is the
        given hang timeout, or the learned one where that is not below the default."""
        return self.secs(phase, steps=steps, is_held=True)

    def _p99(self, steps: int) -> float:
        """Return the 99th percentile of the pauses of training, or `LEAST_PAUSE_SECS` where it is not above that."""
        above, allowed = 0, steps // 100
        for bucket in sorted(self._pauses, reverse=True):
            above += self._pauses[bucket]
            if above > allowed:
                return LEAST_PAUSE_SECS * math.pow(2.0, bucket / _PER_OCTAVE)
        return LEAST_PAUSE_SECS


def _bucket(secs: float) -> int:
    """Return the number of the shortest bucket bound that is not below a pause."""
    return math.ceil(_PER_OCTAVE * math.log2(max(secs, LEAST_PAUSE_SECS) / LEAST_PAUSE_SECS))
