"""The supervisor's own records in the events file: one frozen dataclass per kind.

A record is a summary value: tag ``supervisor/<kind>``, ``plugin_name = "supervisor"``, and a rank-0 string tensor
that holds one JSON object. Published as a contract in ``docs/events.md``: fields are added, never renamed; a reader
ignores the fields it does not know and refuses a ``"v"`` above its own.

    Summary.value[0]
      1 tag        "supervisor/<kind>"
      8 tensor     1 dtype = 7 (DT_STRING), 2 tensor_shape = {} (rank 0), 8 string_val = [the JSON, UTF-8]
      9 metadata   1 plugin_data {1 plugin_name = "supervisor"}, 4 data_class = 2 (DATA_CLASS_TENSOR)
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, cast, get_args

from msgspec import Meta

from supervisor_core.base.errors import EventsError
from supervisor_core.base.session_labels import MAX_LABELS, MAX_NAME_CHARS, MAX_VALUE_CHARS
from supervisor_core.base.wire import delimited
from supervisor_core.events.record_fields import Name, Number, Text, Whole, decode, replaced
from supervisor_core.process.stacks import KEPT_FRAMES, Activity, digest, kept, user_line, waits_in

SCHEMA_VERSION = 1
MAX_BYTES = 4 << 20
"""A longer record is refused unread. The longest known one holds the stacks of 1,000 threads in 2 MB."""
MAX_SKIPPED, MAX_REASONS, MAX_VERSIONS = 1_000, 100, 64
"""Of one session: checkpoints that its restore passed over, reasons why its resume is not exact, packages."""
MAX_STDERR_CHARS = 64 << 10
MAX_PROCESSES = 1_000_000
"""Of a run, and of its devices: its time counts as often, so a larger number is unknown."""
PLUGIN_NAME = "supervisor"
TAG_PREFIX = "supervisor/"

Acted = Literal["stop", "abort", "kill"]
"""How the watchdog acts upon a stall."""
Trigger = Literal["timer", "final", "signal", "manual"]
StopReason = Literal["completed", "exhausted", "requested", "signal", "error"]
Processes = Annotated[int, Meta(ge=0, le=MAX_PROCESSES)]

Labels = Annotated[
    Mapping[
        Annotated[str, Meta(max_length=MAX_NAME_CHARS)],
        Annotated[str, Meta(max_length=MAX_VALUE_CHARS)],
    ],
    Meta(max_length=MAX_LABELS),
]
"""Labels of a session by name; the names as Prometheus allows them."""


MAX_LOCATION_CHARS = 512
"""Of the line at which a stall was."""

WorkerState = Literal["waiting", "running", "stalled", "lost", "stopped", "failed"]
"""State of another process of the cluster: ``waiting`` for the chief, ``running``, ``stalled`` beyond its hang
timeout, ``lost`` without heartbeats, ``stopped`` when it ended as planned, ``failed`` when it ended by an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the main thread of a process is that makes no progress."""

    digest: Name
    """The same for two processes that are at the same place: see `supervisor_core.process.stacks.digest`."""
    location: Annotated[str, Meta(max_length=MAX_LOCATION_CHARS)] | None = None
    """The innermost line of the program in its stack, as in `StallRecord.location`."""
    waits_in: Name | None = None
    """The collective operation in which it waits for the other processes; None where it waits in none, or in one that
    is not known."""
    activity: Activity | None = None
    """As in `StallRecord.activity`."""
    frames: Annotated[tuple[Text, ...], Meta(max_length=KEPT_FRAMES)] = ()
    """The innermost frames of its stack, outermost first; none in a heartbeat."""


def place_of(stack: Sequence[str], line: str | None = None) -> Place:
    """Return the place of a stack.

    Args:
        stack: the main thread's, outermost frame first.
        line: the innermost line of the program. Default: that of the stack.

    Example:
        >>> place_of(("/home/me/train.py:14 stuck_in_user_code",)).location
        '/home/me/train.py:14 stuck_in_user_code'
    """
    line = user_line(stack) if line is None else line
    location = None if line is None else line[-MAX_LOCATION_CHARS:]
    return Place(digest=digest(stack), location=location, waits_in=waits_in(stack), frames=kept(stack))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Of the last minute in which it trained."""

    step_secs: Number
    """Seconds for a step: the median. Processes that wait for each other in each step have the same."""
    own_secs: Number
    """The part of it in which the main thread was in no collective operation that is known, by looks at its stack."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStatus:
    """Another process of the cluster at one moment, as the chief sees it. Times are wall-clock seconds since the epoch,
    by the chief's clock; None where unknown."""

    name: Name
    """Its task, ``worker:1``, ``ps:0``; ``host-pid`` without a task."""
    state: WorkerState
    phase: Text | None = None
    waiting_for: Text | None = None
    """What it is waiting for; None while it is not."""
    step: Whole | None = None
    """The latest global step it saw."""
    steps: Whole | None = None
    """Steps done by its present process; None for one that does none (a parameter server)."""
    last_seen_at: Number | None = None
    """When it was last seen."""
    started_at: Number | None = None
    """When its present process began, by that process's own clock."""
    host: Text | None = None
    pid: Whole | None = None
    error: Text | None = None
    """The error that ended it."""
    progress_age_secs: Number | None = None
    """Seconds without progress when it was last seen."""
    hang_timeout_secs: Number | None = None
    """How long it may go without progress by its own account, as if it trained alone; None where it cannot hang."""
    held: bool = False
    """Whether it waits for a save."""
    place: Place | None = None
    """Where it is, while it makes no progress."""
    pace: Pace | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceInterval:
    """A service of a session, as it begins."""

    name: Name
    interval_secs: Number | None = None
    interval_steps: Whole | None = None
    """Steps between two saves, where they are counted instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedCheckpoint:
    """A checkpoint that a session passed over when it was restored."""

    path: Text = ""
    reason: Text = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRecord:
    """A session has started: who, from where, after what."""

    kind: ClassVar[str] = "session"

    session: Name
    """The session's id, unique; part of every record of the session."""
    attempt: Whole = 0
    """1 for the run's first session, one more for each later one."""
    host: Text | None = None
    pid: Whole | None = None
    boot: Name | None = None
    """The kernel's boot id: the same until the machine restarts."""
    pid_namespace: Name | None = None
    """In which the process has its id, as ``pid:[4026531836]``."""
    process_started_ticks: Whole | None = None
    """When the process started, in clock ticks since the machine's start: another process of its id differs in it."""
    uid: Whole | None = None
    """The number of its user: whoever copies its events owns the copy."""
    facade: Text | None = None
    """The API that the program used: ``Supervisor``, ``MonitoredTrainingSession`` ..."""
    started_at: Number | None = None
    """Wall time, seconds since the epoch."""
    run: Text | None = None
    """The ``run`` label of the session's own metrics; None if it serves none and was given no name."""
    logdir: Text | None = None
    """The directory that it runs in, as its machine names it."""
    restored_checkpoint: Text | None = None
    """Path of the checkpoint that was restored; None when the model was initialised."""
    restored_step: Whole | None = None
    adopted: bool = False
    """Whether the model was found alive in the cluster and kept: ``restored_step`` is its step, and no checkpoint was
    read."""
    skipped: Annotated[tuple[SkippedCheckpoint, ...], Meta(max_length=MAX_SKIPPED)] = ()
    """Newest first."""
    state_problem: Text | None = None
    """The problem with the ``checkpoint`` state file, if there was one."""
    previous_outcome: Text | None = None
    """How the session before this one ended; ``lost`` without a stop record; None for the first."""
    previous_step: Whole | None = None
    """The previous session's last known step: the one that it reached if ``previous_step_exact``, else the one that
    its liveness file had: up to ten seconds old."""
    previous_step_exact: bool = False
    """Whether ``previous_step`` is the step that it reached: it ended by itself, or its progress page was found."""
    previous_seen_at: Number | None = None
    """Wall time of that; with a progress page, the last sign of life on that."""
    previous_elapsed_secs: Number | None = None
    """The previous session's duration at that time, by a monotonic clock."""
    previous_seen_secs: Number | None = None
    """Seconds between that time and ``started_at``, by a monotonic clock; None where the previous session ran on
    another machine, or before this one's boot."""
    run_started_at: Number | None = None
    """Wall time at which the run's first session started. Of sessions with the same value, the one with
    the higher ``attempt`` is the later one, whatever the wall clock says."""
    starting_secs: Number | None = None
    """Seconds from the start until the session was ready, restoring apart."""
    restoring_secs: Number | None = None
    services: tuple[ServiceInterval, ...] = ()
    resume_exact: bool | None = None
    """Whether training goes on exactly as it would have without the restart; None where that is not known, and for a
    run's first session."""
    resume_reasons: Annotated[tuple[Text, ...], Meta(max_length=MAX_REASONS)] = ()
    """Why it does not, or may not: one sentence each."""
    checkpoint_interval_secs: Number | None = None
    heartbeat_secs: Number | None = None
    """Configured seconds between heartbeats; 0 where there are some only at changes."""
    recorded_beat_secs: Number | None = None
    """The most seconds between heartbeats in the events file without a change; 0 as above. None:
    ``heartbeat_secs``."""
    versions: Annotated[Mapping[Name, Name], Meta(max_length=MAX_VERSIONS)] = field(default_factory=dict)
    labels: Labels = field(default_factory=dict)
    """Who it belongs to and where it runs: ``user``, ``job_id``, ``partition`` ..., and the user's own."""
    world_size: Processes | None = None
    """Number of processes that train together."""
    device_kind: Name | None = None
    """What they train on, as ``NVIDIA H100 80GB HBM3``, ``gpu`` or ``cpu``."""
    device_count: Processes | None = None
    """Number of devices of the whole run, of all processes."""
    metrics_address: Text | None = None
    """Where the process serves its metrics, as ``host:port``; None if it does not."""

    @property
    def why_not_exact(self) -> tuple[str, ...] | None:
        """Why training does not go on exactly as without the restart; None without a reason."""
        return None if self.resume_exact is not False else self.resume_reasons or ("No reason is given",)

    @property
    def resume_verdict(self) -> str:
        """What its checkpoint and its program say of the resume, in two words; empty where they do not say it."""
        return {True: NOT_OBSERVED, False: "not exact", None: ""}[self.resume_exact]

    def checked(self, check: ResumeRecord | None) -> SessionRecord:
        """Return the record with what was observed of its resume: one whose recomputed values differ is not exact,
        whatever was captured."""
        if check is None or check.is_equal is not False:
            return self
        return replaced(self, resume_exact=False, resume_reasons=(f"{check.text}.", *self.resume_reasons))


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRecord:
    """A save, successful or failed."""

    kind: ClassVar[str] = "checkpoint"

    session: Name
    trigger: Trigger | None = None
    path: Text | None = None
    """The checkpoint's prefix, with its step; None when nothing was written."""
    step: Whole | None = None
    bytes: Whole | None = None
    secs: Number | None = None
    """Seconds from the start of the save until it was durable (or had failed)."""
    blocked_secs: Number | None = None
    """Seconds for which training was blocked."""
    consistent: bool | None = None
    """Whether all values are of one step; None when nothing was written."""
    verified: bool | None = None
    """Whether the files were read back and matched."""
    error: Text | None = None
    data_position: Text | None = None
    """A digest of the position in the training data; None where it was not captured."""
    doubt: Text | None = None
    """Why the model in it may be spoiled, in one sentence or several; None where nothing speaks for that."""
    not_captured: Annotated[tuple[Text, ...], Meta(max_length=MAX_REASONS)] = ()
    """Why a resume from it is not exact: what it does not have, one sentence each."""


ThreadState = Literal["starting", "idle", "ticking", "overdue", "failed", "stopped"]
"""State of a service thread: ``overdue`` is late by more than its interval, ``failed`` has ended by an error or
keeps failing, ``stopped`` has ended as asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadStatus:
    """One service thread at one moment. Times are wall-clock seconds since the epoch; None if unknown."""

    name: Name
    state: ThreadState
    interval_secs: Number | None = None
    """Seconds between ticks; None for a thread that runs back to back or waits for work."""
    ticks: Whole = 0
    failures: Whole = 0
    last_tick_at: Number | None = None
    """When the last tick ended, successful or not."""
    last_tick_secs: Number | None = None
    overdue_secs: Number = 0.0
    """Delay of the current tick, or of the one that should have begun; 0 when in time."""
    last_error: Text | None = None
    last_failure_at: Number | None = None
    ticking_secs: Number | None = None
    """How long the current tick has lasted; None between ticks, and for a thread that may wait for work in one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseReport:
    """A time in which no Python code of the process ran."""

    cause: Name | None = None
    since: Number | None = None
    """Wall time."""
    secs: Number | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatRecord:
    """Alive, in this phase, at this step, with these threads."""

    kind: ClassVar[str] = "heartbeat"

    session: Name
    phase: Text | None = None
    attempt: Whole | None = None
    """As in the session record, which comes only when the session is ready."""
    elapsed_secs: Number | None = None
    """Seconds since the session started, by a monotonic clock."""
    step: Whole | None = None
    steps: Whole | None = None
    """Steps done by this session."""
    steps_per_sec: Number | None = None
    progress_age_secs: Number = 0.0
    """Seconds since the last progress."""
    progress_timeout_secs: Number | None = None
    """The hang timeout of the phase."""
    activity_secs: Mapping[Name, Number] = field(default_factory=dict)
    """Seconds of this session by goodput bucket; they sum to its wall time up to the last progress."""
    threads: tuple[ThreadStatus, ...] = ()
    """Service threads; one that is absent is as in the last heartbeat that has it."""
    workers: tuple[WorkerStatus, ...] | None = None
    """Each other process of the cluster; None: unchanged since the last heartbeat with them."""
    pace: Pace | None = None
    """The chief's own; None without other processes, and where it is not known yet."""
    events_dropped: Whole = 0
    loss_finite: bool | None = None
    """Whether the watched loss is finite; None where none is watched, or none was read yet."""
    pause: PauseReport | None = None
    """The latest one since the last heartbeat."""
    watchdog_would_act: Whole = 0
    """How many stalls of this session the watchdog would have ended, under ``hang_action="observe"``."""
    watchdog_acted: Mapping[Acted, Whole] = field(default_factory=dict)
    """How many it has acted upon, by action."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StallRecord:
    """A stall begins, lasts (the second look at its stacks), or ends."""

    kind: ClassVar[str] = "stall"

    session: Name
    state: Literal["begin", "lasts", "end"]
    phase: Text = "training"
    since: Number | None = None
    """Wall time of the last progress before the stall."""
    step: Whole | None = None
    secs: Number = 0.0
    """Seconds without progress so far."""
    timeout_secs: Number | None = None
    thread: Name | None = None
    """The thread that makes no progress."""
    location: Annotated[str, Meta(max_length=MAX_LOCATION_CHARS)] | None = None
    """The innermost line of the program in that thread's stack, as in ``stacks``."""
    same_frames: bool | None = None
    """Whether that stack is the same as when the stall began. Only in ``lasts``."""
    activity: Activity | None = None
    """What the thread did since then: it ran, or was ready to run, for at least half of the time; or slept for nine
    tenths of it. None: neither, or not known. Only in ``lasts``."""
    stacks: Mapping[Name, tuple[Text, ...]] = field(default_factory=dict)
    """Python stacks of all threads by thread name, outermost first; not when a stall ends."""
    service: Name | None = None
    """The service whose tick does not end; None of a session without progress."""
    verdict: Text | None = None
    """Of a training in several processes: which of them keeps the others waiting, in one line."""
    culprit: Name | None = None
    """Its name, as in ``verdict``; None where it is undecided."""
    culprit_location: Annotated[str, Meta(max_length=MAX_LOCATION_CHARS)] | None = None
    """Its line of the program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenStall:
    """A stall that no record shows. The fields are those of a `StallRecord`, but for the last."""

    phase: Text = "training"
    since: Number = 0.0
    step: Whole | None = None
    secs: Number = 0.0
    timeout_secs: Number | None = None
    thread: Name | None = None
    location: Annotated[str, Meta(max_length=MAX_LOCATION_CHARS)] | None = None
    activity: Activity | None = None
    stacks: Mapping[Name, tuple[Text, ...]] = field(default_factory=dict)
    blocked_since: Number | None = None
    """Since when native code has held the interpreter lock; None if it does not, or where it is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeathRecord:
    """A session's process is over without a stop record. What its events do not say: from its liveness file, and on its
    machine from its progress page and its stacks. By the next session, or by the restarter."""

    kind: ClassVar[str] = "death"

    session: Name
    """The session that died; not the one that writes this."""
    step: Whole | None = None
    """The last step that it is known to have reached."""
    step_exact: bool = False
    """Whether it reached no step after that."""
    elapsed_secs: Number | None = None
    """Its age at its last sign of life, by a monotonic clock."""
    stall: OpenStall | None = None
    """The stall that was open then; ``secs`` until that sign of life."""
    beat: HeartbeatRecord | None = None
    """Its last heartbeat, by its liveness file: none of its events need have it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryRecord:
    """The framework's own session was lost with a process of the cluster, and recreated: a restart within a session."""

    kind: ClassVar[str] = "recovery"

    session: Name
    error: Text = ""
    """The error that was raised when it was lost."""
    losses: Whole = 1
    """Number of losses until training could continue."""
    step: Whole | None = None
    """The session's last step before it."""
    restored_checkpoint: Text | None = None
    """Path of the checkpoint that was restored; None when the model was initialised, or is the chief's."""
    restored_step: Whole | None = None
    """The step from which training continues."""
    secs: Number = 0.0
    """Seconds from the loss until training could continue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRecord:
    """The session has ended as planned, whatever the reason."""

    kind: ClassVar[str] = "stop"

    session: Name
    reason: StopReason | None = None
    """None for one that only a newer writer knows."""
    error: Text | None = None
    signal: Text | None = None
    """The signal's name, when that was the reason."""
    step: Whole | None = None
    steps: Whole | None = None
    final_checkpoint: Text | None = None
    final_checkpoint_step: Whole | None = None
    elapsed_secs: Number | None = None
    """Seconds since the session started, by a monotonic clock."""
    activity_secs: Mapping[Name, Number] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRecord:
    """A restarter (``tb-supervisor run``) has started the program, sees that it runs, or it has ended. In events files
    of the restarter's own."""

    kind: ClassVar[str] = "launch"

    launch: Name
    """The launch's id, unique; the same in all of its records."""
    state: Literal["begin", "runs", "end"]
    """``runs``: every minute of a program without a progress page, and where a hang begins, lasts or is over."""
    attempt: Whole = 0
    """1 for the first launch in the logdir, one more for each later one, whichever restarter started it."""
    started_at: Number | None = None
    """Wall time."""
    host: Name | None = None
    pid: Whole | None = None
    """Of the program."""
    command: Text | None = None
    """At most 200 characters of it."""
    progress_timeout_secs: Number | None = None
    """How long its events files may stay as they are. Only in ``runs``, and of a program without a progress page."""
    stall: StallRecord | None = None
    """A hang, seen from outside. Its ``session`` is the program's, or else the launch's id. Only in ``runs``."""
    session: Name | None = None
    """The program's newest session, where it wrote telemetry; only at the end, as all that follows."""
    cause: Name | None = None
    """Why it ended: one of `supervisor_core.restarter.policy.Cause`."""
    exit_code: Whole | None = None
    signal: Name | None = None
    """Name of the signal that killed it."""
    core_dumped: bool = False
    oom_kills: Whole = 0
    """Processes of its control group that the kernel killed meanwhile for want of memory."""
    decided_by: Literal["program", "watchdog", "signal", "machine"] | None = None
    """Who ended it: itself, the restarter because it hung, a stop signal, or the machine (memory, a lost restarter)."""
    error: Text | None = None
    """Type of the last exception it printed, and the innermost line of the program."""
    step: Whole | None = None
    """The last step it reached."""
    saved_step: Whole | None = None
    """Step of the best verified checkpoint in the logdir."""
    progress: bool | None = None
    """Whether it got the run further than ever; None where unknown."""
    action: Literal["restart", "end"] | None = None
    """What the restarter does next."""
    reason: Text | None = None
    """Why, in half a sentence."""
    counted: bool = False
    """Whether the restart counts towards the limits."""
    backoff_secs: Number = 0.0
    """Seconds until the restart."""
    stacks: Text | None = None
    """File with the stacks of a program that hung: the copy in the logdir, else the one in memory."""
    stderr: Annotated[str, Meta(max_length=MAX_STDERR_CHARS)] | None = None
    """The end of its standard error: at most 64 KiB."""


Severity = Literal["page", "warn", "info"]
"""``page``: work is being lost, act now. ``warn``: today. ``info``: when there is time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeRecord:
    """A program has said something of its run. Of the records with the same severity, text, worker and `since` the last
    one counts."""

    kind: ClassVar[str] = "notice"

    session: Name
    severity: Severity = "warn"
    text: Name = ""
    """One line."""
    count: Whole = 1
    """How often it was said since `since`."""
    since: Number | None = None
    """Wall time at which it was said first. Said again an hour after the last time, it begins again."""
    at: Number | None = None
    """When it was said last."""
    step: Whole | None = None
    """The step at which that was recorded."""
    worker: Name | None = None
    """The other process of the cluster that said it; None of the session's own."""


NOT_OBSERVED = "not observed"
"""The verdict on a resume of which nothing is known: no step was recomputed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DigestRecord:
    """Digests of the trained state after a step: what a resume is compared with."""

    kind: ClassVar[str] = "digest"

    session: Name
    step: Whole | None = None
    states: Mapping[Name, Name] = field(default_factory=dict)
    """By the name of each object with floating-point arrays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeRecord:
    """What the steps show that a session recomputed after a kill: scalars that were logged before it and again after
    it, compared bit by bit. Of the records of one session the last one counts."""

    kind: ClassVar[str] = "resume"

    session: Name
    """The session that resumed."""
    what: Literal["losses", "values", "states"] = "values"
    """What `compared` and `equal` count: the losses; all scalars where no loss was compared; states where no scalar
    was, each that of one object after one step."""
    compared: Whole = 0
    equal: Whole = 0
    tag: Name | None = None
    """The first scalar that differs, or ``state of model``; None where none does."""
    step: Whole | None = None
    """Its step."""
    before: Name | None = None
    """The value logged before the restart, as text: it may be NaN or infinite."""
    now: Name | None = None
    """The value logged since."""

    @property
    def is_equal(self) -> bool | None:
        """Whether no recomputed value differs; None where none was compared."""
        return False if self.tag is not None else True if self.compared else None

    @property
    def text(self) -> str:
        """What was found, as a part of a sentence.

        Example:
            >>> ResumeRecord(session="a", what="losses", compared=3, equal=3).text
            '3 of 3 recomputed losses equal'
            >>> ResumeRecord(session="a", tag="loss", step=15, before="0.412", now="0.415").text
            'loss at step 15 differs (0.412 before, 0.415 now)'
        """
        if self.tag is None:
            return f"{self.equal:,} of {self.compared:,} recomputed {self.what} equal"
        return f"{self.tag} at step {self.step} differs ({self.before} before, {self.now} now)"


AboutResume = DigestRecord | ResumeRecord


Record = (
    SessionRecord
    | CheckpointRecord
    | HeartbeatRecord
    | StallRecord
    | RecoveryRecord
    | AboutResume
    | NoticeRecord
    | StopRecord
    | DeathRecord
    | LaunchRecord
)
KINDS: Mapping[str, type[Any]] = {cls.kind: cls for cls in get_args(Record)}
"""Record classes by kind."""


@dataclass(frozen=True, slots=True)
class _Version:
    v: Whole | None = None


def to_json(record: Record) -> str:
    """Return a record as its JSON object. Fields with their defaults are left out; numbers that JSON cannot hold become
    null."""
    return json.dumps({"v": SCHEMA_VERSION, **_plain(record)}, allow_nan=False, ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if is_dataclass(value):
        found = ((name, getattr(value, name), default) for name, default in _defaults(cast("Any", type(value))))
        return {name: _plain(item) for name, item, default in found if item is not default and item != default}
    return value


def rounded(value: Any) -> Any:
    """Return a value, or a record, with its numbers rounded to three decimals; small ones to six significant digits, so
    that they do not become 0.

    Example:
        >>> rounded((86409.162663, 0.0003123456789))
        (86409.163, 0.000312346)
    """
    if isinstance(value, float):
        return float(f"{value:.6g}") if abs(value) < 100.0 else round(value, 3)
    if isinstance(value, Mapping):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return tuple(map(rounded, value))
    if is_dataclass(value):
        return cast("Any", type(value))(**{each.name: rounded(getattr(value, each.name)) for each in fields(value)})
    return value


@cache
def _defaults(cls: Any) -> tuple[tuple[str, Any], ...]:
    return tuple(
        (each.name, each.default if each.default_factory is MISSING else each.default_factory()) for each in fields(cls)
    )


def from_json(kind: str, text: str) -> Record:
    """Return the record of a kind from its JSON object; what its fields cannot hold is left out.

    Raises:
        EventsError: if the kind is unknown, the text is no JSON object, too long or nested too deep, a field without
            a default is missing, or the version is newer.
    """
    cls = KINDS.get(kind)
    if cls is None:
        raise EventsError(f"A telemetry record has the kind {kind!r}; expected one of {', '.join(KINDS)}.")
    if len(text) > MAX_BYTES:
        raise EventsError(f"A {kind} record has {len(text):,} characters, more than {MAX_BYTES:,}.")
    try:
        version = decode(_Version, text).v
        if version is not None and version <= SCHEMA_VERSION:
            record: Record = decode(cls, text)
            return record
    except TypeError as error:
        raise EventsError(f"A {kind} record lacks a field: {error}.") from error
    except (ValueError, RecursionError) as error:
        raise EventsError(f"A {kind} record is no JSON object ({error}): {text[:80]!r}.") from error
    raise EventsError(f"A {kind} record has version {version}; this reader knows up to {SCHEMA_VERSION}: upgrade it.")


def summary_bytes(record: Record) -> bytes:
    """Return a record as the bytes of a ``Summary`` message, as the module's docstring draws it."""
    text = to_json(record).encode("utf-8", "backslashreplace")  # a byte of a name that is not UTF-8 becomes \udcXX
    tensor = b"\x08\x07" + delimited(2, b"") + delimited(8, text)
    metadata = delimited(1, delimited(1, PLUGIN_NAME.encode())) + b"\x20\x02"
    tag = (TAG_PREFIX + record.kind).encode()
    return delimited(1, delimited(1, tag) + delimited(8, tensor) + delimited(9, metadata))
