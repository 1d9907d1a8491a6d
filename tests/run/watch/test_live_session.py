"""A session that cannot write its events: what its progress page shows, and when that counts."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
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
from supervisor_core.metrics.page import run_status
from supervisor_core.process import progress_page
from supervisor_core.process.identity import boot_id
from supervisor_core.process.page_writer import ProgressPage
from supervisor_core.process.progress_page import LAST_PROGRESS, STEPS, PageReading, read_page
from supervisor_core.process.stacks_file import StacksFile, StacksReading, look_text, read_stacks, stacks_path
from supervisor_core.run.judge.findings import findings
from supervisor_core.run.model.run import Run
from supervisor_core.run.model.snapshot import WatchedRun
from supervisor_core.run.watch.last_words import BLOCKED_SECS, newest_look
from supervisor_core.run.watch.live_session import LivenessReader, PageReader, with_page
from supervisor_core.run.watch.liveness import read_chief
from supervisor_core.run.watch.logdir_watch import LogdirWatch
from supervisor_core.storage.local import LOCAL

pytestmark = pytest.mark.skipif(boot_id() is None, reason="without a boot id a page does not count")

NOW, BOOT_NOW = 1_700_000_000.0, 5000.0
SESSION = "6f1d3c0a9b7e4d21"
HANG = f"<string>:{HANGING_LINE} hold_lock_of_interpreter"


def page_with(tmp_path: Path, *, progress_age: float, tick_age: float) -> PageReading:
    """The page of this process at step 142, in training with a hang timeout of 60 s."""
    page = ProgressPage.create(tmp_path, session_id=SESSION)
    page.step_is(100, 1)
    page.update(phase="training", hang_timeout_secs=60.0, act_after_secs=300.0)
    page.tick(at=BOOT_NOW - 900.0 - tick_age, boot_secs=BOOT_NOW - tick_age, main_thread_secs=1.0)
    page.counts[STEPS], page.times[LAST_PROGRESS] = 42, BOOT_NOW - 900.0 - progress_age
    assert page.path is not None
    found = read_page(page.path)
    page.close()
    assert found is not None
    return found


@pytest.fixture
def run(tmp_path: Path, writing: ModuleType) -> Run:
    """A run at step 90 that is lost by its events."""
    writing.RunFile(tmp_path / "run", NOW - 900.0, SESSION).ready().beat(NOW - 890.0, steps=90)
    [found] = LogdirWatch(str(tmp_path / "run")).refresh().runs.values()
    return found.run


def test_a_process_that_runs_is_not_lost(run: Run, tmp_path: Path) -> None:
    """Its logdir does not answer; the page has its step, phase and progress."""
    found = with_page(run, page_with(tmp_path, progress_age=3.0, tick_age=0.5), NOW, BOOT_NOW)
    last = found.sessions[-1]
    assert (found.state, found.step, last.outcome, last.phase) == ("running", 142, "running", "training")
    assert (last.last_progress_at, last.progress_timeout_secs, last.steps) == (NOW - 3.0, 60.0, 42)
    assert found.stalls == ()


@pytest.mark.parametrize("phase", ["training", "checkpointing"])
def test_a_training_that_cannot_be_recorded_is_no_save(run: Run, tmp_path: Path, phase: Any) -> None:
    """On a full disk: the time until the last progress went into steps, whatever the last record says and though a save
    is under way now; only the time since then went into that."""
    last = replace(run.sessions[-1], phase=phase)
    page = replace(page_with(tmp_path, progress_age=30.0, tick_age=0.5), phase="checkpointing")
    found = with_page(replace(run, sessions=(last,)), page, NOW, BOOT_NOW)
    secs, before = found.sessions[-1].activity_secs, last.activity_secs
    more = {name: value - before.get(name, 0.0) for name, value in secs.items() if value != before.get(name)}
    assert more == {"productive": pytest.approx(860.0), "unproductive_checkpoint_save": pytest.approx(30.0)}
    assert found.goodput.secs["unproductive_checkpoint_save"] == pytest.approx(30.0)


def test_a_restored_step_of_which_no_record_says_is_no_training(run: Run, tmp_path: Path) -> None:
    """Where the disk was full before the session could say where it begins."""
    last = replace(run.sessions[-1], phase="restoring", first_step=None, last_step=None)
    page = replace(page_with(tmp_path, progress_age=30.0, tick_age=0.5), phase="restoring")
    found = with_page(replace(run, sessions=(last,)), page, NOW, BOOT_NOW).sessions[-1]
    assert found.activity_secs.get("productive") == last.activity_secs.get("productive")


def test_no_progress_for_longer_than_the_hang_timeout_is_a_stall(run: Run, tmp_path: Path) -> None:
    """With the place that the page names; the interpreter is not blocked while the monitor ticks."""
    page = replace(page_with(tmp_path, progress_age=70.0, tick_age=0.5), location="MainThread at train.py:8 in step")
    found = with_page(run, page, NOW, BOOT_NOW)
    [stall] = found.stalls
    assert (found.state, stall.since, stall.secs, stall.until) == ("stalled", NOW - 70.0, 70.0, None)
    assert (stall.thread, stall.location, stall.blocked_since) == ("MainThread", "train.py:8 in step", None)


@pytest.mark.parametrize("state", ["running", "stalled", "lost"])
def test_a_blocked_interpreter_is_a_stall_whatever_the_events_say(run: Run, tmp_path: Path, state: Any) -> None:
    """No tick and no progress: native code holds the interpreter lock. The exporter serves it as the stall's place."""
    page = page_with(tmp_path, progress_age=70.0, tick_age=69.0)
    found = with_page(replace(run, state=state), page, NOW, BOOT_NOW)
    [stall] = found.stalls
    assert (found.state, stall.blocked_since, stall.step) == ("stalled", NOW - 69.0, 142)
    status = run_status(found, NOW)
    assert status.stalled and status.stall is not None
    assert (status.stall.phase, status.stall.location) == ("training", "Native code holds the interpreter lock")


def test_a_stall_that_was_recorded_before_the_interpreter_blocked_is_the_same_one(run: Run, tmp_path: Path) -> None:
    """Its stacks stay."""
    first = with_page(run, page_with(tmp_path, progress_age=70.0, tick_age=0.5), NOW, BOOT_NOW)
    recorded = replace(first, stalls=(replace(first.stalls[0], stacks={"MainThread": ("train.py:8 step",)}),))
    found = with_page(recorded, page_with(tmp_path, progress_age=90.0, tick_age=10.0), NOW + 20, BOOT_NOW)
    [stall] = found.stalls
    assert (stall.stacks, stall.secs) == ({"MainThread": ("train.py:8 step",)}, 90.0)
    assert (stall.since, stall.blocked_since) == (NOW - 70.0, NOW + 10.0)


def test_a_blocked_process_has_the_place_that_is_in_its_file_of_stacks(run: Run, tmp_path: Path) -> None:
    """By its timer, or from outside; not one that was written before the monitor's last tick, nor of another
    session."""
    page = page_with(tmp_path, progress_age=61.0, tick_age=61.0)
    file = StacksFile(stacks_path(tmp_path, SESSION), SESSION)
    file.add(look_text("no progress", NOW - 63.0, {"MainThread": ("/x/other.py:1 f",)}))
    [earlier] = with_page(run, page, NOW, BOOT_NOW).stalls
    assert (earlier.location, earlier.stacks) == (None, {})
    os.write(file.descriptor, b'Stack (most recent call first):\n  File "/x/train.py", line 88 in step\n')
    found = newest_look(page)
    assert found is not None and found[1] == file.path.stat().st_mtime
    [stall] = with_page(run, page, NOW, BOOT_NOW).stalls
    assert (stall.thread, stall.location) == ("MainThread", "/x/train.py:88 step")
    assert stall.stacks == {"MainThread": ("/x/train.py:88 step",)}
    assert newest_look(replace(page, session="another")) is None
    file.close(remove=True)
    assert newest_look(page) is None


def test_a_stall_that_cannot_be_recorded_has_its_stacks(run: Run, tmp_path: Path) -> None:
    """The monitor runs, and the logdir does not answer: place and stacks are those that the session has in memory."""
    page = replace(page_with(tmp_path, progress_age=61.0, tick_age=0.5), location="MainThread at train.py:88 in step")
    file = StacksFile(stacks_path(tmp_path, SESSION), SESSION)
    file.add(look_text("no progress", NOW - 1.0, {"MainThread": ("/x/train.py:88 step",)}))
    found = with_page(run, page, NOW, BOOT_NOW)
    [stall] = found.stalls
    assert (stall.thread, stall.location, stall.blocked_since) == ("MainThread", "train.py:88 in step", None)
    assert stall.stacks == {"MainThread": ("/x/train.py:88 step",)}
    location = run_status(found, NOW).stall
    assert location is not None and location.location == "train.py:88 in step"
    file.close(remove=True)


@pytest.mark.parametrize("state", ["running", "stalled", "lost"])
def test_what_cannot_be_written_is_on_the_page(run: Run, tmp_path: Path, state: Any) -> None:
    """Whatever the events say, which may lack it for that reason: saves that fail, and events. A page of a version
    that does not say leaves the run as it is."""
    page = replace(
        page_with(tmp_path, progress_age=3.0, tick_age=0.5),
        save_failures=4, save_failures_in_a_row=3, save_error="OSError: it was renamed",
        events_fail=True, events_error="it was renamed",
    )  # fmt: skip
    sessions = (replace(run.sessions[-1], outcome="lost" if state == "lost" else "running"),)
    found = with_page(replace(run, state=state, sessions=sessions), page, NOW, BOOT_NOW)
    last = found.sessions[-1]
    assert (last.saves, last.save_failures, last.save_failures_in_a_row) == (4, 4, 3)
    assert (last.save_error, last.events_error) == ("OSError: it was renamed", "it was renamed")
    status = run_status(replace(found, state="running"), NOW)
    assert (status.checkpoint.failures, status.checkpoint.failures_in_a_row, status.events_failing) == (4, 3, True)
    said = findings(WatchedRun(run=found, files=()), NOW)
    assert [item.evidence["error"] for item in said if item.kind == "saves_failing"] == ["OSError: it was renamed"]
    assert [item.evidence["error"] for item in said if item.kind == "events_failing"] == ["it was renamed"]
    good = replace(page, save_failures_in_a_row=0, save_error="", events_fail=False, events_error="")
    healed = with_page(found, good, NOW, BOOT_NOW).sessions[-1]
    assert (healed.save_failures, healed.save_failures_in_a_row) == (4, 0)
    assert (healed.save_error, healed.events_error) == (None, None)
    older = replace(page, save_failures=None, save_failures_in_a_row=None)
    assert with_page(found, older, NOW, BOOT_NOW).sessions[-1].save_failures_in_a_row == 3


def test_a_run_whose_events_are_written_is_left_as_it_is(run: Run, tmp_path: Path) -> None:
    """The page does not override records: not in a stall that the monitor sees, nor in a short block."""
    live = replace(run, state="running")
    for ages in ({"progress_age": 70.0, "tick_age": 0.5}, {"progress_age": 50.0, "tick_age": BLOCKED_SECS + 1}):
        assert with_page(live, page_with(tmp_path, **ages), NOW, BOOT_NOW) is live
    assert with_page(run, None, NOW, BOOT_NOW) is run
    fresh = replace(page_with(tmp_path, progress_age=1.0, tick_age=1.0), ticks=0)
    assert with_page(run, fresh, NOW, BOOT_NOW) is run


def test_only_the_page_of_that_session_is_read(
    run: Run, tmp_path: Path, writing: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The liveness file names it. A stopped process is none that runs."""
    file = writing.RunFile(tmp_path / "run", NOW - 900.0, "another")
    file.lives(NOW, page=str(tmp_path / "another.page"))
    reader = PageReader(LivenessReader(str(tmp_path / "run")))
    assert reader.read(run.sessions[-1], NOW) is None
    page = ProgressPage.create(tmp_path, session_id=SESSION)
    file.session_id = SESSION
    file.lives(NOW, page=str(page.path))
    found = reader.read(run.sessions[-1], NOW + 1.0)
    assert found is not None and found.session == SESSION
    monkeypatch.setattr(progress_page, "is_stopped", lambda pid: True)
    assert reader.read(run.sessions[-1], NOW + 32.0) is None
    assert PageReader(LivenessReader("gs://bucket/run")).read(run.sessions[-1], NOW) is None
    page.close()


class Asked:
    """Local files, and how often one was asked for."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self, path: str) -> tuple[Any, str]:
        self.times += 1
        return LOCAL, path


def test_a_liveness_file_is_read_when_it_has_changed(tmp_path: Path, writing: ModuleType) -> None:
    """While the session lives, each look has its newest word; a lost run costs no reading; a new session is seen at
    once. Half a file, or one of another session, says nothing."""
    file, asked = writing.RunFile(tmp_path, NOW - 900.0, SESSION), Asked()
    reader = LivenessReader(str(tmp_path), asked)
    assert reader.read(SESSION, NOW) is None
    for n in range(3):
        file.lives(NOW + n, steps=n)
        found = reader.read(SESSION, NOW + n)
        assert found is not None and found.step == n
    asked.times = 0
    for look in range(24 * 240):
        known_secs = 40.0 + 15 * look
        assert reader.read(SESSION, NOW + known_secs, known_secs) is not None  # as it was read last
    assert asked.times == 0
    assert reader.read("another", NOW + 86_500) is None
    path = file.lives(NOW + 86_400, steps=9, session="another")
    found = reader.read("another", NOW + 86_501)
    assert found is not None and found.step == 9
    path.write_bytes(path.read_bytes()[:50])
    assert reader.read("another", NOW + 86_502) is None


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
    assert (run.state, run.step, run.steps_per_sec, run.at_risk) == ("running", 142, 1.5, None)
    assert (last.saves, last.save_failures, last.save_failures_in_a_row) == (2, 2, 2)
    assert (last.save_error, last.events_error, last.ended_at) == ("full", "no room", NOW)
    assert run.goodput.secs["productive"] == pytest.approx(900.0)
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
    assert (status.state, status.active, status.global_step, status.stalled) == ("lost", True, 142, False)


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
from supervisor_core.engine import stall_stacks
from supervisor_core.engine.session_recorder import SessionRecorder

stall_stacks.LEAST_SECS = stall_stacks.MOST_SECS = 2.5
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
