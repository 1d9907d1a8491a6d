"""`CheckpointStats`: statistics of this session's saves, for metrics and records."""

from __future__ import annotations

import logging
import threading
from typing import Any

from supervisor_core.events.record_fields import values_of
from supervisor_core.events.telemetry import CheckpointRecord
from supervisor_core.run.fold.advice import Costs, present_interval, recommended_interval
from supervisor_core.run.model.checkpoints import Checkpoint
from supervisor_core.run.model.distribution import SAVE_BOUNDS, Histogram
from supervisor_core.run.status import CheckpointStatus

_LOG = logging.getLogger("supervisor_core")


def log_save(record: CheckpointRecord) -> None:
    """Log a save that has ended."""
    if record.error is not None:
        _LOG.warning("Checkpoint of step %s failed: %s", record.step, record.error)
        return
    _LOG.info("Saved checkpoint %s: %s bytes in %.2f s, training blocked for %.0f ms.",
              record.path, record.bytes, record.secs or 0.0, (record.blocked_secs or 0.0) * 1e3)  # fmt: skip
    if record.doubt is not None:
        _LOG.warning("The checkpoint %s is in doubt: %s", record.path, record.doubt)


class CheckpointStats:
    """Counts successful and failed saves, and keeps the newest checkpoint. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._newest: Checkpoint | None = None
        self._good: Checkpoint | None = None
        self._error: str | None = None
        self._saves = self._failures = self._in_a_row = 0
        self._save_secs = Histogram(SAVE_BOUNDS)
        self._blocked_secs = Histogram(SAVE_BOUNDS)

    def restored(
        self, *, path: str, step: int | None, saved_at: float | None, size_bytes: int | None, is_good: bool = False
    ) -> None:
        """Record the restored checkpoint: it is the newest one until the next save.

        Args:
            is_good: whether it is known not to be in doubt.
        """
        restored = Checkpoint(session="", path=path, step=step, bytes=size_bytes, at=saved_at)
        with self._lock:
            self._newest, self._good = restored, restored if is_good else None

    def saved(self, record: CheckpointRecord, at: float) -> None:
        """Count a save, successful or failed, that ended at wall time ``at``. Empty saves are not counted."""
        with self._lock:
            if record.error is not None:
                self._saves, self._failures, self._in_a_row = self._saves + 1, self._failures + 1, self._in_a_row + 1
                self._error = record.error
            elif record.path is not None:
                self._save_secs.add(record.secs or 0.0)
                self._blocked_secs.add(record.blocked_secs or 0.0)
                self._saves, self._in_a_row = self._saves + 1, 0
                self._newest, self._error = Checkpoint(**values_of(record), at=at), None
                self._good = self._newest if record.doubt is None else self._good

    @property
    def newest(self) -> tuple[str, int | None] | None:
        """Path and step of the newest checkpoint, saved or restored; None where none is known."""
        with self._lock:
            last = self._newest
        return None if last is None or last.path is None else (last.path, last.step)

    @property
    def failures(self) -> tuple[int, int, str | None]:
        """The number of failed saves, and of those since the last successful one; why the last save failed."""
        with self._lock:
            return self._failures, self._in_a_row, self._error

    @property
    def costs(self) -> Costs:
        """The costs of the successful saves."""
        with self._lock:
            saved, blocked = self._save_secs.snapshot(), self._blocked_secs.snapshot()
        return Costs(saves=sum(blocked.counts), save_secs=saved.sum, blocked_secs=blocked.sum)

    def status(self, costs: Costs | None = None, interval_secs: float | None = None) -> CheckpointStatus:
        """Return the present status.

        Args:
            costs: the run's costs, for the recommended interval; None if unknown.
        """
        recommended = None if costs is None else recommended_interval(costs)
        present = None if costs is None or recommended is None else present_interval(costs, interval_secs)
        with self._lock:
            newest, good = self._newest, self._good
        return CheckpointStatus(
            recommended_interval_secs=recommended,
            present_interval_secs=present,
            last_success=newest,
            last_good=good,
        )

    def of_session(self) -> dict[str, Any]:
        """Return what a `Session` has of its saves."""
        with self._lock:
            return {
                "saves": self._saves,
                "save_failures": self._failures,
                "save_failures_in_a_row": self._in_a_row,
                "save_error": self._error,
                "save_secs": self._save_secs.snapshot(),
                "blocked_secs": self._blocked_secs.snapshot(),
            }
