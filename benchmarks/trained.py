"""A logdir of many runs as the project's own writer leaves them, made without training.

Each has 16 heartbeats of training and those of the other phases, two to four checkpoints, and a point of five tags for
each heartbeat, as `supervise` writes them. Every fifth was killed once and resumed: it has two sessions, each with an
events file of its own. Records have all their fields, and numbers as long as real ones. No two sessions have an id in
common.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TypeAlias

from supervisor_core.events.event_format import event_prefix, frame, scalar_prefix, strip_metadata, version_event
from supervisor_core.events.telemetry import (
    CheckpointRecord,
    HeartbeatRecord,
    Record,
    ServiceInterval,
    SessionRecord,
    StopRecord,
    ThreadStatus,
    summary_bytes,
)

BEGAN = 1_700_000_000.123457
BEAT_SECS, STEPS_PER_BEAT = 10.0, 493
BEATS = 16
"""Of a run, while it trains."""
NIGHT_SECS, STARTS_APART_SECS = 8 * 3600.0, 240.0
"""How long a run of a night trains; how far apart runs start."""
SAVED_AFTER = (6, 12)
"""The heartbeats of a session after which a checkpoint is saved."""
KILLED_EVERY = 5
SCALARS = ("loss", "accuracy", "learning_rate", "grad_norm", "global_step/sec")
SAVE_EVERY_SECS, SAVE_SECS = 600.0, 1.515042
HOST, RUN = "node-07.example.org", "experiments/run"

Sessions: TypeAlias = tuple[tuple["_Session", tuple[bytes, ...]], ...]
"""The sessions of a run, each with its events, unframed."""


def write_runs(logdir: Path, count: int) -> None:
    """Write a logdir of runs, named ``group-<n>/run-<n>``."""
    for number in range(count):
        _write_run(logdir, number, _sessions(BEGAN, BEAT_SECS, is_killed=number % KILLED_EVERY == 0))


def write_night(logdir: Path, count: int, now: float) -> None:
    """Write the runs of one night: each trained for eight hours and ended within the last four."""
    for number in range(count):
        began = now - NIGHT_SECS - STARTS_APART_SECS * (1 + number % 50)
        _write_run(logdir, number, _sessions(began, NIGHT_SECS / BEATS, is_killed=number % KILLED_EVERY == 0))


def _write_run(logdir: Path, number: int, sessions: Sessions) -> None:
    directory = logdir / f"group-{number % 50}" / f"run-{number}"
    directory.mkdir(parents=True)
    for session, payloads in sessions:
        name = f"events.out.tfevents.{int(session.began)}.{HOST}.{session.pid}.0000"
        id = b"%015x%d" % (number, session.attempt)
        (directory / name).write_bytes(
            b"".join(frame(payload.replace(session.id.encode(), id)) for payload in payloads)
        )


@cache
def _sessions(run_began: float, beat_secs: float, *, is_killed: bool) -> Sessions:
    """Return the sessions of a run."""
    if not is_killed:
        only = _Session(attempt=1, run_began=run_began, began=run_began, beat_secs=beat_secs, beats=BEATS)
        return ((only, tuple(only.events())),)
    half = BEATS // 2
    first = _Session(attempt=1, run_began=run_began, began=run_began, beat_secs=beat_secs, beats=half, is_killed=True)
    second = _Session(
        attempt=2, run_began=run_began, began=first.at(half) + 3 * BEAT_SECS, beat_secs=beat_secs, beats=half,
        restored=STEPS_PER_BEAT * SAVED_AFTER[0],
    )  # fmt: skip
    return (first, tuple(first.events())), (second, tuple(second.events()))


@dataclass(frozen=True, kw_only=True)
class _Session:
    attempt: int
    run_began: float
    began: float
    beat_secs: float
    beats: int
    is_killed: bool = False
    restored: int = 0

    @property
    def id(self) -> str:
        """An id as long as a real one."""
        return f"0123456789abcde{self.attempt}"

    @property
    def pid(self) -> int:
        return 47110 + self.attempt

    def at(self, beat: int) -> float:
        """Return the wall time of a heartbeat."""
        return self.began + beat * self.beat_secs + 0.0239524

    def events(self) -> Iterator[bytes]:
        """Yield each event, unframed."""
        seen: set[bytes] = set()

        def event(record: Record, at: float) -> bytes:
            summary = strip_metadata(summary_bytes(record), seen)
            return event_prefix(at, getattr(record, "step", None) or 0, 5, len(summary)) + summary

        yield version_event(self.began)
        for number, phase in enumerate(("restoring", "starting")):
            at = self.began + 0.0305143 + number
            yield event(replace(self._beat(phase, at, 0, ()), step=None), at)
        yield event(self._record(), self.began + 1.2312345)
        saved_at: list[float] = []
        for beat in range(1, self.beats + 1):
            at, done = self.at(beat), beat * STEPS_PER_BEAT
            for number, tag in enumerate(SCALARS):
                value = struct.pack("<f", 1.0 / (1 + done) + number)
                yield event_prefix(at - 1.0, self.restored + done - 13, 5, 0)[:-2] + scalar_prefix(tag) + value
            yield event(self._beat("training", at, done, _threads(saved_at)), at)
            if beat in SAVED_AFTER:
                saved_at.append(at + 1.6226391)
                yield event(self._save(done), saved_at[-1])
        if self.is_killed:
            return
        done, at = self.beats * STEPS_PER_BEAT, self.at(self.beats) + 0.2314
        for phase in ("stopping", "checkpointing"):
            yield event(self._beat(phase, at, done, _threads(saved_at)), at)
        at += SAVE_SECS
        saved_at.append(at)
        yield event(self._save(done), at)
        for phase, is_stopped in (("stopping", False), ("stopped", True)):
            yield event(self._beat(phase, at, done, _threads(saved_at, is_stopped=is_stopped)), at)
        yield event(self._stop(at, done), at)

    def _record(self) -> SessionRecord:
        record = SessionRecord(
            session=self.id,
            attempt=self.attempt,
            host=HOST,
            pid=self.pid,
            facade="supervise",
            started_at=self.began,
            run=RUN,
            run_started_at=self.run_began,
            starting_secs=1.0296294,
            restoring_secs=0.2038960,
            services=(ServiceInterval(name="checkpoint", interval_secs=SAVE_EVERY_SECS),),
            checkpoint_interval_secs=SAVE_EVERY_SECS,
            heartbeat_secs=self.beat_secs,
            versions={"python": "3.11.7", "torch": "2.15.0", "tensorboard-plugin-supervisor": "0.1.0"},
        )
        if not self.restored:
            return record
        ran_secs = BEATS // 2 * self.beat_secs + 4.6517725
        return replace(
            record,
            restored_checkpoint=_path(self.restored),
            restored_step=self.restored,
            previous_outcome="lost",
            previous_step=BEATS // 2 * STEPS_PER_BEAT + 231,
            previous_step_exact=True,
            previous_seen_at=self.run_began + ran_secs,
            previous_elapsed_secs=ran_secs,
            previous_seen_secs=self.began - self.run_began - ran_secs,
            resume_exact=False,
            resume_reasons=("The position in the training data is not captured: the state has no 'data'.",),
        )

    def _beat(self, phase: str, at: float, done: int, threads: tuple[ThreadStatus, ...]) -> HeartbeatRecord:
        return HeartbeatRecord(
            session=self.id,
            phase=phase,
            attempt=self.attempt,
            elapsed_secs=at - self.began,
            step=self.restored + done,
            steps=done,
            steps_per_sec=49.2880287 + done / 1e5 if done > STEPS_PER_BEAT else None,
            progress_age_secs=0.0048433,
            progress_timeout_secs={"training": 300.0, "stopping": 600.0, "stopped": None}.get(phase, 1800.0),
            activity_secs=self._activity(at, done),
            threads=threads,
        )

    def _activity(self, at: float, done: int) -> dict[str, float]:
        elapsed_secs = at - self.began
        found = {
            "productive": done / STEPS_PER_BEAT * self.beat_secs * 0.9918519,
            "program_startup": min(elapsed_secs, 1.0318175),
            "checkpoint_restore": 0.2038960 if done else 0.0,
            "unproductive_checkpoint_save": 0.0,
            "stall": 0.0,
            "silent": 0.0,
        }
        return {**found, "other": max(0.0, elapsed_secs - sum(found.values()))}

    def _save(self, done: int) -> CheckpointRecord:
        step = self.restored + done
        return CheckpointRecord(
            session=self.id, trigger="timer", path=_path(step), step=step, bytes=498_113_610, secs=SAVE_SECS,
            blocked_secs=0.0907931, consistent=True, verified=True,
        )  # fmt: skip

    def _stop(self, at: float, done: int) -> StopRecord:
        step = self.restored + done
        return StopRecord(
            session=self.id,
            reason="completed",
            step=step,
            steps=done,
            final_checkpoint=_path(step),
            final_checkpoint_step=step,
            elapsed_secs=at - self.began,
            activity_secs=self._activity(at, done),
        )


def _path(step: int) -> str:
    return f"/{RUN}/checkpoints/ckpt-{step}"


def _threads(saved_at: list[float], *, is_stopped: bool = False) -> tuple[ThreadStatus, ...]:
    save = ThreadStatus(
        name="checkpoint",
        state="stopped" if is_stopped else "idle",
        interval_secs=SAVE_EVERY_SECS,
        ticks=len(saved_at),
        last_tick_at=saved_at[-1] if saved_at else None,
        last_tick_secs=SAVE_SECS if saved_at else None,
    )
    return (save,)
