"""`Grace`: until when each part of a session's end has time."""

from __future__ import annotations

import logging
from typing import Any

from supervisor_core.clock import Clock
from supervisor_core.errors import EventsWriteError, WaitTimeoutError
from supervisor_core.runtime.deadline import NEVER, Deadline

_LOG = logging.getLogger("supervisor_core")

RESERVE_SHARE, RESERVE_SECS = 0.2, 2.0
"""The part of the grace time after a signal, and at most how much of it in seconds, kept for the last records."""
RECORDS_SECS, JOIN_SECS = 10.0, 5.0
"""How long the last records may take, and threads have to end, even if the save took all of ``stop_grace_secs``."""


class Grace:
    """The deadline of a session's end: made by a signal, or by a stop without one; see `docs/stopping.md`.

    Args:
        signal_secs: `Options.signal_grace_secs`.
        clock: the time.
    """

    def __init__(self, signal_secs: float, clock: Clock) -> None:
        self.deadline = NEVER
        """When the end has to be over; `NEVER` as long as nothing ends."""
        self._by_signal = False
        self._signal_secs = signal_secs
        self._clock = clock

    def forget(self) -> None:
        """There is no end under way."""
        self.deadline, self._by_signal = NEVER, False

    def signalled(self, at: float | None) -> None:
        """A signal came.

        Args:
            at: when, on the monotonic clock. Default: now.
        """
        since = self._clock.monotonic() if at is None else at
        self.deadline, self._by_signal = Deadline(since + self._signal_secs, self._clock), True

    def stopped(self, secs: float) -> None:
        """The session is stopped, and has this many seconds from now on; those of a signal before are replaced."""
        self.deadline = Deadline.after(secs, self._clock)

    @property
    def for_save(self) -> Deadline:
        """Until when there is time to save: without a signal a save takes the time that it takes."""
        return self.for_work if self._by_signal else NEVER

    @property
    def for_work(self) -> Deadline:
        """Until when there is time to wait for what has to end first."""
        if not self._by_signal:
            return self.deadline
        return self.deadline.earlier(min(RESERVE_SECS, RESERVE_SHARE * self._signal_secs))

    @property
    def for_records(self) -> Deadline:
        """Until when there is time for the last records."""
        if self._by_signal:
            return self.deadline
        return Deadline.after(max(RECORDS_SECS, self.deadline.remaining()), self._clock)

    def join_secs(self, grace_secs: float) -> float:
        """Return how long threads may be waited for, of so many seconds that a stop was given."""
        left = self.for_work.remaining(grace_secs)
        return left if self._by_signal else max(left, min(grace_secs, JOIN_SECS))


def close_in_time(writer: Any, last: Any, deadline: Deadline) -> None:
    """Append a last session log, unless it is None, and close the writer; what fails is logged.

    Args:
        writer: the summary writer; only our own knows a time limit.
        last: the session log.
        deadline: until when to wait for the disk.
    """
    try:
        if last is not None:
            writer.add_session_log(last)
        if hasattr(writer, "sync"):
            writer.close(deadline.timeout)
        else:
            writer.close()
    except (EventsWriteError, WaitTimeoutError) as error:  # what ended the session is what its end is to raise
        _LOG.error("%s", error)
