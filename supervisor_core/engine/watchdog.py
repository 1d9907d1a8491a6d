"""`Watchdog`: takes `Options.hang_action` when a hang has lasted for too long.

    observe   counts what it would have done
    stop      asks the training to stop, with a `StalledError`: a loop that moves again ends, and raises it
    abort     saves a checkpoint if no step is under way, writes the stop record, and ends the process by SIGABRT
    kill      ends the process by SIGKILL

A wrong action is worse than none. So it acts once per hang, never on a learned hang timeout that is below the default,
and only after the stacks were taken twice.
"""

from __future__ import annotations

import logging
import math
import os
import signal
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from supervisor_core.engine.blocking_call import BlockingCall
from supervisor_core.engine.deadline import Deadline
from supervisor_core.engine.stall_report import SECOND_LOOK_SECS
from supervisor_core.errors import StalledError
from supervisor_core.events.telemetry import Acted
from supervisor_core.options import HangAction

_LOG = logging.getLogger("supervisor_core")

RECORD_SECS = 2.0
"""How long ``kill`` waits for the disk that holds the records, in seconds."""


def longest_end(action: HangAction, stop_timeout_secs: float) -> float:
    """Return for how many seconds, from the time to act on, the session may be busy ending itself: for so long nothing
    outside has to."""
    return 0.0 if action == "observe" else SECOND_LOOK_SECS + RECORD_SECS + stop_timeout_secs


def die(signum: int) -> None:
    """End the process by a signal, from any thread, whatever handler it has.

    SIGABRT goes through C's ``abort()``: the system writes a core file if it is configured to, and ``faulthandler``,
    where it is enabled, prints the stacks."""
    if signum == signal.SIGABRT:
        os.abort()
    os.kill(os.getpid(), signum)


@dataclass(frozen=True, kw_only=True)
class StallResponse:
    """What a session can do about its own stall."""

    stop: Callable[[StalledError], object]
    """Requests a stop with an error; must not block."""
    end: Callable[[StalledError, Deadline], object]
    """Saves what can be saved and writes the last records, until the deadline."""
    record: Callable[[Deadline], object]
    """Writes a heartbeat, durably, until the deadline."""


NO_RESPONSE = StallResponse(stop=lambda error: None, end=lambda error, deadline: None, record=lambda deadline: None)
"""Of a session that nothing but a signal can end."""


class Watchdog:
    """The watchdog of one session; called by its monitor's thread.

    Args:
        action: see `Options.hang_action`.
        response: what the session can do.
        stop_timeout_secs: how long ``abort`` may take, in seconds.
        die: ends the process by a signal. Default: `die`.
    """

    def __init__(
        self,
        action: HangAction,
        response: StallResponse,
        *,
        stop_timeout_secs: float,
        die: Callable[[int], object] = die,
    ) -> None:
        self._action = action
        self._response = response
        self._stop_timeout_secs = stop_timeout_secs
        self._die = die
        self._began_at = math.inf
        self._has_acted = False
        self.would_act = 0
        """How many stalls it would have ended, under ``observe``."""
        self.acted: Mapping[Acted, int] = {} if action == "observe" else {action: 0}
        """How many stalls it has acted upon, by action; nothing under ``observe``."""

    def begin(self, now: float) -> None:
        """A stall has begun.

        Args:
            now: monotonic seconds.
        """
        self._began_at, self._has_acted = now, False

    def check(self, now: float, *, age_secs: float, act_after_secs: float | None, text: str) -> bool:
        """Act if the stall has lasted for long enough; return whether it did. Call it while a stall lasts.

        Args:
            now: monotonic seconds.
            age_secs: seconds since the last progress.
            act_after_secs: see `HangTimeouts.act_after`.
            text: what stalls, and where.
        """
        if self._has_acted or act_after_secs is None:
            return False
        if now - self._began_at < SECOND_LOOK_SECS or age_secs <= act_after_secs:
            return False
        self._has_acted = True
        if self._action == "observe":
            self.would_act += 1
            _LOG.warning("%s Options.hang_action is 'observe': nothing is done about it.", text)
            return True
        self.acted = {self._action: self.acted[self._action] + 1}
        error = StalledError(text)
        if self._action == "stop":
            _LOG.error("%s The training is asked to stop.", text)
            self._response.stop(error)
            return True
        signum = signal.SIGABRT if self._action == "abort" else signal.SIGKILL
        _LOG.error("%s The process is ended by %s.", text, signum.name)
        thread = threading.Thread(target=self._end_process, args=(error, signum), name="supervisor_watchdog")
        thread.daemon = True
        thread.start()
        return True

    def _end_process(self, error: StalledError, signum: signal.Signals) -> None:
        try:
            self._within(RECORD_SECS, self._response.record)
            if signum == signal.SIGABRT:
                self._within(self._stop_timeout_secs, lambda deadline: self._response.end(error, deadline))
        finally:
            self._die(signum)

    def _within(self, secs: float, call: Callable[[Deadline], Any]) -> None:
        """Make a call that may fail, or hang; return when it has ended, or after the given time."""
        deadline = Deadline.after(secs)
        made = BlockingCall(lambda: call(deadline), name="supervisor_watchdog-end")
        if not made.wait(secs):
            _LOG.error("The last records could not be written within %.0f s.", secs)
            return
        try:
            made.result()
        except Exception as error:  # the process ends all the same
            _LOG.error("The last records could not be written: %s", error)
