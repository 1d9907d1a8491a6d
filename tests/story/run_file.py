"""Events files on disk, record by record, at times of one's choosing: what trainers of all kinds leave behind."""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import SessionLog

from supervisor_core.events.event_format import event_prefix, frame, scalar_prefix, version_event
from supervisor_core.events.telemetry import (
    CheckpointRecord,
    HeartbeatRecord,
    SessionRecord,
    StopRecord,
    summary_bytes,
)
from supervisor_core.run.watch.liveness import CHIEF, LIVENESS_DIRECTORY, LivenessRecord, encode, file_name

T0 = 1_700_000_000.0
"""When runs begin."""


class RunFile:
    """One events file that grows with each call, with one session of telemetry if `ready` or `beat` is called.

    Args:
        directory: the run's; made if missing.
        started_at: wall time in the file's name and of its first record.
        session: the session's id. Default: one of the directory's own.
    """

    def __init__(self, directory: Path, started_at: float = T0, session: str | None = None) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        session = session or f"s{zlib.crc32(os.fsencode(directory)):x}"
        self.path = directory / f"events.out.tfevents.{int(started_at)}.host.{session}"
        self.session_id = session
        self.started_at = started_at
        self.step = 0
        self.write(version_event(started_at))

    def write(self, event: bytes) -> RunFile:
        """Append a record."""
        with self.path.open("ab") as file:
            file.write(frame(event))
        return self

    def record(self, record: Any, at: float) -> RunFile:
        """Append a telemetry record."""
        summary = summary_bytes(record)
        return self.write(event_prefix(at, self.step, 5, len(summary)) + summary)

    def scalar(self, tag: str, step: int, at: float, value: bytes = b"\0\0\x80\x3f") -> RunFile:
        """Append a scalar: 1.0 unless other four bytes are given."""
        prefix = event_prefix(at, step, 5, 0)[:-2]
        return self.write(prefix + scalar_prefix(tag) + value)

    def log(self, status: int, step: int, at: float, path: str = "") -> RunFile:
        """Append a ``SessionLog`` event."""
        payload = SessionLog(status=status, checkpoint_path=path).SerializeToString()  # type: ignore[arg-type]
        return self.write(event_prefix(at, step, 7, len(payload)) + payload)

    def ready(self, run: str | None = None, **more: Any) -> RunFile:
        """Say that the session trains, a second after it began."""
        record = SessionRecord(
            session=self.session_id,
            facade="Supervisor",
            started_at=self.started_at,
            run=run,
            **{
                "host": "trainer-0",
                "pid": 1,
                "attempt": 1,
                "heartbeat_secs": 10.0,
                "checkpoint_interval_secs": 600.0,
                **more,
            },
        )
        return self.record(record, self.started_at + 1)

    def beat(self, at: float, *, phase: str = "training", steps: int = 0, **more: Any) -> RunFile:
        """Write a heartbeat: the session has done ``steps`` and has just moved."""
        self.step = steps
        return self.record(self._beat(at, phase, steps, more), at)

    def _beat(self, at: float, phase: str, steps: int, more: dict[str, Any]) -> HeartbeatRecord:
        spent = {"productive": at - self.started_at}
        return HeartbeatRecord(
            session=self.session_id,
            phase=phase,
            step=steps,
            steps=steps,
            **{"progress_timeout_secs": 300.0, "activity_secs": spent, **more},
        )

    def lives(
        self, at: float, *, phase: str = "training", steps: int = 0, beat: dict[str, Any] | None = None, **more: Any
    ) -> Path:
        """Write the session's liveness file, with a heartbeat of this time."""
        return write_liveness(
            self.path.parent, session=self.session_id, started_at=self.started_at, written_at=at, phase=phase,
            step=steps, beat=self._beat(at, phase, steps, beat or {}), beat_at=at, **{"pid": 1, **more},
        )  # fmt: skip

    def saved(self, at: float, path: str, error: str | None = None) -> RunFile:
        """Record a save."""
        record = CheckpointRecord(
            session=self.session_id,
            trigger="timer",
            path=None if error else path,
            step=self.step,
            bytes=None if error else 1000,
            secs=2.0,
            blocked_secs=0.5,
            error=error,
        )
        return self.record(record, at)

    def stop(self, at: float, reason: Any = "completed") -> RunFile:
        """Write the stop record."""
        return self.record(StopRecord(session=self.session_id, reason=reason, step=self.step, steps=self.step), at)


def write_liveness(run: Path, **values: Any) -> Path:
    """Write the liveness file of a run's chief."""
    record = LivenessRecord(
        **{"task": CHIEF, "host": "trainer-0", "beats": 1, "interval_secs": 10.0, "phase": "training", **values}
    )
    path = run / LIVENESS_DIRECTORY / file_name(CHIEF)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(encode(record))
    os.utime(path, (record.written_at, record.written_at))
    return path
