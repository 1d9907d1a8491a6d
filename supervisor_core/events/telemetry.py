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
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar, Literal

from supervisor_core.errors import EventsError
from supervisor_core.wire import delimited

SCHEMA_VERSION = 1
MAX_BYTES = 4 << 20
"""A longer record is refused unread. The longest known one holds the stacks of 1,000 threads in 2 MB."""
MAX_DEPTH = 16
"""Limit of the nesting of lists and objects; the records of this version need 3."""
PLUGIN_NAME = "supervisor"
TAG_PREFIX = "supervisor/"

Trigger = Literal["timer", "final", "signal", "manual"]
StopReason = Literal["completed", "exhausted", "requested", "signal", "error"]


@dataclass(frozen=True, kw_only=True)
class SessionRecord:
    """A session has started: who, from where, after what."""

    kind: ClassVar[str] = "session"

    session: str
    """The session's id, unique; part of every record of the session."""
    attempt: int
    """1 for the run's first session, one more for each later one."""
    host: str
    pid: int
    facade: str
    """The API that the program used: ``Supervisor``, ``MonitoredTrainingSession`` ..."""
    started_at: float
    """Wall time, seconds since the epoch."""
    run: str | None = None
    """The ``run`` label of the session's own metrics."""
    restored_checkpoint: str | None = None
    """Path of the checkpoint that was restored; None when the model was initialised."""
    restored_step: int | None = None
    adopted: bool = False
    """Whether the model was found alive in the cluster and kept: ``restored_step`` is its step, and no checkpoint was
    read."""
    skipped: tuple[Mapping[str, str], ...] = ()
    """Checkpoints that were skipped: ``{"path": ..., "reason": ...}``, newest first."""
    state_problem: str | None = None
    """The problem with the ``checkpoint`` state file, if there was one."""
    previous_outcome: str | None = None
    """How the session before this one ended; ``lost`` without a stop record; None for the first."""
    previous_step: int | None = None
    """The previous session's last known step: the one that it reached if ``previous_step_exact``, else the one at the
    last renewal of its lease: every second in a local logdir."""
    previous_step_exact: bool = False
    """Whether ``previous_step`` is the step that it reached: it ended by itself, or its progress page was found."""
    previous_seen_at: float | None = None
    """Wall time of that renewal; with a progress page, the last sign of life on that."""
    previous_elapsed_secs: float | None = None
    """The previous session's duration at that renewal, by a monotonic clock."""
    previous_seen_secs: float | None = None
    """Seconds between that renewal and ``started_at``, by a monotonic clock; None where the previous session ran on
    another machine, or before this one's boot."""
    run_started_at: float | None = None
    """Wall time at which the run's first session started, from the lease. Of sessions with the same value, the one with
    the higher ``attempt`` is the later one, whatever the wall clock says."""
    starting_secs: float = 0.0
    """Seconds from the start until the session was ready, restoring apart."""
    restoring_secs: float = 0.0
    services: tuple[Mapping[str, Any], ...] = ()
    """``{"name": ..., "interval_secs": ...}`` for each service."""
    resume_exact: bool | None = None
    """Whether training goes on exactly as it would have without the restart; None where that is not known, and for a
    run's first session."""
    resume_reasons: tuple[str, ...] = ()
    """Why it does not, or may not: one sentence each."""
    checkpoint_interval_secs: float | None = None
    heartbeat_secs: float | None = None
    """Configured seconds between heartbeats; 0 where there are some only at changes of phase."""
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class CheckpointRecord:
    """A save, successful or failed."""

    kind: ClassVar[str] = "checkpoint"

    session: str
    trigger: Trigger
    path: str | None = None
    """The checkpoint's prefix, with its step; None when nothing was written."""
    step: int | None = None
    bytes: int | None = None
    secs: float = 0.0
    """Seconds from the start of the save until it was durable (or had failed)."""
    blocked_secs: float = 0.0
    """Seconds for which training was blocked."""
    consistent: bool | None = None
    """Whether all values are of one step; None when nothing was written."""
    verified: bool | None = None
    """Whether the files were read back and matched."""
    error: str | None = None
    data_position: str | None = None
    """A digest of the position in the training data; None where it was not captured."""
    doubt: str | None = None
    """Why the model in it may be spoiled, in one sentence or several; None where nothing speaks for that."""


@dataclass(frozen=True, kw_only=True)
class HeartbeatRecord:
    """Alive, in this phase, at this step, with these threads."""

    kind: ClassVar[str] = "heartbeat"

    session: str
    phase: str
    attempt: int | None = None
    """As in the session record, which comes only when the session is ready."""
    elapsed_secs: float | None = None
    """Seconds since the session started, by a monotonic clock."""
    step: int | None = None
    steps: int = 0
    """Steps done by this session."""
    steps_per_sec: float | None = None
    progress_age_secs: float = 0.0
    """Seconds since the last progress."""
    progress_timeout_secs: float | None = None
    """The stall budget of the phase."""
    activity_secs: Mapping[str, float] = field(default_factory=dict)
    """Seconds of this session by goodput bucket; they sum to its wall time up to the last progress."""
    threads: tuple[Mapping[str, Any], ...] = ()
    """`ThreadStatus` of each service, field by field."""
    workers: tuple[Mapping[str, Any], ...] | None = None
    """`WorkerStatus` of each other process of the cluster, field by field; None: unchanged since the last heartbeat
    with them."""
    events_dropped: int = 0
    loss_finite: bool | None = None
    """Whether the watched loss is finite; None where none is watched, or none was read yet."""
    pause: Mapping[str, Any] | None = None
    """The latest time since the last heartbeat in which no Python code ran: ``{"cause": ..., "since": ...,
    "secs": ...}``."""
    watchdog_would_act: int = 0
    """How many stalls of this session the watchdog would have ended, under ``stall_action="observe"``."""
    watchdog_acted: Mapping[str, int] = field(default_factory=dict)
    """How many it has acted upon, by action."""


@dataclass(frozen=True, kw_only=True)
class StallRecord:
    """A stall begins, lasts (the second look at its stacks), or ends."""

    kind: ClassVar[str] = "stall"

    session: str
    state: Literal["begin", "lasts", "end"]
    phase: str
    since: float
    """Wall time of the last progress before the stall."""
    step: int | None = None
    secs: float = 0.0
    """Seconds without progress so far."""
    timeout_secs: float | None = None
    thread: str | None = None
    """The thread that makes no progress."""
    location: str | None = None
    """The innermost line of the program in that thread's stack, as in ``stacks``."""
    same_frames: bool | None = None
    """Whether that stack is the same as when the stall began. Only in ``lasts``."""
    activity: Literal["busy", "waits"] | None = None
    """What the thread did since then: it ran, or was ready to run, for at least half of the time; or slept for nine
    tenths of it. None: neither, or not known. Only in ``lasts``."""
    stacks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Python stacks of all threads by thread name, outermost first; not when a stall ends."""
    service: str | None = None
    """The service whose tick does not end; None of a session without progress."""


@dataclass(frozen=True, kw_only=True)
class RecoveryRecord:
    """The framework's own session was lost with a process of the cluster, and recreated: a restart within a session."""

    kind: ClassVar[str] = "recovery"

    session: str
    error: str
    """The error that was raised when it was lost."""
    losses: int = 1
    """Number of losses until training could continue."""
    step: int | None = None
    """The session's last step before it."""
    restored_checkpoint: str | None = None
    """Path of the checkpoint that was restored; None when the model was initialised, or is the chief's."""
    restored_step: int | None = None
    """The step from which training continues."""
    secs: float = 0.0
    """Seconds from the loss until training could continue."""


@dataclass(frozen=True, kw_only=True)
class StopRecord:
    """The session has ended as planned, whatever the reason."""

    kind: ClassVar[str] = "stop"

    session: str
    reason: StopReason
    error: str | None = None
    signal: str | None = None
    """The signal's name, when that was the reason."""
    step: int | None = None
    steps: int = 0
    final_checkpoint: str | None = None
    final_checkpoint_step: int | None = None
    elapsed_secs: float | None = None
    """Seconds since the session started, by a monotonic clock."""
    activity_secs: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class LaunchRecord:
    """A restarter (``tb-supervisor run``) has started the program, or it has ended. In events files of the restarter's
    own."""

    kind: ClassVar[str] = "launch"

    launch: str
    """The launch's id, unique; the same when it begins and when it ends."""
    state: Literal["begin", "end"]
    attempt: int
    """1 for the first launch in the logdir, one more for each later one, whichever restarter started it."""
    started_at: float
    """Wall time."""
    host: str | None = None
    pid: int | None = None
    """Of the program."""
    command: str | None = None
    """At most 200 characters of it."""
    session: str | None = None
    """The program's newest session, where it wrote telemetry; only at the end, as all that follows."""
    cause: str | None = None
    """Why it ended: one of `supervisor_core.restarter.policy.Cause`."""
    exit_code: int | None = None
    signal: str | None = None
    """Name of the signal that killed it."""
    core_dumped: bool = False
    oom_kills: int = 0
    """Processes of its control group that the kernel killed meanwhile for want of memory."""
    decided_by: Literal["program", "watchdog", "signal", "machine"] | None = None
    """Who ended it: itself, the restarter because it hung, a stop signal, or the machine (memory, a lost restarter)."""
    error: str | None = None
    """Type of the last exception it printed, and the innermost line of the program."""
    step: int | None = None
    """The last step it reached."""
    saved_step: int | None = None
    """Step of the best verified checkpoint in the logdir."""
    progress: bool | None = None
    """Whether it got the run further than ever; None where unknown."""
    action: Literal["restart", "end"] | None = None
    """What the restarter does next."""
    reason: str | None = None
    """Why, in half a sentence."""
    counted: bool = False
    """Whether the restart counts towards the limits."""
    backoff_secs: float = 0.0
    """Seconds until the restart."""
    stacks: str | None = None
    """File with the stacks of a program that hung: the copy in the logdir, else the one in memory."""
    stderr: str | None = None
    """The end of its standard error: at most 64 KiB."""


Record = SessionRecord | CheckpointRecord | HeartbeatRecord | StallRecord | RecoveryRecord | StopRecord | LaunchRecord
KINDS: Mapping[str, type[Any]] = {
    cls.kind: cls
    for cls in (
        SessionRecord,
        CheckpointRecord,
        HeartbeatRecord,
        StallRecord,
        RecoveryRecord,
        StopRecord,
        LaunchRecord,
    )
}
"""Record classes by kind."""

_FIELD_NAMES = {kind: tuple(item.name for item in fields(cls)) for kind, cls in KINDS.items()}


def to_json(record: Record) -> str:
    """Return a record as its JSON object; numbers that JSON cannot hold become null."""
    return json.dumps({"v": SCHEMA_VERSION, **_plain(asdict(record))}, allow_nan=False, ensure_ascii=False)


def from_json(kind: str, text: str) -> Record:
    """Return the record of a kind from its JSON object; fields it does not know are left out.

    Raises:
        EventsError: if the kind is unknown, the text is no JSON object, too long or nested too deep, a field is
            missing, or the version is newer.
    """
    cls = KINDS.get(kind)
    if cls is None:
        raise EventsError(f"A telemetry record has the kind {kind!r}; expected one of {', '.join(KINDS)}.")
    if len(text) > MAX_BYTES:
        raise EventsError(f"A {kind} record has {len(text):,} characters, more than {MAX_BYTES:,}.")
    try:
        values = json.loads(text)
    except RecursionError as error:
        raise EventsError(f"A {kind} record is nested too deep: {text[:80]!r}.") from error
    except ValueError as error:
        raise EventsError(f"A {kind} record holds no JSON ({error}): {text[:80]!r}.") from error
    if not isinstance(values, dict):
        raise EventsError(f"A {kind} record holds {type(values).__name__}; expected a JSON object.")
    version = values.get("v")
    if not isinstance(version, int) or version > SCHEMA_VERSION:
        raise EventsError(
            f"A {kind} record has version {version!r}; this reader knows up to {SCHEMA_VERSION}: upgrade it."
        )
    try:
        record: Record = cls(**{name: _frozen(values[name]) for name in _FIELD_NAMES[kind] if name in values})
    except TypeError as error:
        raise EventsError(f"A {kind} record lacks a field: {error}.") from error
    return record


def summary_bytes(record: Record) -> bytes:
    """Return a record as the bytes of a ``Summary`` message, as the module's docstring draws it."""
    tensor = b"\x08\x07" + delimited(2, b"") + delimited(8, to_json(record).encode())
    metadata = delimited(1, delimited(1, PLUGIN_NAME.encode())) + b"\x20\x02"
    tag = (TAG_PREFIX + record.kind).encode()
    return delimited(1, delimited(1, tag) + delimited(8, tensor) + delimited(9, metadata))


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def _frozen(value: Any, depth: int = 1) -> Any:
    """Return a parsed JSON value with tuples for its lists; its objects are changed in place."""
    if type(value) in _NESTED and depth > MAX_DEPTH:
        raise EventsError(f"A telemetry record is nested deeper than {MAX_DEPTH} levels.")
    if type(value) is list:
        return tuple([_frozen(item, depth + 1) if type(item) in _NESTED else item for item in value])
    if type(value) is dict:
        for key, item in value.items():
            if type(item) in _NESTED:
                value[key] = _frozen(item, depth + 1)
    return value


_NESTED = (list, dict)
