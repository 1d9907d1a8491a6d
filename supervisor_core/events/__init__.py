"""Events files: their framing, their encoding, the one writer and the one reader.

* `EventsWriter` appends events to a file of its own; adding costs the caller next to nothing, and what the disk refuses
  is held, counted and said, never raised into the training.
* `FileWriter` is the same with the interface of ``tf.compat.v1.summary.FileWriter``.
* `LogdirIndex` reads the files of every run below a logdir, of any writer, as they grow; `RunIndex` those of one run,
  `EventsFileReader` one file. They return `Chunk` objects, whose scalars `ColumnStore` keeps.
* `Record` is any of the records that the supervisor adds.

Importing this loads neither tensorboard nor protobuf nor numpy: writing local files never needs them, and reading them
only numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from supervisor_core.base.lazy import lazy_names
from supervisor_core.events.file_writer import FileWriter
from supervisor_core.events.writer import EventsWriter

if TYPE_CHECKING:
    from supervisor_core.events.chunk import Chunk, SessionMark, TelemetryMark
    from supervisor_core.events.columns import ColumnStore
    from supervisor_core.events.index import LogdirIndex, RunIndex
    from supervisor_core.events.reader import EventsFileReader
    from supervisor_core.events.telemetry import (
        CheckpointRecord,
        HeartbeatRecord,
        Record,
        RecoveryRecord,
        SessionRecord,
        StallRecord,
        StopRecord,
    )

__all__ = [
    "CheckpointRecord",
    "Chunk",
    "ColumnStore",
    "EventsFileReader",
    "EventsWriter",
    "FileWriter",
    "HeartbeatRecord",
    "LogdirIndex",
    "Record",
    "RecoveryRecord",
    "RunIndex",
    "SessionMark",
    "SessionRecord",
    "StallRecord",
    "StopRecord",
    "TelemetryMark",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "events.chunk": "Chunk SessionMark TelemetryMark",
        "events.columns": "ColumnStore",
        "events.index": "LogdirIndex RunIndex",
        "events.reader": "EventsFileReader",
        "events.telemetry": "CheckpointRecord HeartbeatRecord Record RecoveryRecord SessionRecord StallRecord "
        "StopRecord",
    },
)
