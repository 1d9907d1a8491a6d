"""`Backoff`: waits between retries; `is_outside_fault`: which errors are worth a retry; `SaveTrials`: saves
that show whether one can be made."""

from __future__ import annotations

import errno
import io
import random
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from supervisor_core.base.clock import Clock
from supervisor_core.base.errors import DamagedCheckpointError, EventsWriteError
from supervisor_core.run.model.thresholds import Thresholds

_OWN_MISTAKES = frozenset({errno.EBADF, errno.EFAULT, errno.EISDIR, errno.ENAMETOOLONG})


OWN_RANDOM = random.Random()
"""Random numbers of the supervisor's own: those of the module are the program's, whose resume would not be exact."""


@dataclass(frozen=True)
class Backoff:
    """The wait before each retry: doubled each time up to a limit, minus a random part. `Options` checks the numbers.

    The random part prevents that workers of a cluster that fail together retry together.

    Example:
        >>> backoff = Backoff(initial_secs=1.0, max_secs=60.0, jitter=0.0)
        >>> [backoff.next_delay(failures) for failures in (1, 2, 3, 7, 100)]
        [1.0, 2.0, 4.0, 60.0, 60.0]
    """

    initial_secs: float = 1.0
    """Seconds before the first retry."""
    max_secs: float = 60.0
    """The longest wait in seconds."""
    jitter: float = 0.25
    """The largest random part, 0 to 1, that is subtracted."""
    random: Callable[[], float] = OWN_RANDOM.random
    """Returns a number from 0 to 1."""

    def next_delay(self, failures: int) -> float:
        """Return the seconds to wait after this many failures in a row, from 1."""
        doublings = min(max(failures - 1, 0), 1000)  # 2.0**1024 overflows
        return min(self.initial_secs * 2.0**doublings, self.max_secs) * (1 - self.jitter * self.random())


def is_outside_fault(error: BaseException) -> bool:
    """Return whether an error has an external cause that may pass, so that a retry is useful.

    That is any ``OSError`` (no space, I/O error, an unmounted file system, refused permission, a timeout; also a
    missing file, since an unmounted file system looks like that), a failed write of events, and a checkpoint that did
    not read back as written. Excluded are errors that no retry cures: a directory in place of a file, a name that
    is too long, a bad file descriptor, a bad address, an unsupported operation.
    """
    if isinstance(error, OSError):
        return not isinstance(error, io.UnsupportedOperation) and error.errno not in _OWN_MISTAKES
    return isinstance(error, (EventsWriteError, DamagedCheckpointError))


TRIAL_SECS = 10.0
"""How often a save is tried, at most, to show that none can be made."""
SHOWN_FAILURES = Thresholds().save_failures
"""That many saves in a row that have failed are an alert."""


class SaveTrials:
    """Has a save tried once the logdir was renamed, and once it is back: else only the next periodic save would show
    that none can be made. It is tried again until it has failed as often as counts as trouble.

    Args:
        save: tries to save a checkpoint; called in a thread of its own.
    """

    def __init__(self, save: Callable[[], object], clock: Clock) -> None:
        self._save, self._clock = save, clock
        self._was_moved, self._next_trial = False, 0.0

    def renewed(self, failures_in_a_row: int, *, is_moved: bool) -> None:
        """Take where the logdir is now, and how many saves in a row have failed; called once a second."""
        now = self._clock.monotonic()
        is_to_show = is_moved and failures_in_a_row < SHOWN_FAILURES and now >= self._next_trial
        if is_to_show or (self._was_moved and not is_moved):
            self._next_trial = now + TRIAL_SECS
            with suppress(RuntimeError):  # no more threads
                threading.Thread(target=self._save, name="supervisor-save-trial", daemon=True).start()
        self._was_moved = is_moved
