"""`LivenessRecord`: what a process of a run says of itself now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, cast, get_args

from msgspec import Meta

from supervisor_core.base.json_records import Attempt, Count, Integer, Moment, Name, Secs, Text
from supervisor_core.events.telemetry import (
    HeartbeatRecord,
    NoticeRecord,
    Pace,
    Place,
    Record,
    StopReason,
    StopRecord,
)
from supervisor_core.process.identity import Machine

MAX_NOTICES = 8
"""The most of what a process has said that its liveness file has."""
MAX_REASONS = 64
LEAST_INTERVAL_SECS = 10.0
"""The shortest recommended interval of saves; the duration of a save is another lower limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """The costs of failures and saves of a run, summed over its sessions."""

    trained_secs: Moment = 0.0
    """Time spent on steps, including repeated ones."""
    failures: Count = 0
    """Sessions that got the run further, and were then lost, failed, or were ended by a signal. The others of a loop of
    crashes say that the program is broken, not how often a training fails."""
    saves: Count = 0
    """Successful saves."""
    save_secs: Moment = 0.0
    """Their durations, until they were durable."""
    blocked_secs: Moment = 0.0
    """For how long they blocked training."""

    @property
    def save_cost_secs(self) -> float | None:
        """Mean seconds for which a save blocked training; None before the first."""
        return self.blocked_secs / self.saves if self.saves else None

    @property
    def mtbf_secs(self) -> float | None:
        """Mean time between failures; None before the first."""
        return self.trained_secs / self.failures if self.failures and self.trained_secs > 0 else None

    @property
    def floor_secs(self) -> float:
        """The lower limit of the recommended interval."""
        return max(LEAST_INTERVAL_SECS, self.save_secs / self.saves if self.saves else 0.0)


@dataclass(frozen=True, kw_only=True)
class RunSoFar:
    """What a chief knows of its run, and leaves to the next one."""

    attempt: Attempt
    """1 for the run's first session, one more for each later one."""
    first_started_at: Secs
    """When the run's first session started."""
    restarts: Annotated[Mapping[str, Integer], Meta(max_length=MAX_REASONS)] = field(default_factory=dict)
    """How the earlier sessions ended: reason -> count; ``lost`` for those without a stop record."""
    steps_lost: Integer = 0
    """Steps that this and the earlier sessions recomputed after restarts."""
    costs: Costs | None = None
    """Of this and the earlier sessions; None if unknown."""
    predecessor: str | None = None
    """The earlier session that was cut off and whose model may be alive in a cluster; None once this one is ready."""
    yields_logdir: bool = False
    """The session writes no checkpoints, and gives way to one that does."""


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
    started_boot_secs: Secs | None = None
    """When it started, by the clock that counts from the machine's start (see ``boot``) and is never set."""
    written_boot_secs: Secs | None = None
    """When this was written, by that clock."""
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
    history: RunSoFar | None = None
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
    def outcome(self) -> str:
        """How a session ended that is known not to run."""
        return "lost" if self.ended is None else self.ended

    @property
    def attempt(self) -> int:
        """The session's number in its run; 0 if unknown."""
        return 0 if self.history is None else self.history.attempt

    @property
    def yields_logdir(self) -> bool:
        """Whether it gives way to a session that writes checkpoints."""
        return self.history is not None and self.history.yields_logdir

    @property
    def elapsed_secs(self) -> float | None:
        """Age of the session when this was written; None if unknown."""
        if self.started_boot_secs is None or self.written_boot_secs is None:
            return None
        return max(0.0, self.written_boot_secs - self.started_boot_secs)

    @property
    def process(self) -> str:
        """The process, for messages."""
        ended = "" if self.ended is None else f", which has ended ({self.ended})"
        return f"process {self.pid} on {self.host} (session {self.session}){ended}"

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
