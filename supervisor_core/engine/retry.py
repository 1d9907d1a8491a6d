"""`Backoff`: waits between retries; `is_outside_fault`: which errors are worth a retry."""

from __future__ import annotations

import errno
import io
import random
from collections.abc import Callable
from dataclasses import dataclass

from supervisor_core.errors import DamagedCheckpointError, EventsWriteError

_OWN_MISTAKES = frozenset({errno.EBADF, errno.EFAULT, errno.EISDIR, errno.ENAMETOOLONG})


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
    random: Callable[[], float] = random.random
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
