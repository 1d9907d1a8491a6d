"""`RunStatus`: one run at one moment, as the metrics show it.

The training process fills it from its counters, a reader of events files from those. The metrics layer sees nothing
else, so a metric means the same wherever it is served.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

from supervisor_core.events.telemetry import NoticeRecord, ThreadStatus, WorkerStatus
from supervisor_core.process.stacks import Activity
from supervisor_core.run.judge.finding import Finding
from supervisor_core.run.model.checkpoints import Checkpoint
from supervisor_core.run.model.distribution import Distribution
from supervisor_core.run.model.run import Session

ServedState = Literal["running", "stalled", "lost", "completed", "stopped", "failed", "unknown", "unreachable", "copy"]
"""State of a run: those of docs/model.md, and two that only an exporter sees. ``unreachable``: it was alive, and its
directory is gone or cannot be listed. ``copy``: its directory is a copy of another run's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointStatus:
    """Checkpoints of a run at one moment."""

    recommended_interval_secs: float | None = None
    """By Young and Daly, from the run's own save cost and failures; None before both are known."""
    present_interval_secs: float | None = None
    """How often the run saves, to compare with that; None where that is unknown."""
    last_success: Checkpoint | None = None
    """The newest successful checkpoint."""
    last_good: Checkpoint | None = None
    """The newest one that is not in doubt; None where none is known, and of an exporter's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StallStatus:
    """The present stall of a session."""

    phase: str
    thread: str | None = None
    """The thread that makes no progress; None where unknown."""
    location: str | None = None
    """Where it is, as `supervisor_core.process.stacks.location` returns it; None where unknown."""
    activity: Activity | None = None
    """What it did there between two looks at its stack; None where unknown."""
    verdict: str | None = None
    """Which process keeps the others waiting, in one line; None of a training in one, and where unknown."""
    culprit: str | None = None
    """Its name, as in ``rank 2``; None where it is undecided."""
    culprit_location: str | None = None
    """Where it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How an exporter has read the events files of a run, and how completely."""

    logdir: str = ""
    """The label of the logdir that they are below."""
    success: bool = True
    last_event_at: float | None = None
    """When the newest event was, by the exporter's clock as far as is known; None where unknown."""
    corrupt_records: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Items beyond a bound (docs/limits.md), by kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """One run at one moment: what a scrape shows. Times are wall-clock seconds since the epoch."""

    run: str
    active: bool | None
    """Whether a session is open, or was lost recently; None where unknown."""
    state: ServedState | None = None
    """None where unknown."""
    error: str | None = None
    """The error that ended a failed run, its session's or its restarter's: type and text."""
    session: Session | None = None
    """Its newest session; None without one."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Whose the run is and where it runs: those of its newest session that has any."""
    session_seen_at: float | None = None
    """When the session was last seen alive, or ended: in its own process now, in an exporter its newest event."""
    ended_at: float | None = None
    """When the run ended, planned or not; None while it may go on, and where unknown. Only an exporter has it."""
    restarts: Mapping[str, int] = field(default_factory=dict)
    """Ends of the earlier sessions: reason -> count."""
    failures: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """Unplanned ends of sessions by host and reason; only a reader of the run knows them."""
    lost_process_secs: Mapping[str, float] = field(default_factory=dict)
    """Seconds of the whole run that did not go into kept steps, by goodput bucket, each counted for every device."""
    launches: Mapping[str, int] = field(default_factory=dict)
    """Ended launches of the program by a restarter outside: cause -> count."""
    restarting: bool | None = None
    """Whether the run is over and its restarter starts it again; None where it has none, or it is unknown."""
    global_step: int | None = None
    last_step_at: float | None = None
    stalled: bool | None = False
    """None where unknown."""
    stall: StallStatus | None = None
    """None where there is none, or nothing is known of it."""
    step_secs: Distribution | None = None
    checkpoint: CheckpointStatus = field(default_factory=CheckpointStatus)
    threads: tuple[ThreadStatus, ...] = ()
    """With unique names: the name is a label of their metrics."""
    workers: tuple[WorkerStatus, ...] = ()
    """The other processes of the cluster, as the chief sees them; with unique names."""
    steps_lost: int | None = None
    """Steps repeated after restarts and recoveries; None where unknown."""
    run_activity_secs: Mapping[str, float] = field(default_factory=dict)
    """Seconds of the whole run by goodput bucket, as counters; empty where only the session is known."""
    goodput: float | None = None
    """Share of the wall time spent on steps that were not repeated, from 0 to 1."""
    clock_skew_secs: float | None = None
    """By how much the clock of the session's machine is ahead of the exporter's; None where unknown."""
    loss_finite: bool | None = None
    """Whether the newest loss is neither NaN nor infinite; None where no loss is known."""
    events_failing: bool | None = None
    """Whether events cannot be written at present; None where unknown."""
    notices: tuple[NoticeRecord, ...] = ()
    """What the program has said of the run, by the time at which it was said last."""
    findings: tuple[Finding, ...] = ()
    """What is held of the run (`supervisor_core.run.judge.held`), worst first."""
    reading: Reading = field(default_factory=Reading)
    """Only of an exporter's."""
    info: Mapping[str, str] = field(default_factory=dict)
    """Facts of the run that are in no record: its logdir, a worker's task; labels of ``supervisor_run_info``."""

    @property
    def is_alive(self) -> bool:
        """Whether its session is open and was seen recently."""
        return self.state in ("running", "stalled", "unreachable")

    @property
    def steps_per_sec(self) -> float | None:
        """The session's speed; None once it is not alive, as it would only seem to slow down."""
        return self.session.steps_per_sec if self.session is not None and self.is_alive else None

    def not_below(self, before: RunStatus) -> RunStatus:
        """Return it with counters that are not below those of an earlier status of the run: a scraper takes a counter
        that falls for one that began again. A run that was taken for dead may turn out to be alive."""
        return replace(
            self,
            failures=_most(self.failures, {place: count for place, count in before.failures.items() if count}),
            run_activity_secs=_most(self.run_activity_secs, before.run_activity_secs),
            lost_process_secs=_most(self.lost_process_secs, before.lost_process_secs),
        )


_Key = TypeVar("_Key")
_Value = TypeVar("_Value", int, float)


def _most(now: Mapping[_Key, _Value], before: Mapping[_Key, _Value]) -> Mapping[_Key, _Value]:
    if all(now.get(key, 0) >= value and key in now for key, value in before.items()):
        return now  # as nearly always: it is shared with the run
    return {key: max(now.get(key, value), value) for key, value in {**now, **before}.items()}
