"""Runs as trainers leave them, with kills, stalls and whole clusters."""

from __future__ import annotations

import re
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from supervisor_core.events.event_format import event_prefix
from supervisor_core.events.telemetry import CheckpointRecord, summary_bytes
from tests.story.session import Scripted

RESUME_REASONS = (
    "DataLoader without position: 312 batches will repeat",
    "<b>" + "x" * 5000,
    "another number of workers",
)
"""Why a resume was not exact; one is long and looks like markup."""


def checkpoint_file(run: Path, step: int) -> None:
    """Leave the files of a checkpoint, so that it is on disk."""
    for suffix in (".index", ".data-00000-of-00001"):
        (run / f"model.ckpt-{step}{suffix}").write_bytes(b"x")


def write_stormy(run: Path, now: float, running: bool = True, reasons: tuple[str, ...] = RESUME_REASONS) -> Scripted:
    """A run of most of an hour: killed twice, preempted once, a stall, failed saves, a service that was late. Its
    resumes were not exact, unknown, observed to be exact."""
    first = Scripted(run, now - 3300, rate=3.0)
    first.train(700)
    resume = {"resume_exact": False, "resume_reasons": reasons}
    second = Scripted(run, now - 2440, attempt=2, step=first_save(first, 600), rate=3.1, **resume)
    second.train(400, late_summaries=True).train(60).stall(90).train(200)
    second.stop("signal", signal="SIGTERM")
    third = Scripted(run, now - 1580, attempt=3, step=second.step, rate=3.0)
    third.train(260, failing_saves=True).train(160)
    placed = {"labels": {"team": "vision", "user": "ada"}, "world_size": 4, "device_count": 4, "device_kind": "H100"}
    observed = {"resume_exact": True, "observed": 3}
    fourth = Scripted(run, now - 1010, attempt=4, step=second.step, rate=3.2, placed=placed, **observed)
    fourth.train(990)
    if not running:
        fourth.stop()
    for step in newest_saves(run, 3):
        checkpoint_file(run, step)
    return fourth


def write_cluster(run: Path, now: float, running: bool = True) -> Scripted:
    """A chief, two parameter servers and three workers: a worker that was started again, a parameter server that was
    lost and took the session with it, a chief that was killed and found its model alive; at last a worker is lost,
    another stalls."""
    names = ("ps:0", "ps:1", "worker:0", "worker:1", "worker:2")
    first = Scripted(run, now - 3300, rate=3.0)
    for name in names:
        waits = {} if name.startswith("ps") else {"waiting_for": "the chief"}
        first.worker(name, "waiting" if waits else "running", **waits)
    first.beat().train(40)
    for name in names[2:]:
        first.worker(name, "running")
    first.train(420).worker("worker:1", "lost").train(110)
    first.worker("worker:1", "waiting", first.at - 5, waiting_for="the model").train(20)
    first.worker("worker:1", "running").train(150)
    first.worker("ps:0", "lost").beat()
    for name in names[2:]:
        first.worker(name, "waiting", waiting_for="ps:0")
    first.beat().at += 50
    first.worker("ps:0", "running", first.at - 8)
    first.recover(58, to_step=first.step - 190, losses=3)
    for name in names[2:]:
        first.worker(name, "running")
    first.train(520)
    second = Scripted(run, first.at + 95, attempt=2, step=first.step + 260, rate=3.1, adopted=True)
    second.cluster = {name: dict(worker) for name, worker in first.cluster.items()}
    second.train(700).recover(12, to_step=None).train(260)
    second.worker("worker:2", "stalled").train(140).worker("worker:2", "running").train(300)
    second.worker("worker:1", "lost").train(100)
    second.worker("worker:0", "stalled").train(max(30, now - second.at))
    if not running:
        for name in names:
            second.worker(name, "stopped")
        second.beat().stop()
    for step in newest_saves(run, 3):
        checkpoint_file(run, step)
    return second


def write_big_cluster(run: Path, now: float, count: int = 100) -> Scripted:
    """A chief of ``count`` workers, of which one is lost, one has failed, one was started again, and one flaps."""
    chief = Scripted(run, now - 1800, rate=3.0, beat_every=20.0)
    for number in range(count):
        chief.worker(f"worker:{number}", "waiting", waiting_for="the chief")
    chief.beat().train(20)
    for number in range(count):
        chief.worker(f"worker:{number}", "running")
    chief.train(500)
    for number in range(10, 30):
        chief.worker(f"worker:{number}", "stalled")
    chief.train(60)
    for number in range(10, 30):
        chief.worker(f"worker:{number}", "running")
    chief.train(300).worker("worker:41", "lost").train(100)
    chief.worker("worker:41", "running", chief.at).train(200)
    for _ in range(5):
        chief.worker("worker:7", "stalled").train(40).worker("worker:7", "running").train(40)
    chief.worker("worker:63", "failed", error="ResourceExhaustedError: OOM when allocating tensor").train(60)
    chief.worker("worker:88", "lost").train(max(20, now - chief.at))
    return chief


@contextmanager
def alive(*sessions: Scripted) -> Iterator[None]:
    """Let sessions go on, each second, as their processes would: those that stall write heartbeats, the others train.
    Events that lie ahead do not keep a run alive: what counts is that they move."""
    ended = threading.Event()

    def go_on() -> None:
        since = {id(session): session.at - session.spent["stall"] for session in sessions if "stall" in session.spent}
        while not ended.wait(1.0):
            for session in sessions:
                now = time.time()
                if id(session) in since:
                    session.at = max(session.at, now)
                    session.beat(now - since[id(session)]).flush()
                else:
                    session.train(max(0.0, now - session.at))

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def write_many(logdir: Path, count: int, now: float) -> None:
    """Runs of a few records each, in states of all kinds: copies of nine."""
    models: list[tuple[str, bytes]] = []
    for number in range(9):
        run = Scripted(logdir / "models" / f"run-{number}", now - 400 - number * 30, tags=("loss",)).train(60)
        if number % 3:
            run.stop("error" if number % 2 else "completed", error="ValueError: x" if number % 2 else None)
        models.append((run.path.name, run.path.read_bytes()))
    shutil.rmtree(logdir / "models")
    for number in range(count):
        directory = logdir / f"group-{number % 50:02d}" / f"run-{number:05d}"
        directory.mkdir(parents=True)
        name, data = models[number % len(models)]
        (directory / name).write_bytes(data)


def write_checkpoints(run: Path, count: int, start: float, every: float) -> None:
    """A run with that many checkpoints, one in a thousand failed, written from one record's bytes."""
    session = Scripted(run, start, save_every=every, tags=("loss",))
    good, bad = (
        summary_bytes(
            CheckpointRecord(
                session=session.session, trigger="timer", path=None if error else "model.ckpt-000000000", step=0,
                bytes=1000, secs=1.0, blocked_secs=0.1, consistent=True, verified=True, error=error,
            )
        )
        for error in (None, "OSError: no space left")
    )  # fmt: skip
    for number in range(1, count + 1):
        at, step = start + number * every, number * 10
        summary = bad if number % 1000 == 0 else good.replace(b"000000000", b"%09d" % step)
        session._write(event_prefix(at, step, 5, len(summary)) + summary)
    session.at, session.step, session.done = start + count * every, count * 10, count * 10
    session.spent["productive"] = count * every
    session.beat().flush()


def first_save(session: Scripted, secs: float) -> int:
    """The step of a session after ``secs`` of training."""
    return int(secs * session.rate)


def newest_saves(run: Path, count: int) -> list[int]:
    """The largest steps whose checkpoints are named in the run's events."""
    events = b"".join(path.read_bytes() for path in run.glob("events*"))
    return sorted({int(step) for step in re.findall(rb"model\.ckpt-(\d+)\"", events)})[-count:]


def write_night(logdir: Path, now: float, healthy: int = 60) -> dict[str, float]:
    """A fleet over ten hours: a node that took down 14 runs within 40 s, of which one stays down, a storage that failed
    the saves of 6 runs, a run whose program fails, one that hangs for a while; the others are well. Returns when."""
    outage, storage = now - 6 * 3600.0, now - 3 * 3600.0
    sparse = {"tags": ("loss",), "rate": 0.1, "save_every": 1800.0, "beat_every": 60.0}
    for number in range(14):
        run, placed = logdir / "sweep" / f"lr={number:02d}", {"labels": {"team": "vision"}}
        first = Scripted(run, now - 9.5 * 3600, placed=placed, host="gpu-7", **sparse)
        first.train(outage + number * 3.0 - first.at)
        if number != 9:
            second = Scripted(
                run, first.at + 280 + number * 5, attempt=2, step=first.step - 40, placed=placed, host="gpu-8", **sparse
            )
            second.train(now - second.at)
    for number in range(6):
        run = Scripted(
            logdir / "speech" / f"seed-{number}", now - 8 * 3600, placed={"labels": {"team": "speech"}},
            host=f"cpu-{number}", **sparse,
        )  # fmt: skip
        run.train(storage + number * 10 - run.at).save("OSError: [Errno 5] Input/output error").train(1200)
        run.train(now - run.at)
    bad = Scripted(logdir / "speech" / "broken", now - 4 * 3600, host="cpu-9", **sparse).train(3600)
    bad.stop("error", error="ValueError: no such file: shard-7")
    slow = Scripted(logdir / "text" / "long", now - 9 * 3600, host="cpu-8", **sparse).train(3600)
    slow.stall(900)
    slow.train(now - slow.at)
    for number in range(healthy):
        run = Scripted(logdir / "text" / f"seed-{number:03d}", now - 7 * 3600, host=f"tpu-{number % 8}", **sparse)
        run.train(now - run.at if number % 3 else 3 * 3600)
        if not number % 3:
            run.stop()
    return {"outage": outage, "storage": storage}
