"""Events files: their framing, their encoding, the one writer and the one reader.

* `EventsWriter` appends events to a file of its own; adding costs the caller next to nothing, and what the disk refuses
  is held, counted and said, never raised into the training.
* `FileWriter` is the same with the interface of ``tf.compat.v1.summary.FileWriter``.
* `supervisor_core.events.telemetry` are the records that the supervisor adds of its own.
* `supervisor_core.events.index.LogdirIndex` reads the files of every run below a logdir, of any writer, as they grow;
  `index.RunIndex` those of one run, `reader.EventsFileReader` one file. `columns.ColumnStore` keeps the scalars.

Importing this loads neither tensorboard nor protobuf nor numpy: writing local files never needs them, and reading them
only numpy.
"""

from __future__ import annotations

from supervisor_core.events.file_writer import FileWriter
from supervisor_core.events.writer import EventsWriter
from supervisor_core.storage.local import AppendFile, AppendFilesystem

__all__ = ["AppendFile", "AppendFilesystem", "EventsWriter", "FileWriter"]
