"""`SessionFacts`: what is known of one session before it is set among the others, told by itself or inferred."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from supervisor_core.run.model import Checkpoint, Recovery, Session, Silence, Stall, ThreadHistory
from supervisor_core.run.pace import Pace
from supervisor_core.run.worker_fold import WorkerTold


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFacts:
    """One session by itself. Its outcome is ``running`` where nothing says that it has ended."""

    session: Session
    paces: tuple[Pace, ...]
    """Productive seconds by step: from the session's start, and from where each recovery took it back to, each up to
    the next. At least one."""
    told_secs: Mapping[str, float]
    """Its seconds by bucket as far as they are decided: no later event takes them back."""
    is_start_exact: bool
    """Whether its start is known from the session itself."""
    is_stalled: bool = False
    """Whether the last it told was that it does not move."""
    silence_secs: float | None = None
    """How long it may be silent before it counts as lost; None: forever."""
    unheard_secs: float = 0.0
    """How long it probably lived on after it was last seen, if it died."""
    unseen_secs: float | None = None
    """How long it may have lived on at most after it was last seen, if it died; None where it is not known."""
    most_steps_per_sec: float | None = None
    """The most that it told; None where it told none."""
    ended_itself: bool = False
    """Whether a STOP event of another writer tells of an orderly end."""
    previous_outcome: str | None = None
    """How the session before it ended, as this one found."""
    previous_step: int | None = None
    """How far the session before it had come, as the lease said."""
    previous_seen_at: float | None = None
    """When the lease said so."""
    run_started_at: float | None = None
    """When the run's first session started, as the lease said: sessions that say the same are ordered by attempt."""
    previous_elapsed_secs: float | None = None
    """How long the session before it had lasted when it was last seen, by a monotonic clock."""
    previous_seen_secs: float | None = None
    """How long before this one's start that was, by such a clock; None where they ran on different machines."""
    is_clock_behind: bool = False
    """Whether the session before it was seen at a later time than this one started at: a wall clock was set back."""
    checkpoints: tuple[Checkpoint, ...] = ()
    threads: tuple[ThreadHistory, ...] = ()
    workers: tuple[WorkerTold, ...] = ()
    recoveries: tuple[Recovery, ...] = ()
    stalls: tuple[Stall, ...] = field(default=())
    silences: tuple[Silence, ...] = ()
