"""`TaskRecord`: the heartbeat of a cluster's process other than the chief, and its file's format.

``<logdir>/.supervisor.tasks/<file name>`` holds one JSON object, ASCII, the fields of `TaskRecord` and ``"v": 1``, and
a newline (0x0a) at its end. Every heartbeat replaces the whole file. A published contract, see
``docs/events.md``: fields are added, never renamed; readers ignore unknown fields and reject other versions.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from hashlib import sha256
from urllib.parse import quote

from supervisor_core.checkpoint.json_records import Integer, Name, Secs, parse_object, record_of
from supervisor_core.storage.filesystem import Filesystem

TASKS_DIRECTORY = ".supervisor.tasks"
"""Directory of the heartbeat files, in the logdir."""

VERSION = 1
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
    ended: str | None = None
    """Its stop reason (``completed``, ``signal``, ``error`` ...); None while it runs, and if it was killed."""
    ended_at: Secs | None = None
    error: str | None = None
    """The error that ended it."""


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
