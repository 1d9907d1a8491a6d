"""`LooperThread`: calls something again and again, on a timer, until the coordinator says stop."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from supervisor_core.clock import SYSTEM_CLOCK, Clock

if TYPE_CHECKING:
    from supervisor_core.runtime.coordinator import Coordinator

_COORDINATOR_METHODS = ("should_stop", "wait_for_stop", "request_stop", "register_thread", "stop_on_exception")


class LooperThread(threading.Thread):
    """A daemon thread that calls `run_loop`, or ``target``, until the coordinator stops; the first time at once.

    What a call raises is reported to the coordinator, and ends the thread. Calls keep to the schedule's phase (start,
    start + interval, ...): one that comes late does not shift those after it, and those missed altogether are left out,
    never made up for in a burst. The schedule follows the monotonic clock; setting the machine's clock changes nothing.

    Subclasses override `start_loop`, `run_loop` and `stop_loop`.
    """

    def __init__(
        self,
        coord: Coordinator,
        timer_interval_secs: float | None,
        target: Callable[..., object] | None = None,
        args: Iterable[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Register with the coordinator; ``start()`` starts it.

        Args:
            coord: a `Coordinator`, or anything with its methods.
            timer_interval_secs: seconds from the start of one call to the start of the next; None calls back to back.
            target: what to call. Default: nothing; a subclass overrides `run_loop`.
            args: positional arguments of the target.
            kwargs: named arguments of the target.
            clock: whose monotonic hand the schedule follows.

        Raises:
            ValueError: ``coord`` is no coordinator, or there are arguments without a target.
        """
        if not all(callable(getattr(coord, method, None)) for method in _COORDINATOR_METHODS):
            raise ValueError(f"'coord' argument must be a Coordinator: {coord}")
        if not target and (args or kwargs):
            raise ValueError("'args' and 'kwargs' argument require that you also pass 'target'")
        super().__init__(target=target, daemon=True)
        self._coord = coord
        self._timer_interval_secs = timer_interval_secs
        self._clock = clock
        self._target = target
        self._args = tuple(args or ())
        self._kwargs = dict(kwargs or {})
        self._coord.register_thread(self)

    @staticmethod
    def loop(
        coord: Coordinator,
        timer_interval_secs: float | None,
        target: Callable[..., object],
        args: Iterable[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> LooperThread:
        """Start a thread that calls ``target(*args, **kwargs)`` at a fixed interval, and return it."""
        looper = LooperThread(coord, timer_interval_secs, target=target, args=args, kwargs=kwargs)
        looper.start()
        return looper

    def run(self) -> None:
        """Loop until the coordinator stops; the thread's own body, not to be called."""
        with self._coord.stop_on_exception():
            self.start_loop()
            interval_secs = self._timer_interval_secs
            if interval_secs is None:
                while not self._coord.should_stop():
                    self.run_loop()
            else:
                due = self._clock.monotonic()
                while not self._coord.wait_for_stop(due - self._clock.monotonic()):
                    self.run_loop()
                    due = next_due(due, interval_secs, self._clock.monotonic())
            self.stop_loop()

    def start_loop(self) -> None:
        """Do nothing; called once in the thread, before the first call of `run_loop`."""

    def stop_loop(self) -> None:
        """Do nothing; called once in the thread at a clean end, so not after an exception."""

    def run_loop(self) -> None:
        """Call the target; this is what happens every ``timer_interval_secs``."""
        if self._target:
            self._target(*self._args, **self._kwargs)


def next_due(due: float, interval_secs: float, now: float) -> float:
    """Return when the call after the one due at ``due`` is due: at the next moment of the schedule not before ``now``.

    Example:
        >>> next_due(10.0, 2.0, 10.5), next_due(10.0, 2.0, 15.0)
        (12.0, 16.0)
    """
    if interval_secs <= 0:
        return now
    return due + max(1, math.ceil((now - due) / interval_secs)) * interval_secs
