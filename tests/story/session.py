"""`Scripted`: one session of a run as a trainer leaves it, in milliseconds, at a time of one's choosing."""

from __future__ import annotations

import math
import os
import struct
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import SessionLog

from supervisor_core.events.event_format import event_prefix, frame, scalar_prefix, version_event
from supervisor_core.events.telemetry import (
    CheckpointRecord,
    HeartbeatRecord,
    NoticeRecord,
    RecoveryRecord,
    ResumeRecord,
    SessionRecord,
    SkippedCheckpoint,
    StallRecord,
    StopRecord,
    summary_bytes,
)

DOUBT = 'The newest value of "loss" is NaN or infinite.'
TAGS = ("loss", "accuracy", "learning_rate")


def value_of(tag: str, step: int) -> float:
    """A curve for each tag that looks like one."""
    wave = math.sin(step * 12.9898) * 43758.5453
    noise = wave - math.floor(wave) - 0.5
    if tag == "loss":
        return 2.3 * math.exp(-step / 3000) + 0.12 + 0.08 * noise
    if tag == "accuracy":
        return 0.96 - 0.86 * math.exp(-step / 2500) + 0.02 * noise
    if tag == "learning_rate":
        return 0.001 * 0.5 ** (step // 3000)
    return noise


@dataclass
class Scripted:
    """One session, written as it goes: each method moves its time on.

    Args:
        directory: the run's; made if missing.
        start: wall time at which it starts.
        attempt: 1 for the run's first.
        step: the step it goes on from; restored from a checkpoint unless 0.
        rate: steps per second.
        adopted: whether it found its model alive in the cluster at that step.
        resume_exact: whether it goes on exactly, and why not.
        observed: the number of recomputed losses that were equal.
        skipped: checkpoints that its restore passed over.
        nan_from: the step from which the loss is NaN.
        is_doubted: whether saves after that are in doubt.
        placed: the fields of the session record that say whose it is and on what it runs.
        host: the machine.
    """

    directory: Path
    start: float
    attempt: int = 1
    step: int = 0
    rate: float = 10.0
    save_every: float = 120.0
    beat_every: float = 10.0
    write_every: int = 20
    tags: tuple[str, ...] = TAGS
    starting_secs: float = 4.0
    adopted: bool = False
    resume_exact: bool | None = None
    resume_reasons: tuple[str, ...] = ()
    observed: int = 0
    skipped: tuple[dict[str, str], ...] = ()
    nan_from: int | None = None
    lacks: tuple[str, ...] = ()
    """What is in none of its checkpoints."""
    is_doubted: bool = True
    placed: dict[str, Any] = field(default_factory=dict)
    host: str = "trainer-0"
    at: float = field(init=False)
    done: int = 0
    spent: dict[str, float] = field(default_factory=dict)
    cluster: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self.session = f"session-{self.directory.parent.name}-{self.directory.name[:40]}-{self.attempt}"
        self.path = self.directory / f"events.out.tfevents.{int(self.start):010d}.trainer-0.{self.attempt}.0000"
        self._pending = bytearray()
        self._threads: dict[str, dict[str, Any]] = {
            "checkpoint": _thread("checkpoint", self.save_every),
            "summary": _thread("summary", 30.0),
            "step_counter": _thread("step_counter", 20.0),
        }
        self._next_save = self.start + self.save_every
        self._write(version_event(self.start))
        restoring = 2.0 if self.step else 0.0
        self.at = self.start + self.starting_secs + restoring
        self.spent = {"program_startup": self.starting_secs, "checkpoint_restore": restoring, "productive": 0.0}
        restored = f"{self.directory}/model.ckpt-{self.step}" if self.step and not self.adopted else None
        log = SessionLog(status=1).SerializeToString()
        self._write(event_prefix(self.at, self.step, 7, len(log)) + log)
        self._record(
            SessionRecord(
                session=self.session,
                attempt=self.attempt,
                host=self.host,
                pid=4000 + self.attempt,
                facade="Supervisor",
                started_at=self.start,
                restored_checkpoint=restored,
                restored_step=self.step if self.step else None,
                adopted=self.adopted,
                resume_exact=self.resume_exact,
                resume_reasons=self.resume_reasons,
                skipped=tuple(SkippedCheckpoint(**each) for each in self.skipped),
                starting_secs=self.starting_secs,
                restoring_secs=restoring,
                services=tuple(
                    {"name": name, "interval_secs": t["interval_secs"]} for name, t in self._threads.items()
                ),
                checkpoint_interval_secs=self.save_every,
                heartbeat_secs=self.beat_every,
                **self.placed,
            )
        )
        if self.observed:
            equal = self.observed
            self._record(ResumeRecord(session=self.session, what="losses", compared=equal, equal=equal))

    def train(self, secs: float, failing_saves: bool = False, late_summaries: bool = False) -> Scripted:
        """Do steps for ``secs``; scalars, heartbeats and saves come as they fall due."""
        end = self.at + secs
        prefixes = {tag: scalar_prefix(tag) for tag in self.tags}
        while self.at < end - 1e-9:
            stretch = min(self.beat_every, end - self.at)
            first, last = self.step, self.step + int(stretch * self.rate)
            for step in range(first - first % self.write_every + self.write_every, last + 1, self.write_every):
                wall = self.at + (step - first) / self.rate
                for tag, prefix in prefixes.items():
                    head = event_prefix(wall, step, 5, 0)[:-2]
                    self._write(head + prefix + struct.pack("<f", self._value(tag, step)))
            self.at += stretch
            self.done += last - first
            self.step = last
            self._spend("productive", stretch)
            self._tick("step_counter", 20.0)
            if late_summaries:
                self._threads["summary"].update(state="overdue", overdue_secs=self.at - end + secs)
            else:
                self._threads["summary"].update(state="idle", overdue_secs=0.0)
                self._tick("summary", 30.0)
            if self.at >= self._next_save:
                self._next_save = self.at + self.save_every
                doubt = DOUBT if self.is_doubted and math.isnan(self._value("loss", self.step)) else None
                self.save("OSError: [Errno 28] No space left on device" if failing_saves else None, doubt)
            self.beat()
        return self.flush()

    def _value(self, tag: str, step: int) -> float:
        is_nan = tag == "loss" and self.nan_from is not None and step >= self.nan_from
        return math.nan if is_nan else value_of(tag, step)

    def save(self, error: str | None = None, doubt: str | None = None, directory: Path | None = None) -> Scripted:
        """Save, well or badly, in the run's directory or another; training is held up for half a second."""
        path = None if error else f"{directory or self.directory}/model.ckpt-{self.step}"
        self._spend("unproductive_checkpoint_save", 0.5)
        self.at += 0.5
        if path is not None:
            log = SessionLog(status=3, checkpoint_path=path).SerializeToString()
            self._write(event_prefix(self.at, self.step, 7, len(log)) + log)
        thread = self._threads["checkpoint"]
        thread.update(ticks=thread["ticks"] + 1, last_tick_at=self.at, last_tick_secs=2.5)
        if error:
            thread.update(failures=thread["failures"] + 1, last_error=error, last_failure_at=self.at)
        self._record(
            CheckpointRecord(
                session=self.session,
                trigger="timer",
                path=path,
                step=self.step,
                bytes=None if error else 180_000_000,
                secs=2.5,
                blocked_secs=0.5,
                consistent=None if error else True,
                verified=None if error else True,
                error=error,
                doubt=None if error else doubt,
                not_captured=self.lacks,
            )
        )
        return self

    def stall(
        self,
        secs: float,
        ended: bool = True,
        thread: str | None = None,
        location: str | None = None,
        activity: Any = None,
    ) -> Scripted:
        """Do nothing for ``secs``; the stall is noticed after a tenth of that, and looked at again after 10 s if it is
        to be known what the thread does."""
        since, self.at = self.at, self.at + secs * 0.1
        stacks = {
            "MainThread": ('File "train.py", line 88, in main', 'File "input.py", line 31, in next', "queue.get()"),
            "checkpoint": ('File "threading.py", line 355, in wait', "waiter.acquire()"),
        }
        stall = StallRecord(
            session=self.session, state="begin", phase="training", since=since, step=self.step,
            secs=secs * 0.1, timeout_secs=secs * 0.1, stacks=stacks, thread=thread, location=location,
        )  # fmt: skip
        self._record(stall)
        if activity is not None:
            self.at += 10
            self._record(replace(stall, state="lasts", same_frames=True, activity=activity, stacks={}))
        while self.at + 30 < since + secs:
            self.at += 30
            self.beat(self.at - since)
        self.at = since + secs
        self._spend("stall", secs)
        if ended:
            self._record(
                StallRecord(
                    session=self.session, state="end", phase="training", since=since, step=self.step,
                    secs=secs, timeout_secs=secs * 0.1,
                )
            )  # fmt: skip
        return self.beat(0.0 if ended else secs).flush()

    def freeze(self, secs: float) -> Scripted:
        """Do not run at all for a while, and say so afterwards."""
        self.at += secs
        self._spend("silent", secs)
        return self.beat()

    def beat(self, idle_secs: float = 0.0) -> Scripted:
        """Write a heartbeat; nothing has moved for ``idle_secs``."""
        self._record(
            HeartbeatRecord(
                session=self.session,
                phase="training",
                step=self.step,
                steps=self.done,
                steps_per_sec=self.rate * (1 + 0.04 * math.sin(self.at / 37)),
                progress_age_secs=idle_secs,
                progress_timeout_secs=300.0,
                activity_secs=dict(self.spent),
                threads=tuple(dict(thread) for thread in self._threads.values()),
                workers=tuple(self._seen(worker) for worker in self.cluster.values()),
            )
        )
        return self

    def worker(self, name: str, state: str, started_at: float | None = None, **how: Any) -> Scripted:
        """List a process of the cluster in heartbeats from now on: its state, and, if it was started again, when."""
        before = self.cluster.get(name, {"started_at": self.start, "steps": 0, "pid": 4100 + len(self.cluster)})
        begun = {"started_at": started_at, "steps": 0, "pid": before["pid"] + 100} if started_at is not None else {}
        self.cluster[name] = {
            **before, "name": name, "phase": "serving" if name.startswith("ps") else "training", "waiting_for": None,
            "error": None, "host": name.replace(":", "-"), "last_seen_at": self.at, "step": self.step,
            **begun, **how, "state": state,
        }  # fmt: skip
        return self

    def recover(self, secs: float, to_step: int | None, losses: int = 1) -> Scripted:
        """Lose the framework's session with a parameter server, and go on ``secs`` later, from an earlier step or, with
        None, from the same one."""
        before, self.at = self.step, self.at + secs
        self._spend("checkpoint_restore", secs)
        self.step = before if to_step is None else to_step
        restored = None if to_step is None else f"{self.directory}/model.ckpt-{to_step}"
        self._record(
            RecoveryRecord(
                session=self.session, error="UnavailableError: Connection reset by peer", losses=losses, step=before,
                restored_checkpoint=restored, restored_step=self.step, secs=secs,
            )
        )  # fmt: skip
        return self.beat()

    def _seen(self, worker: dict[str, Any]) -> dict[str, Any]:
        """What a heartbeat lists of a worker: one that is well was seen just now."""
        if worker["state"] in ("running", "waiting", "stalled"):
            worker["last_seen_at"] = self.at - 1
        if worker["state"] == "running":
            worker.update(step=self.step, steps=int((self.at - worker["started_at"]) * self.rate / 3))
        is_server = worker["name"].startswith("ps")
        return {**worker, **({"step": None, "steps": None} if is_server else {})}

    def say(self, text: str, severity: Any = "warn", **how: Any) -> Scripted:
        """The program says something of its run, now."""
        said = {"since": self.at, "at": self.at, "step": self.step, **how}
        self._record(NoticeRecord(session=self.session, severity=severity, text=text, **said))
        return self

    def stop(self, reason: Any = "completed", **how: Any) -> Scripted:
        """Save once more, and end with a stop record."""
        self.save()
        self._record(
            StopRecord(
                session=self.session,
                reason=reason,
                step=self.step,
                steps=self.done,
                activity_secs=dict(self.spent),
                **how,
            )
        )
        log = SessionLog(status=2).SerializeToString()
        self._write(event_prefix(self.at, 0, 7, len(log)) + log)
        return self.flush()

    def flush(self) -> Scripted:
        """Append to the file what was recorded since the last flush, at the time of the last record."""
        with self.path.open("ab") as file:
            file.write(self._pending)
        os.utime(self.path, (self.at, self.at))
        self._pending.clear()
        return self

    def _spend(self, bucket: str, secs: float) -> None:
        self.spent[bucket] = self.spent.get(bucket, 0.0) + secs

    def _tick(self, name: str, every: float) -> None:
        thread = self._threads[name]
        if thread["last_tick_at"] is None or self.at >= thread["last_tick_at"] + every:
            thread.update(ticks=thread["ticks"] + 1, last_tick_at=self.at, last_tick_secs=0.02)

    def _record(self, record: Any) -> None:
        summary = summary_bytes(record)
        self._write(event_prefix(self.at, self.step, 5, len(summary)) + summary)

    def _write(self, event: bytes) -> None:
        self._pending += frame(event)


def _thread(name: str, every: float) -> dict[str, Any]:
    return {
        "name": name, "state": "idle", "interval_secs": every, "ticks": 0, "failures": 0, "last_tick_at": None,
        "last_tick_secs": None, "overdue_secs": 0.0, "last_error": None, "last_failure_at": None,
    }  # fmt: skip
