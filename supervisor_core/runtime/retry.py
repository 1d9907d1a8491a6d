"""When to try again, and after which errors."""

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
    """How long to wait before each retry: doubled each time up to a bound, less a random part of it.

    The random part keeps the workers of a cluster, which fail together, from coming back together.

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
    """The largest part, 0 to 1, that is taken off by chance."""
    random: Callable[[], float] = random.random
    """Returns a number from 0 to 1."""

    def __post_init__(self) -> None:
        if not 0 < self.initial_secs <= self.max_secs:
            raise ValueError(
                f"Backoff(initial_secs={self.initial_secs!r}, max_secs={self.max_secs!r}): expected 0 < initial_secs "
                "<= max_secs."
            )
        if not 0 <= self.jitter <= 1:
            raise ValueError(f"Backoff(jitter={self.jitter!r}): expected a part of the wait, from 0 to 1.")

    def next_delay(self, failures: int) -> float:
        """Return the seconds to wait after so many failures in a row, from 1."""
        doublings = min(max(failures - 1, 0), 1000)  # 2.0**1024 overflows
        return min(self.initial_secs * 2.0**doublings, self.max_secs) * (1 - self.jitter * self.random())


def is_outside_fault(error: BaseException) -> bool:
    """Return whether an error is the world's and may pass, so that trying again is of use.

    That is any ``OSError`` (no space, I/O error, a mount that is gone, refused permission, a time-out: also a missing
    file or directory, since a file system that went away looks like that), a write of events that failed, and a
    checkpoint that did not read back as written. Not so what trying again cannot cure: a directory where a file should
    be, a name that is too long, a bad file descriptor, a bad address, an operation that the file does not have.
    """
    if isinstance(error, OSError):
        return not isinstance(error, io.UnsupportedOperation) and error.errno not in _OWN_MISTAKES
    return isinstance(error, (EventsWriteError, DamagedCheckpointError))
