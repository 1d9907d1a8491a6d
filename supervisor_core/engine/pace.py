"""`PaceWatch`: seconds per step of this process, and the share of them that it does not wait for other processes.

A thread looks at the main thread's stack at random moments: the training thread does nothing for it. The share of looks
in which the main thread waits in a collective operation is the share of time in which it does. A process that waits
less than all others is the one that they wait for.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from supervisor_core.base.clock import SYSTEM_CLOCK, Clock
from supervisor_core.engine.retry import OWN_RANDOM
from supervisor_core.events.telemetry import Pace
from supervisor_core.process.collectives import waits_in
from supervisor_core.process.stacks import running_main_stack

WINDOW_SECS = 60.0
LEAST_LOOKS = 60
"""With fewer the share is too uncertain: of 60 it is right to within 0.13, nineteen times out of twenty."""
LOOK_SECS = (0.25, 0.75)
"""Between two looks, at random: at equal distances they could meet each step at the same place."""
SLOW_FACTOR = 5.0
"""Time without a step for longer than this number of steps take, as an evaluation or a save, does not count."""


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Time between two looks that saw a new step."""

    ended_at: float
    secs: float
    steps: int
    looks: int
    waits: int


class PaceWatch:
    """The pace of one session.

    Args:
        steps: returns the number of steps of the session, None while it does not train. Must not block.
        stack: returns the main thread's stack.

    Example:
        >>> watch = PaceWatch(lambda: 0)
        >>> watch.look(), watch.pace()
        (None, None)
    """

    def __init__(
        self,
        steps: Callable[[], int | None],
        clock: Clock = SYSTEM_CLOCK,
        *,
        stack: Callable[[], tuple[str, ...]] = running_main_stack,
    ) -> None:
        self._steps = steps
        self._clock = clock
        self._stack = stack
        self._stretches: deque[_Stretch] = deque()
        self._began: tuple[float, int] | None = None
        """Time and number of steps at the last look that saw a new step."""
        self._looks = self._waits = 0  # since then
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look_until_stopped, name="supervisor_pace", daemon=True)

    def start(self) -> None:
        """Start the thread. Starting twice changes nothing."""
        if self._thread.ident is None and not self._stop.is_set():
            self._thread.start()

    def stop(self) -> None:
        """Stop it; returns at once."""
        self._stop.set()

    def look(self) -> None:
        """Look once."""
        steps, now = self._steps(), self._clock.monotonic()
        if steps is None:
            self._began = None
            return
        is_waiting = waits_in(self._stack()) is not None
        with self._lock:
            self._add(steps, now, is_waiting=is_waiting)

    def _add(self, steps: int, now: float, *, is_waiting: bool) -> None:
        self._looks += 1
        self._waits += is_waiting
        if self._began is not None and steps == self._began[1]:
            return
        if self._began is not None and steps > self._began[1]:
            secs, done = now - self._began[0], steps - self._began[1]
            usual = self._step_secs()
            if usual is None or secs / done <= SLOW_FACTOR * usual:
                self._stretches.append(_Stretch(now, secs, done, self._looks, self._waits))
        while self._stretches and self._stretches[0].ended_at < now - WINDOW_SECS:
            self._stretches.popleft()
        self._began, self._looks, self._waits = (now, steps), 0, 0

    def pace(self) -> Pace | None:
        """Return the pace of the last minute; None where there were too few looks."""
        with self._lock:
            looks = sum(stretch.looks for stretch in self._stretches)
            step_secs = self._step_secs()
            if looks < LEAST_LOOKS or step_secs is None:
                return None
            share = 1.0 - sum(stretch.waits for stretch in self._stretches) / looks
        return Pace(step_secs=step_secs, own_secs=step_secs * share)

    def _step_secs(self) -> float | None:
        return median(stretch.secs / stretch.steps for stretch in self._stretches) if self._stretches else None

    def _look_until_stopped(self) -> None:
        while not self._stop.wait(OWN_RANDOM.uniform(*LOOK_SECS)):
            self.look()
