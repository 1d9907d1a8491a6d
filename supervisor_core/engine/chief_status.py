"""`ChiefStatus`: whether a run has finished, for its workers, from its chief's liveness file.

It distinguishes a run that has finished from one that has not started yet: a late worker would otherwise wait forever
for a chief that will not come, or train a model that no process saves.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

from supervisor_core.base.clock import SYSTEM_CLOCK, Clock, utc_text
from supervisor_core.base.errors import RunFinishedError
from supervisor_core.run.watch.liveness import LivenessRecord, read_chief

_LOG = logging.getLogger("supervisor_core")

FINISHED = ("completed", "exhausted", "requested")
"""Stop reasons of a run that has finished; after any other it is expected to be started again."""


class ChiefStatus:
    """Reads the chief's liveness file of one logdir, for one worker.

    Args:
        finished_wait_secs: how long a finished run has to start again, in seconds from the first read.
        always_waits: whether a run that was seen running has that time too.
    """

    def __init__(
        self,
        logdir: str | os.PathLike[str],
        *,
        finished_wait_secs: float,
        always_waits: bool = False,
        read: Callable[[str | os.PathLike[str]], LivenessRecord | None] = read_chief,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._logdir = logdir
        self._wait_secs = finished_wait_secs
        self._always_waits = always_waits
        self._read = read
        self._clock = clock
        self._since: float | None = None
        self._seen_running: str | None = None
        self._has_warned = False

    def check(self) -> str | None:
        """Return why a worker must wait: the run has finished; None if it has not, as far as is known.

        A file that cannot be read changes nothing.

        Raises:
            RunFinishedError: if it has finished and no chief has restarted it within the wait; or immediately if that
                chief was seen running before and ``always_waits`` is False.
        """
        record = self._record()
        if record is None:
            return None
        if record.ended not in FINISHED:
            self._since = None
            self._seen_running = record.session if record.ended is None else None
            return None
        now = self._clock.monotonic()
        if self._since is None:
            self._since = now
        text = f"the run in {os.fspath(self._logdir)} has finished: {_ending(record)}"
        left = self._since + self._wait_secs - now
        if left <= 0 or (self._seen_running == record.session and not self._always_waits):
            raise RunFinishedError(f"There is nothing left to do here: {text}.")
        return f"a chief to continue the run, within {left:.0f} s: {text}"

    def _record(self) -> LivenessRecord | None:
        try:
            return self._read(self._logdir)
        except Exception as error:  # file system clients raise any type; an unreadable file forbids no start
            if not self._has_warned:
                _LOG.warning("Cannot read whether the run in %s has finished: %s", os.fspath(self._logdir), error)
            self._has_warned = True
            return None


def _ending(record: LivenessRecord) -> str:
    step = "" if record.step is None else f" at step {record.step:,}"
    ended_at = record.written_at if record.ended_at is None else record.ended_at
    at = f"{utc_text(ended_at) or 'unknown'} UTC"
    return f"session {record.session} on {record.host} ended ({record.ended}){step}, {at}"
