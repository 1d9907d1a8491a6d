from __future__ import annotations

import struct
from pathlib import Path

import pytest

from supervisor_core.events.chunk import Chunk
from supervisor_core.events.event_format import event_prefix, frame, scalar_prefix, version_event
from supervisor_core.events.index import RunIndex
from supervisor_core.events.telemetry import HeartbeatRecord, StopRecord, summary_bytes

T0 = 1_700_000_000.0


def scalar(tag: str, step: int, at: float) -> bytes:
    """A scalar's record."""
    return frame(event_prefix(at, step, 5, 0)[:-2] + scalar_prefix(tag) + struct.pack("<f", step))


def framed(record: HeartbeatRecord | StopRecord, step: int, at: float) -> bytes:
    """A telemetry record."""
    summary = summary_bytes(record)
    return frame(event_prefix(at, step, 5, len(summary)) + summary)


def read(directory: Path, scalars_only: bool) -> Chunk:
    """What the only file of a directory holds."""
    (chunk,) = RunIndex(".", str(directory), scalars_only=scalars_only).refresh()
    return chunk


@pytest.mark.parametrize("steps", [3, 5_000])
def test_scalars_are_the_same_without_telemetry(tmp_path: Path, steps: int) -> None:
    """Who wants scalars only gets every one of them, and the same times and steps, without a record of the supervisor's
    having been decoded; in a small file and in one that is read many records at a time."""
    parts = [frame(version_event(T0))]
    for step in range(steps):
        parts.append(scalar("loss", step, T0 + step))
        parts.append(scalar("supervisor/heartbeats", step, T0 + step))
        if step % 3 == 0:
            beat = HeartbeatRecord(session="s", phase="training", step=step, threads=({"name": "x" * (step % 200)},))
            parts.append(framed(beat, step, T0 + step + 0.5))
    parts.append(framed(StopRecord(session="s", reason="completed"), steps * 2, T0 + steps))
    (tmp_path / "events.out.tfevents.1700000000.h").write_bytes(b"".join(parts))
    everything, only = read(tmp_path, False), read(tmp_path, True)
    assert (len(everything.marks), only.marks) == ((steps + 2) // 3 + 1, ())
    for field in ("records", "bytes", "first_at", "last_at", "first_step", "last_step", "max_step", "problems"):
        assert getattr(only, field) == getattr(everything, field), field
    assert only.scalars.keys() == everything.scalars.keys() == {"loss", "supervisor/heartbeats"}
    for tag, points in everything.scalars.items():
        assert only.scalars[tag].steps.tolist() == points.steps.tolist() == list(range(steps))
        assert only.scalars[tag].values.tolist() == points.values.tolist()
        assert only.scalars[tag].walls.tolist() == points.walls.tolist()


def test_what_is_not_laid_out_as_ours_is_decoded(tmp_path: Path) -> None:
    """Another program's scalar with a tag like ours, within a larger event, is not taken for telemetry."""
    value = b"\x0a\x0bsupervisor/\x15" + struct.pack("<f", 2.5)
    summary = b"\x0a" + bytes([len(value)]) + value
    event = event_prefix(T0, 7, 5, 3 * len(summary)) + 3 * summary
    (tmp_path / "events.out.tfevents.1700000000.h").write_bytes(frame(version_event(T0)) + frame(event))
    assert read(tmp_path, True).scalars["supervisor/"].values.tolist() == [2.5] * 3
