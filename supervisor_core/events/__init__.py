"""Events files: their framing, their encoding, and the one writer.

* `EventsWriter` appends events to a file of its own; adding costs the caller next to nothing, and what the disk refuses
  is held, counted and said, never raised into the training.
* `FileWriter` is the same with the interface of ``tf.compat.v1.summary.FileWriter``.
* `supervisor_core.events.telemetry` are the records that the supervisor adds of its own.

Importing this loads neither tensorboard nor protobuf nor numpy; local files never need them.
"""

from __future__ import annotations

from supervisor_core.events.file_writer import FileWriter
from supervisor_core.events.filesystem import AppendFile, FileSystem
from supervisor_core.events.writer import EventsWriter

__all__ = ["AppendFile", "EventsWriter", "FileSystem", "FileWriter"]
