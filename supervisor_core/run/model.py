"""`Run`: everything that is known of one run, as plain frozen values.

Exact where the run told of itself (telemetry), inferred where only some other writer's events are there; each part says
which. Times (``_at``, ``since``, ``until``) are wall-clock seconds since the epoch, ``_secs`` are durations. What the
words mean, and what is concluded by which rule, is in docs/model.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from supervisor_core.run.status import Distribution, ThreadState, WorkerState

RunState = Literal["running", "stalled", "lost", "stopped", "completed", "failed", "unknown"]
"""``running``: an open session that moves. ``stalled``: an open session that is heard of and does not move within its
phase's budget. ``lost``: an open session that has fallen silent. ``stopped``: ended as asked, by `request_stop` or a
signal. ``completed``: the program, or its input, came to its end. ``failed``: ended by an error. ``unknown``: no
telemetry, and silent."""

Outcome = Literal["running", "lost", "completed", "exhausted", "requested", "signal", "error", "unknown"]
"""How a session ended: the reason in its stop record; ``lost`` when it left no word and another followed or it has
fallen silent; ``unknown`` where no telemetry tells."""

STATE_OF_OUTCOME: Mapping[Outcome, RunState] = {
    "completed": "completed",
    "exhausted": "completed",
    "requested": "stopped",
    "signal": "stopped",
    "error": "failed",
    "lost": "lost",
    "unknown": "unknown",
}
"""The state of a run by the outcome of its newest session."""

BUCKETS = (
    "productive",
    "program_startup",
    "checkpoint_restore",
    "unproductive_checkpoint_save",
    "wasted_progress_from_disruption",
    "infrastructure_recovery_from_disruption",
    "stall",
    "silent",
    "other",
)
"""Where a run's wall time goes. The names are those of Google's ml-goodput-measurement where they mean the same."""

PRODUCTIVE, STALL, SILENT = "productive", "stall", "silent"
WASTED = "wasted_progress_from_disruption"
DOWNTIME = "infrastructure_recovery_from_disruption"
AT_RISK = "at_risk"
"""Key of `Goodput.secs` for the steps of `AtRisk`. No counter has it: a restart decides which bucket they go to."""

BUCKET_OF_PHASE: Mapping[str, str] = {
    "starting": "program_startup",
    "restoring": "checkpoint_restore",
    "training": PRODUCTIVE,
    "checkpointing": "unproductive_checkpoint_save",
}
"""The bucket of a session's seconds that are not booked yet, by its last phase; any other phase is ``other``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One process's stretch of a run."""

    id: str
    """As the session told it; ``inferred-<n>`` where none did."""
    attempt: int
    """1 for the run's first session."""
    started_at: float | None
    ended_at: float | None
    """When it ended, or was last heard of; of an open session, the latter."""
    outcome: Outcome
    inferred: bool
    """Whether this was concluded from other events than the session's own telemetry."""
    first_step: int | None = None
    """The step it began at: the restored one, or the first that was written."""
    last_step: int | None = None
    """The step it got to, since its last recovery if there was one."""
    steps: int | None = None
    """Steps it did; None where it is not known."""
    steps_per_sec: float | None = None
    """The last that was told."""
    phase: str | None = None
    """The last that was told."""
    last_progress_at: float | None = None
    progress_timeout_secs: float | None = None
    """The stall budget of `phase`."""
    error: str | None = None
    signal: str | None = None
    restored_checkpoint: str | None = None
    restored_step: int | None = None
    adopted: bool = False
    """Whether it found its model alive in the cluster and kept it; `restored_step` is where that stood."""
    skipped: tuple[Mapping[str, str], ...] = ()
    """Checkpoints that its restore passed over, ``{"path", "reason"}``, newest first."""
    state_problem: str | None = None
    starting_secs: float | None = None
    restoring_secs: float | None = None
    checkpoint_interval_secs: float | None = None
    heartbeat_secs: float | None = None
    events_dropped: int = 0
    host: str | None = None
    pid: int | None = None
    facade: str | None = None
    run_name: str | None = None
    """The ``run`` label of its own metrics."""
    versions: Mapping[str, str] = field(default_factory=dict)
    activity_secs: Mapping[str, float] = field(default_factory=dict)
    """Its own seconds by `BUCKETS` (no disruption in it); they sum to ``ended_at - started_at``."""
    told_secs: Mapping[str, float] = field(default_factory=dict)
    """The same as the session itself told them last: only what is decided, and none ever falls."""
    saves: int = 0
    """Saves tried, good or bad."""
    save_failures: int = 0
    save_failures_in_a_row: int = 0
    """Those since its last good save."""
    loss_finite: bool | None = None
    """Whether its watched loss was finite when it was read last; None where it is not known."""
    events_error: str | None = None
    """Why its events cannot be written at present, as the logdir's lease says; None where nothing says so."""
    save_secs: Distribution | None = None
    """Durations of its good saves; None where it is not known."""
    blocked_secs: Distribution | None = None
    """How long its good saves held training up; None where it is not known."""
    recoveries: int = 0
    """How often the framework's own session was lost and recreated within it."""
    files: tuple[str, ...] = ()
    """The events files that it wrote."""

    @property
    def is_open(self) -> bool:
        """Whether nothing says that it has ended."""
        return self.outcome == "running"


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """The boundary between one session and the next."""

    at: float | None
    """When the later session started."""
    from_session: str
    to_session: str
    reason: Outcome
    """How the earlier session ended."""
    from_step: int | None
    """The step that the earlier one got to."""
    to_step: int | None
    """The step that the later one went on from."""
    rewind_steps: int | None
    """Steps done again, ``from_step - to_step``, never below 0; None where one of them is not known. 0 where the later
    session found the model alive. At least so many, where the earlier one was killed: see `rewind_steps_most`."""
    rewind_steps_most: int | None = None
    """The same as `rewind_steps` where that is exact. Of a session that was killed after it was last seen: at most so
    many, by twice its highest rate; None where it is not known."""
    downtime_secs: float | None
    """From the earlier session's end to the later one's start."""
    inferred: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """A restart within a session: the framework's own session was lost with a process of the cluster, and recreated."""

    session: str
    at: float
    """When training could go on."""
    secs: float
    """From the loss until then."""
    error: str
    losses: int
    """How often it was lost until training could go on."""
    from_step: int | None
    to_step: int | None
    """The step that training went on from."""
    rewind_steps: int | None
    """Steps done again, never below 0; None where one of the two is not known."""
    restored_checkpoint: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSpan:
    """A stretch of time in which another process of the cluster was in one state."""

    state: WorkerState
    since: float
    until: float
    started_at: float | None = None
    """When its process had begun: another one than in the span before means that it was started again."""
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerHistory:
    """One other process of the cluster over the run, as its chiefs told. Of the time between two chiefs nothing is
    known: the spans leave it out."""

    name: str
    state: WorkerState
    """The last that was told."""
    spans: tuple[WorkerSpan, ...]
    starts: int
    """How many processes of this name were seen."""
    session: str | None = None
    """The session that told of it last; what follows is its last word."""
    last_seen_at: float | None = None
    phase: str | None = None
    waiting_for: str | None = None
    step: int | None = None
    steps: int | None = None
    host: str | None = None
    pid: int | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A save, good or bad."""

    session: str
    at: float | None
    """When it was durable, or had failed."""
    ok: bool
    step: int | None = None
    path: str | None = None
    """As written by the session."""
    on_disk: bool | None = None
    """Whether its files are still there; None where nobody looked."""
    bytes: int | None = None
    save_secs: float | None = None
    blocked_secs: float | None = None
    trigger: str | None = None
    consistent: bool | None = None
    verified: bool | None = None
    error: str | None = None
    inferred: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadSpan:
    """A stretch of time in which a service thread was in one state."""

    state: ThreadState
    since: float
    until: float
    overdue_secs: float = 0.0
    """The most by which it was late."""
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadTick:
    """One tick of a service thread that was seen."""

    at: float
    """When it ended."""
    secs: float | None
    ok: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadHistory:
    """One service thread of one session, over time."""

    name: str
    session: str
    interval_secs: float | None
    ticks: int
    """Ticks in all, seen or not."""
    failures: int
    last_error: str | None
    state: ThreadState
    spans: tuple[ThreadSpan, ...]
    """One after the other; states that lasted less than a heartbeat may be missing."""
    seen_ticks: tuple[ThreadTick, ...]
    last_tick_at: float | None = None
    last_tick_secs: float | None = None
    overdue_secs: float = 0.0
    last_failure_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """A session did not move for longer than its phase's budget."""

    session: str
    phase: str
    since: float
    """The last progress before it."""
    until: float | None
    """None while it lasts."""
    step: int | None
    secs: float
    timeout_secs: float | None
    stacks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """A stretch of a session in which its process did not run, and heartbeats are missing: it was stopped (SIGSTOP), or
    its machine was frozen or suspended."""

    session: str
    since: float
    until: float
    """When it ran again."""
    secs: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodput:
    """Where the run's wall time went."""

    wall_secs: float
    """From the run's first start until now, until its last end, or until it was last seen."""
    secs: Mapping[str, float]
    """Seconds by `BUCKETS`, and ``at_risk`` for those of `AtRisk`; they sum to `wall_secs`."""
    booked_secs: Mapping[str, float]
    """Seconds by `BUCKETS` as counters show them: only what is decided, and none ever falls. After a restart
    ``productive`` stands still until the steps that were lost have been made up for."""
    ratio: float | None
    """``productive / wall_secs``; None before there is any wall time, and where a session told nothing of itself."""
    inferred: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NonFinite:
    """Values of one tag that are NaN or infinite."""

    tag: str
    values: int
    """How many there are."""
    first_step: int
    """The lowest step of one of them."""
    last_step: int
    """The highest."""

    def joined(self, other: NonFinite) -> NonFinite:
        """Return both together, of the same tag."""
        return NonFinite(
            tag=self.tag,
            values=self.values + other.values,
            first_step=min(self.first_step, other.first_step),
            last_step=max(self.last_step, other.last_step),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AtRisk:
    """Steps that are in no checkpoint, of a run that is lost or has failed, or that could not save them."""

    steps: int
    secs: float
    """The productive time that went into them."""
    saved_step: int | None
    """The step of the last checkpoint; None where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """How often to save, by the run's own costs. Ratios are shares of wall time: that of saving, and of work lost."""

    save_cost_secs: float | None
    """Mean seconds for which one save holds training up."""
    mtbf_secs: float | None
    """Mean time between failures: time spent on steps by `failures`."""
    failures: int = 0
    """Sessions that were lost, failed, or were ended by a signal."""
    present_interval_secs: float | None
    recommended_interval_secs: float | None
    """The interval that is expected to cost least; None while too little is known."""
    recommended_low_secs: float | None = None
    recommended_high_secs: float | None = None
    """The range in which the best interval lies with 95 % confidence."""
    present_cost_ratio: float | None
    recommended_cost_ratio: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run at one moment."""

    name: str
    """As TensorBoard names it: relative to the logdir, ``.`` for the logdir itself."""
    state: RunState
    inferred: bool
    """Whether no session of it told of itself."""
    sessions: tuple[Session, ...]
    restarts: tuple[Restart, ...]
    recoveries: tuple[Recovery, ...] = ()
    """By time."""
    workers: tuple[WorkerHistory, ...] = ()
    """By name, numbers in their order."""
    checkpoints: tuple[Checkpoint, ...]
    threads: tuple[ThreadHistory, ...]
    stalls: tuple[Stall, ...]
    silences: tuple[Silence, ...] = ()
    """By session and time."""
    goodput: Goodput
    at_risk: AtRisk | None = None
    """Its steps that are in no checkpoint; None where they are not at risk, or it is not known."""
    advice: Advice
    first_step: int | None
    """Of the first record that holds a summary, in file order."""
    last_step: int | None
    """Of the last such record."""
    max_step: int | None
    step: int | None
    """The step the run is at: the last that its newest session told, or else wrote."""
    steps_per_sec: float | None
    rates: tuple[float, ...] = ()
    """The latest readings of steps per second, at most 60, oldest first; empty where none was told."""
    last_event_at: float | None
    session_logs: Mapping[str, int]
    """How many of each: START, CHECKPOINT, STOP."""
    scalar_tags: int
    nonfinite: int
    """Scalar values that are NaN or infinite."""
    nonfinite_tags: tuple[NonFinite, ...] = ()
    """The same by tag, in the order of the tags' names."""
    loss_finite: bool | None = None
    """Whether the newest watched loss, and the newest point of each tag that looks like a loss, is neither NaN nor
    infinite; of the newest session. None where there is none."""
    steps_lost: int
    """Steps done again after restarts and recoveries, at least."""
    steps_lost_most: int | None = None
    """The same at most; None where it is not known."""
    dropped: Mapping[str, int] = field(default_factory=dict)
    """What was beyond a bound and dropped, by kind (docs/limits.md); of tags, their points."""
