"""`DeadMan`: ends the process at a deadline though no Python code can run any more."""

from __future__ import annotations

import faulthandler
import os
import sys
from contextlib import suppress

from supervisor_core.runtime.deadline import Deadline


class DeadMan:
    """A timer in a C thread, which needs no interpreter lock: native code that holds it keeps Python's threads, signal
    handlers included, from running for as long as it likes.

    When the deadline comes, the stacks of all threads are written to standard error, so that it can be seen what held
    up the end, and the process exits with status 1: nothing that Python would have to do is done. There is one such
    timer in a process (`faulthandler.dump_traceback_later`); one that the program has set is replaced.

    Example:
        >>> dead_man = DeadMan()
        >>> dead_man.arm(Deadline.after(3600.0))
        >>> dead_man.disarm()
    """

    def __init__(self) -> None:
        self._armed_by: int | None = None

    def arm(self, deadline: Deadline) -> None:
        """End the process at the deadline, unless it is over already; where that cannot be had, do nothing."""
        secs = deadline.remaining()
        if not secs:
            return
        with suppress(
            OSError, ValueError, AttributeError, RuntimeError, OverflowError
        ):  # no standard error, or threads
            faulthandler.dump_traceback_later(secs, exit=True, file=sys.__stderr__ or sys.stderr)
            self._armed_by = os.getpid()

    def disarm(self) -> None:
        """Let the process live. In a forked child, which has no such timer, nothing happens."""
        armed_by, self._armed_by = self._armed_by, None
        if armed_by == os.getpid():
            faulthandler.cancel_dump_traceback_later()
