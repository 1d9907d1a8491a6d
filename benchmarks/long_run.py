"""The events file of one run that has trained for days, as the monitor writes it, with a clock that is set by hand."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from supervisor_core.base.options import Options
from supervisor_core.engine.monitor import SessionMonitor
from supervisor_core.engine.recorder import MOST_BEAT_SECS, BeatHistory
from supervisor_core.events.event_format import (
    FOOTER_BYTES,
    HEADER_BYTES,
    event_prefix,
    frame,
    scalar_prefix,
    strip_metadata,
    version_event,
)
from supervisor_core.events.telemetry import (
    CheckpointRecord,
    HeartbeatRecord,
    Record,
    SessionRecord,
    ThreadStatus,
    summary_bytes,
)

BEAT_SECS = 10.0
SERVICES = {"checkpoint": 600.0, "summary": 120.0, "step_counter": 120.0}
STEPS_PER_BEAT = 37


class LongRun:
    """One session, beat by beat.

    Args:
        began: wall time of its start.
        seed: of the time that its steps take.
        session: its id.
        restored: the step at which it resumes; None: a new model.
    """

    error: str | None = None
    dropped = 0

    def __init__(
        self, began: float, seed: int = 0, *, session: str = "3f2a9c1e5d7b8046", restored: int | None = None
    ) -> None:
        self.session = session
        self.now = 1000.0
        self._offset = began - self.now
        self._random = Random(seed)
        self._metadata: set[bytes] = set()
        self.parts: list[bytes] = [frame(version_event(began))]
        options = Options(heartbeat_secs=BEAT_SECS)
        self.history = BeatHistory(BEAT_SECS)
        self._ticks = {name: (0, None) for name in SERVICES}
        self._session = SessionRecord(
            session=session, attempt=1 if restored is None else 2, restored_step=restored, host="node-07", pid=4711,
            facade="supervise", started_at=began, run="run", heartbeat_secs=BEAT_SECS, checkpoint_interval_secs=600.0,
            recorded_beat_secs=MOST_BEAT_SECS,
        )  # fmt: skip
        self.monitor = SessionMonitor(self._session, options=options, recorder=self, threads=self.threads, clock=self)
        self.progress = self.monitor.progress
        self.progress.sample()
        self.advance(1.5)
        self.write(self._session, restored)
        self.progress.step_read(restored or 0)
        self.monitor.enter("training")

    def wall(self) -> float:
        """See `Clock`."""
        return self.now + self._offset

    def monotonic(self) -> float:
        """See `Clock`."""
        return self.now

    def advance(self, secs: float) -> None:
        """Let time pass."""
        self.now += secs

    def set_clock(self, secs: float) -> None:
        """Set the wall clock forward by a number of seconds."""
        self._offset += secs

    def write(self, record: Record, step: int | None = None, *, is_periodic: bool = False, **how: Any) -> bool:
        """See `TelemetryRecorder.write`."""
        event = self.history.take(record, is_periodic=is_periodic) if isinstance(record, HeartbeatRecord) else record
        if event is None:
            return True
        record = event
        summary = strip_metadata(summary_bytes(record), self._metadata)
        self.parts.append(frame(event_prefix(self.wall(), step or 0, 5, len(summary)) + summary))
        return True

    def beats(self, count: int) -> None:
        """Train for a number of heartbeats."""
        for _ in range(count):
            for _ in range(2):
                self._train(BEAT_SECS / 2 + self._random.random() * 1e-3)
                self.progress.sample()
            self._tick()
            step = self.progress.steps
            prefix = event_prefix(self.wall(), step, 5, 0)[:-2]
            self.parts.append(frame(prefix + scalar_prefix("loss") + struct.pack("<f", 1.0 / (1 + step))))
            self.monitor.beat(is_periodic=True)

    def _train(self, secs: float) -> None:
        until, mean = self.now + secs, BEAT_SECS / STEPS_PER_BEAT
        at = self.now
        while (end := at + mean * (0.8 + 0.4 * self._random.random())) < until:
            self.progress.run_ended(True, at, end)
            at = end
        self.now = until

    def _tick(self) -> None:
        for name, interval_secs in SERVICES.items():
            ticks, last = self._ticks[name]
            if last is None or self.now - last >= interval_secs:
                self._ticks[name] = ticks + 1, self.now
                if name == "checkpoint":
                    step = self.progress.steps
                    saved = CheckpointRecord(
                        session=self._session.session, trigger="timer", path=f"/runs/run/model.ckpt-{step}", step=step,
                        bytes=498_113_610, secs=1.515042, blocked_secs=0.0907931, consistent=True, verified=True,
                    )  # fmt: skip
                    self.write(saved, step)

    def threads(self) -> Iterator[ThreadStatus]:
        for name, interval_secs in SERVICES.items():
            ticks, last = self._ticks[name]
            yield ThreadStatus(
                name=name, state="idle", interval_secs=interval_secs, ticks=ticks,
                last_tick_at=None if last is None else last + self._offset, last_tick_secs=0.0123456,
            )  # fmt: skip


def write_runs(directory: Path, runs: int, began: float, beats: int) -> int:
    """Write runs that still train, below a logdir, all alike; return how many bytes one of them has."""
    whole = LongRun(began)
    whole.beats(beats)
    for index in range(runs):
        own = f"{index:016x}".encode()
        payloads = (part[HEADER_BYTES:-FOOTER_BYTES].replace(whole.session.encode(), own) for part in whole.parts)
        path = directory / f"run-{index}" / f"events.out.tfevents.{int(began)}.node-07.{index}.0"
        path.parent.mkdir(parents=True)
        path.write_bytes(b"".join(map(frame, payloads)))
    return sum(map(len, whole.parts))
