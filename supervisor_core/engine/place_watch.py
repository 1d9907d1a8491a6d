"""`PlaceWatch`: where the main thread is while the session makes no progress, for the other processes of a training.

It says nothing of whether that is a hang: a process that waits for another one is in order as long as that one may take
its time. Who sees all processes decides (`supervisor_core.run.culprit`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from supervisor_core.clock import SYSTEM_CLOCK, Clock
from supervisor_core.engine.hang_timeouts import FLOOR_SECS
from supervisor_core.engine.progress import ProgressSnapshot
from supervisor_core.engine.stall_report import SECOND_LOOK_SECS, activity_of, main_thread_runnable_secs
from supervisor_core.events.place import Place, place_of
from supervisor_core.process.collectives import digest
from supervisor_core.process.stacks import main_stack

CHANGE_SECS = 5.0
"""A thread that is somewhere else each time has another place after this time only."""


class PlaceWatch:
    """The place of one session. Not thread-safe.

    Args:
        clock: replaced in tests.
        stack: returns the main thread's stack.
        runnable_secs: returns for how long the main thread has run, or was ready to run; None where unknown.
    """

    def __init__(
        self,
        clock: Clock = SYSTEM_CLOCK,
        *,
        stack: Callable[[], tuple[str, ...]] = main_stack,
        runnable_secs: Callable[[Clock], float | None] = main_thread_runnable_secs,
    ) -> None:
        self._clock = clock
        self._stack = stack
        self._runnable_secs = runnable_secs
        self._place: Place | None = None
        self._since = 0.0
        """Since when it is there, in monotonic seconds."""
        self._ran: float | None = None
        """The main thread's runnable seconds then."""

    def look(self, progress: ProgressSnapshot) -> Place | None:
        """Return where the main thread is; None while the session makes progress, or cannot hang. Called once a
        second."""
        secs = progress.own_timeout_secs
        if secs is None or progress.progress_age_secs <= min(secs, FLOOR_SECS):
            self._place = None
            return None
        now, stack = self._clock.monotonic(), self._stack()
        found = digest(stack)
        if self._place is None or (found != self._place.digest and now - self._since >= CHANGE_SECS):
            self._since, self._ran = now, self._runnable_secs(self._clock)
            self._place = place_of(stack)
        elif found == self._place.digest and self._place.activity is None and now - self._since >= SECOND_LOOK_SECS:
            activity = activity_of(self._ran, self._runnable_secs(self._clock), now - self._since)
            if activity is not None:
                self._place = replace(self._place, activity=activity)
        return self._place
