"""`FileWriter`: `EventsWriter` with the interface of ``tf.compat.v1.summary.FileWriter``."""

from __future__ import annotations

import logging
import os
import sys
import warnings
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import FrameType
from typing import Any

from supervisor_core.base import wire
from supervisor_core.base.errors import EventsWriteError, WaitTimeoutError, WriterClosedError
from supervisor_core.events import event_format, writer
from supervisor_core.events.writer import EventsWriter
from supervisor_core.storage.local import append_filesystem_for, join

_LOG = logging.getLogger("supervisor_core")

MIN_QUEUE = 65_536
"""Lower bound of ``max_queue``: the original's ten events would block training without need."""

_OWN_FILES = (__file__, writer.__file__)
_PLUGIN_ASSETS = "__tensorboard_plugin_asset__"


class FileWriter(EventsWriter):
    """Writes summaries, graphs and session logs to an events file, with the calls and defaults of the original.

    Messages may be TensorFlow's, TensorBoard's or any other of the same name that serializes itself; they are
    serialized before a call returns, so the caller may change them afterwards. Differences from the original: it is
    thread-safe; each opening has a file name of its own, so two openings within one second lose nothing; a full disk
    neither ends nor blocks the training (see `EventsWriter`); events reach a local file within 0.2 seconds instead of
    ``flush_secs``.

    Args:
        logdir: the directory; created where it is missing.
        graph: a ``Graph`` to add, with its meta graph.
        max_queue: limit of queued events; at least `MIN_QUEUE`.
        flush_secs: the longest time an event stays in memory, on remote file systems.
        graph_def: deprecated: use ``graph``.
        filename_suffix: the end of the file's name.
        session: not supported, only None: there is no writer in a session's graph to share.

    Raises:
        EventsWriteError: if the file cannot be created.
        ValueError: if a session is given.
    """

    def __init__(
        self,
        logdir: str | os.PathLike[str],
        graph: Any = None,
        max_queue: int = 10,
        flush_secs: float = 120,
        graph_def: Any = None,
        filename_suffix: str | None = None,
        session: Any = None,
    ) -> None:
        if session is not None:
            raise ValueError(
                "FileWriter(session=...) is not supported: this writer runs outside of the graph. Leave the argument "
                "out, or use tf.compat.v1.summary.FileWriter for a writer that the session's summary ops share."
            )
        super().__init__(
            str(logdir),
            max_queue=max(max_queue, MIN_QUEUE),
            flush_secs=max(0.0, flush_secs),
            filename_suffix=filename_suffix or "",
        )
        self._run_metadata_tags: set[str] = set()
        self._is_in_use: Callable[[], Callable[[], bool] | None] = lambda: None
        if graph is not None or graph_def is not None:
            serialized = self._graph_bytes(graph, graph_def)
            self.payload("graph_def", serialized, None)
            self.payload(
                "meta_graph_def", _meta_graph_bytes(graph if graph is not None else graph_def, serialized), None
            )

    def add_summary(self, summary: Any, global_step: Any = None) -> None:
        """Add a ``Summary``, as a message or serialized (what running a summary op returns).

        A tag's metadata is written the first time in each file and left out later, as readers keep the first.

        Raises:
            TypeError: if it is neither.
            google.protobuf.message.DecodeError: if the bytes are no ``Summary``.
        """
        if isinstance(summary, bytes):
            _check_summary(summary)
        else:
            summary = _serialized(summary, "Summary", "summary")
        self.summary(summary, global_step)

    def add_session_log(self, session_log: Any, global_step: Any = None) -> None:
        """Add a ``SessionLog``, as a message or serialized: START, STOP or CHECKPOINT."""
        is_serialized = isinstance(session_log, bytes)
        data = session_log if is_serialized else _serialized(session_log, "SessionLog", "session_log")
        self.payload("session_log", data, global_step)

    def add_graph(self, graph: Any, global_step: Any = None, graph_def: Any = None) -> None:
        """Add a ``Graph``, with the shapes it has inferred and the assets of its plugins.

        Raises:
            ValueError: if both a graph and a graph_def are given.
            TypeError: if neither is a ``Graph`` or ``GraphDef``.
        """
        self.payload("graph_def", self._graph_bytes(graph, graph_def), global_step)

    def add_meta_graph(self, meta_graph_def: Any, global_step: Any = None) -> None:
        """Add a ``MetaGraphDef``.

        Raises:
            TypeError: if it is something else.
        """
        if not _is_message(meta_graph_def, "MetaGraphDef"):
            raise TypeError(f"meta_graph_def must be type MetaGraphDef, saw type: {type(meta_graph_def)}")
        self.payload("meta_graph_def", meta_graph_def.SerializeToString(), global_step)

    def add_run_metadata(self, run_metadata: Any, tag: str, global_step: Any = None) -> None:
        """Add the ``RunMetadata`` of one run, under a tag that was not used before.

        Raises:
            ValueError: if it was.
        """
        if tag in self._run_metadata_tags:
            raise ValueError("The provided tag was already used for this event type")
        serialized = _serialized(run_metadata, "RunMetadata", "run_metadata")
        self._run_metadata_tags.add(tag)
        self.payload("tagged_run_metadata", event_format.tagged_run_metadata(tag, serialized), global_step)

    def add_event(self, event: Any) -> None:
        """Add an ``Event`` as it is, wall time and step included."""
        self.event_bytes(_serialized(event, "Event", "event"))

    def scalar(self, tag: str, value: float, step: Any = None, wall_time: float | None = None) -> None:
        """Add the value of a tag without building a message; see `EventsWriter.scalar`."""
        try:
            EventsWriter.scalar(self, tag, value, step, wall_time)
        except WriterClosedError:
            if self._is_open_again():
                EventsWriter.scalar(self, tag, value, step, wall_time)

    def reopen_while(self, is_in_use: Callable[[], bool]) -> None:
        """Reopen at the next event after a close, instead of losing it, while a bound method returns True. It is not
        kept alive."""
        self._is_in_use = weakref.WeakMethod(is_in_use)

    def get_logdir(self) -> str:
        """Return the directory, as it was given."""
        return self.logdir

    def flush(self, timeout_secs: float | None = None) -> None:
        """Return when everything added so far is in the file, or cannot be written now.

        As with `add_summary`, a full disk raises nothing into the training loop: the log says when events could not be
        written, what fits is held in memory and written when that is possible again, and what does not is counted in
        `dropped`. `sync` raises.

        Raises:
            WaitTimeoutError: if it takes longer than ``timeout_secs``; default: no limit.
        """
        if self.closed:
            _warn_closed()
        try:
            super().flush(timeout_secs)
        except EventsWriteError as error:  # the writer's thread has logged the outage
            _LOG.debug("%s", error)

    def take_up_losses(self, tags: Iterable[str]) -> None:
        """Go on from a checkpoint at whose save the newest values of these losses were not finite."""
        self.losses.take_up(tags)

    def losses_not_finite(self, timeout_secs: float = 1.0) -> tuple[str, ...]:
        """Return the tags of the losses whose newest value is NaN or infinite, of all scalars added so far; where that
        takes longer than ``timeout_secs``, as on a disk that hangs, of those that are encoded already."""
        with suppress(EventsWriteError, WaitTimeoutError):
            super().flush(timeout_secs)
        return self.losses.not_finite

    def sync(self, timeout_secs: float | None = None) -> None:
        """Return when everything added so far would survive a power cut; see `EventsWriter.sync`."""
        if self.closed:
            _warn_closed()
        super().sync(timeout_secs)

    def _put(self, field: int, data: bytes, step: Any, wall_time: float | None) -> None:
        try:
            super()._put(field, data, step, wall_time)
        except WriterClosedError:
            if self._is_open_again():
                super()._put(field, data, step, wall_time)

    def _is_open_again(self) -> bool:
        is_in_use = self._is_in_use()
        if is_in_use is not None and is_in_use():
            with suppress(EventsWriteError):  # a full disk ends no training
                self.reopen()
                return True
        _warn_closed()
        return False

    def _graph_bytes(self, graph: Any, graph_def: Any) -> bytes:
        if graph is not None and graph_def is not None:
            raise ValueError("Please pass only graph, or graph_def (deprecated), but not both.")
        given = graph if graph is not None else graph_def
        if _is_graph(given):
            if graph is None:
                _LOG.warning(
                    "When passing a `Graph` object, please use the `graph` named argument instead of `graph_def`."
                )
            serialized: bytes = given.as_graph_def(add_shapes=True).SerializeToString()
            self._write_plugin_assets(given)
            return serialized
        if not _is_message(given, "GraphDef"):
            raise TypeError("The passed graph must be an instance of `Graph` or the deprecated `GraphDef`")
        _LOG.warning(
            "Passing a `GraphDef` to the SummaryWriter is deprecated. "
            "Pass a `Graph` object instead, such as `sess.graph`."
        )
        return bytes(given.SerializeToString())

    def _write_plugin_assets(self, graph: Any) -> None:
        get_collection = getattr(graph, "get_collection", None)
        for name in get_collection(_PLUGIN_ASSETS) if get_collection is not None else ():
            found = graph.get_collection(_PLUGIN_ASSETS + name)
            if len(found) != 1:
                raise ValueError(f"Collection for {name} had {len(found)} items, expected 1")
            logdir = self.directory
            filesystem = append_filesystem_for(logdir)
            directory = join(join(logdir, "plugins"), found[0].plugin_name)
            filesystem.make_directory(directory)
            for asset, content in found[0].assets().items():
                filesystem.replace(join(directory, asset), content.encode() if isinstance(content, str) else content)


def _warn_closed() -> None:
    level = 1
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code.co_filename in _OWN_FILES:  # the line to show is the caller's
        level, frame = level + 1, frame.f_back
    warnings.warn(
        "Attempting to use a closed FileWriter. The operation will be a noop unless the FileWriter is explicitly "
        "reopened.",
        stacklevel=level,
    )


def _is_graph(value: Any) -> bool:
    return callable(getattr(value, "as_graph_def", None))


def _is_message(value: Any, name: str) -> bool:
    # By its name: TensorFlow's, TensorBoard's and tensorboardX's messages differ in nothing but their package.
    return getattr(getattr(value, "DESCRIPTOR", None), "name", None) == name and hasattr(value, "SerializeToString")


def _serialized(value: Any, name: str, argument: str) -> bytes:
    if not _is_message(value, name):
        raise TypeError(f"{argument} must be a {name} protocol buffer, saw type: {type(value)}")
    return bytes(value.SerializeToString())


def _check_summary(data: bytes) -> None:
    if 2 < len(data) < 130 and data[0] == 10 and data[1] == len(data) - 2:
        return  # exactly one value, as most summaries are
    try:
        for _ in wire.fields(data, 0, len(data)):
            pass
    except ValueError as error:
        from google.protobuf.message import DecodeError

        raise DecodeError(f"The bytes are no serialized Summary: {error}.") from error


def _meta_graph_bytes(graph: Any, graph_def: bytes) -> bytes:
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is None:
        return wire.delimited(2, graph_def)  # MetaGraphDef.graph_def; the rest is TensorFlow's to know
    v1 = tensorflow.compat.v1
    meta_graph = v1.train.export_meta_graph(
        graph_def=v1.GraphDef.FromString(graph_def),
        graph=graph if isinstance(graph, v1.Graph) else v1.get_default_graph(),
    )
    return bytes(meta_graph.SerializeToString())
