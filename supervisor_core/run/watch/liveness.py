"""`LivenessRecord`: what a process of a run says of itself now, and its file's format.

``<logdir>/.supervisor.live/<file name>`` holds one JSON object, ASCII, the fields of `LivenessRecord` and ``"v": 1``,
and a newline (0x0a); spaces before it may fill the file up. Each heartbeat, each change and the end replace the whole
file. The chief's is ``chief.json``. A published contract, see ``docs/events.md``: fields are added, never renamed;
readers ignore unknown fields and reject other versions.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, replace
from hashlib import sha256
from typing import Any, cast
from urllib.parse import quote

from supervisor_core.base.errors import EventsError
from supervisor_core.base.json_records import parse_object, record_of
from supervisor_core.events.record_fields import shared
from supervisor_core.events.telemetry import (
    HeartbeatRecord,
    WorkerState,
    WorkerStatus,
    from_json,
    to_json,
)
from supervisor_core.process.identity import Machine, is_running
from supervisor_core.run.model.liveness_record import MAX_NOTICES as MAX_NOTICES
from supervisor_core.run.model.liveness_record import LivenessRecord as LivenessRecord
from supervisor_core.storage.filesystem import Filesystem
from supervisor_core.storage.local import filesystem_for

LIVENESS_DIRECTORY = ".supervisor.live"
"""Directory of the liveness files, in the logdir."""
CHIEF = "@chief"
"""The chief's name in its liveness file, ``chief.json``."""

VERSION = 1
MAX_TASKS = 1000
"""The most liveness files of a run that are read at a time."""
MAX_BYTES = 64 * 1024
"""The largest file that is read."""

_MAX_NAME = 200


def file_name(task: str) -> str:
    """Return the name of a task's file; no two tasks share one.

    Letters, digits, ``_`` and ``.`` stay, ``:`` becomes ``-``, every other character its UTF-8 bytes as ``%2D``, and so
    does a leading ``.``; of a very long name its beginning stays, ``~`` and a digest follow.

    Example:
        >>> file_name("worker:1"), file_name("gpu-box-17")
        ('worker-1.json', 'gpu%2Dbox%2D17.json')
    """
    if task in (CHIEF, CHIEF[1:]):
        return f"{CHIEF[1:] if task == CHIEF else '%63hief'}.json"
    name = quote(task, safe=":", errors="surrogatepass").replace("-", "%2D").replace("~", "%7E").replace(":", "-")
    if name.startswith("."):
        name = f"%2E{name[1:]}"
    if len(name) > _MAX_NAME:
        digest = sha256(task.encode(errors="surrogatepass")).hexdigest()
        name = f"{name[: _MAX_NAME - 65]}~{digest}"
    return f"{name}.json"


def files_of_others(names: Iterable[str]) -> list[str]:
    """Return the names of the files of processes other than the chief, in order."""
    return sorted(name for name in names if name.endswith(".json") and name != file_name(CHIEF))


def read_record(filesystem: Filesystem, path: str) -> LivenessRecord:
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


def chief_path(logdir: str | os.PathLike[str]) -> str:
    """Return the path of the liveness file of a logdir's chief."""
    return os.path.join(os.fspath(logdir), LIVENESS_DIRECTORY, file_name(CHIEF))


def read_chief(logdir: str | os.PathLike[str]) -> LivenessRecord | None:
    """Return what the chief of a logdir says, or has said last; None where it has said nothing.

    Raises:
        OSError: if it cannot be read. Clients of object stores raise other errors, too.
        ValueError: if it is malformed.
    """
    try:
        return read_record(*filesystem_for(chief_path(logdir)))
    except FileNotFoundError:
        return None


def encode(record: LivenessRecord) -> bytes:
    """Return the file's bytes."""
    beat = None if record.beat is None else json.loads(to_json(record.beat))
    values = {"v": VERSION, "session": record.session, **asdict(replace(record, beat=None)), "beat": beat}
    return _dumped(values) + b"\n"


def token(session: str) -> bytes:
    """Return the bytes with which the liveness file of a session begins."""
    return _dumped({"v": VERSION, "session": session}).removesuffix(b"}") + b","


def _dumped(values: dict[str, Any]) -> bytes:
    return json.dumps(values, ensure_ascii=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def decode(data: bytes) -> LivenessRecord:
    """Return the record in a file's bytes.

    Raises:
        ValueError: if they are malformed; the message says why.
    """
    if len(data) > MAX_BYTES:
        raise ValueError(f"it has more than {MAX_BYTES:,} bytes")
    values = parse_object(data, VERSION)
    beat = values.pop("beat", None)
    record = record_of(LivenessRecord, values)
    with suppress(EventsError):  # what its fields cannot hold is left out, as in an events file
        found = None if beat is None else from_json(HeartbeatRecord.kind, json.dumps(beat))
        record = replace(record, beat=cast("HeartbeatRecord | None", found))
    return record


MISSED_BEATS = 3
"""A process is not lost before it has missed this many beats."""

_WAITING_PHASES = ("starting", "restoring")


def has_ended_well(record: LivenessRecord) -> bool:
    """Return whether a process has stopped without an error."""
    return record.ended not in (None, "error")


def state_of(record: LivenessRecord, *, silent_secs: float, lost_after_secs: float, is_gone: bool) -> WorkerState:
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


def is_gone(record: LivenessRecord, here: Machine, runs: Callable[[int], bool] = is_running) -> bool:
    """Return whether a process of this machine is known to have ended without a stop record."""
    return record.ended is None and record.machine == here and not runs(record.pid)


def status_of(record: LivenessRecord, state: WorkerState, seen_at: float) -> WorkerStatus:
    """Return the status of a process for metrics and heartbeats.

    Args:
        record: its last record.
        state: see `state_of`.
        seen_at: when that was written, by the reader's wall clock.
    """
    waiting_for = record.waiting_for if state == "waiting" else None
    values = {**shared(WorkerStatus, record), "waiting_for": waiting_for}
    return WorkerStatus(**values, name=record.task, state=state, last_seen_at=seen_at)
