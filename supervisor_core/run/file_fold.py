"""`FileFold`: what one events file tells, chunk by chunk."""

from __future__ import annotations

from collections import Counter

import numpy as np

from supervisor_core.events.chunk import Chunk, SessionMark, TelemetryMark
from supervisor_core.events.telemetry import HeartbeatRecord
from supervisor_core.run.numbers import number, text
from supervisor_core.run.rates import RATE_TAG, RateTail
from supervisor_core.run.session_fold import SessionFold
from supervisor_core.run.step_tail import StepTail


class FileFold:
    """Gathers one file's events; see the module's docstring.

    Args:
        path: the file's.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.version = 0
        """Rises with each chunk."""
        self.created_at: float | None = None
        self.first_at: float | None = None
        self.last_at: float | None = None
        self.first_step: int | None = None
        self.last_step: int | None = None
        self.max_step: int | None = None
        self.nonfinite = 0
        self.session_logs: Counter[str] = Counter()
        self.tags: set[str] = set()
        self.sessions: dict[str, SessionFold] = {}
        """The sessions that tell of themselves in it, in order."""
        self.tail = StepTail()
        self.rates = RateTail()

    @property
    def order(self) -> tuple[float, str]:
        """What sorts the files of a run."""
        at = self.created_at if self.created_at is not None else self.first_at
        return (at if at is not None else 0.0, self.path)

    @property
    def last_session(self) -> str | None:
        """The id of the session that told of itself last."""
        return next(reversed(self.sessions), None)

    def add(self, chunk: Chunk) -> None:
        """Take in the next events of the file."""
        self.version += 1
        self.created_at = chunk.created_at if self.created_at is None else self.created_at
        self.first_at = chunk.first_at if self.first_at is None else self.first_at
        if chunk.last_at is not None:
            self.last_at = chunk.last_at if self.last_at is None else max(self.last_at, chunk.last_at)
        self.first_step = chunk.first_step if self.first_step is None else self.first_step
        self.last_step = self.last_step if chunk.last_step is None else chunk.last_step
        if chunk.max_step is not None:
            self.max_step = chunk.max_step if self.max_step is None else max(self.max_step, chunk.max_step)
        beats: list[tuple[int, int]] = []
        for mark in chunk.marks:
            if isinstance(mark, SessionMark):
                self.session_logs[mark.status] += 1
            else:
                self._telemetry(mark, beats)
        self.rates.add(chunk.scalars.get(RATE_TAG))
        self.tags.update(chunk.scalars)
        for points in chunk.scalars.values():
            self.nonfinite += int(len(points) - np.count_nonzero(np.isfinite(points.values)))
        if self.sessions:
            self.tail.add(chunk.scalars, beats)

    def _telemetry(self, mark: TelemetryMark, beats: list[tuple[int, int]]) -> None:
        id = text(mark.record.session)
        if id is None:
            return
        if id != self.last_session and id in self.sessions:
            self.sessions[id] = self.sessions.pop(id)
        self.sessions.setdefault(id, SessionFold(id)).add(mark)
        if isinstance(mark.record, HeartbeatRecord):
            self.rates.tell(number(mark.record.steps_per_sec))
        if isinstance(mark.record, HeartbeatRecord) and isinstance(mark.record.step, int):
            beats.append((mark.offset, mark.record.step))
