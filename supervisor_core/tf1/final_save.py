"""`FinalSave`: the save at a session's end, which has a deadline whatever hangs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from supervisor_core.errors import SaveFailedError
from supervisor_core.events.telemetry import Trigger
from supervisor_core.runtime.blocking_call import BlockingCall
from supervisor_core.runtime.deadline import Deadline
from supervisor_core.tf1.checkpointing import Checkpointing

LOOK_AGAIN_SECS = 0.2
"""How often somebody who waits for a save looks whether a signal has brought the deadline forward, in seconds."""

_HANGS = "it is still being saved, and no time is left"


class FinalSave:
    """Saves what is not on the disk yet. Thread-safe: the loop's thread and a signal's may both come to it, and the
    one that comes second finds nothing left to do."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def run(
        self,
        checkpoints: Checkpointing,
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
            has_failed: see `Checkpointing.save_last`.
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
