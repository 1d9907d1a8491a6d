"""`RunStatus`: one run at one moment, as the metrics show it.

The training process fills it from its own counters; whatever reads events files fills it from those. Either way the
metrics layer sees this and nothing else, so that a name means the same wherever it is served.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

ThreadState = Literal["starting", "idle", "ticking", "overdue", "failed", "stopped"]
"""What a service thread is doing: ``overdue`` is late by more than its interval, ``failed`` has ended by an error or
keeps failing, ``stopped`` has ended as asked."""

ServedState = Literal["running", "stalled", "lost", "completed", "stopped", "failed", "unknown", "unreachable"]
"""What a run is doing: the states of docs/model.md, and ``unreachable`` for one that was there, had not ended as
planned, and whose directory is gone or cannot be listed (only an exporter can see that)."""

WorkerState = Literal["waiting", "running", "stalled", "lost", "stopped", "failed"]
"""What another process of the cluster is doing: ``waiting`` for the chief, ``running``, ``stalled`` beyond its phase's
budget, ``lost`` when it has fallen silent, ``stopped`` when it ended as planned, ``failed`` when it ended by an
error."""


@dataclass(frozen=True, kw_only=True)
class WorkerStatus:
    """Another process of the cluster at one moment, as the chief sees it. Times are wall-clock seconds since the epoch,
    by the chief's clock; None where it is not known."""

    name: str
    """Its task, ``worker:1``, ``ps:0``; ``host-pid`` where nothing names it."""
    state: WorkerState
    phase: str | None = None
    waiting_for: str | None = None
    """What it waits for, while it does."""
    step: int | None = None
    """The global step that it saw last."""
    steps: int | None = None
    """Steps that its present process has done; None for one that does none (a parameter server)."""
    last_seen_at: float | None = None
    """When it was last seen."""
    started_at: float | None = None
    """When its present process began, by that process's own clock."""
    host: str | None = None
    pid: int | None = None
    error: str | None = None
    """What ended it."""


@dataclass(frozen=True, kw_only=True)
class ThreadStatus:
    """One service thread at one moment. Times are wall-clock seconds since the epoch; None where there was none."""

    name: str
    state: ThreadState
    interval_secs: float | None = None
    """Seconds between ticks; None for a thread that runs back to back or waits for work."""
    ticks: int = 0
    failures: int = 0
    last_tick_at: float | None = None
    """When the last tick ended, good or bad."""
    last_tick_secs: float | None = None
    overdue_secs: float = 0.0
    """By how much the present tick, or the one that should have begun, is late; 0 when in time."""
    last_error: str | None = None
    last_failure_at: float | None = None


@dataclass(frozen=True, kw_only=True)
class Distribution:
    """A histogram's state: cumulative it is not, ``counts[i]`` are the values up to ``bounds[i]`` (and above the one
    before); ``counts`` has one item more than ``bounds``, for the rest."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float


@dataclass(frozen=True, kw_only=True)
class CheckpointStatus:
    """Checkpoints of a run at one moment."""

    interval_secs: float | None = None
    """Configured seconds between checkpoints; None where none are taken."""
    recommended_interval_secs: float | None = None
    """What Young and Daly would choose from the run's own save cost and failures; None before both are known."""
    last_success_at: float | None = None
    """Wall time at which the newest good checkpoint was durable."""
    last_success_step: int | None = None
    last_success_path: str | None = None
    last_size_bytes: int | None = None
    saves: int | None = 0
    """Saves tried, good or bad, in the life of the process; None, like the next two, where it is not known."""
    failures: int | None = 0
    failures_in_a_row: int | None = 0
    """Those since the last good save of the process."""
    last_error: str | None = None
    save_secs: Distribution | None = None
    blocked_secs: Distribution | None = None


@dataclass(frozen=True, kw_only=True)
class RunStatus:
    """One run at one moment: what a scrape shows. Times are wall-clock seconds since the epoch."""

    run: str
    active: bool | None
    """Whether a session is under way, or was lost and is not yet given up; None where it is not known."""
    phase: str | None
    """None where it is not known."""
    state: ServedState | None = None
    """None where it is not known."""
    error: str | None = None
    """What ended it, where it has failed: the error's type and text."""
    session_id: str | None = None
    session_started_at: float | None = None
    session_seen_at: float | None = None
    """When the session was last seen alive, or ended: its own process says now, an exporter its newest event."""
    sessions: int = 1
    """How many sessions the run has had, this one included."""
    restarts: Mapping[str, int] = field(default_factory=dict)
    """How the earlier sessions ended: reason -> count."""
    recoveries: int | None = 0
    """How often the framework's own session was lost and recreated within this session; None where it is not known."""
    global_step: int | None = None
    steps: int | None = 0
    """Steps done by this session; None where it is not known."""
    steps_per_second: float | None = None
    """Over the last window; None before there are two readings."""
    last_step_at: float | None = None
    last_progress_at: float | None = None
    """When anything moved last: a step, a phase, a part of a save."""
    progress_timeout_secs: float | None = None
    """The stall budget of the present phase; None where the phase cannot stall."""
    stalled: bool | None = False
    """None where it is not known."""
    step_secs: Distribution | None = None
    checkpoint: CheckpointStatus = field(default_factory=CheckpointStatus)
    threads: tuple[ThreadStatus, ...] = ()
    """No two of one name: the name is what tells their metrics apart."""
    workers: tuple[WorkerStatus, ...] = ()
    """The other processes of the cluster, as the chief sees them; no two of one name."""
    steps_lost: int | None = None
    """Steps done again after restarts and recoveries; None where it is not known."""
    run_activity_secs: Mapping[str, float] = field(default_factory=dict)
    """Seconds of the whole run by goodput bucket, as counters; empty where only the session is known."""
    activity_secs: Mapping[str, float] = field(default_factory=dict)
    """Seconds by goodput bucket; they sum to the wall time covered."""
    goodput: float | None = None
    """Share of the wall time that went into steps which were kept, from 0 to 1."""
    events_dropped: int | None = 0
    """Events that could not be written; None where it is not known."""
    loss_finite: bool | None = None
    """Whether the newest loss is neither NaN nor infinite; None where no loss is known."""
    events_failing: bool | None = None
    """Whether events cannot be written at present; None where that is not known."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Package -> version; each becomes a label of ``supervisor_build_info``."""
    info: Mapping[str, str] = field(default_factory=dict)
    """Static facts of the run: logdir, host, pid, facade; each becomes a label of ``supervisor_run_info``."""


STEP_BOUNDS = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Bucket bounds for the duration of a step, in seconds."""

SAVE_BOUNDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""Bucket bounds for the duration of a save, and for the time that training was held up by one, in seconds."""


class Histogram:
    """Counts values by bucket. The owner's lock guards it: it has none of its own.

    Args:
        bounds: the upper bound of each bucket, rising; a last bucket takes the rest.
    """

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, value: float) -> None:
        """Count one value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def merge(self, other: Histogram) -> None:
        """Count the values that another, of the same bounds, has counted."""
        self._counts = [ours + theirs for ours, theirs in zip(self._counts, other._counts, strict=True)]
        self._sum += other._sum

    @property
    def count(self) -> int:
        """How many values were counted."""
        return sum(self._counts)

    @property
    def mean(self) -> float | None:
        """The mean of the values; None before the first."""
        count = self.count
        return self._sum / count if count else None

    def snapshot(self) -> Distribution:
        """Return the present state as a plain value."""
        return Distribution(bounds=self._bounds, counts=tuple(self._counts), sum=self._sum)
