"""`ChiefWatch`: what a worker knows of its chief, from the lease in the logdir that they share.

It tells a run that has finished from one that has not yet begun: a worker that comes late would otherwise wait forever
for a chief which will not come, or train a model that nobody saves.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable

from supervisor_core.checkpoint.lease_record import LeaseRecord
from supervisor_core.checkpoint.logdir_lock import peek
from supervisor_core.clock import SYSTEM_CLOCK, Clock
from supervisor_core.errors import RunFinishedError

_LOG = logging.getLogger("supervisor_core")

FINISHED = ("completed", "exhausted", "requested")
"""How a session ends that has nothing left to do; after any other end somebody is expected to start it again."""


class ChiefWatch:
    """Looks at the lease of one logdir, for one worker.

    Args:
        logdir: the run's directory.
        finished_wait_secs: how long a run that has finished is given to begin again, in seconds from the first look.
        always_waits: whether a run that was seen at work is given that time too.
        read: returns what the lease says. Default: reads it.
        clock: the time; monotonic for the wait.
    """

    def __init__(
        self,
        logdir: str | os.PathLike[str],
        *,
        finished_wait_secs: float,
        always_waits: bool = False,
        read: Callable[[str | os.PathLike[str]], LeaseRecord | None] = peek,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._logdir = logdir
        self._wait_secs = finished_wait_secs
        self._always_waits = always_waits
        self._read = read
        self._clock = clock
        self._since: float | None = None
        self._seen_at_work: str | None = None
        self._said = False

    def look(self) -> str | None:
        """Return why a worker must not begin: the run has finished; None if it has not, as far as is known.

        A lease that cannot be read tells nothing, and what was seen before it stays seen.

        Raises:
            RunFinishedError: if it has finished, and no chief has begun it anew in the time to wait for one; or at once
                if this watch had seen that chief at work, and need not wait then.
        """
        record = self._record()
        if record is None:
            return None
        if record.ended not in FINISHED:
            self._since = None
            self._seen_at_work = record.session if record.ended is None else None
            return None
        now = self._clock.monotonic()
        if self._since is None:
            self._since = now
        text = f"the run in {os.fspath(self._logdir)} has finished: {_ending(record)}"
        left = self._since + self._wait_secs - now
        if left <= 0 or (self._seen_at_work == record.session and not self._always_waits):
            raise RunFinishedError(f"There is nothing left to do here: {text}.")
        return f"a chief to continue the run, within {left:.0f} s: {text}"

    def _record(self) -> LeaseRecord | None:
        try:
            return self._read(self._logdir)
        except Exception as error:  # clients of file systems raise what they like; to begin is not forbidden by it
            if not self._said:
                _LOG.warning("Whether the run in %s has finished cannot be seen: %s", os.fspath(self._logdir), error)
            self._said = True
            return None


def _ending(record: LeaseRecord) -> str:
    step = "" if record.last_step is None else f" at step {record.last_step:,}"
    ended_at = record.renewed_at if record.ended_at is None else record.ended_at
    at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(ended_at))
    return f"session {record.session} on {record.host} ended ({record.ended}){step}, {at}"
