"""`EventsWriter`: one actively appended events file, written by a thread of its own."""

from __future__ import annotations

import atexit
import logging
import math
import os
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any

from supervisor_core.base.clock import SYSTEM_CLOCK, Clock
from supervisor_core.base.errors import EventsError, EventsWriteError, WaitTimeoutError
from supervisor_core.base.systems import after_fork_in_child
from supervisor_core.events.event_format import FIELDS, STEP_MAX, STEP_MIN, SUMMARY_ONCE, WHOLE_EVENT, PayloadKind
from supervisor_core.events.events_file import EventsFile
from supervisor_core.events.losses import NewestLosses
from supervisor_core.events.writer_thread import MAX_BYTES, EventQueue, WriteRequest, WriterThread
from supervisor_core.storage.directory import why_unwritable
from supervisor_core.storage.filesystem import Filesystem
from supervisor_core.storage.local import absolute, append_filesystem_for, local_path

_LOG = logging.getLogger("supervisor_core")

PROMPT_SECS = 0.2
"""Time for which a local writer gathers events before it appends them: what a SIGKILL may cost."""

EXIT_SECS = 10.0
"""Limit of the wait at the interpreter's exit for each writer that was not closed."""

_PROMPT_BYTES = 1 << 20

_writers: weakref.WeakSet[EventsWriter] = weakref.WeakSet()
_writer_threads: weakref.WeakSet[WriterThread] = weakref.WeakSet()


class EventsWriter:
    """Appends events to a file of its own in a directory, from any thread, in the order of the calls of each.

    Adding returns at once; a thread encodes and appends, at most 0.2 seconds later on a local disk. From then on an
    event survives the death of the process; after `sync` it survives a power cut too. A process that ends without
    `close` loses nothing if it ends as planned; ``os._exit`` and a fatal signal may cost those 0.2 seconds. A
    garbage-collected writer writes its queued events and closes.

    When the disk is full or fails, adds succeed: events are held in memory up to the bounds below, the newest are
    dropped and counted beyond them, and writing resumes by itself. `flush`, `sync` and `close` raise the errors since
    their last call.

    A forked child starts with an empty queue: the parent's events stay the parent's, and the child's first event begins
    a file of its own.

    Args:
        logdir: the directory; created where it is missing. Local, or with a ``://``, see `append_filesystem_for`.
        max_queue: events that may wait for the thread, of 64 MiB. Beyond that an add waits for room while the disk
            works (10 seconds at most), and drops its event while it does not.
        flush_secs: the longest time an event stays in memory on remote file systems, where each append is a request; a
            local file gets its events within 0.2 seconds.
        filename_suffix: the end of the files' names.
        clock: gives wall times, also for file names.
        filesystem: writes the files. Default: by the scheme of ``logdir``.

    Raises:
        EventsWriteError: if the file cannot be created.
        EventsError: if there is no file system for ``logdir``.
        ValueError: if an argument cannot be used.

    Example:
        >>> with EventsWriter("/tmp/run") as writer:      # doctest: +SKIP
        ...     writer.scalar("loss", 0.5, step=1)
        ...     writer.sync()
    """

    def __init__(
        self,
        logdir: str | os.PathLike[str],
        *,
        max_queue: int = 65_536,
        flush_secs: float = 120.0,
        filename_suffix: str = "",
        clock: Clock = SYSTEM_CLOCK,
        filesystem: Filesystem | None = None,
    ) -> None:
        if max_queue < 1:
            raise ValueError(f"max_queue is {max_queue!r}; expected at least 1.")
        if not (flush_secs >= 0 and math.isfinite(flush_secs)):
            raise ValueError(f"flush_secs is {flush_secs!r}; expected a number of seconds from 0.")
        self._logdir = os.fspath(logdir)
        self.directory = absolute(logdir)
        """The directory, whatever the working directory becomes."""
        filesystem = append_filesystem_for(self.directory) if filesystem is None else filesystem
        is_prompt = filesystem.prompt
        self._new_file = partial(EventsFile, self.directory, filesystem, clock, filename_suffix)
        self._new_queue = partial(EventQueue, max_queue, _PROMPT_BYTES if is_prompt else MAX_BYTES // 4)
        self._linger_secs = min(PROMPT_SECS, flush_secs) if is_prompt else flush_secs
        # The system clock's own function, without the method around it: adding a scalar is a matter of nanoseconds.
        self._wall = time.time if clock is SYSTEM_CLOCK else clock.wall
        self.losses = NewestLosses()
        """The losses among the scalars, as far as they are encoded: after `flush` all that were added before."""
        self._lifecycle = threading.RLock()
        self._closed = False
        self._written_before = 0
        self._dropped_before = 0
        self._begin(create=True)
        _writers.add(self)

    def scalar(self, tag: str, value: float, step: int | None = None, wall_time: float | None = None) -> None:
        """Add the value of a tag at a step; the cheapest of the adds.

        Args:
            tag: the name of the series.
            value: a number, or what ``float`` accepts; written as a float32.
            step: the global step, or what ``int`` accepts; None leaves it out, which readers take as 0.
            wall_time: seconds since the epoch; default: now.

        Raises:
            WriterClosedError: if the writer is closed.
            TypeError: if an argument is of the wrong kind.
            ValueError: if the step is no int64.
        """
        if wall_time is None:
            wall_time = self._wall()
        if value.__class__ is not float:
            value = float(value)
        if step.__class__ is not int or not STEP_MIN <= step <= STEP_MAX:
            step = _step_number(step)
        if tag.__class__ is not str:
            tag = _text(tag)
        thread = self._writer_thread
        queue = thread.queue
        items = queue.items
        items.append((tag, value, step, wall_time))
        if len(items) > queue.wake_above:
            thread.wake()

    def summary(self, data: bytes, step: int | None = None, wall_time: float | None = None) -> None:
        """Add a serialized ``Summary``; a tag's metadata is written once per file, as TensorFlow does it.

        Raises:
            WriterClosedError: if the writer is closed.
        """
        self._put(SUMMARY_ONCE, data, step, wall_time)

    def payload(self, kind: PayloadKind, data: bytes, step: int | None = None, wall_time: float | None = None) -> None:
        """Add an event around an already serialized message, as it is.

        Args:
            kind: the field of ``Event`` that holds it.
            data: the serialized message.
            step: the global step; None leaves it out.
            wall_time: seconds since the epoch; default: now.

        Raises:
            WriterClosedError: if the writer is closed.
        """
        self._put(FIELDS[kind], data, step, wall_time)

    def event_bytes(self, data: bytes) -> None:
        """Add a serialized ``Event``, as it is.

        Raises:
            WriterClosedError: if the writer is closed.
        """
        self._put(WHOLE_EVENT, data, 0, 0.0)

    def flush(self, timeout_secs: float | None = None) -> None:
        """Return when everything added so far is in the file, readable by other processes. Does nothing once closed.

        Raises:
            EventsWriteError: if events could not be written, or were lost since this was last reported.
            WaitTimeoutError: if it takes longer than ``timeout_secs``; default: no limit.
        """
        if not self._closed:
            self._writer_thread.ask(WriteRequest(), timeout_secs)

    def sync(self, timeout_secs: float | None = None) -> None:
        """Return when everything added so far would survive a power cut. Does nothing once closed.

        Raises:
            EventsWriteError: as `flush`; or if the file could not be synced: later events then go to a new file.
            WaitTimeoutError: if it takes longer than ``timeout_secs``; default: no limit.
        """
        if not self._closed:
            self._writer_thread.ask(WriteRequest(sync=True), timeout_secs)

    def close(self, timeout_secs: float | None = None) -> None:
        """Write and sync everything, and close the file. Does nothing once closed.

        Raises:
            EventsWriteError: if events could not be written; these are lost now.
            WaitTimeoutError: if it takes longer than ``timeout_secs`` (default: no limit); the thread goes on trying.
        """
        with self._lifecycle:
            if self._closed:
                return
            self._closed = True
            self._finalizer.detach()
            thread = self._writer_thread
        thread.ask(WriteRequest(close=True), timeout_secs)

    def reopen(self) -> None:
        """Continue in a new file after `close`. Does nothing if the writer is open.

        Raises:
            EventsWriteError: if the file cannot be created.
        """
        with self._lifecycle:
            if self._closed:
                written, dropped = self.written, self.dropped
                self._begin(create=True)
                self._written_before, self._dropped_before = written, dropped
                self._closed = False

    @property
    def logdir(self) -> str:
        """The directory, as it was given."""
        return self._logdir

    @property
    def path(self) -> str | None:
        """The newest file; None in a forked child before its first event."""
        return self._file.path

    @property
    def written(self) -> int:
        """Events in files, in the life of the writer and of the process."""
        return self._written_before + self._file.written

    @property
    def dropped(self) -> int:
        """Events lost for good, in the life of the writer and of the process."""
        return self._dropped_before + self._writer_thread.dropped

    @property
    def pending(self) -> int:
        """Events in memory that are not in a file yet."""
        return self._writer_thread.pending

    @property
    def failing(self) -> bool:
        """Whether the last attempt to write failed."""
        return self._writer_thread.failing

    @property
    def last_error(self) -> EventsWriteError | None:
        """The newest error, whether or not it was raised somewhere; see `failing` for whether it is over."""
        return self._writer_thread.last_error

    @property
    def closed(self) -> bool:
        """Whether `close` was called, and not `reopen` after it."""
        return self._closed

    def __enter__(self) -> EventsWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        close_after(self.close, error)

    def _put(self, field: int, data: bytes, step: int | None, wall_time: float | None) -> None:
        # A copy of what is mutable, for it is encoded later and elsewhere.
        data = data if data.__class__ is bytes else bytes(memoryview(data))
        wall_time = self._wall() if wall_time is None else float(wall_time)
        thread = self._writer_thread
        if thread.queue.put_bytes((field, data, _step_number(step), wall_time)):
            thread.wake()

    def _begin(self, *, create: bool) -> None:
        file = self._new_file()
        if create:
            try:
                file.open()
            except EventsError:
                raise
            except Exception as error:
                raise EventsWriteError(_cannot_create(self.directory, error)) from error
        self._writer_thread = WriterThread(self._new_queue(), file, self._linger_secs, self.losses)
        self._file = file
        # The thread must not keep the writer alive, so it has no reference to it.
        self._finalizer = weakref.finalize(self, self._writer_thread.submit, WriteRequest(close=True))
        self._finalizer.atexit = False
        _writer_threads.add(self._writer_thread)

    def _start_clean(self) -> None:
        """Drop the parent's state in a forked child."""
        self._file.close()
        self._finalizer.detach()
        self._lifecycle = threading.RLock()
        self._written_before = self._dropped_before = 0
        self._begin(create=False)
        if self._closed:
            self._finalizer.detach()
            self._writer_thread.queue.end()


def _cannot_create(directory: str, error: Exception) -> str:
    why = str(error)
    if isinstance(error, OSError) and local_path(directory) is not None:
        why = why_unwritable(directory, error)
    return f"No events file can be created in {directory}: {why}"


def close_after(close: Callable[[], None], error: BaseException | None) -> None:
    """Close at the end of a ``with`` block, whose own error must not be hidden by one of closing."""
    try:
        close()
    except EventsError as closing:
        if error is None:
            raise
        _LOG.error("%s", closing)


def _step_number(step: Any) -> int:
    if step.__class__ is int and STEP_MIN <= step <= STEP_MAX:
        return int(step)
    if step is None:
        return 0
    item = getattr(step, "item", None)  # an array of one element, of whatever rank
    number = int(step if item is None else item())
    if not STEP_MIN <= number <= STEP_MAX:
        raise ValueError(f"The step is {number}; expected a signed number of 64 bits.")
    return number


def _text(tag: Any) -> str:
    if isinstance(tag, bytes):
        return tag.decode("utf-8", "replace")
    if not isinstance(tag, str):
        raise TypeError(f"The tag is {tag!r}; expected a string.")
    return str(tag)


def _flush_at_exit() -> None:
    for thread in list(_writer_threads):
        try:
            thread.ask(WriteRequest(), EXIT_SECS)
        except (EventsError, WaitTimeoutError) as error:
            _LOG.error("%s", error)


def _start_clean_after_fork() -> None:
    _writer_threads.clear()
    for writer in list(_writers):
        writer._start_clean()


atexit.register(_flush_at_exit)
after_fork_in_child(_start_clean_after_fork)
