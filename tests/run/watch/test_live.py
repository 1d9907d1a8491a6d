"""What is known now of a run beyond its events: its liveness files, its progress page, its process."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hangs import HANGING_LINE, HOLD_LOCK_OF_INTERPRETER

from supervisor_core.base.options import Options
from supervisor_core.engine.recorder import StopInfo
from supervisor_core.engine.service import ServiceRegistry
from supervisor_core.engine.session_recorder import SessionRecorder
from supervisor_core.events.file_writer import FileWriter
from supervisor_core.events.telemetry import LaunchRecord, Place, StallRecord, StopRecord, WorkerStatus
from supervisor_core.metrics.page import run_status
from supervisor_core.process import progress_page
from supervisor_core.process.identity import boot_id, pid_namespace, started_ticks, this_machine
from supervisor_core.process.page_writer import ProgressPage
from supervisor_core.process.progress_page import LAST_PROGRESS, STEPS, read_page
from supervisor_core.process.stacks_file import StacksFile, StacksReading, look_text, read_stacks, stacks_path
from supervisor_core.run.judge.findings import findings
from supervisor_core.run.model.program_launch import ProgramLaunch
from supervisor_core.run.model.run import Run
from supervisor_core.run.model.snapshot import WatchedRun
from supervisor_core.run.model.thresholds import Thresholds
from supervisor_core.run.watch.live import LiveReader, restarter_runs, with_shared_timeout
from supervisor_core.run.watch.liveness import CHIEF, LIVENESS_DIRECTORY, LivenessRecord, encode, file_name, read_chief
from supervisor_core.run.watch.logdir_watch import LogdirWatch

pytestmark = pytest.mark.skipif(boot_id() is None, reason="without a boot id a page does not count")

NOW = 1_700_000_900.0
SESSION = "6f1d3c0a9b7e4d21"
HANG = f"<string>:{HANGING_LINE} hold_lock_of_interpreter"
HERE = {
    "host": socket.gethostname(), "boot": boot_id(), "pid": os.getpid(), "pid_namespace": pid_namespace(),
    "process_started_ticks": started_ticks(os.getpid()), "recorded_beat_secs": 360.0,
}  # fmt: skip
"""What the session record of this process has."""
DEAD = {**HERE, "process_started_ticks": 1}
"""Of another one, which had its id."""


class Chief:
    """A session of this process that began 900 s ago; its events end 890 s ago at step 90."""

    def __init__(self, tmp_path: Path, writing: ModuleType, clock: Any) -> None:
        self.directory, self.clock = tmp_path / "run", clock
        self.file = writing.RunFile(self.directory, NOW - 900.0, SESSION).ready().beat(NOW - 890.0, steps=90)
        self.page = ProgressPage.create(tmp_path, session_id=SESSION, started_at=NOW - 900, started_boot_secs=NOW - 900)
        self.page.step_is(100, 1)
        self.page.counts[STEPS] = 42
        self.watch = LogdirWatch(str(self.directory), clock=clock)

    def shows(self, progress_age: float, tick_age: float = 0.5, **state: Any) -> Chief:
        """Write the page, at step 142; its liveness file names it, and is as old as the events."""
        self.page.update(**{"phase": "training", "hang_timeout_secs": 60.0, "act_after_secs": 300.0, **state})
        now = self.clock.now
        self.page.tick(at=now - tick_age, boot_secs=now - tick_age, main_thread_secs=1.0)
        self.page.times[LAST_PROGRESS] = now - progress_age
        self.file.lives(NOW - 890.0, steps=90, page=str(self.page.path))
        return self

    def look(self) -> Run:
        """The run as it is now."""
        return self.watched().run

    def watched(self) -> WatchedRun:
        [found] = self.watch.refresh().runs.values()
        return found


@pytest.fixture
def chief(tmp_path: Path, writing: ModuleType, clock_at: Any) -> Iterator[Chief]:
    """A chief that is lost by its events."""
    made = Chief(tmp_path, writing, clock_at(NOW))
    yield made
    made.page.close()


def test_a_process_that_runs_is_not_lost(chief: Chief) -> None:
    """Its logdir does not answer; the page has its step, phase and progress. Once it is stopped it is lost."""
    assert chief.look().state == "lost"
    found = chief.shows(3.0).look()
    last = found.sessions[-1]
    assert (found.state, found.step, last.outcome, last.phase) == ("running", 142, "running", "training")
    assert (last.last_progress_at, last.progress_timeout_secs, last.steps) == (NOW - 3.0, 60.0, 42)
    assert (found.stalls, found.at_risk, found.goodput.secs["productive"]) == ((), None, pytest.approx(900.0))


def test_a_process_that_can_write_nothing_goes_on_at_each_look(chief: Chief) -> None:
    """Its logdir was renamed, for example: every 15 s a reader has the step of its page."""
    steps = []
    for _ in range(6):
        chief.shows(0.1)
        found = chief.look()
        steps.append((found.state, found.step))
        chief.page.counts[STEPS] += 10
        chief.clock.now += 15.0
    assert steps == [("running", 142 + 10 * look) for look in range(6)]


def test_a_page_does_not_hide_a_wrong_clock(chief: Chief) -> None:
    """Its liveness file was written a second ago, and says 890 s ago."""
    chief.shows(0.5)
    os.utime(chief.directory / LIVENESS_DIRECTORY / file_name(CHIEF), (NOW - 1.0, NOW - 1.0))
    found = chief.look()
    assert (found.state, found.clock_skew_secs) == ("running", -889.0)
    assert found.sessions[-1].ended_at == pytest.approx(NOW - 889.0, abs=2.0)


def test_a_stopped_process_is_lost(chief: Chief, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does nothing."""
    monkeypatch.setattr(progress_page, "is_stopped", lambda pid: True)
    assert chief.shows(3.0).look().state == "lost"


def test_a_page_of_another_session_says_nothing(chief: Chief, tmp_path: Path) -> None:
    """The liveness file names one, as anybody may have written."""
    chief.shows(3.0).file.lives(NOW - 890.0, steps=90, page=str(tmp_path / "another.page"))
    assert chief.look().state == "lost"


@pytest.mark.parametrize("phase", ["training", "checkpointing"])
def test_a_training_that_cannot_be_recorded_is_no_save(chief: Chief, phase: str) -> None:
    """On a full disk: the time until the last progress went into steps, whatever the last record says and though a save
    is under way now; only the time since then went into that."""
    chief.file.beat(NOW - 890.0, phase=phase, steps=90)
    secs = chief.shows(30.0, phase="checkpointing").look().goodput.secs
    assert secs["productive"] == pytest.approx(870.0)
    assert secs["unproductive_checkpoint_save"] == pytest.approx(30.0)


def test_no_progress_for_longer_than_the_hang_timeout_is_a_stall(chief: Chief, tmp_path: Path) -> None:
    """The logdir does not answer: place and stacks are those that the session has in memory. The interpreter is not
    blocked while the monitor ticks."""
    file = StacksFile(stacks_path(tmp_path, SESSION), SESSION)
    file.add(look_text("no progress", NOW - 1.0, {"MainThread": ("/x/train.py:88 step",)}))
    found = chief.shows(70.0, location="MainThread at train.py:88 in step").look()
    [stall] = found.stalls
    assert (found.state, stall.since, stall.secs, stall.until) == ("stalled", NOW - 70.0, 70.0, None)
    assert (stall.thread, stall.location, stall.blocked_since) == ("MainThread", "train.py:88 in step", None)
    assert stall.stacks == {"MainThread": ("/x/train.py:88 step",)}
    assert found.goodput.secs["stall"] == pytest.approx(70.0)
    file.close(remove=True)


@pytest.mark.parametrize("age", [2.0, 890.0])
def test_a_blocked_interpreter_is_a_stall_whatever_the_events_say(chief: Chief, age: float) -> None:
    """No tick and no progress: native code holds the interpreter lock. The exporter serves it as the stall's place."""
    chief.file.beat(NOW - age, steps=90)
    found = chief.shows(70.0, 69.0).look()
    [stall] = found.stalls
    assert (found.state, stall.blocked_since, stall.step) == ("stalled", NOW - 69.0, 142)
    status = run_status(found, NOW)
    assert status.stalled and status.stall is not None
    assert (status.stall.phase, status.stall.location) == ("training", "Native code holds the interpreter lock")


def test_a_stall_that_was_recorded_before_the_interpreter_blocked_is_the_same_one(chief: Chief) -> None:
    """Its stacks stay."""
    stacks = {"MainThread": ("train.py:8 step",)}
    begun = StallRecord(session=SESSION, state="begin", since=NOW - 70.0, step=142, secs=60.0, stacks=stacks)
    chief.file.record(begun, NOW - 10.0)
    [stall] = chief.shows(70.0, 9.0).look().stalls
    assert (stall.stacks, stall.secs, stall.since, stall.blocked_since) == (stacks, 70.0, NOW - 70.0, NOW - 9.0)


def test_a_blocked_process_has_the_place_that_is_in_its_file_of_stacks(chief: Chief, tmp_path: Path) -> None:
    """By its timer, or from outside; not one that was written before the monitor's last tick."""
    file = StacksFile(stacks_path(tmp_path, SESSION), SESSION)
    file.add(look_text("no progress", NOW - 63.0, {"MainThread": ("/x/other.py:1 f",)}))
    [earlier] = chief.shows(61.0, 61.0).look().stalls
    assert (earlier.location, earlier.stacks) == (None, {})
    os.write(file.descriptor, b'Stack (most recent call first):\n  File "/x/train.py", line 88 in step\n')
    os.utime(file.path, (NOW, NOW))
    [stall] = chief.look().stalls
    assert (stall.thread, stall.location) == ("MainThread", "/x/train.py:88 step")
    assert stall.stacks == {"MainThread": ("/x/train.py:88 step",)}
    file.close(remove=True)


@pytest.mark.parametrize("age", [2.0, 890.0])
def test_what_cannot_be_written_is_on_the_page(chief: Chief, age: float) -> None:
    """Whatever the events say, which may lack it for that reason: saves that fail, and events."""
    chief.file.beat(NOW - age, steps=90)
    failing = {
        "save_failures": 4, "save_failures_in_a_row": 3, "save_error": "OSError: it was renamed",
        "events_fail": True, "events_error": "it was renamed",
    }  # fmt: skip
    watched = chief.shows(3.0, **failing).watched()
    last = watched.run.sessions[-1]
    assert (last.saves, last.save_failures, last.save_failures_in_a_row) == (4, 4, 3)
    assert (last.save_error, last.events_error) == ("OSError: it was renamed", "it was renamed")
    said = findings(watched, NOW)
    assert [item.evidence["error"] for item in said if item.kind == "saves_failing"] == ["OSError: it was renamed"]
    assert [item.evidence["error"] for item in said if item.kind == "events_failing"] == ["it was renamed"]
    good = {"save_failures_in_a_row": 0, "save_error": "", "events_fail": False, "events_error": ""}
    healed = chief.shows(3.0, **good).look().sessions[-1]
    assert (healed.save_failures, healed.save_failures_in_a_row) == (4, 0)
    assert (healed.save_error, healed.events_error) == (None, None)


@pytest.mark.parametrize(("progress_age", "tick_age"), [(70.0, 0.5), (50.0, 6.0)])
def test_a_run_whose_events_are_written_is_left_as_it_is(chief: Chief, progress_age: float, tick_age: float) -> None:
    """The page does not override records: not in a stall that the monitor sees, nor in a short block."""
    chief.file.beat(NOW - 2.0, steps=95)
    found = chief.shows(progress_age, tick_age).look()
    assert (found.state, found.step, found.stalls) == ("running", 95, ())


class Store:
    """An object store with one liveness file, and how often it was read."""

    def __init__(self, file: LivenessRecord) -> None:
        self.data, self.times = encode(file), 0

    def __call__(self, path: str) -> tuple[Any, str]:
        return self, path

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def open(self, path: str) -> Any:
        self.times += 1
        return self

    @property
    def size(self) -> int:
        return len(self.data)

    def read_at(self, start: int, count: int) -> bytes:
        return self.data

    def modified_at(self, path: str) -> float:
        return NOW


def test_a_liveness_file_in_a_store_is_read_ever_more_rarely() -> None:
    """Each read is a request: none while the events are new, and of a run that is lost for four days a few."""
    record = LivenessRecord(
        task="@chief", session=SESSION, host="a", pid=1, started_at=NOW, written_at=NOW, beats=1, interval_secs=10.0,
        phase="training",
    )  # fmt: skip
    store = Store(record)
    reader = LiveReader("gs://bucket/run", store)
    assert reader.chief(SESSION, NOW, 10.0) is None and store.times == 0
    for look in range(24 * 240):
        assert reader.chief(SESSION, NOW + 15 * look, 20.0 + 15 * look) == record
    assert store.times < 40


def test_what_no_event_has_is_in_the_liveness_file(tmp_path: Path, writing: ModuleType, clock_at: Any) -> None:
    """A full disk: the run is running while the file is replaced, with step, failed saves and the reason; stalled by
    its heartbeat; lost when the file stays as it is. Its end is how the session ended, where no record says so."""
    clock = clock_at(NOW)
    file = writing.RunFile(tmp_path, NOW - 900.0, SESSION).ready().beat(NOW - 890.0, steps=90)
    watch = LogdirWatch(str(tmp_path), clock=clock)

    def look() -> Run:
        [found] = watch.refresh().runs.values()
        return found.run

    lost = look()
    assert (lost.state, lost.step, lost.at_risk and lost.at_risk.steps) == ("lost", 90, 90)
    failures = {"save_failures": 2, "save_failures_in_a_row": 2, "save_error": "full", "events_error": "no room"}
    file.lives(NOW, steps=142, beat={"steps_per_sec": 1.5}, **failures)
    run = look()
    last = run.sessions[-1]
    assert (run.state, run.step, run.steps_per_sec, run.at_risk and run.at_risk.steps) == ("running", 142, 1.5, 142)
    assert (last.saves, last.save_failures, last.save_failures_in_a_row) == (2, 2, 2)
    assert (last.save_error, last.events_error, last.ended_at) == ("full", "no room", NOW)
    assert run.goodput.secs["at_risk"] == pytest.approx(900.0)
    clock.now += 10
    file.lives(clock.now, steps=142, beat={"progress_age_secs": 310.0}, **failures)
    assert look().state == "stalled"
    clock.now += 31
    lost = look()
    assert (lost.state, lost.step, lost.sessions[-1].outcome) == ("lost", 142, "lost")
    file.lives(clock.now, phase="stopped", steps=150, ended="error", ended_at=clock.now, error="OSError: no room")
    failed = look()
    last = failed.sessions[-1]
    assert (failed.state, failed.step, last.outcome, last.error) == ("failed", 150, "error", "OSError: no room")
    file.stop(clock.now + 1, "completed")
    assert look().state == "completed"


UNREADABLE = {
    "missing": lambda path: path.unlink(),
    "no JSON": lambda path: path.write_bytes(b"{"),
    "no file": lambda path: (path.unlink(), path.mkdir()),
}


@pytest.mark.parametrize("make", UNREADABLE.values(), ids=UNREADABLE)
def test_a_dead_process_is_lost_at_once_without_its_liveness_file(
    tmp_path: Path, writing: ModuleType, clock_at: Any, make: Any
) -> None:
    """On its machine, by the process that its record names. Elsewhere it is running until its records are overdue, and
    the run's problem says why."""
    for name, record in (("dead", DEAD), ("alive", HERE), ("elsewhere", {**DEAD, "host": "trainer-0"})):
        file = writing.RunFile(tmp_path / name, NOW - 900.0, name).ready(**record).beat(NOW - 40.0, steps=90)
        make(file.lives(NOW - 40.0, steps=90))
    runs = LogdirWatch(str(tmp_path), clock=clock_at(NOW)).refresh().runs
    assert {name: found.run.state for name, found in runs.items()} == {
        "dead": "lost",
        "alive": "running",
        "elsewhere": "running",
    }
    assert runs["dead"].problem is None
    problem = runs["elsewhere"].problem
    assert problem is not None and problem.endswith("; whether the session lives is judged by its events")
    assert str(tmp_path / "elsewhere" / LIVENESS_DIRECTORY / "chief.json") in problem


def test_a_dead_process_without_a_page_is_lost_at_the_first_look(
    tmp_path: Path, writing: ModuleType, clock_at: Any
) -> None:
    """Its liveness file is new, and names no page."""
    file = writing.RunFile(tmp_path, NOW - 900.0, SESSION).ready(**DEAD).beat(NOW - 40.0, steps=90)
    file.lives(NOW, steps=95)
    [found] = LogdirWatch(str(tmp_path), clock=clock_at(NOW)).refresh().runs.values()
    assert (found.run.state, found.run.step, found.run.sessions[-1].gone) == ("lost", 95, True)


def test_an_end_in_the_liveness_file_is_not_believed_of_a_session_that_goes_on(chief: Chief) -> None:
    """Whoever has written it: by its page at once, elsewhere by its next record."""
    path = chief.shows(1.0).file.lives(NOW - 3.0, steps=95, page=str(chief.page.path))
    said = {**json.loads(path.read_bytes()), "phase": "stopped", "ended": "completed", "ended_at": NOW + 9e8}
    path.write_text(json.dumps(said))
    assert chief.look().state == "running"
    path.write_text(json.dumps({**said, "page": None}))
    elsewhere = LogdirWatch(str(chief.directory), clock=chief.clock)

    def state() -> str:
        [found] = elsewhere.refresh().runs.values()
        return found.run.state

    assert state() == "completed"
    chief.clock.now += 10.0
    chief.file.beat(chief.clock.now, steps=99)
    assert state() == "running"


@pytest.fixture
def killed(tmp_path: Path, writing: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The events file of a session at step 90, a second old, whose process is gone; its page has step 142."""
    file = writing.RunFile(tmp_path / "run", time.time() - 60.0, SESSION).ready()
    file.beat(time.time() - 1.0, steps=90)
    page = ProgressPage.create(tmp_path, session_id=SESSION)
    page.step_is(100, 1)
    page.counts[STEPS] = 42
    file.lives(time.time() - 1.0, steps=90, page=str(page.path))
    monkeypatch.setattr(progress_page, "is_running", lambda pid: False)
    yield file
    page.close()


def test_a_process_that_is_gone_is_lost_at_once(killed: Any) -> None:
    """The run stays so at each later look, also after another session has the liveness file."""
    watch = LogdirWatch(str(killed.path.parent))
    for _ in range(2):
        [found] = watch.refresh().runs.values()
        assert (found.run.state, found.run.step, found.run.sessions[-1].gone) == ("lost", 142, True)
        (killed.path.parent / ".supervisor.live/chief.json").write_bytes(b"another")
    status = run_status(found.run, time.time())
    assert (status.state, status.active, status.global_step, status.stalled) == ("lost", False, 142, False)


def test_a_stop_record_says_how_a_process_that_is_gone_has_ended(killed: Any) -> None:
    """One that was written between the look at the events and the look at the process, too."""
    watch = LogdirWatch(str(killed.path.parent))
    looks = []

    def progressed(done: int, total: int) -> None:
        if not looks:
            killed.stop(time.time())
        looks.append(done)

    [found] = watch.refresh(progressed).runs.values()
    assert (found.run.state, found.run.sessions[-1].gone, found.run.step) == ("completed", False, 90)


def test_a_process_of_another_machine_or_container_is_not_called_gone(
    killed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its id says nothing here: the run is running until it is silent for too long."""
    for name in ("boot_id", "pid_namespace"):
        with monkeypatch.context() as elsewhere:
            elsewhere.setattr(progress_page, name, lambda: "another")
            [found] = LogdirWatch(str(killed.path.parent)).refresh().runs.values()
            assert (found.run.state, found.run.step, found.run.sessions[-1].gone) == ("running", 90, False)


TRAINER = (
    HOLD_LOCK_OF_INTERPRETER
    + """
import sys, time
from supervisor_core.events.file_writer import FileWriter
from supervisor_core.base.options import Options
from supervisor_core.process.progress_page import TICKS
from supervisor_core.engine.service import ServiceRegistry
from supervisor_core.engine import hang_stacks
from supervisor_core.engine.session_recorder import SessionRecorder

hang_stacks.LEAST_SECS = hang_stacks.MOST_SECS = 2.5
options = Options(hang_timeout_secs={"training": 25.0})
writer = FileWriter(sys.argv[1])
run = SessionRecorder(logdir=sys.argv[1], facade="Test", options=options, writer=writer, services=ServiceRegistry())
run.begin()
run.ready(restored_step=1000)
run.enter("training")
now = run._clock.monotonic()
for _ in range(7):
    run.progress.run_ended(True, now, now)
run.beat()
writer.flush()
run.progress.sample()
while not run.progress.page.counts[TICKS]:
    time.sleep(0.01)
print("hangs", flush=True)
hold_lock_of_interpreter()
"""
)


class Later:
    """The machine's clocks, some seconds ahead."""

    def __init__(self, secs: float) -> None:
        self.secs = secs

    def wall(self) -> float:
        return time.time() + self.secs

    def monotonic(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME) + self.secs


@pytest.fixture
def blocked(tmp_path: Path) -> Iterator[tuple[Path, subprocess.Popen[bytes]]]:
    """A process that hangs with the interpreter lock held, and its logdir."""
    logdir = tmp_path / "run"
    with subprocess.Popen([sys.executable, "-c", TRAINER, str(logdir)], stdout=subprocess.PIPE) as trainer:
        assert trainer.stdout is not None and trainer.stdout.readline() == b"hangs\n"
        yield logdir, trainer
        trainer.kill()


def has_hung(reading: StacksReading | None) -> bool:
    """Whether the newest stack has the line that hangs."""
    newest = reading.looks[-1:] if reading is not None else ()
    return any(HANG in frame for look in newest for frame in look.stacks["MainThread"])


def test_a_process_that_hangs_with_the_interpreter_lock_held_is_seen_and_its_death_too(
    blocked: tuple[Path, subprocess.Popen[bytes]],
) -> None:
    """Nothing in it can write a record; from outside it is a stall, soon after its hang timeout, and when all records
    are old.

    At first its records do not show it: they are younger than its hang timeout. Once killed, it is lost at once, at the
    last step that it did, for who has watched it and for who looks for the first time. What was known is known then,
    too: where it hung, and how long it lasted. The next session takes that into the logdir, and nothing of it
    changes."""
    logdir, trainer = blocked
    watch = LogdirWatch(str(logdir))
    [early] = watch.refresh().runs.values()
    assert early.run.state == "running"
    chief = read_chief(logdir)
    assert chief is not None and chief.page is not None
    stacks = Path(chief.page).with_suffix(".stacks")
    while not has_hung(reading := read_stacks(stacks)):
        time.sleep(0.01)  # until the timer of the process has fired
    assert reading is not None
    for secs in (28.0, 3600.0):
        [found] = LogdirWatch(str(logdir), clock=Later(secs)).refresh().runs.values()
        assert (found.run.state, found.run.step, found.run.sessions[-1].pid) == ("stalled", 1007, chief.pid)
        stall = found.run.stalls[-1]
        assert stall.until is None and stall.blocked_since is not None
        assert stall.stacks == {"MainThread": reading.looks[-1].stacks["MainThread"]}
        location = run_status(found.run, time.time() + secs).stall
        assert location is not None and (location.thread, location.phase) == ("MainThread", "training")
        assert location.location == HANG.replace(" ", " in ")
        assert stall.secs == pytest.approx(secs, abs=60)
        goodput, last = found.run.goodput, found.run.sessions[-1]
        assert goodput.secs["stall"] == pytest.approx(stall.secs, abs=2) and last.started_at is not None
        assert goodput.wall_secs == pytest.approx(time.time() + secs - last.started_at, abs=30)
        assert sum(last.activity_secs.values()) == pytest.approx((last.ended_at or 0.0) - last.started_at)
    trainer.kill()
    trainer.wait()
    for look in (LogdirWatch(str(logdir)), watch):
        [found] = look.refresh().runs.values()
        last = found.run.sessions[-1]
        assert (found.run.state, last.outcome, last.gone, found.run.step) == ("lost", "lost", True, 1007)
        assert found.run.at_risk is not None and found.run.at_risk.steps == 7
        assert found.run.goodput.wall_secs == pytest.approx(sum(found.run.goodput.secs.values()))
        [stall] = found.run.stalls
        assert (stall.thread, stall.location, stall.phase) == ("MainThread", HANG, "training")
        assert stall.until == last.ended_at and stall.blocked_since is not None
        assert found.run.goodput.secs["stall"] == pytest.approx(stall.secs, abs=1.0)
    following = SessionRecorder(
        logdir=str(logdir), facade="Test", options=Options(), writer=FileWriter(str(logdir)), services=ServiceRegistry()
    )
    following.begin()
    following.ready(restored_step=1000)
    assert not stacks.exists() and not Path(chief.page).exists()
    following.end(StopInfo(reason="completed"))
    for look in (LogdirWatch(str(logdir)), watch):
        [found] = look.refresh().runs.values()
        before = found.run.sessions[0]
        assert (before.outcome, before.last_step, before.gone) == ("lost", 1007, True)
        assert before.ended_at == pytest.approx(last.ended_at, abs=1.5)
        [again] = found.run.stalls
        assert (again.location, again.stacks) == (HANG, stall.stacks)
        assert again.secs == pytest.approx(stall.secs, abs=1.5)
        assert (found.run.restarts[0].from_step, found.run.restarts[0].rewind_steps_most) == (1007, 7)


WAITS = Place(digest="a", location="/home/me/train.py:25 train", waits_in="backward")
STUCK = Place(digest="b", location="/home/me/train.py:14 stuck")
"""Where two ranks are."""
STACK = ("/home/me/train.py:25 train", "/x/site-packages/torch/autograd/graph.py:8 _engine_run_backward")
VERDICT = "rank 1 hangs at train.py:14 in stuck; rank 0 waits for it at train.py:25 (backward)"


def record(rank: int, now: float, **fields: Any) -> LivenessRecord:
    """Return what a rank of this process has written."""
    return LivenessRecord(
        **{
            **{"task": f"rank:{rank}", "session": f"r{rank}", "host": this_machine().host, "pid": os.getpid()},
            **{"started_at": now - 100.0, "written_at": now, "beats": 3, "interval_secs": 10.0, "phase": "training"},
            **{"step": 40, "steps": 40, "progress_age_secs": 12.0, "hang_timeout_secs": 6.0, **fields},
        }
    )


def put(logdir: Path, *records: LivenessRecord) -> None:
    """Write heartbeat files."""
    (logdir / LIVENESS_DIRECTORY).mkdir(exist_ok=True)
    for item in records:
        (logdir / LIVENESS_DIRECTORY / file_name(item.task)).write_bytes(encode(item))


def test_a_rank_is_as_its_file_says(tmp_path: Path) -> None:
    """Not as its chief said a minute ago; a later look has what is new."""
    now = time.time()
    put(tmp_path, record(1, now))
    reader = LiveReader(str(tmp_path))
    assert reader.ranks(["rank:1", "rank:2"], now, is_stalled=False)["rank:1"].step == 40
    put(tmp_path, record(1, now, step=41, beats=4, place=STUCK))
    found = reader.ranks(["rank:1"], now + 20, is_stalled=False)
    assert (found["rank:1"].step, found["rank:1"].place, found["rank:1"].last_seen_at) == (41, STUCK, now + 20)
    assert reader.ranks(["rank:1"], now + 50, is_stalled=False)["rank:1"].last_seen_at == now + 20


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b'{"v":1}', encode(record(7, 1.7e9)), b"\xff" * 100, b"x" * 100_000],
    ids=["empty", "cut", "a list", "no fields", "another's name", "no text", "long"],
)
def test_what_is_malformed_is_left_out(tmp_path: Path, content: bytes) -> None:
    """One file, not the others."""
    now = time.time()
    put(tmp_path, record(2, now))
    (tmp_path / LIVENESS_DIRECTORY / file_name("rank:1")).write_bytes(content)
    assert list(LiveReader(str(tmp_path)).ranks(["rank:1", "rank:2"], now, is_stalled=False)) == ["rank:2"]


def test_no_file_is_no_error(tmp_path: Path) -> None:
    """A pipe nobody writes to does not keep a reader waiting; nor does a directory that is missing."""
    reader = LiveReader(str(tmp_path))
    assert reader.ranks(["rank:1"], 0.0, is_stalled=True) == {}
    (tmp_path / LIVENESS_DIRECTORY).mkdir()
    os.mkfifo(tmp_path / LIVENESS_DIRECTORY / file_name("rank:1"))
    assert LiveReader(str(tmp_path)).ranks(["rank:1"], 0.0, is_stalled=True) == {}
    assert reader.ranks([], 0.0, is_stalled=True) == {}


AT = 1_700_000_100.0
"""By the clock of the watch: a hundred seconds after the run began."""


class Logdir:
    """A run of two ranks, of which the chief has recorded the other one half a minute ago, at step 10."""

    def __init__(self, directory: Path, writing: ModuleType, clock: Any) -> None:
        self.directory, self.clock, self.at = directory, clock, AT - 30.0
        other = WorkerStatus(
            name="rank:1", state="running", phase="training", step=10, steps=10, last_seen_at=AT - 30,
            started_at=AT - 99.0, host="trainer-1", pid=7,
        )  # fmt: skip
        self.file = writing.RunFile(directory).ready().beat(AT - 30.0, steps=10, workers=(other,))

    def rank(self, **fields: Any) -> Logdir:
        """The other one writes its file, on a machine of its own."""
        put(self.directory, record(1, AT - 2.0, **{"host": "trainer-1", "started_at": AT - 99.0, **fields}))
        os.utime(self.directory / LIVENESS_DIRECTORY / file_name("rank:1"), (AT - 2.0, AT - 2.0))
        return self

    def stall(self, **fields: Any) -> Logdir:
        """The chief makes no progress."""
        self.file.beat(AT - 5.0, steps=40, progress_age_secs=8.0, progress_timeout_secs=6.0)
        stall = StallRecord(
            session=self.file.session_id, state="begin", since=AT - 13.0, step=40, secs=8.0, timeout_secs=6.0,
            thread="MainThread", location=STACK[0], stacks={"MainThread": STACK}, **fields,
        )  # fmt: skip
        self.at = AT - 5.0
        self.file.record(stall, self.at)
        return self

    def watched(self) -> Any:
        """The run, as every reader sees it."""
        os.utime(self.file.path, (self.at, self.at))
        [found] = LogdirWatch(str(self.directory), clock=self.clock).refresh().runs.values()
        return found


@pytest.fixture
def logdir(tmp_path: Path, writing: ModuleType, clock: Any) -> Logdir:
    """Two ranks."""
    return Logdir(tmp_path / "run", writing, clock)


def test_healthy_ranks_are_as_new_as_their_files(logdir: Logdir) -> None:
    """The chief records them with every sixth heartbeat."""
    [rank] = logdir.rank(progress_age_secs=0.1).watched().run.workers
    assert (rank.step, rank.last_seen_at, rank.state) == (40, AT - 2.0, "running")
    [rank] = logdir.rank(ended="error", error="ValueError: boom").watched().run.workers
    assert (rank.state, rank.error, [span.state for span in rank.spans]) == (
        "failed",
        "ValueError: boom",
        ["running", "failed"],
    )


LOST = "RuntimeError: [pair.cc:545] Connection reset by peer"


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({"ended": "error", "error": "KeyError: 1"}, f"KeyError: 1 on rank 1; then on rank 0: {LOST}"),
        (
            {"host": this_machine().host, "boot": this_machine().boot, "pids": this_machine().pids, "pid": 2**22 + 1},
            f"RuntimeError: lost rank 1 (process {2**22 + 1} on {this_machine().host}), which was killed or has "
            "crashed: [pair.cc:545] Connection reset by peer",
        ),
        ({}, LOST),
    ],
    ids=["failed", "killed", "alive"],
)
def test_which_rank_a_chief_lost_that_ended_at_once(logdir: Logdir, how: dict[str, Any], expected: str) -> None:
    """The chief has not read the file again; who looks later reads it."""
    logdir.rank(**how).at = AT - 5.0
    stop = StopRecord(session=logdir.file.session_id, reason="error", error=LOST, step=40, steps=40)
    logdir.file.record(stop, logdir.at)
    run = logdir.watched().run
    assert (run.state, run.sessions[-1].error) == ("failed", expected)


def test_a_file_of_an_earlier_process_changes_nothing(logdir: Logdir) -> None:
    """It was there before the chief saw the present one."""
    [rank] = logdir.rank(started_at=AT - 500.0, step=99).watched().run.workers
    assert rank.step == 10


def test_the_chiefs_verdict_counts(logdir: Logdir) -> None:
    """What it has recorded is said, and is in the metrics."""
    found = logdir.rank(place=WAITS).stall(verdict=VERDICT, culprit="rank 1", culprit_location="train.py:14 in stuck")
    watched = found.watched()
    assert watched.run.verdict == VERDICT
    [stalled, *_] = findings(watched, AT, Thresholds())
    assert stalled.text == f"No progress in the phase training. {VERDICT[0].upper()}{VERDICT[1:]}."
    assert stalled.evidence["culprit"] == "rank 1"
    status = run_status(watched.run, AT)
    assert status.stall is not None and status.stall.culprit == "rank 1"


def test_by_the_files_where_the_chief_says_nothing(logdir: Logdir) -> None:
    """Its place is in its stall record, the other's in its file."""
    run = logdir.rank(place=STUCK).stall().watched().run
    assert (run.state, run.verdict, run.stalls[-1].culprit) == ("stalled", VERDICT, "rank 1")


def test_a_chief_that_gives_no_sign_of_life(logdir: Logdir) -> None:
    """Its rank waits for it, and says where."""
    logdir.clock.now = AT + 200.0
    put(logdir.directory, record(1, AT + 198.0, host="trainer-1", started_at=AT - 99.0, place=WAITS))
    watched = logdir.watched()
    assert (watched.run.state, watched.run.verdict) == (
        "lost",
        "rank 0 has written nothing for more than 2 min; rank 1 waits for it at train.py:25 (backward)",
    )
    assert "Rank 0 has written nothing for" in findings(watched, AT + 200.0, Thresholds())[0].text


def test_a_chief_that_is_lost_and_a_rank_that_goes_on(logdir: Logdir) -> None:
    """Nobody waits."""
    logdir.clock.now = AT + 200.0
    put(logdir.directory, record(1, AT + 198.0, host="trainer-1", started_at=AT - 99.0, progress_age_secs=0.1))
    assert logdir.watched().run.verdict is None


@pytest.mark.parametrize(
    ("phase", "fields", "verdict"),
    [
        (
            "training",
            {"place": WAITS},
            "rank 0 has run no Python for more than 30 s: native code holds the interpreter lock; "
            "rank 1 waits for it at train.py:25 (backward)",
        ),
        ("training", {"place": WAITS, "hang_timeout_secs": 9.0, "phase": "evaluating"}, None),
        ("training", {"progress_age_secs": 0.1}, None),  # the rank goes on
        ("evaluating", {"place": WAITS}, None),
    ],
)
def test_a_chief_whose_interpreter_is_blocked(
    logdir: Logdir, tmp_path: Path, phase: str, fields: dict[str, Any], verdict: str | None
) -> None:
    """Its page shows that it hangs, where its rank makes no progress either, long before its own hang timeout; less
    than half a minute may be a save."""
    page = ProgressPage.create(tmp_path, session_id=logdir.file.session_id, started_boot_secs=AT - 100.0)
    page.update(phase=phase, hang_timeout_secs=300.0, act_after_secs=300.0)
    page.tick(at=AT - 40.0, boot_secs=AT - 40.0, main_thread_secs=1.0)
    page.times[LAST_PROGRESS] = AT - 40.0
    logdir.rank(**fields).file.lives(AT - 30.0, steps=10, page=str(page.path))
    run = logdir.watched().run
    assert (run.state, run.verdict) == ("running" if verdict is None else "stalled", verdict)
    page.close()


HOST = socket.gethostname()


def launch(pid: object, host: str | None = HOST, started_at: float | None = None) -> ProgramLaunch:
    """The second launch of a restarter."""
    return ProgramLaunch(
        launch=f"{host}-{pid}-2", state="begin", attempt=2, host=host, started_at=started_at or time.time()
    )


def test_a_process_of_this_machine_is_looked_up() -> None:
    """One that has ended, or that has only the number of the restarter, is none; of another machine nothing is
    known."""
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    assert restarter_runs(launch(os.getpid())) is True
    assert restarter_runs(launch(os.getpid(), started_at=time.time() - 30 * 86400.0)) is False
    assert restarter_runs(launch(ended.pid)) is False
    assert restarter_runs(launch(os.getpid(), host="elsewhere-1")) is None
    for odd in ("x", "", "0", "9" * 30):
        assert restarter_runs(launch(odd)) is None
    assert restarter_runs(ProgramLaunch(launch="l1", state="begin", attempt=1, host=HOST)) is None


def test_a_run_has_failed_as_soon_as_its_restarter_is_gone(tmp_path: Path, writing: ModuleType) -> None:
    """Nothing is written then: each look finds out. Until then it is unknown, though its session has failed."""
    now = time.time()
    writing.RunFile(tmp_path, now - 100.0).ready().beat(now - 90.0, steps=5).stop(now - 80.0, "error")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as restarter:
        begun = LaunchRecord(launch=launch(restarter.pid).launch, state="begin", attempt=2, started_at=now, host=HOST)
        writing.RunFile(tmp_path, now, session="r").record(begun, now)
        watch = LogdirWatch(str(tmp_path))
        [before] = watch.refresh().runs.values()
        restarter.kill()
    [after] = watch.refresh().runs.values()
    assert (before.run.state, after.run.state) == ("unknown", "failed")


def page(tmp_path: Path, *, age: float, phase: str = "training") -> Any:
    """The page of a chief that has run no Python for so long; its hang timeout is the default."""
    made = ProgressPage.create(tmp_path, session_id="s1")
    made.step_is(100, 1)
    made.update(phase=phase, hang_timeout_secs=300.0, act_after_secs=300.0)
    made.tick(at=1000.0 - age, boot_secs=1000.0 - age, main_thread_secs=1.0)
    made.times[LAST_PROGRESS] = 1000.0 - age
    assert made.path is not None
    found = read_page(made.path)
    made.close()
    return found


@pytest.mark.parametrize(
    ("phase", "fields", "secs"),
    [
        ("training", {"place": WAITS}, 30.0),
        ("training", {"place": WAITS, "hang_timeout_secs": 9.0, "phase": "evaluating"}, 300.0),
        ("training", {"progress_age_secs": 0.1}, 300.0),  # the rank goes on
        ("evaluating", {"place": WAITS}, 300.0),
    ],
)
def test_the_hang_timeout_of_a_chief_that_cannot_say_it(
    logdir: Logdir, tmp_path: Path, phase: str, fields: dict[str, Any], secs: float
) -> None:
    """Its rank has made no progress for as long; less than half a minute may be a save."""
    ranks = logdir.rank(**fields).watched().run.workers
    assert with_shared_timeout(page(tmp_path, age=40.0, phase=phase), ranks, AT).hang_timeout_secs == secs
