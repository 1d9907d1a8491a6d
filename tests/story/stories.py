"""Stories of runs, each as its writer leaves it on disk, and what is to be said of it."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from supervisor_core.events.event_format import event_prefix, frame, scalar_prefix, version_event
from supervisor_core.events.telemetry import HeartbeatRecord, LaunchRecord, StallRecord, StopRecord, summary_bytes
from supervisor_core.run.fold.bounds import KEPT_SAVES
from supervisor_core.storage.directory import RENAMED
from tests.checkpoint.bundle_writer import write_run
from tests.story.run_file import write_liveness
from tests.story.session import Scripted as EveryStep

Scripted = partial(EveryStep, write_every=200)
HOUR, DAY = 3600.0, 86400.0
NO_SPACE = "OSError: [Errno 28] No space left on device"
ONE, NAN = b"\0\0\x80\x3f", b"\0\0\xc0\x7f"
NO_PID = 1 << 30
"""No process has so high a number."""

GoesOn = Callable[[float], Any]
"""Lets the writer go on until a wall time; a dead one does nothing."""


def nothing(until: float) -> None:
    """The writer is dead, or done."""


@dataclass(frozen=True)
class Story:
    """What happens, and what is said of it then."""

    write: Callable[[Path, float], GoesOn]
    """Writes the run up to a wall time; returns how it goes on."""
    says: tuple[str, ...]
    """Severity and kind of each finding, the worst first."""
    words: str = ""
    """Some words of the first sentence."""


def trains(session: EveryStep, **how: Any) -> GoesOn:
    """Go on training."""
    return lambda until: session.train(max(0.0, until - session.at), **how)


def _well(run: Path, now: float) -> GoesOn:
    return trains(Scripted(run, now - 2 * HOUR).train(2 * HOUR - 10))


def _copied(run: Path, now: float) -> GoesOn:
    """A copy of the run that trains, which goes on."""
    original = run.parent / "trains"
    if not original.exists():
        _well(original, now)
    shutil.copytree(original, run)
    return nothing


def _new(run: Path, now: float) -> GoesOn:
    return trains(Scripted(run, now - 30).train(20))


def _hangs(run: Path, now: float, **where: Any) -> GoesOn:
    session = Scripted(run, now - HOUR).train(HOUR - 700)
    session.stall(now - session.at, ended=False, **where)
    since = now - 690

    def goes_on(until: float) -> None:
        while session.at + 10 <= until:
            session.at += 10
            session.beat(session.at - since)
        session.flush()

    return goes_on


def _hangs_somewhere(run: Path, now: float) -> GoesOn:
    return _hangs(run, now, thread="MainThread", location="/home/me/live.py:15 load", activity="waits")


def _killed(run: Path, now: float, ago: float = 300.0) -> GoesOn:
    Scripted(run, now - HOUR - ago).train(HOUR)
    return nothing


def _killed_long_ago(run: Path, now: float) -> GoesOn:
    return _killed(run, now, 2 * DAY)


def _failed(run: Path, now: float, ago: float = 300.0) -> GoesOn:
    Scripted(run, now - HOUR - ago).train(HOUR).stop("error", error="ValueError: no such class at train.py:31 in step")
    return nothing


def _failed_long_ago(run: Path, now: float) -> GoesOn:
    return _failed(run, now, 2 * DAY)


def _ended(run: Path, now: float, reason: str = "completed", **how: Any) -> GoesOn:
    Scripted(run, now - HOUR).train(HOUR - 300).stop(reason, **how)
    return nothing


def _stopped_by_a_signal(run: Path, now: float) -> GoesOn:
    return _ended(run, now, "signal", signal="SIGTERM")


def _stopped_itself(run: Path, now: float) -> GoesOn:
    return _ended(run, now, "requested")


def _nothing_to_do(run: Path, now: float) -> GoesOn:
    first = Scripted(run, now - HOUR).train(1200)
    first.stop()
    Scripted(run, now - 600, attempt=2, step=first.step).stop()
    return nothing


def _restarts(run: Path, now: float, count: int, every: float = 600.0) -> EveryStep:
    """Killed again and again; the last session is alive."""
    step = 0
    for attempt in range(1, count + 1):
        start = now - (count - attempt + 1) * every
        session = Scripted(run, start, attempt=attempt, step=step)
        session.train(every - (10 if attempt == count else 60))
        step = session.step - 600
    return session


def _restarted_once(run: Path, now: float) -> GoesOn:
    return trains(_restarts(run, now, 2))


def _loops(run: Path, now: float) -> GoesOn:
    return trains(_restarts(run, now, 5))


def _looped_and_died(run: Path, now: float) -> GoesOn:
    _restarts(run, now - 300, 5)
    return nothing


def _looped_and_completed(run: Path, now: float) -> GoesOn:
    _restarts(run, now, 5).stop()
    return nothing


def _launches_die(run: Path, now: float, *, given_up: bool = False) -> GoesOn:
    """A program under a restarter that dies before its first event, again and again."""
    run.mkdir(parents=True)
    path = run / f"events.out.tfevents.{int(now - 900):010d}.trainer-0.9.tb-supervisor"
    path.write_bytes(frame(version_event(now - 900)))
    for attempt in range(1, 5):
        at = now - 900 + attempt * 180
        is_last = attempt == 4
        common = {"launch": f"launch-{attempt}", "attempt": attempt, "started_at": at, "host": "trainer-0", "pid": 31}
        begin = LaunchRecord(state="begin", **common)
        end = LaunchRecord(
            state="end", cause="error", exit_code=1, error="ImportError at train.py:3", counted=True,
            action="end" if is_last and given_up else "restart", reason="no progress", backoff_secs=30.0, **common,
        )  # fmt: skip
        with path.open("ab") as file:
            for when, record in ((at, begin), (at + 20, end))[: 2 if not is_last or given_up else 1]:
                summary = summary_bytes(record)
                file.write(frame(event_prefix(when, 0, 5, len(summary)) + summary))
    return nothing


def _other_writer_dies(run: Path, now: float) -> GoesOn:
    """Each launch writes some events, and its session has no record."""
    _launches_die(run, now)
    for attempt in range(1, 4):
        at = now - 900 + attempt * 180
        points = (event_prefix(at + step, step, 5, 0)[:-2] + scalar_prefix("loss") + ONE for step in range(2, 18))
        (run / f"events.out.tfevents.{int(at)}.other").write_bytes(b"".join(map(frame, [version_event(at), *points])))
    return nothing


def _given_up(run: Path, now: float) -> GoesOn:
    return _launches_die(run, now, given_up=True)


def _plain_failed(run: Path, now: float, stderr: str = "", **end: Any) -> GoesOn:
    """A program without telemetry that its restarter has given up; what it printed is all that is known."""
    _under_a_restarter(run, now, ago=300.0, launch=run.name)
    record = LaunchRecord(launch=run.name, state="end", cause="error", exit_code=1, action="end", reason="no progress",
                          attempt=1, started_at=now - 4300, host="trainer-0", pid=31, stderr=stderr, **end)  # fmt: skip
    summary = summary_bytes(record)
    with (run / "events.out.tfevents.1.restarter").open("ab") as file:
        file.write(frame(event_prefix(now - 290, 0, 5, len(summary)) + summary))
    return nothing


def _plain_raised(run: Path, now: float) -> GoesOn:
    said = "[rank1]: torch.cuda.OutOfMemoryError: no room\n"
    return _plain_failed(run, now, said, error="OutOfMemoryError at train.py:3 in step on rank 1")


def _plain_ended(run: Path, now: float) -> GoesOn:
    return _plain_failed(run, now, "epoch 1\ntrain: cannot open a.csv\n")


def _cannot_save(run: Path, now: float) -> GoesOn:
    session = Scripted(run, now - HOUR).train(HOUR - 900)
    session.train(890, failing_saves=True)
    return trains(session, failing_saves=True)


def _never_saved(run: Path, now: float) -> GoesOn:
    return trains(Scripted(run, now - HOUR).train(HOUR - 10, failing_saves=True), failing_saves=True)


def _may_not_save(run: Path, now: float) -> GoesOn:
    session = Scripted(run, now - HOUR).train(HOUR - 200)
    session._next_save = now + DAY
    for number in range(3):
        staged = f"/runs/a/checkpoints/ckpt-{number}.saving-6f1d3c0a9b7e4d21-0{number}/tree.json"
        session.train(60).save(f"PermissionError: [Errno 13] Permission denied: '{staged}'")
    return trains(session)


def _one_save_failed(run: Path, now: float) -> GoesOn:
    session = Scripted(run, now - HOUR).train(HOUR - 100).save(NO_SPACE)
    return trains(session.train(90))


def _saves_no_more(run: Path, now: float, began: float = 2 * HOUR) -> GoesOn:
    session = Scripted(run, now - began).train(began / 2)
    session._next_save = now + DAY
    return trains(session.train(began / 2 - 10))


def _nan(run: Path, now: float, secs: float = 590, **how: Any) -> GoesOn:
    session = Scripted(run, now - HOUR - secs).train(HOUR - 10)
    _files(run)
    session.nan_from = session.step + 1
    session.train(secs, **how)
    return trains(session, **how)


def _nan_for_hours(run: Path, now: float) -> GoesOn:
    """It has made more saves in doubt than a reader of many runs keeps."""
    return _nan(run, now, (KEPT_SAVES + 10) * 120.0)


def _nan_without_doubts(run: Path, now: float) -> GoesOn:
    """The program writes the loss by itself: its saves are not in doubt."""
    session = Scripted(run, now - HOUR - (KEPT_SAVES + 10) * 120.0, is_doubted=False).train(HOUR - 10)
    _files(run)
    session.nan_from = session.step + 1
    return trains(session.train((KEPT_SAVES + 10) * 120.0))


def _nan_in_a_file_of_its_own(run: Path, now: float) -> GoesOn:
    """The program writes a loss by a writer of its own into the run's directory."""
    session = Scripted(run, now - HOUR).train(HOUR - 10)
    _files(run)
    points = ((now - 3000 + step * 100, step * 1000, ONE if step < 27 else NAN) for step in range(30))
    found = [event_prefix(at, step, 5, 0)[:-2] + scalar_prefix("train/loss") + value for at, step, value in points]
    (run / "events.out.tfevents.1.own").write_bytes(b"".join(map(frame, [version_event(now - 3000), *found])))
    return trains(session)


def _nan_and_no_saves(run: Path, now: float) -> GoesOn:
    return _nan(run, now, failing_saves=True)


def _nan_and_completed(run: Path, now: float) -> GoesOn:
    session = Scripted(run, now - HOUR).train(HOUR - 600)
    session.nan_from = session.step + 1
    session.train(300).stop()
    return nothing


def _says(run: Path, now: float, ago: float = 60.0) -> GoesOn:
    session = Scripted(run, now - 3 * HOUR).train(3 * HOUR - ago).say("accuracy fell", "page").say("lr is 0.1", "info")
    return trains(session.train(ago - 10))


def _said(run: Path, now: float) -> GoesOn:
    return _says(run, now, HOUR + 60.0)


def _slow(run: Path, now: float, share: float = 1 / 19, hours: float = 6.0) -> GoesOn:
    session = Scripted(run, now - hours * HOUR, save_every=600.0).train((hours - 0.4) * HOUR)
    session.rate *= share
    return trains(session.train(0.4 * HOUR - 10))


def _slow_and_young(run: Path, now: float) -> GoesOn:
    return _slow(run, now, hours=1.5)


def _a_little_slower(run: Path, now: float) -> GoesOn:
    return _slow(run, now, share=0.8)


def _cluster(run: Path, now: float) -> EveryStep:
    session = Scripted(run, now - HOUR)
    for name in ("ps:0", "worker:1", "worker:2"):
        session.worker(name, "running")
    return session.train(HOUR - 1800)


def _worker_lost(run: Path, now: float) -> GoesOn:
    session = _cluster(run, now).worker("worker:1", "lost")
    return trains(session.train(1790))


def _rank_failed(run: Path, now: float) -> GoesOn:
    session = Scripted(run, now - HOUR)
    for name in ("rank:1", "rank:2"):
        session.worker(name, "running")
    session.train(HOUR - 1800).worker("rank:1", "failed", error="KeyError: 1")
    return trains(session.train(1790))


def _worker_stalls(run: Path, now: float) -> GoesOn:
    session = _cluster(run, now).worker("worker:2", "stalled")
    return trains(session.train(1790))


def _straggles(run: Path, now: float) -> GoesOn:
    session = _cluster(run, now).train(1700)
    for name, own_secs in (("worker:1", 0.02), ("worker:2", 0.09), ("worker:3", 0.03)):
        session.worker(name, "running", pace={"step_secs": 0.1, "own_secs": own_secs})
    return trains(session.train(90))


def _worker_waits(run: Path, now: float) -> GoesOn:
    session = _cluster(run, now).train(1730).worker("worker:2", "waiting", waiting_for="ps:0")
    return trains(session.train(60).worker("worker:2", "running"))


def _cluster_lost(run: Path, now: float) -> GoesOn:
    _cluster(run, now).worker("worker:1", "lost").train(1200)
    return nothing


def _thread(run: Path, now: float, **state: Any) -> GoesOn:
    session = Scripted(run, now - 2 * HOUR).train(HOUR)
    session._threads["summary"].update(state)
    ticks = session._tick

    def tick(name: str, every: float) -> None:
        if name != "summary":
            ticks(name, every)
        session._threads["summary"].update(state)

    session._tick = tick  # type: ignore[method-assign]
    return trains(session.train(HOUR - 10))


def _thread_failed(run: Path, now: float) -> GoesOn:
    return _thread(run, now, state="failed", last_error="RuntimeError: queue is closed")


def _thread_overdue(run: Path, now: float) -> GoesOn:
    return _thread(run, now, state="overdue", overdue_secs=2400.0)


def _recovers_all_the_time(run: Path, now: float) -> GoesOn:
    session = Scripted(run, now - HOUR).train(HOUR - 1200)
    for _ in range(4):
        session.train(200).recover(20, session.step - 300)
    return trains(session.train(now - session.at - 10))


def _files(run: Path) -> None:
    """Make the files of the checkpoints that were saved."""
    write_run(run, [int(path.rpartition("-")[2]) for path in _saves_of(run)])


def _full_disk(run: Path, now: float) -> EveryStep:
    session = Scripted(run, now - HOUR - 300).train(HOUR - 900)
    _files(run)
    return session.train(890, failing_saves=True)


def _cannot_write(run: Path, now: float, error: str = NO_SPACE, logdir: Path | None = None) -> GoesOn:
    """Since a quarter of an hour nothing reaches the disk but the liveness file, which is in memory."""
    session = Scripted(run, now - HOUR, placed={"logdir": str(logdir or run)}).train(HOUR - 900)
    written = session.path.stat().st_size

    def goes_on(until: float) -> None:
        session.train(max(0.0, until - session.at), failing_saves=True)
        os.truncate(session.path, written)
        failed = int((session.at - (now - 900)) // session.save_every)
        beat = HeartbeatRecord(
            session=session.session, phase="training", step=session.step, steps=session.done, steps_per_sec=10.0,
            progress_timeout_secs=300.0, activity_secs=dict(session.spent),
        )  # fmt: skip
        write_liveness(run, session=session.session, pid=4001, started_at=session.start, written_at=session.at,
                       step=session.step, beat=beat, beat_at=session.at, save_failures=failed,
                       save_failures_in_a_row=failed, save_error=error, events_error=error)  # fmt: skip

    goes_on(now - 2)
    return goes_on


def _renamed(run: Path, now: float) -> GoesOn:
    before = run.with_name(f"{run.name} before")
    return _cannot_write(run, now, f"{before} {RENAMED} {run}: move it back, nothing is written until then", before)


def _killed_with_a_full_disk(run: Path, now: float) -> GoesOn:
    _full_disk(run, now)
    return nothing


def _failed_with_a_full_disk(run: Path, now: float) -> GoesOn:
    session = _full_disk(run, now)
    session._record(StopRecord(session=session.session, reason="error", error="OSError: no room", step=session.step))
    session.flush()
    return nothing


def _killed_with_nan(run: Path, now: float) -> GoesOn:
    session = Scripted(run, now - HOUR - 300).train(HOUR - 900)
    session.nan_from = session.step + 1
    session.train(890)
    _files(run)
    return nothing


def _nan_and_a_forged_save(run: Path, now: float) -> GoesOn:
    """Its newest good checkpoint is in another run's directory."""
    session = Scripted(run, now - HOUR - 300).train(HOUR - 900).save(directory=run.parent / "trains")
    session.nan_from = session.step + 1
    session.train(890)
    _files(run)
    return nothing


def _restarter_waits(run: Path, now: float) -> GoesOn:
    """It was killed, and its restarter waits before it starts it again."""
    session = Scripted(run, now - HOUR).train(HOUR - 30)
    end = LaunchRecord(launch=run.name, state="end", cause="signal", signal="SIGKILL", action="restart", attempt=1,
                       session=session.session, started_at=now - HOUR - 5, host="trainer-0", pid=31, counted=True,
                       backoff_secs=3000.0)  # fmt: skip
    summary = summary_bytes(end)
    with (run / "events.out.tfevents.1.restarter").open("ab") as file:
        file.write(frame(version_event(now - HOUR - 5)) + frame(event_prefix(now - 5, 0, 5, len(summary)) + summary))
    return nothing


def _passed_over(run: Path, now: float) -> GoesOn:
    """A damaged checkpoint was passed over, and the next ones are good."""
    first = Scripted(run, now - HOUR).train(1500)
    skipped = ({"path": _saves_of(run)[-1], "reason": "model.ckpt: checksum of block 3 is wrong"},)
    return trains(Scripted(run, now - 1800, attempt=2, step=first.step - 2400, skipped=skipped).train(1790))


def _damaged(run: Path, now: float) -> GoesOn:
    first = Scripted(run, now - HOUR).train(1500)
    newest = first.step - first.step % 10
    saved = [name for name in _saves_of(run)]
    skipped = ({"path": saved[-1], "reason": "model.ckpt: checksum of block 3 is wrong"},)
    _files(run)
    os.truncate(f"{saved[-1]}.data-00000-of-00001", 700)
    second = Scripted(run, now - 1800, attempt=2, step=newest - 2400, skipped=skipped)
    second._next_save = now + DAY
    return trains(second.train(1790))


def _saves_of(run: Path) -> list[str]:
    from supervisor_core.run.watch.logdir_watch import LogdirWatch

    watched = LogdirWatch(str(run)).refresh().runs["."]
    return [saved.path for saved in watched.run.checkpoints if saved.path]


def _not_captured(run: Path, now: float) -> GoesOn:
    session = Scripted(run, now - HOUR)
    session.lacks = ("The state of ema is not captured.",)
    session.train(HOUR - 10)
    _files(run)
    return trains(session)


def _in_doubt(run: Path, now: float) -> GoesOn:
    session = Scripted(run, now - HOUR).train(HOUR - 100).save(doubt="The loss was NaN when it was saved.").flush()
    _files(run)
    session._next_save = now + DAY
    return trains(session.train(90))


def _not_exactly(run: Path, now: float) -> GoesOn:
    first = Scripted(run, now - HOUR).train(1500)
    reasons = ("DataLoader without position: 312 batches will repeat", "another number of workers")
    second = Scripted(run, now - 1800, attempt=2, step=first.step, resume_exact=False, resume_reasons=reasons)
    return trains(second.train(1790))


def _saves_too_rarely(run: Path, now: float) -> GoesOn:
    step = 0
    for attempt in range(1, 6):
        start = now - (6 - attempt) * 3 * HOUR
        session = Scripted(run, start, attempt=attempt, step=step, save_every=2 * HOUR)
        session.train(3 * HOUR - (10 if attempt == 5 else 120))
        step = session.step - 3000
    return trains(session)


def _other_writer(
    run: Path, now: float, ago: float = 0.0, name: str = "events.out.tfevents.1.other", last: bytes = ONE
) -> GoesOn:
    run.mkdir(parents=True)
    path = run / name
    path.write_bytes(frame(version_event(now - ago - 3000)))
    step = 0

    def goes_on(until: float) -> None:
        nonlocal step
        with path.open("ab") as file:
            while (at := now - ago - 3000 + step * 10) <= until:
                step += 1
                value = last if at > now - ago - 300 else ONE
                file.write(frame(event_prefix(at, step, 5, 0)[:-2] + scalar_prefix("loss") + value))

    goes_on(now - ago)
    return nothing if ago else goes_on


def _other_writer_silent(run: Path, now: float) -> GoesOn:
    return _other_writer(run, now, HOUR)


def _other_writer_here(run: Path, now: float, ago: float = 30.0, pid: int = NO_PID, last: bytes = ONE) -> GoesOn:
    return _other_writer(run, now, ago, f"events.out.tfevents.{int(now) - 3000}.{socket.gethostname()}.{pid}.0", last)


def _other_writer_gone_and_read(run: Path, now: float) -> GoesOn:
    """A process, this one, reads its file, as TensorBoard does."""
    _other_writer_here(run, now, pid=NO_PID + 2)
    (path,) = run.iterdir()
    os.open(path, os.O_RDONLY)
    return nothing


def _other_writer_gone_with_nan(run: Path, now: float) -> GoesOn:
    return _other_writer_here(run, now, pid=NO_PID + 1, last=NAN)


def _other_writer_silent_with_nan(run: Path, now: float, ago: float = HOUR / 2) -> GoesOn:
    return _other_writer(run, now, ago, last=NAN)


def _other_writer_hangs(run: Path, now: float) -> GoesOn:
    """Its process, this one, runs and has the file open."""
    _other_writer_here(run, now, HOUR, os.getpid())
    (path,) = run.iterdir()
    os.open(path, os.O_WRONLY)
    return nothing


def _other_writer_closed(run: Path, now: float) -> GoesOn:
    """A notebook has closed its writer, and its process, this one, runs; the original of a copy looks the same."""
    name = f"events.out.tfevents.{int(now)}.{socket.gethostname()}.{os.getpid()}.0"
    return _other_writer(run, now, 2 * HOUR, name)


def _other_writer_of_a_moment(run: Path, now: float) -> GoesOn:
    """What `add_hparams` writes into a directory of its own: the process that wrote it trains on."""
    run.mkdir(parents=True)
    path = run / f"events.out.tfevents.{int(now) - 3600}.{socket.gethostname()}.{os.getpid()}.1"
    point = event_prefix(now - HOUR, 1, 5, 0)[:-2] + scalar_prefix("hparam/accuracy") + ONE
    path.write_bytes(frame(version_event(now - HOUR)) + frame(point))
    os.open(path, os.O_WRONLY)
    return nothing


def _other_writer_a_year_ahead(run: Path, now: float) -> GoesOn:
    write = _other_writer(run, now + 365 * DAY)
    (path,) = run.iterdir()

    def goes_on(until: float) -> None:
        write(until + 365 * DAY)
        os.utime(path, (until, until))

    goes_on(now)
    return goes_on


def _other_writer_over(run: Path, now: float) -> GoesOn:
    return _other_writer(run, now, 30 * DAY)


def _under_a_restarter(
    run: Path, now: float, *, hangs: bool = False, ago: float = 0.0, launch: str = "launch-1"
) -> GoesOn:
    """Another writer's run that has written nothing for a quarter of an hour; its restarter says each minute that it
    runs, until some time ago."""
    _other_writer(run, now, 900.0 + ago)
    path, began = run / "events.out.tfevents.1.restarter", now - ago - 4000
    path.write_bytes(frame(version_event(began)))
    common = {"launch": launch, "attempt": 1, "started_at": began, "host": "trainer-0", "pid": 31}
    at = now - ago - 960

    def add(when: float, record: LaunchRecord) -> None:
        with path.open("ab") as file:
            summary = summary_bytes(record)
            file.write(frame(event_prefix(when, 0, 5, len(summary)) + summary))

    def goes_on(until: float) -> None:
        nonlocal at
        while at <= until:
            add(at, LaunchRecord(state="runs", progress_timeout_secs=600.0 if hangs else 7200.0, **common))
            at += 60

    add(began, LaunchRecord(state="begin", **common))
    goes_on(now - ago)
    if hangs:
        seen = StallRecord(session="launch-1", state="begin", since=now - 900, secs=610, thread="MainThread",
                           location="/home/me/train.py:15 load")  # fmt: skip
        add(now - 290, LaunchRecord(state="runs", stall=seen, **common))
    return nothing if ago else goes_on


def _hangs_under_a_restarter(run: Path, now: float) -> GoesOn:
    return _under_a_restarter(run, now, hangs=True)


def _lost_with_its_restarter(run: Path, now: float) -> GoesOn:
    return _under_a_restarter(run, now, ago=400.0)


STORIES: dict[str, Story] = {
    "trains": Story(_well, ()),
    "trains in a copy": Story(_copied, ("info copy",), "A copy of "),
    "has just begun": Story(_new, ()),
    "hangs": Story(_hangs, ("page stalled",), "No progress in the phase training"),
    "hangs at a line": Story(_hangs_somewhere, ("page stalled",), "MainThread waits at live.py:15 in load"),
    "was killed": Story(_killed, ("page lost",), "gives no sign of life"),
    "was killed long ago": Story(_killed_long_ago, ("info lost",)),
    "was killed with a full disk": Story(
        _killed_with_a_full_disk, ("page lost",), "Until then checkpoints could not be saved for 13 min"
    ),
    "failed with a full disk": Story(_failed_with_a_full_disk, ("page failed",), "Until then checkpoints could not be"),
    "was killed with NaN": Story(
        _killed_with_nan, ("page lost", "info loss_not_finite"), "The loss was NaN or infinite since step"
    ),
    "was killed with NaN, its checkpoint elsewhere": Story(
        _nan_and_a_forged_save, ("page lost", "info loss_not_finite"), "The loss was NaN or infinite since step"
    ),
    "was killed, and its restarter waits": Story(_restarter_waits, ("info restarted",), "killed by SIGKILL"),
    "failed": Story(_failed, ("page failed",), "ValueError: no such class"),
    "failed long ago": Story(_failed_long_ago, ("info failed",)),
    "completed": Story(_ended, ()),
    "was stopped by a signal": Story(_stopped_by_a_signal, ("info stopped",), "by SIGTERM"),
    "stopped itself": Story(_stopped_itself, ("info stopped",), "by its own request"),
    "had nothing to do": Story(_nothing_to_do, ("info completed_without_step",), "without a new step"),
    "was restarted once": Story(_restarted_once, ("info restarted",), "Restarted"),
    "is restarted all the time": Story(_loops, ("page restart_loop",), "4 unplanned restarts within"),
    "was restarted all the time, and died": Story(_looped_and_died, ("page lost", "page restart_loop")),
    "was restarted all the time, and completed": Story(_looped_and_completed, ()),
    "dies after its first event, by another writer": Story(_other_writer_dies, ("info restarted",)),
    "dies before its first event": Story(_launches_die, ("warn not_starting",), "ImportError"),
    "was given up": Story(_given_up, ("page failed",), "ImportError"),
    "is another writer's, and failed": Story(
        _plain_raised, ("page failed",), "has failed: OutOfMemoryError: no room at train.py:3 in step on rank 1. tb-su"
    ),
    "is no Python, and failed": Story(
        _plain_ended, ("page failed",), "has failed: status 1; it printed last: train: cannot open a.csv. tb-supervisor"
    ),
    "cannot save any more": Story(_cannot_save, ("page saves_failing",), "saved: OSError: No space left on device."),
    "cannot write": Story(_cannot_write, ("page saves_failing", "warn events_failing"), "No space left on device"),
    "was renamed": Story(_renamed, ("page saves_failing", "warn events_failing"), RENAMED),
    "could never save": Story(_never_saved, ("page saves_failing",), "No space left on device."),
    "may not save any more": Story(_may_not_save, ("page saves_failing",), "Permission denied: '/runs/a/checkpoints'."),
    "had one failed save": Story(_one_save_failed, ()),
    "is young, and saves no more": Story(
        partial(_saves_no_more, began=1200), ("warn checkpoint_overdue",), "older than 3"
    ),
    "saves no more": Story(_saves_no_more, ("warn checkpoint_overdue",), "older than 3"),
    "has a loss that is NaN": Story(_nan, ("page loss_not_finite",), "since step"),
    "has had NaN for hours": Story(_nan_for_hours, ("page loss_not_finite",), "since step"),
    "has NaN that its saves do not know": Story(_nan_without_doubts, ("page loss_not_finite",), "since step"),
    "has NaN in a file of its own": Story(
        _nan_in_a_file_of_its_own, ("page loss_not_finite",), 'since step 27,000 in "train/loss"'
    ),
    "has NaN and a full disk": Story(_nan_and_no_saves, ("page saves_failing", "page loss_not_finite")),
    "completed with NaN": Story(_nan_and_completed, ("info loss_not_finite",)),
    "says something": Story(_says, ("page notice", "info notice"), "accuracy fell"),
    "said something": Story(_said, ()),
    "is slow": Story(_slow, ("warn slow",), " before."),
    "is slow and young": Story(_slow_and_young, ("warn slow",)),
    "is a little slower": Story(_a_little_slower, ()),
    "lost a worker": Story(_worker_lost, ("warn worker_lost",), "worker:1 on worker-1 is lost"),
    "lost a rank": Story(_rank_failed, ("warn worker_lost",), "rank:1 on rank-1 has failed (KeyError: 1)"),
    "has a worker that stalls": Story(_worker_stalls, ("warn worker_stuck",), "worker:2"),
    "has a worker that is slow": Story(_straggles, ("warn straggler",), "Worker 2 on worker-2 is slow"),
    "had a worker that waited": Story(_worker_waits, ()),
    "is a cluster that was lost": Story(_cluster_lost, ("page lost",)),
    "has a service that failed": Story(_thread_failed, ("warn thread_down",), "queue is closed"),
    "has a service that is late": Story(_thread_overdue, ("warn thread_down",), "summary"),
    "recovers all the time": Story(_recovers_all_the_time, ("page recovery_loop",), "UnavailableError"),
    "has a damaged checkpoint": Story(_damaged, ("warn checkpoint_damaged", "info restarted"), "checksum"),
    "passed over a damaged checkpoint": Story(_passed_over, ("info restarted",), "It passed over model.ckpt-14400"),
    "has a checkpoint in doubt": Story(_in_doubt, ("warn checkpoint_damaged",), "NaN when it was saved"),
    "saves what is not all": Story(_not_captured, ("info not_captured",), "The state of ema is not captured"),
    "did not resume exactly": Story(_not_exactly, ("info resumed_not_exactly", "info restarted"), "312 batches"),
    "saves too rarely": Story(_saves_too_rarely, ("info checkpoint_interval_far", "info restarted")),
    "is another writer's": Story(_other_writer, ()),
    "is another writer's, and its process is gone": Story(
        _other_writer_here, ("info over",), "Over; how it ended is not"
    ),
    "is another writer's, gone, and read by TensorBoard": Story(_other_writer_gone_and_read, ("info over",), "is gone"),
    "is another writer's, gone with NaN": Story(_other_writer_gone_with_nan, ("info loss_not_finite", "info over")),
    "is another writer's, alive and silent": Story(
        _other_writer_hangs, ("warn silent",), "usually writes every 10 s. Pr"
    ),
    "is another writer's, closed in a process that runs": Story(_other_writer_closed, ("info over",), "It is probably"),
    "is another writer's, silent elsewhere": Story(
        _other_writer_silent, ("info over",), "usually writes every 10 s. It"
    ),
    "is another writer's, silent with NaN for hours": Story(
        partial(_other_writer_silent_with_nan, ago=2 * HOUR), ("info loss_not_finite", "info over"), "since step"
    ),
    "is another writer's, silent with NaN": Story(
        _other_writer_silent_with_nan, ("page loss_not_finite", "info over"), "since step"
    ),
    "is another writer's, of a moment": Story(_other_writer_of_a_moment, ()),
    "is another writer's, a year ahead": Story(_other_writer_a_year_ahead, ("warn clock_skew",), "365 d ahead of this"),
    "is another writer's, long over": Story(_other_writer_over, ("info over",)),
    "is another writer's, silent, and its restarter lives": Story(_under_a_restarter, ()),
    "is another writer's, and hangs": Story(
        _hangs_under_a_restarter, ("page stalled",), "MainThread is at train.py:15 in load (process 31 on trainer-0)"
    ),
    "is another writer's, lost with its restarter": Story(_lost_with_its_restarter, ("page lost",), "no sign of life"),
}
