"""`FinalSave`: the save at a session's end, which has a deadline whatever hangs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from supervisor_core.errors import LogdirInUseError, SaveFailedError
from supervisor_core.events.telemetry import Trigger
from supervisor_core.options import Options
from supervisor_core.runtime.blocking_call import BlockingCall
from supervisor_core.runtime.deadline import Deadline
from supervisor_core.tf1.checkpoint_manager import CheckpointManager
from supervisor_core.tf1.stop_state import Grace

if TYPE_CHECKING:
    from supervisor_core.tf1.lifecycle import Lifecycle

_LOG = logging.getLogger("supervisor_core")

LOOK_AGAIN_SECS = 0.2
"""How often somebody who waits for a save looks whether a signal has brought the deadline forward, in seconds."""

_HANGS = "it is still being saved, and no time is left"


class FinalSave:
    """Saves what is not on the disk yet. Thread-safe: the loop's thread and a signal's may both come to it, and the
    one that comes second finds nothing left to do.


    Args:
        session: what ends.
        options: whether such an end is to be saved.
        grace: until when.
    """

    def __init__(self, session: Lifecycle, options: Options, grace: Grace) -> None:
        self._lock = threading.Lock()
        self._session = session
        self._options = options
        self._grace = grace

    def checkpoints(self, given: CheckpointManager | None = None) -> CheckpointManager | None:
        """Return what saves the session under way; None where nothing is to be saved.

        Args:
            given: what saves. Default: the session's own.
        """
        run, checkpoints = self._session.begun, given or self._session.checkpoints
        return None if run is None or run.ended or checkpoints is None or not checkpoints.serving else checkpoints

    def is_wanted(self, interrupted: bool) -> bool:
        """Tell whether a session that ends like this is to be saved.

        Args:
            interrupted: whether a Ctrl-C was handed to the program.
        """
        facts = self._session.ending
        if interrupted and isinstance(facts.body_error, KeyboardInterrupt):
            return False  # saved when the signal came; whoever sends a second one wants to be gone
        failure = facts.failure(self._session.coord)
        if isinstance(failure, LogdirInUseError):
            return False  # another chief's logdir by now
        return self._options.save_on_stop if failure is None else self._options.save_on_error

    def save(self, checkpoints: CheckpointManager, interrupted: Callable[[], bool]) -> None:
        """Save, and keep in the session's `Ending` what has become of it.

        Args:
            checkpoints: what saves.
            interrupted: see `is_wanted`.

        Raises:
            SaveFailedError: if it could not be saved, or not in time.
        """
        facts, grace = self._session.ending, self._grace
        trigger: Trigger = "final" if facts.signum is None else "signal"
        saved = self._run(
            checkpoints, trigger, lambda: not self.is_wanted(interrupted()), lambda: grace.for_save, grace.deadline
        )
        facts.final_checkpoint, facts.final_checkpoint_step = saved
        facts.save_error = None

    def give_up(self, error: BaseException) -> None:
        """Say that there will be no final checkpoint, and why."""
        self._session.ending.save_error = error
        _LOG.error("%s", error, exc_info=None if isinstance(error, SaveFailedError) else error)

    def _run(
        self,
        checkpoints: CheckpointManager,
        trigger: Trigger,
        has_failed: Callable[[], bool],
        deadline: Callable[[], Deadline],
        retry_until: Deadline,
    ) -> tuple[str | None, int | None]:
        """Save; return path and step of the newest checkpoint.

        The save is made in a thread of its own, except where there are no more threads: at the interpreter's end. One
        that hangs is left to itself at the deadline.

        Args:
            checkpoints: what saves.
            trigger: why.
            has_failed: see `CheckpointManager.save_last`.
            deadline: returns until when; a signal may bring it forward.
            retry_until: until when to try again where the outside world refuses it.

        Raises:
            SaveFailedError: if it could not be saved, or not in time.
        """
        if not self._lock.acquire(timeout=deadline().timeout):
            raise SaveFailedError(checkpoints.last_words(_HANGS))
        try:
            save = partial(checkpoints.save_last, trigger, has_failed, deadline, retry_until)
            call = BlockingCall(save, name="supervisor-final-save")
        except RuntimeError:
            return save()
        else:
            while not call.wait(deadline().remaining(LOOK_AGAIN_SECS)):
                if deadline().is_over:
                    call.abandon()
                    raise SaveFailedError(checkpoints.last_words(_HANGS))
            return call.result()
        finally:
            self._lock.release()
