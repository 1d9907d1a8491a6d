"""`Sighting`: one process of the cluster as the chief saw it last, and what state that is."""

from __future__ import annotations

import re
from dataclasses import dataclass

from supervisor_core.run.status import WorkerState, WorkerStatus
from supervisor_core.supervision.task_record import TaskRecord

MISSED_BEATS = 3
"""A process is not lost before it has missed so many beats."""

_WAITING_PHASES = ("starting", "restoring")


@dataclass(frozen=True, kw_only=True)
class Sighting:
    """What a process said last, and when it was heard."""

    record: TaskRecord
    heard: float
    """Monotonic seconds at which it was last seen; later by as long as the chief could not look."""
    heard_at: float
    """The same moment by the chief's wall clock."""
    state: WorkerState

    def status(self) -> WorkerStatus:
        """Return it as metrics and heartbeats show it."""
        record = self.record
        return WorkerStatus(
            name=record.task,
            state=self.state,
            phase=record.phase,
            waiting_for=record.waiting_for if self.state == "waiting" else None,
            step=record.step,
            steps=record.steps,
            last_seen_at=self.heard_at,
            started_at=record.started_at,
            host=record.host,
            pid=record.pid,
            error=record.error,
        )


def has_ended_well(record: TaskRecord) -> bool:
    """Say whether a process has ended, and by no error."""
    return record.ended not in (None, "error")


def state_of(record: TaskRecord, *, silent_secs: float, lost_after_secs: float, is_gone: bool) -> WorkerState:
    """Return the state of a process.

    Args:
        record: what it said last.
        silent_secs: for how long it has said nothing.
        lost_after_secs: for how long it may, unless its own beats are farther apart.
        is_gone: whether it is known not to run any more.
    """
    if record.ended is not None:
        return "stopped" if has_ended_well(record) else "failed"
    if is_gone or silent_secs > max(lost_after_secs, MISSED_BEATS * record.interval_secs):
        return "lost"
    if record.phase in _WAITING_PHASES or record.waiting_for is not None:
        return "waiting"
    return "stalled" if record.stalled else "running"


def by_name(status: WorkerStatus) -> tuple[tuple[int, int, str], ...]:
    """Order processes by their names, numbers in their order: ``worker:2`` before ``worker:10``."""
    parts = re.split(r"(\d{1,18})", status.name)
    return tuple((index % 2, int(part) if index % 2 else 0, part) for index, part in enumerate(parts))
