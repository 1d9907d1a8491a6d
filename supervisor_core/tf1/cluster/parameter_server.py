"""`ParameterServer`: a process that holds variables for the others, seen by the chief, and gone when all is done."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable

from supervisor_core.checkpoint.filesystem import local_path
from supervisor_core.clock import SYSTEM_CLOCK, Clock
from supervisor_core.errors import RunFinishedError
from supervisor_core.events.telemetry import StopReason, StopRecord
from supervisor_core.options import Options
from supervisor_core.runtime.signals import SignalWatch
from supervisor_core.supervision.beacon import Beacon
from supervisor_core.supervision.chief_watch import ChiefWatch
from supervisor_core.supervision.roster import Roster

_LOG = logging.getLogger("supervisor_core")

LOOK_SECS = 5.0
"""How often a parameter server looks whether the run has finished, and at the workers' heartbeats."""

REMOTE_LOOK_SECS = 15.0
"""The same where each look is a request to an object store."""


class ParameterServer:
    """Waits beside the TensorFlow server of this process until nobody needs it any more.

    Args:
        logdir: the run's directory, shared with the chief.
        task: what the process is called, ``ps:0``.
        options: intervals.
        wait: waits so many seconds; tells whether to end now. Default: until a signal says so.
        clock: the time.
    """

    def __init__(
        self,
        logdir: str,
        task: str,
        options: Options,
        *,
        wait: Callable[[float], bool] | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._stop = threading.Event()
        self._wait = wait or self._stop.wait
        self._handles_signals = options.handle_signals
        self._clock = clock
        self._session = uuid.uuid4().hex[:16]
        self._task = task
        self._beacon = Beacon(
            logdir, task, self._session, interval_secs=options.heartbeat_secs, phase="serving", clock=clock
        )
        self._look_secs = REMOTE_LOOK_SECS if local_path(logdir) is None else LOOK_SECS
        # A chief may open one session after the other, and would wait in vain for the variables of the next.
        self._chief = ChiefWatch(logdir, finished_wait_secs=options.finished_wait_secs, always_waits=True, clock=clock)
        self._roster = Roster(
            logdir, clock=clock, lost_after_secs=options.lease_timeout_secs, interval_secs=self._look_secs
        )

    def serve(self) -> None:
        """Return when the run has finished, and begins no more for `Options.finished_wait_secs`, and its workers have
        ended. A run that is cut off is waited for.

        SIGTERM and SIGINT end it at once, and the process as they would have, once that is told.
        """
        if not self._handles_signals:
            self._serve(None)
            return
        with SignalWatch(lambda signum: self._stop.set(), clock=self._clock) as watch:
            self._serve(watch)
        watch.finish()

    def _serve(self, watch: SignalWatch | None) -> None:
        self._beacon.start()
        reason: StopReason = "requested"
        try:
            while not self._wait(self._look_secs):
                self._roster.look()  # from the beginning: whether a heartbeat goes on is not seen at one look
                if self._is_finished() and not self._is_needed():
                    _LOG.info("%s: the run has finished, and no process needs its variables.", self._task)
                    reason = "completed"
                    return
            if watch is not None and watch.received is not None:
                reason = "signal"
        finally:
            self._beacon.write(StopRecord(session=self._session, reason=reason))
            self._beacon.close()

    def _is_finished(self) -> bool:
        try:
            self._chief.look()
        except RunFinishedError:
            return True
        return False

    def _is_needed(self) -> bool:
        """Whether a worker is still at work: one that goes on after its chief would be torn from its variables."""
        at_work = [each for each in self._roster.workers() if each.phase != "serving"]
        return any(each.state in ("running", "stalled") for each in at_work)
