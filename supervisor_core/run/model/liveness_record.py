"""`LivenessRecord`: what a process of a run says of itself now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, cast, get_args

from msgspec import Meta

from supervisor_core.base.json_records import Count, Integer, Moment, Name, Secs, Text
from supervisor_core.events.notice_record import NoticeRecord
from supervisor_core.events.place import Pace, Place
from supervisor_core.events.telemetry import (
    HeartbeatRecord,
    Record,
    StopReason,
    StopRecord,
)
from supervisor_core.process.identity import Machine

MAX_NOTICES = 8
"""The most of what a process has said that its liveness file has."""


@dataclass(frozen=True, kw_only=True)
class LivenessRecord:
    """A process of a run. Times are wall-clock seconds since the epoch, by its own clock."""

    task: Name
    """The process's name, ``worker:1``; `CHIEF` of the chief."""
    session: Name
    """Its session's unique id: another process of the same task has another one."""
    host: str
    boot: str | None = None
    """The kernel's boot id; None if unknown."""
    pids: str | None = None
    """The namespace of process ids, as ``pid:[4026531836]``; None if unknown."""
    pid: Integer
    started_at: Secs
    written_at: Secs
    beats: Integer
    """Number of writes: while it increases, the process is alive, whatever the clocks say."""
    interval_secs: Secs
    """The file is written at least this often."""
    phase: str
    step: Integer | None = None
    """The last global step that it has seen."""
    steps: Integer | None = None
    """Number of steps it has done; None for a process that does not train."""
    waiting_for: str | None = None
    """What it waits for; None if it does not wait."""
    stalled: bool = False
    progress_age_secs: Moment | None = None
    """Seconds without progress when this was written; None of a process that does not train."""
    hang_timeout_secs: Moment | None = None
    """How long it may go without progress, as if it trained alone; None where it cannot hang."""
    held: bool = False
    """Whether it waits for a save, or may have to."""
    place: Place | None = None
    """Where it is, while it makes no progress."""
    pace: Pace | None = None
    """How long it takes for a step; None where that is not known yet."""
    notices: Annotated[tuple[NoticeRecord, ...], Meta(max_length=MAX_NOTICES)] = ()
    """What it said last; its chief records it. The chief's own are in its events."""
    page: str | None = None
    """Path of its progress page on its machine, see `supervisor_core.process.progress_page`; None without one. This
    and what follows up to ``events_error``: of a chief."""
    beat: HeartbeatRecord | None = None
    """Its newest heartbeat, with all threads and without the other processes."""
    beat_at: Secs | None = None
    save_failures: Count = 0
    """Failed saves of this session."""
    save_failures_in_a_row: Count = 0
    """Failed saves since the last good one."""
    save_error: Text | None = None
    """Why the last save failed; None if it was good."""
    events_error: Text | None = None
    """Why events cannot be written; None while they can."""
    ended: str | None = None
    """Its stop reason (``completed``, ``signal``, ``error`` ...); None while it runs, and if it was killed."""
    ended_at: Secs | None = None
    error: str | None = None
    """The error that ended it."""

    @property
    def machine(self) -> Machine:
        """On which it runs."""
        return Machine(host=self.host, boot=self.boot, pids=self.pids)

    @property
    def records(self) -> tuple[tuple[float, Record], ...]:
        """Its heartbeat and its end, as telemetry with its time: they may be in no events file."""
        found: list[tuple[float, Record]] = []
        if self.beat is not None and self.beat.session == self.session:
            found.append((self.written_at if self.beat_at is None else self.beat_at, self.beat))
        if self.ended in get_args(StopReason):
            stop = StopRecord(
                session=self.session,
                reason=cast("StopReason", self.ended),
                error=self.error,
                step=self.step,
                steps=self.steps,
                activity_secs={} if self.beat is None else self.beat.activity_secs,
            )
            found.append((self.ended_at or self.written_at, stop))
        return tuple(found)
