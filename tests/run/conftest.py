"""Scripted runs: sessions that write telemetry as a trainer does, and files of other writers, as chunks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from supervisor_core.events.chunk import Chunk, Mark, Points, SessionMark, TelemetryMark
from supervisor_core.events.telemetry import (
    CheckpointRecord,
    HeartbeatRecord,
    RecoveryRecord,
    SessionRecord,
    StallRecord,
    StopRecord,
    from_json,
    to_json,
)
from supervisor_core.run.fold.run_fold import RunFold
from supervisor_core.run.model.run import Run

T0 = 1_700_000_000.0
"""When scripted runs begin."""
RECORD_BYTES = 100
_BUCKET = {
    "starting": "program_startup",
    "restoring": "checkpoint_restore",
    "training": "productive",
    "checkpointing": "unproductive_checkpoint_save",
}


@dataclass
class EventsFile:
    """One events file of any writer, event by event; `chunks` hands it out in pieces."""

    path: str
    created_at: float | None = T0
    events: list[tuple[float, Any]] = field(default_factory=list)

    def log(self, status: Any, step: int, at: float, path: str | None = None) -> EventsFile:
        """Write a session log."""
        return self._add(at, SessionMark(offset=0, at=at, step=step, status=status, checkpoint_path=path))

    def record(self, record: Any, step: int, at: float) -> EventsFile:
        """Write a telemetry record, as it is read again."""
        read = from_json(record.kind, to_json(record))
        return self._add(at, TelemetryMark(offset=0, at=at, step=step, record=read))

    def scalar(self, tag: str, step: int, at: float, value: float = 1.0) -> EventsFile:
        """Write a scalar."""
        return self._add(at, (tag, step, value))

    def scalars(self, tag: str, steps: Sequence[int], at: float, secs: float = 1.0) -> EventsFile:
        """Write scalars of several steps, ``secs`` apart."""
        for index, step in enumerate(steps):
            self.scalar(tag, step, at + index * secs)
        return self

    def _add(self, at: float, event: Any) -> EventsFile:
        self.events.append((at, event))
        return self

    def chunks(self, cuts: Sequence[int] = ()) -> list[Chunk]:
        """Return the file in pieces that end before the given events."""
        bounds = [0, *sorted({cut for cut in cuts if cut < len(self.events)}), len(self.events)]
        return [self._chunk(start, end) for start, end in pairwise(bounds) if end > start or not start]

    def _chunk(self, start: int, end: int) -> Chunk:
        marks: list[Mark] = []
        rows: dict[str, list[tuple[int, int, float, float]]] = {}
        steps = []
        for index in range(start, end):
            at, event = self.events[index]
            offset = (index + 1) * RECORD_BYTES
            if isinstance(event, tuple):
                tag, step, value = event
                rows.setdefault(tag, []).append((offset, step, at, value))
                steps.append(step)
            else:
                marks.append(replace(event, offset=offset))
                if isinstance(event, TelemetryMark):
                    steps.append(event.step)
        ats = [at for at, _ in self.events[start:end]]
        if not start and self.created_at is not None:
            ats.insert(0, self.created_at)  # the version record
        return Chunk(
            path=self.path,
            from_start=start == 0,
            records=len(ats),
            bytes=len(ats) * RECORD_BYTES,
            created_at=self.created_at,
            first_at=ats[0] if ats else None,
            last_at=max(ats, default=None),
            first_step=steps[0] if steps else None,
            last_step=steps[-1] if steps else None,
            max_step=max(steps, default=None),
            marks=tuple(marks),
            scalars={tag: _points(found) for tag, found in rows.items()},
        )


def _points(rows: Sequence[tuple[int, int, float, float]]) -> Points:
    offsets, steps, walls, values = zip(*rows, strict=True)
    return Points(np.array(offsets, np.int64), np.array(steps, np.int64), np.array(walls, np.float64), np.array(values))


class Trainer:
    """A scripted session: it does what the test asks, and records it as a trainer does.

    Time passes only in its methods; a heartbeat comes every ``heartbeat_secs`` and at each change of phase.
    """

    def __init__(
        self, id: str = "a", started_at: float = T0, *, heartbeat_secs: float = 10.0, attempt: int = 1
    ) -> None:
        self.id = id
        self.started_at = self.now = started_at
        self.attempt = attempt
        self.every = heartbeat_secs
        self.phase = "starting"
        self.step: int | None = None
        self.steps = 0
        self.rate: float | None = None
        self.loss_finite: bool | None = None
        self.pause: Mapping[str, Any] | None = None
        self.secs = dict.fromkeys([*_BUCKET.values(), "stall", "silent", "other"], 0.0)
        self.budget = 300.0
        self.age = self.undecided = self.held_up = 0.0
        self.threads: tuple[Mapping[str, Any], ...] = ()
        self.workers: tuple[Mapping[str, Any], ...] = ()
        self.file = EventsFile(f"/run/events.out.tfevents.{int(started_at)}.host.{id}", started_at)
        self._next_beat = started_at
        self._clock_set_by = 0.0

    @property
    def elapsed_secs(self) -> float:
        """Its age, by a monotonic clock."""
        return self.now - self.started_at - self._clock_set_by

    def set_clock(self, by: float) -> Trainer:
        """Set the wall clock forward, or back."""
        self.now += by
        self._next_beat += by
        self._clock_set_by += by
        return self

    def spend(self, secs: float, *, moving: bool = True) -> Trainer:
        """Let time pass in the present phase."""
        until = self.now + secs
        while self.every and self._next_beat <= until:
            self._pass(self._next_beat - self.now, moving)
            self.beat()
            self._next_beat += self.every
        self._pass(until - self.now, moving)
        return self

    def _pass(self, secs: float, moving: bool) -> None:
        self.now += secs
        if moving:
            bucket, moved = _BUCKET.get(self.phase, "other"), self.undecided + secs
            if bucket == "productive":
                held_up = min(self.held_up, moved)
                self.held_up -= held_up
                self.secs["unproductive_checkpoint_save"] += held_up
                moved -= held_up
            self.secs[bucket] += moved
            self.age = self.undecided = 0.0
        else:
            self.age += secs
            self.undecided += secs
            if self.age > self.budget:
                self.secs["stall"] += self.undecided
                self.undecided = 0.0

    def freeze(self, secs: float, cause: str | None = None) -> Trainer:
        """Do not run for so long; what comes first afterwards is a heartbeat that says so."""
        self.now += secs
        self.secs["silent"] += secs
        while self._next_beat <= self.now:
            self._next_beat += self.every
        self.pause = {"cause": cause, "since": self.now - secs, "secs": secs}
        self.beat()
        self.pause = None
        return self

    def beat(self) -> Trainer:
        """Write a heartbeat."""
        record = HeartbeatRecord(
            session=self.id,
            phase=self.phase,
            attempt=self.attempt,
            elapsed_secs=self.elapsed_secs,
            step=self.step,
            steps=self.steps,
            steps_per_sec=self.rate,
            progress_age_secs=self.age,
            progress_timeout_secs=self.budget,
            activity_secs=dict(self.secs),
            threads=self.threads,
            workers=self.workers,
            loss_finite=self.loss_finite,
            pause=self.pause,
        )
        self.file.record(record, self.step or 0, self.now)
        return self

    def enter(self, phase: str) -> Trainer:
        """Change the phase."""
        self._pass(0.0, True)
        self.phase = phase
        return self.beat()

    def ready(self, restored_step: int | None = None, **more: Any) -> Trainer:
        """Write the session record, and begin to train."""
        self.step = restored_step if restored_step is not None else 0
        record = SessionRecord(
            session=self.id,
            attempt=self.attempt,
            pid=1,
            facade="Supervisor",
            restored_step=restored_step,
            heartbeat_secs=self.every,
            **{"host": "host", "started_at": self.started_at, "checkpoint_interval_secs": 600.0, **more},
        )
        self.file.record(record, self.step, self.now)
        return self.enter("training")

    def train(self, steps: int, secs_per_step: float = 1.0) -> Trainer:
        """Do steps."""
        for _ in range(steps):
            self.spend(secs_per_step)
            assert self.step is not None
            self.step += 1
            self.steps += 1
        return self

    def save(self, *, error: str | None = None, secs: float = 2.0, blocked_secs: float = 0.5) -> Trainer:
        """Record a save of the present step that has just become durable; it blocked training."""
        self.held_up += blocked_secs
        path = None if error else f"/run/model.ckpt-{self.step}"
        record = CheckpointRecord(
            session=self.id,
            trigger="timer",
            path=path,
            step=self.step,
            bytes=None if error else 1000,
            secs=secs,
            blocked_secs=blocked_secs,
            error=error,
        )
        self.file.record(record, self.step or 0, self.now)
        return self

    def stall(self, state: Any, since: float, **more: Any) -> Trainer:
        """Record a stall."""
        record = StallRecord(
            session=self.id,
            state=state,
            phase=self.phase,
            since=since,
            step=self.step,
            secs=self.now - since,
            timeout_secs=self.budget,
            stacks={"MainThread": ("train.py:1 main",)} if state == "begin" else {},
            **more,
        )
        self.file.record(record, self.step or 0, self.now)
        return self

    def recover(self, restored_step: int | None, *, lasts: float = 12.0, **more: Any) -> Trainer:
        """Lose the framework's session, recreate it from a checkpoint, and resume training."""
        self.enter("restoring").spend(lasts)
        fields = {"error": "UnavailableError: gone", "secs": lasts, "step": self.step, "restored_step": restored_step}
        if restored_step is not None:
            fields["restored_checkpoint"] = f"/run/model.ckpt-{restored_step}"
        record = RecoveryRecord(**{"session": self.id, **fields, **more})
        self.file.record(record, restored_step or 0, self.now)
        self.step = self.step if restored_step is None else restored_step
        return self.enter("training")

    def stop(self, reason: Any = "completed", **more: Any) -> Trainer:
        """End as planned."""
        self.enter("stopped")
        record = StopRecord(
            session=self.id,
            reason=reason,
            step=self.step,
            steps=self.steps,
            elapsed_secs=self.elapsed_secs,
            activity_secs=dict(self.secs),
            **more,
        )
        self.file.record(record, self.step or 0, self.now)
        return self


@pytest.fixture
def fold_of() -> Callable[..., RunFold]:
    """Returns a function that folds files, whole and in the given order."""

    def fold(*sources: EventsFile | Trainer) -> RunFold:
        model = RunFold("run")
        for source in sources:
            model.update((source.file if isinstance(source, Trainer) else source).chunks())
        return model

    return fold


@pytest.fixture
def run_of(fold_of: Callable[..., RunFold]) -> Callable[..., Run]:
    """Returns a function that returns the run that files make, one second after the last event."""

    def run(*sources: EventsFile | Trainer, now: float | None = None) -> Run:
        events = [(source.file if isinstance(source, Trainer) else source).events for source in sources]
        last = max((at for found in events for at, _ in found), default=T0)
        return fold_of(*sources).run(now if now is not None else last + 1.0)

    return run


@pytest.fixture(scope="session")
def trainer() -> type[Trainer]:
    """The scripted session."""
    return Trainer


@pytest.fixture(scope="session")
def events_file() -> type[EventsFile]:
    """The scripted events file."""
    return EventsFile


@pytest.fixture
def killed() -> Trainer:
    """A session of 1,200 s that leaves no word: 12 s to start, then steps of a second; checkpoints at 500 and 1,000."""
    return Trainer("a").spend(12).ready().train(500).save().train(500).save().train(188)


@pytest.fixture
def resumed(killed: Trainer) -> Trainer:
    """A session that goes on from the last checkpoint of the killed one, 60 s later."""
    return Trainer("b", killed.now + 60, attempt=2).spend(10).ready(1000, previous_outcome="lost").train(300)
