"""Goodput against scripted truths, beside Google's ml-goodput-measurement; and what folding events costs.

A script says second by second what a run does: it starts, restores, trains at changing speed, saves, evaluates, hangs,
is frozen, has a full disk, is killed in any phase or ends by an error, and comes back or does not. Ours reads
the runtime's own heartbeats and its liveness file, as in a training, and nothing else; the peer's recorder
gets every step. Its calculator reads from Cloud Logging; here, from a list in memory. The events of another writer do
not show where the time went: the right answer is none, whether the run moves or stalls.

    python -m benchmarks.goodput [--quick]
"""

from __future__ import annotations

import contextlib
import io
import logging
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import numpy as np

from benchmarks.report import Row, print_table
from supervisor_core.base.options import Options
from supervisor_core.engine.monitor import SessionMonitor
from supervisor_core.engine.recorder import MOST_BEAT_SECS, BeatHistory
from supervisor_core.events.chunk import Chunk, Points, TelemetryMark
from supervisor_core.events.telemetry import (
    CheckpointRecord,
    DeathRecord,
    HeartbeatRecord,
    SessionRecord,
    StopRecord,
    ThreadStatus,
)
from supervisor_core.run.fold.goodput import GIVEN_UP_SECS
from supervisor_core.run.fold.run_fold import RunFold
from supervisor_core.run.model.run import BUCKETS, Run
from supervisor_core.run.watch.liveness import CHIEF, LivenessRecord

PEER = "ml-goodput-measurement"
GOAL_POINTS = 0.1
RUN_HOURS = 8
SAVE_EVERY_SECS = 600.0
WASTED, DOWNTIME = "wasted_progress_from_disruption", "infrastructure_recovery_from_disruption"
AT_RISK = "at_risk"
ENDS = ("starting", "restoring", "training", "checkpointing", "evaluating", "stalled", "frozen", "error")
"""In what a session is killed; or the error that ends it."""


class Script:
    """A run that knows where its time went. It is its own clock, and the tape that its records are written on."""

    def __init__(self, seed: int, peer: bool = True) -> None:
        self.random = random.Random(seed)
        self.began = self.now = (datetime.now(timezone.utc) - timedelta(days=2)).timestamp()
        self.truth = dict.fromkeys((*BUCKETS, AT_RISK), 0.0)
        self.marks: list[TelemetryMark] = []
        self.peer = peer_recorder(f"run-{seed}") if peer else None
        self.saved_step = self.step = 0
        self.unsaved_secs = 0.0
        self.live: tuple[float, HeartbeatRecord] | None = None
        self.history = BeatHistory(10.0)
        self.disk_full_until = 0.0
        sessions = self.random.randint(2, 6)
        first = self.random.randrange(len(ENDS))
        ends = [ENDS[(first + 3 * index) % len(ENDS)] for index in range(sessions)]
        if seed % 3 == 0:
            ends[-1] = "completed"
        for attempt, end in enumerate(ends, 1):
            secs = RUN_HOURS * 3600 / sessions * self.random.uniform(0.6, 1.4)
            self._session(attempt, secs, end)
            if attempt < sessions:
                self.truth[DOWNTIME] += self.frozen_secs + self._skip(self.random.uniform(20, 600))
        self._take_back(AT_RISK)
        self.ended = self.now - self.frozen_secs

    def wall(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now

    dropped = 0

    def write(self, record: Any, step: int | None = None, *, is_periodic: bool = False, **how: Any) -> None:
        """Take a record, as the runtime's recorder would; none where the disk is full. Each heartbeat is in the
        liveness file."""
        if isinstance(record, HeartbeatRecord):
            self.live = (self.now, record)
            record = self.history.take(record, is_periodic=is_periodic)
        if self.now < self.disk_full_until:
            self.history.reset()
            return
        if record is None:
            return
        self.marks.append(TelemetryMark(offset=len(self.marks), at=self.now, step=step or 0, record=record))

    def run(self) -> Run:
        """Return the run, folded from its records."""
        fold = RunFold("scripted")
        path = f"events.out.tfevents.{int(self.began)}.host.1.0"
        fold.update(
            [Chunk(path=path, from_start=True, first_at=self.began, last_at=self.marks[-1].at, marks=tuple(self.marks))]
        )
        if self.live is not None:
            at, beat = self.live
            fold.lives(
                LivenessRecord(
                    task=CHIEF, session=self.id, host="host", pid=1, started_at=self.began, written_at=at, beats=1,
                    interval_secs=10.0, phase=beat.phase or "", beat=beat, beat_at=at,
                )
            )  # fmt: skip
        return fold.run(self.now if self.is_over else self.now + GIVEN_UP_SECS + 1.0)

    def _session(self, attempt: int, secs: float, end: str) -> None:
        draw = self.random.uniform
        # A learned hang timeout would not call the second hang of a session a stall, if the first was longer.
        options = Options(hang_timeout_secs={"training": 300.0})
        self.id = str(attempt)
        self.frozen_secs = 0.0
        dead, self.live, self.history = self.live, None, BeatHistory(options.heartbeat_secs)
        self.is_over = end in ("completed", "error")
        self.monitor = SessionMonitor(
            SessionRecord(session=self.id, run="scripted", started_at=self.now, attempt=attempt),
            options=options,
            recorder=self,  # type: ignore[arg-type]
            threads=lambda: (),
            clock=self,
        )
        self.progress = self.monitor.progress
        if dead is not None:
            beat = dead[1]
            self.write(DeathRecord(session=beat.session, step=beat.step, elapsed_secs=beat.elapsed_secs, beat=beat))
        started_at, self.next_tick = self.now, self.now + 1.0
        self._record("job_start")
        self._record("tpu_init_start")
        self._spend(draw(10, 60), "program_startup")
        if end == "starting":
            return
        self._record("tpu_init_end")
        self._record("training_preparation_start")
        self.monitor.enter("restoring")
        self._spend(draw(5, 40), "checkpoint_restore")
        if end == "restoring":
            return
        self._record("training_preparation_end")
        self._take_back(WASTED)
        self.step = self.saved_step
        self.progress.step_read(self.step)
        previous = {} if dead is None else {"previous_step": dead[1].step or 0, "previous_seen_at": dead[0]}
        self.write(
            SessionRecord(
                session=self.id,
                attempt=attempt,
                host="host",
                pid=1,
                facade="script",
                started_at=started_at,
                restored_step=self.step,
                checkpoint_interval_secs=SAVE_EVERY_SECS,
                heartbeat_secs=options.heartbeat_secs,
                recorded_beat_secs=MOST_BEAT_SECS,
                **previous,  # type: ignore[arg-type]
            )
        )
        self.monitor.enter("training")
        self._train(started_at + secs)
        self._end(end)

    def _end(self, end: str) -> None:
        draw = self.random.uniform
        self.disk_full_until = 0.0
        if end == "checkpointing":
            self._spend(draw(0, 6), "unproductive_checkpoint_save")
        elif end == "evaluating":
            self.monitor.enter("evaluating")
            self._spend(draw(20, 200), "other")
        elif end == "stalled":
            self._spend(draw(400, 900), "stall")
        elif end in ("training", "frozen"):
            self._spend(draw(0, 1), "productive")  # in the middle of a step
        if end == "frozen":  # and never runs again, which cannot be distinguished from death
            self.frozen_secs = self._skip(draw(20, 600))
        if end == "completed":
            self._save("final")
            self._record("job_end")
        if self.is_over:
            self.monitor.enter("stopped")
            now = self.progress.snapshot()
            record = StopRecord(
                session=self.id,
                reason="completed" if end == "completed" else "error",
                step=self.step,
                steps=now.steps,
                activity_secs=now.activity_secs,
            )
            self.write(record)
            self.live = None

    def _take_back(self, bucket: str) -> None:
        """Let the steps since the last save have been in vain."""
        self.truth["productive"] -= self.unsaved_secs
        self.truth[bucket] += self.unsaved_secs
        self.unsaved_secs = 0.0

    def _skip(self, secs: float) -> float:
        """Let time pass without a look of the monitor."""
        self.now += secs
        self.next_tick = max(self.next_tick, self.now)
        return secs

    def _train(self, until: float) -> None:
        draw, pace = self.random.uniform, self.random.uniform(0.2, 2.0)
        next_save, next_evaluation = self.now + SAVE_EVERY_SECS, self.now + draw(1000, 3000)
        left = until - self.now
        hangs_at, freezes_at, fills_at = (self.now + draw(0, often) * left for often in (3, 1.5, 3))
        while self.now < until:
            began = self.now
            if self.peer is not None:
                self.peer.record_step_start_time(self.step, utc(began))
            if began > hangs_at:
                hangs_at = float("inf")
                self._spend(draw(400, 900), "stall")
            secs = pace * draw(0.8, 1.2)
            self._spend(secs / 2, "productive")
            if began > freezes_at:
                freezes_at = self.now + draw(0.2, 3) * left
                self.truth["silent"] += self._skip(draw(20, 1200))
                self.monitor.tick()
            self._spend(secs / 2, "productive")
            self.step += 1
            self.progress.run_ended(True, began, self.now)
            if began > fills_at:
                fills_at, self.disk_full_until = float("inf"), self.now + draw(60, 1200)
            if self.now > next_save:
                next_save += SAVE_EVERY_SECS
                self._save("timer")
            if self.now > next_evaluation:
                next_evaluation += draw(1000, 3000)
                pace = draw(0.2, 2.0)
                self._evaluate()

    def _save(self, trigger: Any) -> None:
        if self.now < self.disk_full_until:  # it fails, and no record can be written of that either
            return
        blocked, began = self.random.uniform(0.1, 6.0), self.now
        self._spend(blocked, "unproductive_checkpoint_save")
        self.progress.blocked(blocked)
        self.saved_step, self.unsaved_secs = self.step, 0.0
        path = f"/run/model.ckpt-{self.step}"
        record = CheckpointRecord(
            session=self.id, trigger=trigger, path=path, step=self.step, bytes=1, secs=blocked, blocked_secs=blocked
        )
        self.write(record, self.step)
        if self.peer is not None:  # in the form in which Orbax logs a save
            self.peer._cloud_logger.write_cloud_logging_entry(
                {
                    "event_type": "save",
                    "step": self.step,
                    "directory": "/run",
                    "checkpoint_manager_blocking_start_time": began,
                    "checkpoint_manager_blocking_duration_secs": blocked,
                    "checkpointer_blocking_duration_secs": blocked,
                    "wait_for_prev_duration_secs": 0.0,
                    "get_old_steps_duration_secs": 0.0,
                }
            )

    def _evaluate(self) -> None:
        if self.peer is not None:
            self.peer.record_custom_badput_event_start_time(utc(self.now), "evaluation")
        self.monitor.enter("evaluating")
        self._spend(self.random.uniform(20, 200), "other")
        self.monitor.enter("training")
        if self.peer is not None:
            self.peer.record_custom_badput_event_end_time(utc(self.now), "evaluation")

    def _spend(self, secs: float, bucket: str) -> None:
        self.truth[bucket] += secs
        if bucket == "productive":
            self.unsaved_secs += secs
        until = self.now + secs
        while self.next_tick <= until:
            self.now = self.next_tick
            self.next_tick += 1.0
            self.monitor.tick()
        self.now = until

    def _record(self, what: str) -> None:
        if self.peer is not None:
            getattr(self.peer, f"record_{what}_time")(utc(self.now))


class MemoryLog:
    """Stands where the peer's connection to Cloud Logging does."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []

    def write_cloud_logging_entry(self, entry: dict[str, Any]) -> None:
        self.entries.append(entry)

    def read_cloud_logging_entries(self, **_: Any) -> tuple[list[dict[str, Any]], tuple[Any, str]]:
        return self.entries, (None, "")

    def flush(self) -> None:
        pass


def utc(at: float) -> datetime:
    return datetime.fromtimestamp(at, tz=timezone.utc)


def peer_recorder(name: str) -> Any:
    """Return the peer's recorder; None where it is not installed."""
    try:
        from ml_goodput_measurement.src import goodput
    except ImportError:
        return None
    return goodput.GoodputRecorder(name, "log", logging_enabled=True, cloud_logger=MemoryLog())  # type: ignore[arg-type]


def peer_goodput(recorder: Any) -> float:
    """Return the goodput, from 0 to 1, that the peer computes from its log."""
    from ml_goodput_measurement.src import goodput

    with tempfile.TemporaryDirectory() as cache, contextlib.redirect_stdout(io.StringIO()):
        calculator = goodput.GoodputCalculator(
            recorder.job_name, "log", cloud_logger=recorder._cloud_logger, cache_dir=cache
        )
        return float(calculator.get_job_goodput()[0]) / 100.0


def errors(quick: bool) -> Iterator[Row]:
    """Measure by how many percentage points goodput, and the worst bucket, are off."""
    logging.getLogger().setLevel(logging.ERROR)
    logging.getLogger("supervisor_core").setLevel(logging.ERROR)
    scripts = [Script(seed) for seed in range(2 if quick else 20)]
    ratio, bucket, theirs = [], [], []
    for script in scripts:
        goodput, wall = script.run().goodput, script.ended - script.began
        assert abs(sum(script.truth.values()) - wall) < 1e-3
        true = script.truth["productive"] / wall
        ratio.append(abs((goodput.ratio or 0.0) - true) * 100)
        bucket.append(max(abs(goodput.secs[name] - secs) for name, secs in script.truth.items()) / wall * 100)
        if script.peer is not None:
            theirs.append(abs(peer_goodput(script.peer) - true) * 100)
    peers = {PEER: max(theirs)} if theirs else {}
    note = (
        f"{len(scripts)} runs of about {RUN_HOURS} h with freezes, hangs, full disks, and 1 to 5 kills in any phase; "
    )
    note += f"the mean error is {mean(ratio):.2g}"
    note += (
        f", the peer's {mean(theirs):.2g} (it leaves out first and unusual steps)"
        if theirs
        else f"; {PEER} is not installed"
    )
    goal, met = f"at most {GOAL_POINTS} points", max(ratio) <= GOAL_POINTS
    yield Row("goodput", "error of the goodput, worst run", "points", max(ratio), peers, goal, met, note)
    yield Row("goodput", "error of any bucket, worst run", "points", max(bucket), {}, goal, max(bucket) <= GOAL_POINTS)


def foreign(quick: bool) -> Iterator[Row]:
    """Count runs of other writers, of which some stall, that are given a goodput, which their events cannot give."""
    given, count = 0, 10 if quick else 100
    for seed in range(count):
        draw, now = random.Random(seed), 1e9
        walls = []
        for _ in range(draw.randint(10, 500)):
            now += draw.uniform(1.0, 60.0) + (draw.uniform(600.0, 7200.0) if draw.random() < 0.02 else 0.0)
            walls.append(now)
        steps = np.arange(len(walls))
        points = Points(100 * (steps + 1), steps, np.array(walls), np.ones(len(walls)))
        fold = RunFold("foreign")
        path = "events.out.tfevents.1000000000.host"
        fold.update([Chunk(path=path, from_start=True, first_at=1e9, last_at=now, scalars={"loss": points})])
        for later in (1.0, 3600.0):
            goodput = fold.run(now + later).goodput
            given += goodput.ratio is not None or goodput.secs["productive"] > 0
    what = f"goodput given for {count} runs of other writers, moving or stalled"
    yield Row("goodput", what, "figures", given, {}, "0", given == 0)


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def costs(quick: bool) -> Iterator[Row]:
    """Measure what a record costs to fold, and a look at a week's run that has grown by one."""
    count = 6_000 if quick else 60_000
    threads = tuple(ThreadStatus(name=name, state="idle", interval_secs=120) for name in ("a", "b", "c", "d"))
    marks = []
    for beat in range(count + 1):
        ticked = tuple(replace(each, ticks=beat // 12, last_tick_at=1e9 + beat // 12 * 120) for each in threads)
        record = HeartbeatRecord(
            session="a",
            phase="training",
            step=50 * beat,
            steps=50 * beat,
            activity_secs={"productive": 10.0 * beat},
            threads=ticked,
        )
        marks.append(TelemetryMark(offset=beat, at=1e9 + 10 * beat, step=50 * beat, record=record))
    path, now = "events.out.tfevents.1000000000.host.1.0", 1e9 + 10 * count
    fold = RunFold("week")
    first = Chunk(path=path, from_start=True, first_at=1e9, last_at=now, marks=tuple(marks[:-1]))
    began = time.perf_counter()
    fold.update([first])
    fold.run(now)
    per_event = (time.perf_counter() - began) / count
    later = Chunk(path=path, from_start=False, last_at=now, marks=(marks[-1],))
    looks = []
    for _ in range(20):
        began = time.perf_counter()
        fold.update([later])
        fold.run(now)
        looks.append(time.perf_counter() - began)
    what = f"the model of {count:,} heartbeats of 4 threads"
    yield Row("goodput", f"{what}: folding one", "us", per_event * 1e6, {}, "in proportion to the events", None)
    yield Row("goodput", f"{what}: one more, and a look", "ms", min(looks) * 1e3, {}, "nothing folded again", None)


def rows(quick: bool) -> list[Row]:
    """Measure errors, then what cannot be known, then costs."""
    return [*errors(quick), *foreign(quick), *costs(quick)]


if __name__ == "__main__":
    print_table(rows("--quick" in sys.argv))
