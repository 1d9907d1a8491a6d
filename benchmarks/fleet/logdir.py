"""`make`: the logdir of a fleet, and `Fleet`, whose live runs go on writing.

Every run is a directory ``team-T/run-NNNNN`` with one session of its own; its records are those of a training with the
three services of a `Supervisor`: a heartbeat and a point of a loss every 10 s, a checkpoint every 10 minutes. The first
runs of a fleet are live: their newest heartbeat is of now. The others have ended within the last 30 days: nine of ten
completed, one of twenty failed, one of twenty lost.

    python -m benchmarks.fleet.logdir DIRECTORY --runs 10000 --live 1000 --beats 200
"""

from __future__ import annotations

import argparse
import os
import struct
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from supervisor_core.events.event_format import event_prefix, frame, scalar_prefix, step_field, version_event
from supervisor_core.events.telemetry import (
    CheckpointRecord,
    HeartbeatRecord,
    Record,
    SessionRecord,
    StopRecord,
    ThreadStatus,
    summary_bytes,
)

BEAT_SECS = 10.0
BEATS_PER_SAVE, STEPS_PER_BEAT = 60, 100
WEEK_BEATS = int(7 * 86_400 / BEAT_SECS)
TEAMS, HOSTS = 10, 64
_AGES = 30
"""How many different times there are at which runs have ended."""
_THREADS = {"checkpoint": 600.0, "summary": 120.0, "step_counter": 120.0}
_SESSION = "session-of-a-run"
"""Stands for a session's id in what all runs share; an id is as long."""
_LOSS = scalar_prefix("train/loss")
_VALUE = struct.pack("<f", 0.5)

End = Literal["live", "completed", "failed", "lost"]


@dataclass(frozen=True)
class Fleet:
    """A logdir that was made."""

    directory: Path
    runs: int
    live: int
    beats: int
    """Heartbeats in each run when it was made."""
    made_at: float
    """Wall time of the newest heartbeat of a live run then."""
    _live: _Beats
    """What the live runs have in common."""
    _grown: list[int] = field(default_factory=lambda: [0])

    @property
    def next_at(self) -> float:
        """When the live runs write their next heartbeat, as wall time."""
        return self.made_at + (self._grown[0] + 1) * BEAT_SECS

    def path(self, index: int) -> Path:
        """Return the events file of a run; the live ones are the first."""
        name = f"events.out.tfevents.{int(self.made_at)}.{_host(index)}"
        return self.directory / f"team-{index % TEAMS}" / f"run-{index:05d}" / name

    def grow(self) -> int:
        """Append to each live run what it writes until its next heartbeat; return how many bytes that is in all."""
        self._grown[0] += 1
        payloads, total = self._live.next(), 0
        for index in range(self.live):
            data = _framed(payloads, index)
            with self.path(index).open("ab", buffering=0) as file:
                file.write(data)
            total += len(data)
        return total


def make(directory: Path, runs: int, live: int, beats: int = 200) -> Fleet:
    """Write a logdir.

    Args:
        directory: where; is made if it is not there.
        runs: how many runs.
        live: how many of them train.
        beats: heartbeats in each, `WEEK_BEATS` for a week's. One and what comes with it are about 700 bytes.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as made:
        ...     fleet = make(Path(made), runs=20, live=2, beats=3)
        ...     len(list(Path(made).rglob("events*"))), fleet.grow() > 1000
        (20, True)
    """
    made_at = time.time()
    of_live = _Beats(made_at - beats * BEAT_SECS)
    shared = {0.0: _events(of_live, beats)}
    fleet = Fleet(directory=directory, runs=runs, live=live, beats=beats, made_at=made_at, _live=of_live)
    for index in range(runs):
        end = _end(index, live)
        age = 0.0 if end == "live" else (0.5 + index % _AGES) * 86_400.0
        began = fleet.made_at - age - beats * BEAT_SECS
        if age not in shared:
            shared[age] = _events(_Beats(began), beats)
        path = fleet.path(index)
        path.parent.mkdir(parents=True)
        with path.open("wb") as file:
            file.write(_head(index, began, path.parent))
            file.write(_framed(shared[age], index))
            if end in ("completed", "failed"):
                file.write(_framed([_stop(end, began, beats)], index))
    return fleet


def _events(session: _Beats, beats: int) -> list[bytes]:
    return [event for _ in range(beats) for event in session.next()]


def _end(index: int, live: int) -> End:
    ends: dict[int, End] = {0: "failed", 1: "lost"}
    return "live" if index < live else ends.get(index // TEAMS % 20, "completed")


def _host(index: int) -> str:
    return f"node-{index % HOSTS:02d}"


def _framed(payloads: list[bytes], index: int) -> bytes:
    """Return events as those of one run, with each record's own checksums."""
    shared, own = _SESSION.encode(), f"{index:016x}".encode()
    return b"".join([frame(payload.replace(shared, own)) for payload in payloads])


def _event(record: Record, at: float, step: int) -> bytes:
    summary = summary_bytes(record)
    return event_prefix(at, step, 5, len(summary)) + summary


def _head(index: int, began: float, directory: Path) -> bytes:
    """Return how the events file of a run begins."""
    session = SessionRecord(
        session=f"{index:016x}",
        attempt=1,
        host=_host(index),
        pid=4000 + index,
        facade="Supervisor",
        run=os.path.join(directory.parent.name, directory.name),
        logdir=os.path.abspath(directory),
        started_at=began,
        run_started_at=began,
        starting_secs=4.0,
        restoring_secs=0.0,
        checkpoint_interval_secs=BEATS_PER_SAVE * BEAT_SECS,
        heartbeat_secs=BEAT_SECS,
        versions={"python": "3.12.3", "numpy": "2.4.6", "tensorflow": "2.21.0"},
    )
    return frame(version_event(began)) + frame(_event(session, began, 0))


class _Beats:
    """The events of a session from one heartbeat to the next, as its monitor writes them.

    Args:
        began: wall time of its start.
    """

    def __init__(self, began: float) -> None:
        self._began = began
        self._written: dict[str, ThreadStatus] = {}
        self._count = 0

    def next(self) -> list[bytes]:
        """Return what is written until the next heartbeat: a point, a save where one is due, the heartbeat."""
        self._count += 1
        elapsed, step = self._count * BEAT_SECS, self._count * STEPS_PER_BEAT
        at = self._began + elapsed
        events = [b"\x09" + struct.pack("<d", at) + step_field(step) + _LOSS + _VALUE]
        if self._count % BEATS_PER_SAVE == 0:
            saved = CheckpointRecord(
                session=_SESSION, trigger="timer", path=f"model.ckpt-{step}", step=step, bytes=500_000_000,
                secs=2.0, blocked_secs=0.1, consistent=True, verified=True,
            )  # fmt: skip
            events.append(_event(saved, at, step))
        threads = {each.name: each for each in _threads(at, elapsed)}
        changed = tuple(each for name, each in threads.items() if self._written.get(name) != each)
        self._written = threads
        events.append(_event(_heartbeat(elapsed, step, changed), at, step))
        return events


def _heartbeat(elapsed: float, step: int, threads: tuple[ThreadStatus, ...]) -> HeartbeatRecord:
    return HeartbeatRecord(
        session=_SESSION,
        attempt=1,
        phase="training",
        elapsed_secs=elapsed,
        step=step,
        steps=step,
        steps_per_sec=STEPS_PER_BEAT / BEAT_SECS,
        progress_age_secs=0.1,
        progress_timeout_secs=300.0,
        activity_secs={
            "productive": elapsed - 4.0 - 0.1 * (elapsed // (BEATS_PER_SAVE * BEAT_SECS)),
            "program_startup": 4.0,
            "checkpoint_restore": 0.0,
            "unproductive_checkpoint_save": 0.1 * (elapsed // (BEATS_PER_SAVE * BEAT_SECS)),
            "stall": 0.0,
            "silent": 0.0,
            "other": 0.0,
        },
        threads=threads,
        loss_finite=True,
    )


def _threads(at: float, elapsed: float) -> list[ThreadStatus]:
    return [
        ThreadStatus(
            name=name, state="idle", interval_secs=secs, ticks=int(elapsed // secs),
            last_tick_at=at - elapsed % secs if elapsed >= secs else None, last_tick_secs=0.01,
        )
        for name, secs in _THREADS.items()
    ]  # fmt: skip


def _stop(end: End, began: float, beats: int) -> bytes:
    """Return the last event of a run that has ended."""
    step = beats * STEPS_PER_BEAT
    record = StopRecord(
        session=_SESSION,
        reason="error" if end == "failed" else "completed",
        error="RuntimeError: out of memory" if end == "failed" else None,
        step=step,
        steps=step,
        elapsed_secs=beats * BEAT_SECS,
    )
    return _event(record, began + beats * BEAT_SECS, step)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fleet.logdir", description="Write a fleet's logdir.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--live", type=int, default=100)
    parser.add_argument("--beats", type=int, default=200)
    given = parser.parse_args()
    make(given.directory, given.runs, given.live, given.beats)
