"""`WorkerNews`: when a heartbeat tells of the other processes, lest a hundred of them fill the events file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import Any

from supervisor_core.run.status import WorkerStatus

EVERY_BEATS = 6
"""Where nothing has changed but steps, every so many heartbeats tell of the others."""


class WorkerNews:
    """Says what the next heartbeat tells of the cluster's other processes.

    Args:
        workers: returns them as they are.
        every_secs: seconds after which they are told of though nothing has changed.
        monotonic: the time.
    """

    def __init__(
        self, workers: Callable[[], Iterable[WorkerStatus]], every_secs: float, monotonic: Callable[[], float]
    ) -> None:
        self._workers = workers
        self._every_secs = every_secs
        self._monotonic = monotonic
        self._told: list[tuple[Any, ...]] = []
        self._told_at: float | None = None

    def take(self) -> tuple[Mapping[str, Any], ...] | None:
        """Return what to tell now; None where there is nothing new."""
        workers = tuple(self._workers())
        now = self._monotonic()
        states = [(each.name, each.state, each.started_at, each.waiting_for, each.error) for each in workers]
        is_due = bool(workers) and (self._told_at is None or now - self._told_at >= self._every_secs)
        if not is_due and states == self._told:
            return None
        self._told, self._told_at = states, now
        return tuple(asdict(each) for each in workers)
