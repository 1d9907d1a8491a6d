"""`TelemetryRecorder`: writes telemetry records to the events file."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from supervisor_core.engine.deadline import NEVER, Deadline
from supervisor_core.events.telemetry import (
    HeartbeatRecord,
    Record,
    StopReason,
    StopRecord,
    ThreadStatus,
    WorkerStatus,
    summary_bytes,
)
from supervisor_core.run.fold.session_fold import is_hanging

if TYPE_CHECKING:
    from supervisor_core.engine.liveness_writer import LivenessWriter

_LOG = logging.getLogger("supervisor_core")

SYNC_SECS = 10.0
"""How long training, or its end, waits at most until a record is durable, in seconds."""
FLUSH_SECS = 1.0
LEAST_BEAT_SECS, MOST_BEAT_SECS = 60.0, 360.0
"""Of heartbeats without news one is recorded each minute at first, then each thirtieth of the session's age, up to the
second number of seconds: so that a day takes less than 300 kB."""


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


class TelemetryRecorder:
    """Writes telemetry records through a summary writer. Never raises: telemetry must not end a training.

    Args:
        writer: the run's summary writer; None writes nothing.
        check: called before each record, for writers that do not check themselves; if it raises, the record is dropped.
        heartbeat_secs: see `Options.heartbeat_secs`.
    """

    def __init__(
        self,
        writer: SummaryWriter | None,
        check: Callable[[], None] = lambda: None,
        heartbeat_secs: float = LEAST_BEAT_SECS,
    ) -> None:
        self._writer = writer
        self._history = BeatHistory(heartbeat_secs)
        self.live: LivenessWriter | None = None
        """The session's liveness file, once it has one: takes each record, too."""
        self._check = check
        self._error: str | None = None
        self._has_ended = False
        if writer is not None:
            self.write_to(writer)

    def write_to(self, writer: SummaryWriter) -> None:
        """Write through this writer from now on. One of ours that the program closes goes on until the session ends."""
        self._writer = writer
        if hasattr(writer, "reopen_while"):
            writer.reopen_while(self._is_recording)

    def _is_recording(self) -> bool:
        return not self._has_ended

    def write(
        self,
        record: Record,
        step: int | None = None,
        *,
        durable: bool = False,
        deadline: Deadline = NEVER,
        is_periodic: bool = False,
    ) -> bool:
        """Append a record; return whether that went well, as far as it was waited for.

        Args:
            step: the event's step, as TensorBoard shows it.
            durable: return only when it is durable; for the records that recovery and alerts depend on.
            deadline: limits that wait, which is `SYNC_SECS` at most.
            is_periodic: of a heartbeat, whether nothing is known to have happened: see `BeatHistory`.
        """
        is_written = True
        event = self._history.take(record, is_periodic=is_periodic) if isinstance(record, HeartbeatRecord) else record
        if event is not None:
            is_written = self._append(event, step, durable=durable, deadline=deadline)
            if not is_written:
                self._history.reset()
        if self.live is not None:
            self.live.write(record, deadline)
        return is_written

    def _append(self, record: Record, step: int | None, *, durable: bool, deadline: Deadline) -> bool:
        writer = self._writer
        if writer is None:
            return False
        try:
            self._ask(writer)
            is_closed = getattr(writer, "_closed", False)  # FileWriter has no public name for it
            if is_closed and not self._has_ended and hasattr(writer, "reopen"):
                writer.reopen()  # the program closed it, and trains on; after the end nothing is begun again
            self._has_ended |= isinstance(record, StopRecord)
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


class BeatHistory:
    """Decides which heartbeats of a session its events have: one in some minutes, and each that says something new.

    Args:
        heartbeat_secs: see `Options.heartbeat_secs`; 0: without a change none.
    """

    def __init__(self, heartbeat_secs: float) -> None:
        self._least_secs = heartbeat_secs or math.inf
        self.reset()

    def reset(self) -> None:
        """Begin again, after one could not be written."""
        self._news: object = None
        self._workers: object = None
        self._due_secs = self._workers_due_secs = -math.inf
        self._threads: dict[str, ThreadStatus] = {}

    def take(self, beat: HeartbeatRecord, *, is_periodic: bool) -> HeartbeatRecord | None:
        """Return what the events are to have of a heartbeat; None for nothing.

        Args:
            beat: the heartbeat, with all threads and workers.
            is_periodic: whether nothing is known to have happened.
        """
        elapsed_secs = math.inf if beat.elapsed_secs is None else beat.elapsed_secs
        news, workers = _news_of(beat), _news_of_workers(beat)
        is_new = (news, workers) != (self._news, self._workers) or beat.pause is not None
        if is_periodic and not is_new and elapsed_secs < self._due_secs:
            return None
        every_secs = max(LEAST_BEAT_SECS, min(elapsed_secs / 30, MOST_BEAT_SECS))
        self._due_secs = elapsed_secs + max(every_secs, self._least_secs) - _SLACK_SECS
        has_workers = workers != self._workers or elapsed_secs >= self._workers_due_secs or is_hanging(beat)
        if has_workers:
            self._workers_due_secs = elapsed_secs + LEAST_BEAT_SECS - _SLACK_SECS
        threads = tuple(each for each in beat.threads if self._threads.get(each.name) != each)
        self._threads.update({thread.name: thread for thread in threads})
        self._news, self._workers = news, workers
        spent = {bucket: secs for bucket, secs in beat.activity_secs.items() if secs}
        shown = tuple(map(_without_frames, beat.workers or ())) if has_workers else ()
        return replace(beat, threads=threads, workers=shown or None, activity_secs=spent)


CALM = ("starting", "idle", "ticking")
"""States of a thread whose change is no news."""
_SLACK_SECS = 1.0
"""The monitor runs once a second: the sixth heartbeat may come so much before the minute is over."""


def _news_of(beat: HeartbeatRecord) -> tuple[object, ...]:
    threads = [(each.name, "" if each.state in CALM else each.state, each.failures) for each in beat.threads]
    acted = beat.watchdog_would_act, dict(beat.watchdog_acted)
    return beat.phase, beat.loss_finite, beat.events_dropped, is_hanging(beat), acted, threads


def _news_of_workers(beat: HeartbeatRecord) -> list[object]:
    return [(each.name, each.state, each.started_at, each.waiting_for, each.error) for each in beat.workers or ()]


def _without_frames(worker: WorkerStatus) -> WorkerStatus:
    return worker if worker.place is None else replace(worker, place=replace(worker.place, frames=()))
