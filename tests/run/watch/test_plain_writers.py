"""Runs of unchanged programs on this machine: whether the process that writes them runs, hangs, or is gone."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.process import open_files
from supervisor_core.run.judge.findings import findings
from supervisor_core.run.watch import plain_writers
from supervisor_core.run.watch.logdir_watch import LogdirWatch
from supervisor_core.run.watch.plain_writers import PlainWriters, RunWriter
from tests.story.run_file import RunFile
from tests.story.stories import NO_PID

HOST = socket.gethostname()
PROGRAM = """
import sys, time, types
sys.modules["tensorboard.compat.notf"] = types.ModuleType("notf")  # without TensorFlow, which takes seconds to load
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter
for logdir in sys.argv[1:]:
    writer = EventFileWriter(logdir)
    for step in range(9):
        value = Summary.Value(tag="loss", simple_value=1.0)
        writer.add_event(Event(wall_time=time.time(), step=step, summary=Summary(value=[value])))
    writer.flush()
    globals()[logdir] = writer
print("written", flush=True)
sys.stdin.read()
"""
"""Keeps the writer of each directory until it ends, as a training does."""
HOLDS = "import sys\nfile = open(sys.argv[1], '{mode}')\nprint('written', flush=True)\ninput()"
"""Keeps a file open."""

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a program that has written to each directory, and goes on."""
    started: list[subprocess.Popen[str]] = []

    def begin(*logdirs: Path, program: str = PROGRAM) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", program, *map(str, logdirs)]
        started.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        assert started[-1].stdout is not None and started[-1].stdout.readline() == "written\n"
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def killed(process: subprocess.Popen[str]) -> None:
    """Kill a process, and leave it a zombie."""
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)


def seen(watch: LogdirWatch) -> dict[str, str]:
    """The state of each run, and the first words that are said of it."""
    return {
        name: " ".join([each.run.state, *(found.text for found in findings(each, time.time())[:1])])
        for name, each in watch.refresh().runs.items()
    }


@pytest.mark.real
def test_a_program_that_was_killed_is_over_at_the_next_look(tmp_path: Path, start: Start) -> None:
    """Nobody waits for its rhythm, nor needs to be called; likewise the evaluation in a directory of its own."""
    process = start(tmp_path / "train", tmp_path / "train" / "eval")
    watch = LogdirWatch(str(tmp_path))
    assert seen(watch) == {"train": "running", "train/eval": "running"}
    killed(process)
    over = f"unknown Over; how it ended is not known: Process {process.pid} on {HOST} is gone, and its program records"
    assert [said[: len(over)] for said in seen(watch).values()] == [over, over]
    assert {run.run.sessions[-1].outcome for run in watch.refresh().runs.values()} == {"unknown"}


@pytest.mark.real
def test_a_restart_by_hand_is_the_new_process(tmp_path: Path, start: Start) -> None:
    """The first one's file says nothing while the second one lives."""
    first = start(tmp_path)
    killed(first)
    second = start(tmp_path)
    watch = LogdirWatch(str(tmp_path))
    assert seen(watch)["."].startswith("running Restarted") and watch.refresh().runs["."].writer_pid == second.pid
    killed(second)
    assert seen(watch)["."].startswith("unknown Over")


@pytest.mark.real
def test_a_name_without_a_process(tmp_path: Path, start: Start) -> None:
    """TensorFlow 1 and tensorboardX name the host only: then the process is the one that has the file open."""
    path = RunFile(tmp_path).scalar("loss", 1, time.time()).path
    named = path.rename(tmp_path / f"events.out.tfevents.{int(time.time())}.{HOST}")
    process = start(named, program=HOLDS.format(mode="ab"))
    watch = LogdirWatch(str(tmp_path))
    assert seen(watch) == {".": "running"} and watch.refresh().runs["."].writer_pid == process.pid
    killed(process)
    assert seen(watch)["."].startswith("unknown Over; how it ended is not known: The process is gone")


@pytest.mark.real
@pytest.mark.parametrize("mode", ["ab", "rb"])
def test_a_process_writes_the_file_that_it_has_open_for_writing(tmp_path: Path, start: Start, mode: str) -> None:
    """The process id in the file's name is of another namespace, and says nothing here. TensorBoard and ``tail -f``
    keep the file of a run that is over open for reading."""
    path = RunFile(tmp_path).scalar("loss", 1, time.time()).path
    named = path.rename(tmp_path / f"events.out.tfevents.{int(time.time())}.{HOST}.{NO_PID}.0")
    process = start(named, program=HOLDS.format(mode=mode))
    assert PlainWriters().of([str(named)]) == (RunWriter(process.pid) if mode == "ab" else RunWriter(is_over=True))


@pytest.mark.real
def test_what_a_process_says_of_a_file(tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never the process id alone: it must be as old as the file."""
    process = start(tmp_path / "run")
    (own,) = (tmp_path / "run").iterdir()

    def copied(name: str) -> list[str]:
        return [str(shutil.copy(own, tmp_path / name))]

    now = int(time.time())
    assert PlainWriters().of([str(own)]) == RunWriter(process.pid)
    assert PlainWriters().of(copied(f"events.out.tfevents.{now}.elsewhere.{process.pid}.0")) == RunWriter()
    before = copied(f"events.out.tfevents.{now - 3600}.{HOST}.{process.pid}.0")
    assert PlainWriters().of(before) == RunWriter(is_over=True), "a process of that id began after it"
    assert PlainWriters().of([]) == RunWriter()
    monkeypatch.setattr(plain_writers, "started_at", lambda pid: None)
    assert PlainWriters().of(copied(own.name)) == RunWriter(), "hidden, or a system that does not say"
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert PlainWriters().of([str(own)]) == RunWriter(is_over=True)
    assert PlainWriters().of([str(own), *copied(f"events.out.tfevents.{now}.elsewhere.1.0")]) == RunWriter()


def test_files_of_others_are_not_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a process id, and where not every process may be looked at, a file that nobody has open may have a
    writer."""
    path = tmp_path / f"events.out.tfevents.1.{HOST}"
    path.touch()
    assert PlainWriters().of([str(path)]) == RunWriter(is_over=True)
    monkeypatch.setattr(open_files, "user_id", lambda: 12345)
    assert PlainWriters().of([str(path)]) == RunWriter()
    assert PlainWriters().of([f"gs://bucket/{path.name}"]) == RunWriter()


def test_what_grows_runs_whatever_the_process_table_says(tmp_path: Path, clock: Any) -> None:
    """Containers share the names of hosts, not their processes: one look just after an event does not call it over.
    From its first growth on its rhythm counts."""
    file = RunFile(tmp_path, clock.now)
    file.path = file.path.rename(tmp_path / f"events.out.tfevents.{int(clock.now)}.{HOST}.{NO_PID}.0")
    watch, states = LogdirWatch(str(tmp_path), clock=clock), []
    for minute in (0, 1, 2, 3, 4, 600):
        clock.now += 60.0 * minute
        if minute not in (1, 600):
            file.scalar("loss", minute, clock.now)
        states.append(watch.refresh().runs["."].run.state)
    assert states == ["running", "unknown", "running", "running", "running", "unknown"]
    assert not watch.refresh().runs["."].run.sessions[-1].gone


def test_alive_and_silent(tmp_path: Path, clock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is seen to run may be silent for ten times its longest gap: its evaluations are as long as they
    like. After that somebody is called if it has the file open. When it ends, that is seen, however long it was silent.
    """
    file = RunFile(tmp_path, clock.now)
    file.path = file.path.rename(tmp_path / f"events.out.tfevents.{int(clock.now)}.{HOST}.7.0")
    for secs in (0, 10, 20, 30, 330):
        file.scalar("loss", secs, clock.now + secs)
    clock.now += 331
    writer, holder = RunWriter(7), None
    monkeypatch.setattr(PlainWriters, "of", lambda self, paths: writer)
    monkeypatch.setattr(PlainWriters, "holder", lambda self, path: holder)
    watch = LogdirWatch(str(tmp_path), clock=clock)

    def said() -> str:
        found = watch.refresh().runs["."]
        return " ".join([found.run.state, *(each.kind for each in findings(found, clock.now))])

    assert said() == "running"
    clock.now += 2990
    assert said() == "running"
    clock.now += 10
    assert said() == "unknown over", "a notebook that has closed it, or another process of that id"
    holder = 7
    assert said() == "unknown silent"
    clock.now += 86400
    assert said() == "unknown"
    writer = RunWriter(is_over=True)
    assert said() == "unknown over"


def test_suspended_is_said(tmp_path: Path, clock: Any, start: Start) -> None:
    """Of a process that a signal has stopped, with the command that lets it go on; no longer once it goes on."""
    file = RunFile(tmp_path, clock.now)
    file.path = file.path.rename(tmp_path / f"events.out.tfevents.{int(clock.now)}.{HOST}")
    for secs in range(30):
        file.scalar("loss", secs, clock.now + secs)
    process = start(file.path, program=HOLDS.format(mode="ab"))
    clock.now += 700
    watch = LogdirWatch(str(tmp_path), clock=clock)

    def said() -> tuple[str, str | None]:
        (found,) = findings(watch.refresh().runs["."], clock.now)
        assert found.kind == "silent"
        return found.text, found.action

    assert "it hangs, is suspended, or has no more to do" in said()[0]
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
    text, action = said()
    assert f"Process {process.pid} is suspended" in text and action == f"kill -CONT {process.pid}"
    process.send_signal(signal.SIGCONT)
    os.waitid(os.P_PID, process.pid, os.WCONTINUED | os.WNOWAIT)
    assert "it hangs, is suspended, or has no more to do" in said()[0]


OURS = """
import sys, time, supervisor_core
with supervisor_core.supervise(sys.argv[1]) as run:
    for step in run.steps(10**9):
        if step == 5:
            print("written", flush=True)
        time.sleep(0.01)
"""


def test_a_supervised_process_that_is_suspended_is_said(
    tmp_path: Path, clock_at: Callable[[float], Any], start: Start
) -> None:
    """It is lost, as no step is made; its first step is not to start it a second time."""
    process = start(tmp_path, program=OURS)
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
    clock = clock_at(time.time() + 300.0)
    found = findings(LogdirWatch(str(tmp_path), clock=clock).refresh().runs["."], clock.now)
    (lost,) = [each for each in found if each.kind == "lost"]
    assert f"Process {process.pid} on {HOST} is suspended" in lost.text
    assert (lost.action or "").startswith(f"Continue it (kill -CONT {process.pid}); or end it")
    if os.geteuid() == 0:  # whoever names another user's process has nobody end it
        os.chown(tmp_path, 65534, 65534)
        found = findings(LogdirWatch(str(tmp_path), clock=clock).refresh().runs["."], clock.now)
        assert not any("kill" in (each.action or "") for each in found)
