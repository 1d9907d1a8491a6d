"""`TelemetryRecorder`: the one way by which telemetry gets into the events file."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol

from supervisor_core.events.telemetry import Record, summary_bytes
from supervisor_core.runtime.deadline import NEVER, Deadline

_LOG = logging.getLogger("supervisor_core")

SYNC_SECS = 10.0
"""How long a disk is waited for at most before training, or its end, goes on without the record on it, in seconds."""


class SummaryWriter(Protocol):
    """What telemetry needs of a summary writer: TensorFlow's own ``FileWriter`` will do, as any that looks like it."""

    def add_summary(self, summary: Any, global_step: Any = None) -> None:
        """Append a serialized ``Summary``."""

    def flush(self) -> None:
        """Hand everything to the operating system."""


class TelemetrySink(Protocol):
    """Where a session's telemetry goes. Never raises, and must not hold anybody up for long."""

    @property
    def dropped(self) -> int:
        """How many events could not be written."""

    @property
    def error(self) -> str | None:
        """Why events cannot be written at present; None while they can."""

    def write(
        self, record: Record, step: int | None = None, *, durable: bool = False, deadline: Deadline = NEVER
    ) -> None:
        """Take a record; see `TelemetryRecorder.write`."""


class TelemetryRecorder:
    """Writes telemetry records through a summary writer. Never raises: telemetry must not end a training.

    Args:
        writer: the run's summary writer; None writes nothing.
        check: asked before each record, for writers that do not ask by themselves; what it raises keeps the record out.
    """

    def __init__(self, writer: SummaryWriter | None, check: Callable[[], None] = lambda: None) -> None:
        self._writer = writer
        self._check = check
        self._said = False
        self._error: str | None = None

    def write(
        self, record: Record, step: int | None = None, *, durable: bool = False, deadline: Deadline = NEVER
    ) -> None:
        """Append a record.

        Args:
            record: what to say.
            step: the event's step, as TensorBoard shows it.
            durable: return only when it is on the disk; for the records that recovery and alerts depend on.
            deadline: until when to wait for that, `SYNC_SECS` at most, where the writer can be waited for.
        """
        if self._writer is None:
            return
        try:
            self._ask()
            self._writer.add_summary(summary_bytes(record), step)
            if durable:
                self._sync(deadline)
        except Exception as error:  # a full disk, a writer closed by the program: training goes on, and it is said once
            if not self._said:
                _LOG.warning("A %s record could not be written to the events file: %s", record.kind, error)
            self._said = True
            self._error = str(error)
        else:
            self._said = False
            self._error = None

    def _ask(self) -> None:
        try:
            self._check()
        except OSError:  # the check cannot be made: a writer that makes it itself keeps the record until it can
            if getattr(self._writer, "failing", None) is None:
                raise

    def _sync(self, deadline: Deadline) -> None:
        sync = getattr(self._writer, "sync", None)
        if sync is None:
            assert self._writer is not None
            self._writer.flush()
        else:
            sync(deadline.remaining(SYNC_SECS))

    @property
    def dropped(self) -> int:
        """How many events the writer could not write; 0 for a writer that does not say."""
        return int(getattr(self._writer, "dropped", 0))

    @property
    def error(self) -> str | None:
        """What the writer says of its last attempt, if that failed; of a writer that does not say, what it raised."""
        failing = getattr(self._writer, "failing", None)
        if failing is None:
            return self._error
        error = getattr(self._writer, "last_error", None) if failing else None
        return None if error is None else str(error.__cause__ or error)
