"""`TelemetryRecorder`: writes telemetry records to the events file."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from supervisor_core.engine.deadline import NEVER, Deadline
from supervisor_core.events.telemetry import Record, StopReason, summary_bytes

_LOG = logging.getLogger("supervisor_core")

SYNC_SECS = 10.0
"""How long training, or its end, waits at most until a record is durable, in seconds."""
FLUSH_SECS = 1.0


@dataclass(frozen=True, kw_only=True)
class StopInfo:
    """Why and where a session stopped."""

    reason: StopReason
    error: str | None = None
    signal: str | None = None
    """The signal's name, ``SIGTERM``."""
    final_checkpoint: str | None = None
    final_checkpoint_step: int | None = None


class SummaryWriter(Protocol):
    """What telemetry needs of a summary writer; TensorFlow's own ``FileWriter`` has it."""

    def add_summary(self, summary: Any, global_step: Any = None) -> None:
        """Append a serialized ``Summary``."""

    def flush(self) -> None:
        """Write everything to the operating system."""


class TelemetrySink(Protocol):
    """Takes a session's telemetry. Never raises, and must not block for long."""

    @property
    def dropped(self) -> int:
        """The number of events that could not be written."""

    @property
    def error(self) -> str | None:
        """Why events cannot be written at present; None if they can."""

    def write(
        self, record: Record, step: int | None = None, *, durable: bool = False, deadline: Deadline = NEVER
    ) -> object:
        """Take a record; see `TelemetryRecorder.write`."""


class TelemetryRecorder:
    """Writes telemetry records through a summary writer. Never raises: telemetry must not end a training.

    Args:
        writer: the run's summary writer; None writes nothing.
        check: called before each record, for writers that do not check themselves; if it raises, the record is dropped.
    """

    def __init__(self, writer: SummaryWriter | None, check: Callable[[], None] = lambda: None) -> None:
        self._writer = writer
        self._check = check
        self._error: str | None = None

    def write_to(self, writer: SummaryWriter) -> None:
        """Write through this writer from now on."""
        self._writer = writer

    def write(
        self, record: Record, step: int | None = None, *, durable: bool = False, deadline: Deadline = NEVER
    ) -> bool:
        """Append a record; return whether that went well, as far as it was waited for.

        Args:
            record: the record.
            step: the event's step, as TensorBoard shows it.
            durable: return only when it is durable; for the records that recovery and alerts depend on.
            deadline: limits that wait, which is `SYNC_SECS` at most.
        """
        writer = self._writer
        if writer is None:
            return False
        try:
            self._ask(writer)
            writer.add_summary(summary_bytes(record), step)
            if durable and hasattr(writer, "sync"):
                writer.sync(deadline.remaining(SYNC_SECS))
            elif durable:
                writer.flush()
        except Exception as error:  # a full disk, a closed writer: training goes on, with one warning
            if self._error is None:
                _LOG.warning("A %s record could not be written to the events file: %s", record.kind, error)
            self._error = str(error)
            return False
        self._error = None
        return True

    def flush(self, deadline: Deadline = NEVER) -> None:
        """Wait until what was added so far is in the file, for a second at most."""
        writer = self._writer
        flush: Callable[..., object] | None = getattr(writer, "flush", None)
        if flush is not None and hasattr(writer, "sync"):  # else it knows no limit
            with suppress(Exception):  # a full disk: the writer's thread says so
                flush(deadline.remaining(FLUSH_SECS))

    def _ask(self, writer: SummaryWriter) -> None:
        try:
            self._check()
        except OSError:  # the check is impossible: a writer that checks itself keeps the record until it can
            if getattr(writer, "failing", None) is None:
                raise

    @property
    def is_behind(self) -> bool:
        """Whether the last record is not known to be written, as on a disk that is full or hangs."""
        return self._error is not None or self.error is not None

    @property
    def dropped(self) -> int:
        """The number of events that the writer could not write; 0 if it does not count them."""
        return int(getattr(self._writer, "dropped", 0))

    @property
    def error(self) -> str | None:
        """The error of the writer's last attempt; for a writer without that attribute, what it last raised."""
        failing = getattr(self._writer, "failing", None)
        if failing is None:
            return self._error
        error = getattr(self._writer, "last_error", None) if failing else None
        return None if error is None else str(error.__cause__ or error)
