"""`TaskRecord`: the heartbeat of a cluster's process other than the chief, and its file's format.

``<logdir>/.supervisor.tasks/<file name>`` holds one JSON object, ASCII, the fields of `TaskRecord` and ``"v": 1``, and
a newline (0x0a) at its end. Every heartbeat replaces the whole file. A published contract, see
``docs/events.md``: fields are added, never renamed; readers ignore unknown fields and reject other versions.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Annotated
from urllib.parse import quote

from msgspec import Meta

from supervisor_core.checkpoint.json_records import Integer, Moment, Name, Secs, parse_object, record_of
from supervisor_core.events.notice_record import NoticeRecord
from supervisor_core.events.place import Pace, Place
from supervisor_core.events.telemetry import WorkerState, WorkerStatus
from supervisor_core.process.identity import Machine, is_running
from supervisor_core.storage.filesystem import Filesystem

TASKS_DIRECTORY = ".supervisor.tasks"
"""Directory of the heartbeat files, in the logdir."""

VERSION = 1
MAX_TASKS = 1000
"""The most heartbeat files of a run that are read at a time."""
MAX_NOTICES = 8
"""The most of what a process has said that its heartbeat file has."""
MAX_BYTES = 64 * 1024
"""The largest file that is read."""

_MAX_NAME = 200


@dataclass(frozen=True, kw_only=True)
class TaskRecord:
    """A process of the cluster other than the chief. Times are wall-clock seconds since the epoch, by its own clock."""

    task: Name
    """The process's name, ``worker:1``."""
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
    """What it said last; its chief records it."""
    ended: str | None = None
    """Its stop reason (``completed``, ``signal``, ``error`` ...); None while it runs, and if it was killed."""
    ended_at: Secs | None = None
    error: str | None = None
    """The error that ended it."""

    @property
    def machine(self) -> Machine:
        """On which it runs."""
        return Machine(host=self.host, boot=self.boot, pids=self.pids)


def file_name(task: str) -> str:
    """Return the name of a task's file; no two tasks share one.

    Letters, digits, ``_`` and ``.`` stay, ``:`` becomes ``-``, every other character its UTF-8 bytes as ``%2D``, and so
    does a leading ``.``; of a very long name its beginning stays, ``~`` and a digest follow.

    Example:
        >>> file_name("worker:1"), file_name("gpu-box-17")
        ('worker-1.json', 'gpu%2Dbox%2D17.json')
    """
    name = quote(task, safe=":", errors="surrogatepass").replace("-", "%2D").replace("~", "%7E").replace(":", "-")
    if name.startswith("."):
        name = f"%2E{name[1:]}"
    if len(name) > _MAX_NAME:
        digest = sha256(task.encode(errors="surrogatepass")).hexdigest()
        name = f"{name[: _MAX_NAME - 65]}~{digest}"
    return f"{name}.json"


def read_record(filesystem: Filesystem, path: str) -> TaskRecord:
    """Return the record in a file.

    Raises:
        OSError: if it cannot be read.
        ValueError: if it is too long, malformed, or has another task's name; the message says why.
    """
    with filesystem.open(path) as reader:
        record = decode(reader.read_at(0, min(reader.size, MAX_BYTES + 1)))
    if file_name(record.task) != os.path.basename(path):
        raise ValueError(f"its name is another task's: this is {record.task!r:.80}")
    return record


def encode(record: TaskRecord) -> bytes:
    """Return the file's bytes."""
    text = json.dumps({"v": VERSION, **asdict(record)}, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.encode("ascii") + b"\n"


def decode(data: bytes) -> TaskRecord:
    """Return the record in a file's bytes.

    Raises:
        ValueError: if they are malformed; the message says why.
    """
    if len(data) > MAX_BYTES:
        raise ValueError(f"it has more than {MAX_BYTES:,} bytes")
    return record_of(TaskRecord, parse_object(data, VERSION))


MISSED_BEATS = 3
"""A process is not lost before it has missed this many beats."""

_WAITING_PHASES = ("starting", "restoring")


def has_ended_well(record: TaskRecord) -> bool:
    """Return whether a process has stopped without an error."""
    return record.ended not in (None, "error")


def state_of(record: TaskRecord, *, silent_secs: float, lost_after_secs: float, is_gone: bool) -> WorkerState:
    """Return the state of a process.

    Args:
        record: its last record.
        silent_secs: seconds since its last beat.
        lost_after_secs: how long it may be silent, unless its own interval is longer.
        is_gone: whether its process is known to have ended.
    """
    if record.ended is not None:
        return "stopped" if has_ended_well(record) else "failed"
    if is_gone or silent_secs > max(lost_after_secs, MISSED_BEATS * record.interval_secs):
        return "lost"
    if record.phase in _WAITING_PHASES or record.waiting_for is not None:
        return "waiting"
    return "stalled" if record.stalled else "running"


def is_gone(record: TaskRecord, here: Machine, runs: Callable[[int], bool] = is_running) -> bool:
    """Return whether a process of this machine is known to have ended without a stop record."""
    return record.ended is None and record.machine == here and not runs(record.pid)


def status_of(record: TaskRecord, state: WorkerState, seen_at: float) -> WorkerStatus:
    """Return the status of a process for metrics and heartbeats.

    Args:
        record: its last record.
        state: see `state_of`.
        seen_at: when that was written, by the reader's wall clock.
    """
    return WorkerStatus(
        name=record.task,
        state=state,
        phase=record.phase,
        waiting_for=record.waiting_for if state == "waiting" else None,
        step=record.step,
        steps=record.steps,
        last_seen_at=seen_at,
        started_at=record.started_at,
        host=record.host,
        pid=record.pid,
        error=record.error,
        progress_age_secs=record.progress_age_secs,
        hang_timeout_secs=record.hang_timeout_secs,
        held=record.held,
        place=record.place,
        pace=record.pace,
    )
