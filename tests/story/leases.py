"""Who holds a logdir, and what its chief says: for tests."""

from __future__ import annotations

import os
import socket
from typing import Any

from supervisor_core.checkpoint.lease_file import LeaseRecord, decode, lease_file_in
from supervisor_core.engine.liveness_writer import LivenessFile
from supervisor_core.run.watch.liveness import CHIEF, LivenessRecord


def peek(logdir: str | os.PathLike[str]) -> LeaseRecord | None:
    """Read the lease without acquiring it. None if unreadable or absent."""
    try:
        return decode(lease_file_in(logdir).read())
    except (OSError, ValueError):
        return None


class Chief:
    """A chief that says by its liveness file that it is at work, or how it ended.

    Args:
        logdir: the run's directory.
    """

    def __init__(self, logdir: str) -> None:
        self._logdir = logdir
        self._session = "none"

    def acquire(self, session: str) -> None:
        """Begin a session."""
        self._session = session
        self._say(phase="training")

    def release(self, reason: str, last_step: int | None = None) -> None:
        """End it."""
        self._say(phase="stopped", ended=reason, step=last_step)

    def _say(self, **values: Any) -> None:
        record = LivenessRecord(
            task=CHIEF, session=self._session, host=socket.gethostname(), pid=os.getpid(), started_at=1.0,
            written_at=1.0, beats=1, interval_secs=10.0, **values,
        )  # fmt: skip
        assert LivenessFile(self._logdir, CHIEF, self._session).write(record) is None
