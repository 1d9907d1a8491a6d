"""What a session records of itself in its events file: for programs that print no facts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from examples.demo.frameworks import STEPS_PER_EPOCH, Framework
from examples.demo.telemetry import events_files
from supervisor_core.events import Chunk, EventsFileReader, SessionRecord, StopRecord, TelemetryMark


class Recorded:
    """The facts of one session, read while it trains.

    Args:
        run: the training's logdir; events files that are there already are of earlier sessions.
        framework: which scalars to look for.
    """

    def __init__(self, run: Path, framework: Framework) -> None:
        self._run = run
        self._framework = framework
        self._before = set(events_files(run))
        self._readers: dict[Path, EventsFileReader] = {}
        self._facts: dict[str, Any] = {}
        self.losses: dict[int, float] = {}
        """The loss of each step that has one."""

    def read(self) -> dict[str, Any]:
        """Return the facts so far, by the names under which the other examples print them."""
        for file in events_files(self._run):
            if file not in self._before:
                reader = self._readers.setdefault(file, EventsFileReader(str(file)))
                while (chunk := reader.read()) is not None:
                    self._add(chunk)
        return self._facts

    def _add(self, chunk: Chunk) -> None:
        for mark in chunk.marks:
            record = mark.record if isinstance(mark, TelemetryMark) else None
            if isinstance(record, SessionRecord):
                self._facts.update(start_step=record.restored_step or 0, steps_per_epoch=STEPS_PER_EPOCH)
            elif isinstance(record, StopRecord):
                self._facts["end_step"] = record.step
        if (losses := chunk.scalars.get(self._framework.loss)) is not None:
            self.losses.update(zip(losses.steps.tolist(), losses.values.tolist(), strict=True))
        if (accuracies := chunk.scalars.get(self._framework.accuracy)) is not None:
            self._facts["test_accuracy"] = float(accuracies.values[-1])
