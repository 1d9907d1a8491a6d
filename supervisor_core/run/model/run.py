"""`Run`: the state and history of one run, as plain frozen values.

Exact where the run wrote telemetry, inferred where it has only another writer's events; each part says which. Times
(``_at``, ``since``, ``until``) are wall-clock seconds since the epoch, ``_secs`` are durations. docs/model.md defines
the terms and the rules of inference.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from supervisor_core.events.hparams import HParam
from supervisor_core.events.record_fields import values_of
from supervisor_core.events.telemetry import (
    HeartbeatRecord,
    NoticeRecord,
    RecoveryRecord,
    ResumeRecord,
    SessionRecord,
    StallRecord,
    ThreadState,
    ThreadStatus,
    WorkerState,
    WorkerStatus,
)
from supervisor_core.run.model.checkpoints import Checkpoint
from supervisor_core.run.model.distribution import Distribution
from supervisor_core.run.model.program_launch import ProgramLaunch, final_launch, launch_error, launch_text
from supervisor_core.run.model.rate_history import RateHistory
from supervisor_core.run.model.words import pause_text

if TYPE_CHECKING:
    Ints = array[int]
    Floats = array[float]
else:  # not subscripted: `run_cache` reads the types
    Ints = Floats = array


@dataclass(frozen=True, slots=True, kw_only=True)
class NonFinite:
    """Values of one tag that are NaN or infinite."""

    tag: str
    values: int
    """Their number."""
    first_step: int
    """The lowest step with one."""
    last_step: int
    """The highest."""

    def merged(self, other: NonFinite) -> NonFinite:
        """Return the sum of two of the same tag."""
        return NonFinite(
            tag=self.tag,
            values=self.values + other.values,
            first_step=min(self.first_step, other.first_step),
            last_step=max(self.last_step, other.last_step),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LastValue:
    """The newest value of one tag."""

    tag: str
    value: float
    step: int


@dataclass(frozen=True, slots=True)
class TagValues:
    """The last value of each tag of a run; 24 bytes a tag.

    Example:
        >>> values = TagValues(("acc", "loss"), array("q", [5, 6]), array("d", [0.5, 0.25]))
        >>> values.of("loss"), values.of("no such tag")
        (LastValue(tag='loss', value=0.25, step=6), None)
    """

    tags: tuple[str, ...] = ()
    """Those of which it is known, sorted."""
    steps: Ints = field(default_factory=lambda: array("q"))
    values: Floats = field(default_factory=lambda: array("d"))

    def of(self, tag: str) -> LastValue | None:
        """Return that of one tag; None where it is not known."""
        place = bisect_left(self.tags, tag)
        if place == len(self.tags) or self.tags[place] != tag:
            return None
        return LastValue(tag=tag, value=self.values[place], step=self.steps[place])


_RANK = re.compile(r" on rank (?P<rank>\d+)(?: on node \d+)?$")
"""At the end of a launch's error: the process that failed, in a job of several."""

RunState = Literal["running", "stalled", "lost", "stopped", "completed", "failed", "unknown"]
"""``running``: an open session that makes progress. ``stalled``: an open session that has heartbeats but exceeds the
hang timeout. ``lost``: an open session without heartbeats. ``stopped``: ended by `request_stop` or a
signal. ``completed``: the program, or its input, came to its end. ``failed``: ended by an error. ``unknown``: no
telemetry, and no recent events."""

LIVE: tuple[RunState, ...] = ("running", "stalled")
"""The states of a run whose newest session is open, and has heartbeats."""

Outcome = Literal["running", "lost", "completed", "exhausted", "requested", "signal", "error", "unknown"]
"""How a session ended: the reason in its stop record; ``lost`` without one, once another session followed or its
heartbeats stopped; ``unknown`` without telemetry."""

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
    "compiling": "program_startup",
    "training": PRODUCTIVE,
    "checkpointing": "unproductive_checkpoint_save",
}
"""The bucket of a session's seconds that are not booked yet, by its last phase; any other phase is ``other``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session(SessionRecord):
    """One process's stretch of a run: its session record, as far as it wrote one, and its history. `session` is
    ``inferred-<n>`` and `attempt` a count where there is no telemetry."""

    ended_at: float | None
    """When it ended; of an open session, the time of its last event."""
    outcome: Outcome
    inferred: bool
    """Whether it was inferred from events other than its own telemetry."""
    resume_check: ResumeRecord | None = None
    """What the steps show that it recomputed after its resume; None where none was compared. See
    `SessionRecord.checked`."""
    gone: bool = False
    """Whether its process is known to be over, though no record says how it ended."""
    first_step: int | None = None
    """The step it began at: the restored one, or the first that was written."""
    last_step: int | None = None
    """Its highest step since its last recovery."""
    steps: int | None = None
    """Steps done; None where unknown."""
    steps_per_sec: float | None = None
    """The latest reading."""
    phase: str | None = None
    """The latest."""
    last_progress_at: float | None = None
    progress_timeout_secs: float | None = None
    """The hang timeout of `phase`."""
    usual_gap_secs: float | None = None
    """How often another writer's events come, at the median; None where unknown, and of a session with telemetry."""
    error: str | None = None
    signal: str | None = None
    beat: HeartbeatRecord | None = None
    """Its newest heartbeat, without its long fields; None without telemetry."""
    activity_secs: Mapping[str, float] = field(default_factory=dict)
    """Its seconds by `BUCKETS`, without those of disruptions; they sum to ``ended_at - started_at``."""
    reported_secs: Mapping[str, float] = field(default_factory=dict)
    """The same from its latest record: only seconds whose bucket is final, so none ever decreases."""
    saves: int = 0
    """Saves attempted, successful or not."""
    save_failures: int = 0
    save_failures_in_a_row: int = 0
    """Failures since its last successful save. `save_error`: why the last one failed, where its process says so."""
    save_error: str | None = None
    events_error: str | None = None
    """Why its events cannot be written at present, by liveness file or page; None where they can, or it is unknown."""
    save_secs: Distribution | None = None
    blocked_secs: Distribution | None = None
    """Durations of its successful saves, and for how long they blocked training; None where unknown."""
    recoveries: int = 0
    """How often the framework's session was lost and recreated within it."""
    files: tuple[str, ...] = ()
    """Paths of the events files it wrote."""

    @classmethod
    def recorded(
        cls, record: SessionRecord, beat: HeartbeatRecord, check: ResumeRecord | None, **known: Any
    ) -> Session:
        """Return a session with telemetry, by its record, its newest heartbeat and what was seen of its resume.

        Args:
            known: its other fields, and those that are known better.
        """
        of_beat = {
            "last_step": beat.step,
            "steps": beat.steps,
            "steps_per_sec": beat.steps_per_sec,
            "phase": beat.phase,
            "progress_timeout_secs": beat.progress_timeout_secs,
            "beat": beat,
        }
        of_record = values_of(record.checked(check))
        return cls(**{**of_record, **of_beat, "inferred": False, "resume_check": check, **known})

    @property
    def id(self) -> str:
        """The same as `session`."""
        return self.session

    @property
    def weight(self) -> int | None:
        """How often one of its seconds counts in process seconds: its devices, else its processes; None: unknown."""
        return self.device_count or self.world_size

    @property
    def is_open(self) -> bool:
        """Whether it has not ended, as far as is known."""
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
    """The last step of the earlier one."""
    to_step: int | None
    """The step at which the later one resumed."""
    rewind_steps: int | None
    """Repeated steps, ``from_step - to_step``, at least 0; None where one of the two is unknown. 0 where the later
    session found the model alive. A lower bound where the earlier one was killed: see `rewind_steps_most`."""
    rewind_steps_most: int | None = None
    """Equal to `rewind_steps` where that is exact. Of a killed session: an upper bound, by twice its highest rate over
    the time in which it may have run on unseen; None where unknown."""
    downtime_secs: float | None
    """From the earlier session's end to the later one's start; 0 where the earlier one was completed."""
    inferred: bool
    launch: ProgramLaunch | None = None
    """The launch that ended before it; None without a restarter outside."""


UNPLANNED: frozenset[Outcome] = frozenset(("lost", "error", "signal", "unknown"))
"""Ends of sessions that count towards a restart loop."""


def unplanned_since(restarts: Iterable[Restart], since: float) -> list[float]:
    """Return the times of the unplanned restarts since a time, in order."""
    return sorted(at for each in restarts if each.reason in UNPLANNED and (at := each.at) is not None and at >= since)


def rewound(from_step: int | None, to_step: int | None) -> int | None:
    """Return the number of steps that are repeated, at least 0; None where one of the two is unknown."""
    return None if from_step is None or to_step is None else max(0, from_step - to_step)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery(RecoveryRecord):
    """A restart within a session: its record, and when training resumed."""

    at: float

    @property
    def rewind_steps(self) -> int | None:
        """Repeated steps, at least 0; None where one of the two steps is unknown."""
        return rewound(self.step, self.restored_step)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSpan:
    """A stretch of time in which another process of the cluster was in one state."""

    state: WorkerState
    since: float
    until: float
    started_at: float | None = None
    """Start time of its process; a change from the span before means that it was restarted."""
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerHistory(WorkerStatus):
    """One other process of the cluster over the run, as its chiefs saw it; no span has the time between two chiefs.
    What a `WorkerStatus` has is from the last report of `session`."""

    spans: tuple[WorkerSpan, ...]
    starts: int
    """Number of processes seen under this name."""
    session: str | None = None
    """The session that saw it last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadSpan:
    """A stretch of time in which a service thread was in one state."""

    state: ThreadState
    since: float
    until: float
    overdue_secs: float = 0.0
    """The longest delay."""
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadTick:
    """One observed tick of a service thread."""

    at: float
    """When it ended."""
    secs: float | None
    ok: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadHistory(ThreadStatus):
    """One service thread of one session, over time. What a `ThreadStatus` has is from the last heartbeat."""

    session: str
    spans: tuple[ThreadSpan, ...]
    """In order; states that lasted less than a heartbeat may be missing."""
    seen_ticks: tuple[ThreadTick, ...]
    """Those that were observed; `ticks` counts all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall(StallRecord):
    """A session made no progress for longer than the hang timeout: the record of its begin, with
    `same_frames` and `activity` of the one that it lasts, and its end."""

    state: Literal["begin"] = "begin"
    since: float
    """The last progress before it."""
    until: float | None
    """None while it lasts."""
    blocked_since: float | None = None
    """As in `OpenStall`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """A time in which a session's process did not run, so that heartbeats are missing."""

    session: str
    since: float
    until: float
    """When it ran again."""
    secs: float
    cause: str | None = None
    """``stopped`` or ``machine_suspended``; None where unknown."""

    @property
    def why(self) -> str:
        """`cause` in words, as half a sentence."""
        return pause_text(self.cause)


class SessionTime(NamedTuple):
    """What the order of a run's sessions makes of one of them. Its own seconds are `Session.activity_secs`."""

    share: float = 0.0
    """The part of its own seconds that counts; in the rest another session ran at the same time."""
    wasted_secs: float = 0.0
    """Productive seconds of steps that were repeated later."""
    at_risk_secs: float = 0.0
    """Productive seconds of steps in no checkpoint, as `AtRisk` has them."""
    after: tuple[tuple[str, float], ...] = ()
    """Bucket and seconds of the time from its end to the next session's start, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodput:
    """Where the run's wall time went."""

    wall_secs: float
    """From the first start until now, its end, or when it was last seen, without the time after a completed session."""
    secs: Mapping[str, float]
    """Seconds by `BUCKETS`, and ``at_risk`` for those of `AtRisk`; they sum to `wall_secs`."""
    booked_secs: Mapping[str, float]
    """Seconds by `BUCKETS` for counters: only seconds whose bucket is final, so none ever decreases. After a restart
    ``productive`` stays constant until the lost steps are done again."""
    lost_process_secs: Mapping[str, float] = field(default_factory=dict)
    """Those of `booked_secs` that did not go into kept steps, each as often as the session had devices."""
    weight: int = 1
    """How often a second of the newest session counts in them."""
    ratio: float | None
    """``productive / wall_secs``, of a dead run until its last sign of life; None without wall time, and where a
    session wrote no telemetry."""
    inferred: bool
    by_session: tuple[SessionTime, ...] = ()
    """One for each of the run's sessions, in their order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AtRisk:
    """Steps in no checkpoint, of a run that is lost, has failed, or could not save."""

    steps: int
    secs: float
    """The productive time spent on them."""
    saved_step: int | None
    """The step of the last checkpoint; None without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """The recommended checkpoint interval, by the run's own costs. Ratios are shares of the wall time."""

    save_cost_secs: float | None
    """Mean seconds for which one save blocks training."""
    mtbf_secs: float | None
    """Mean time between failures: time spent on steps, divided by `failures`."""
    failures: int = 0
    """Sessions that got the run further, and were then lost, failed, or were ended by a signal."""
    present_interval_secs: float | None
    recommended_interval_secs: float | None
    """The interval with the lowest expected cost; None while too little is known."""
    present_cost_ratio: float | None
    recommended_cost_ratio: float | None


@dataclass(frozen=True, kw_only=True)
class RunHistory:
    """What the order of a run's sessions determines, whatever the present time."""

    sessions: tuple[Session, ...]
    restarts: tuple[Restart, ...]
    recoveries: tuple[Recovery, ...] = ()
    """By time."""
    workers: tuple[WorkerHistory, ...] = ()
    """By name, in natural order."""
    checkpoints: tuple[Checkpoint, ...]
    threads: tuple[ThreadHistory, ...]
    step: int | None
    """The run's present step: the latest of its newest session."""
    steps_lost: int
    """Steps repeated after restarts and recoveries: a lower bound."""
    steps_lost_most: int | None = None
    """The upper bound; None where unknown."""

    __slots__ = ()  # its subclasses have them: a class cannot have two bases with slots of their own


@dataclass(frozen=True, kw_only=True)
class TotalsOfFiles:
    """Sums over the files of a run."""

    first_step: int | None
    """Of the first record that holds a summary, in file order."""
    last_step: int | None
    """Of the last such record."""
    max_step: int | None
    last_event_at: float | None
    session_logs: Mapping[str, int]
    """Number of session logs by status: START, CHECKPOINT, STOP."""
    scalar_tags: int
    nonfinite_tags: tuple[NonFinite, ...] = ()
    """Scalar values that are NaN or infinite, in the order of the tags' names."""
    last_values: tuple[LastValue, ...] = ()
    """Of the tags that are named as a loss or an accuracy, at most 20: the training's own first."""
    tag_values: TagValues = field(default_factory=TagValues)
    """The value of each tag that was written last."""
    hparams: Mapping[str, HParam] = field(default_factory=dict)
    """The hyperparameters that were written last, by name: at most 200 (`supervisor_core.run.watch.hparam_runs`)."""
    rates: tuple[float, ...] = ()
    """The latest readings of steps per second, at most 60, oldest first."""

    __slots__ = ()  # as above


@dataclass(frozen=True, slots=True, kw_only=True)
class Run(RunHistory, TotalsOfFiles):
    """One run at one moment."""

    name: str
    """As TensorBoard names it: relative to the logdir, ``.`` for the logdir itself."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Those of the newest session that has any."""
    state: RunState
    restarting: bool = False
    """Whether it is over and its restarter starts it again: it waits to, or the new launch has no session yet."""
    inferred: bool
    """Whether none of its sessions wrote telemetry."""
    launches: tuple[ProgramLaunch, ...] = ()
    """By a restarter outside, in order."""
    stalls: tuple[Stall, ...]
    verdict: str | None = None
    """Which of its processes keeps the others waiting now, in one line; None where none does, and where unknown."""
    service_stalls: tuple[Stall, ...] = ()
    """Ticks of services that did not end; the session may have made progress."""
    silences: tuple[Silence, ...] = ()
    """By session and time."""
    notices: tuple[NoticeRecord, ...] = ()
    """What the program has said of it with ``notify``, by the time at which it was said last; `since` and `at` are
    known."""
    goodput: Goodput
    at_risk: AtRisk | None = None
    """None where no steps are at risk, or it is unknown."""
    advice: Advice
    steps_per_sec: float | None
    nonfinite: int
    """Scalar values that are NaN or infinite."""
    loss_finite: bool | None = None
    """Whether every newest loss of the newest session is neither NaN nor infinite; None without a loss."""
    loss_nonfinite_since: int | None = None
    """The step since which a loss has had no finite value; None where all have one now, or it is unknown."""
    loss_nonfinite_at: float | None = None
    """When that step was written."""
    speed: RateHistory | None = None
    """Steps per second over the last hours, while it is running; else None."""
    clock_skew_secs: float | None = None
    """By how much the clock of the newest session's machine is ahead of the reader's, which is 0 up to a few seconds;
    None where unknown. All times of the run are by the clock of its machine."""
    last_good: Checkpoint | None = None
    """The newest checkpoint on disk that is neither damaged nor in doubt, and of a step before
    `loss_nonfinite_since`."""
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Items dropped beyond a bound, by kind (docs/limits.md); for tags, their points."""

    @property
    def versions(self) -> Mapping[str, str]:
        """The versions of packages that the newest session recorded which has any; empty where none did."""
        return next((session.versions for session in reversed(self.sessions) if session.versions), {})

    @property
    def newest_save(self) -> Checkpoint | None:
        """The newest successful save, whether it is still there or not."""
        return next((saved for saved in reversed(self.checkpoints) if saved.ok), None)

    @property
    def next_resume_lacks(self) -> tuple[str, ...]:
        """Why the next resume will not be exact, beyond what the newest session's own says: sentences."""
        saved = None if self.state == "completed" or not self.sessions else self.newest_save
        said = (self.sessions[-1].why_not_exact if self.sessions else None) or ()
        return () if saved is None else tuple(text for text in saved.not_captured if text not in said)

    @property
    def failure(self) -> str | None:
        """Why it has failed, in one line: the error of its session, or what its restarter says; None if it has not."""
        if self.state != "failed":
            return None
        last, end = self.sessions[-1] if self.sessions else None, final_launch(self.launches)
        if last is not None and last.error is not None and (end is None or _has_error_of(last, end)):
            return last.error
        return None if end is None else launch_text(end)

    @property
    def failure_error(self) -> str | None:
        """The error that it has failed with, which begins with its type; None where unknown."""
        last, end = self.sessions[-1] if self.sessions else None, final_launch(self.launches)
        if last is not None and last.error is not None and (end is None or _has_error_of(last, end)):
            return last.error
        return None if end is None else end.error or end.signal


def _has_error_of(session: Session, end: ProgramLaunch) -> bool:
    """Return whether the error of a session is the one that ended a launch."""
    if session.inferred:  # it has that of its own launch
        return session.error == launch_error(end)
    return end.session in (None, session.id) and not _is_of_another_rank(end)


def _is_of_another_rank(end: ProgramLaunch) -> bool:
    """Return whether another rank than the first one failed, whose error the session does not have."""
    found = _RANK.search(end.error or "")
    return found is not None and found["rank"] != "0"
