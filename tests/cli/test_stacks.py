"""``tb-supervisor stacks``: where a running process is, from outside, and without that."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hangs import HANGING_LINE, HOLD_LOCK_OF_INTERPRETER

from supervisor_core.cli import stacks as command
from supervisor_core.cli.logdirs import GivenLogdir
from supervisor_core.cli.look import Looking
from supervisor_core.cli.mcp import Answers
from supervisor_core.events.writer import EventsWriter
from supervisor_core.process.identity import boot_id, started_at
from supervisor_core.process.outside import OutsideStacks, ThreadState, find_py_spy
from supervisor_core.process.page_writer import ProgressPage
from supervisor_core.process.progress_page import LAST_PROGRESS, read_page
from supervisor_core.process.stacks_file import StacksFile, look_text, stacks_path
from tests.story.run_file import RunFile
from tests.story.scene import launch

pytestmark = pytest.mark.skipif(sys.platform != "linux" or boot_id() is None, reason="there is no /proc")

AGE_SECS = 86_400.0
OWN = ("/usr/lib/python3.11/runpy.py:88 _run", "/x/train.py:88 step", "/usr/lib/python3.11/queue.py:171 Queue.get")
SERVICE = ("/usr/lib/python3.11/threading.py:1002 run", "/x/supervisor_core/engine/service.py:300 run")
HANG = f"    <string>:{HANGING_LINE} hold_lock_of_interpreter\n"
PROBLEM = "py-spy is not installed"


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StacksFile]:
    """This process has a session in ``run``, at step 7, with a page and a file of stacks."""
    memory = tmp_path / "memory"
    memory.mkdir(mode=0o700)
    monkeypatch.setenv("SUPERVISOR_RUNTIME_DIR", str(memory))
    page = ProgressPage.create(memory, session_id="s1", logdir=str(tmp_path / "run"))
    page.step_is(7, 1)
    page.update(phase="training", hang_timeout_secs=6.0, act_after_secs=300.0)
    page.times[LAST_PROGRESS] = time.monotonic() - AGE_SECS
    file = StacksFile(stacks_path(memory, "s1"), "s1")
    yield file
    file.close(remove=True)
    page.close()


@pytest.fixture
def outside(monkeypatch: pytest.MonkeyPatch) -> list[OutsideStacks]:
    """What py-spy finds at each look."""
    found: list[OutsideStacks] = []
    monkeypatch.setattr(command, "outside_stacks", lambda pid: found.pop(0))
    main = ThreadState(id=os.getpid(), name="python", state="S", waits_in="futex_wait")
    stuck = ThreadState(id=99, name="io", state="D", waits_in="nfs_wait")
    idle = [ThreadState(id=100 + number, name="tf", state="S", waits_in=None) for number in range(3)]
    monkeypatch.setattr(command, "thread_states", lambda pid: (main, stuck, *idle))
    return found


def test_threads_are_shown_with_what_the_kernel_says(
    run: Callable[..., Any], outside: list[OutsideStacks], session: StacksFile, tmp_path: Path
) -> None:
    """The session's progress; the main thread first, the supervisor's own last; who holds the interpreter's lock;
    a thread in I/O by itself."""
    ids = {"MainThread": os.getpid(), "w": 100}
    ours = {"summary": SERVICE}
    stacks = ours | {"w": ("/x/a.py:1 f",), "MainThread": OWN}
    outside += [OutsideStacks(stacks=stacks, threads=ids, holds_lock="MainThread")]
    done = run("stacks", tmp_path)
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert re.fullmatch(r"step 7, phase training: no progress for 864\d\d s \(hang timeout 6 s\)", lines.pop(1))
    assert lines == [
        f"Process {os.getpid()}, session s1, in {tmp_path / 'run'}",
        "MainThread holds the interpreter's lock.",
        "Stacks now, by py-spy; innermost line last:",
        "  MainThread: sleeping, in the kernel's futex_wait",
        *(f"    {line}" for line in OWN),
        "  w: sleeping",
        "    /x/a.py:1 f",
        "  summary",
        *(f"    {line}" for line in SERVICE),
        "  thread 99 (io): waiting for I/O, cannot be interrupted, in the kernel's nfs_wait",
        "  other threads: 2 sleeping",
    ]


def test_without_py_spy_what_the_session_wrote_is_shown(
    run: Callable[..., Any], outside: list[OutsideStacks], session: StacksFile, tmp_path: Path
) -> None:
    """With the reason, and the kernel's view. Before it has written any, status 1."""
    outside += [OutsideStacks(problem=PROBLEM), OutsideStacks(problem=PROBLEM)]
    done = run("stacks", tmp_path / "run")
    assert done.exit_code == 1 and "  threads: 3 sleeping; 1 sleeping, in the kernel's futex_wait" in done.stdout
    assert "Stacks" not in done.stdout.split("Not read from outside")[1]
    session.add(look_text("no progress for 30 s", 1_700_000_000.0, {"MainThread": OWN}))
    done = run("stacks", os.getpid())
    assert done.exit_code == 0
    assert f"Not read from outside: {PROBLEM}." in done.stdout
    assert "Stacks written by the process itself: no progress for 30 s; innermost line last:" in done.stdout
    assert "    /x/train.py:88 step\n" in done.stdout


def test_an_assistant_gets_the_threads_of_now(
    outside: list[OutsideStacks], session: StacksFile, tmp_path: Path
) -> None:
    """The innermost frames of each thread of the run's process, marked as texts from outside."""
    with EventsWriter(tmp_path / "run") as writer:
        writer.scalar("loss", 0.5, 7)
    deep = [f"/x/a.py:{line} f" for line in range(100)]
    outside += [OutsideStacks(stacks={"MainThread": (*deep, *OWN)}, threads={}, holds_lock="MainThread")]
    answers = Answers(Looking([GivenLogdir(path=str(tmp_path / "run"))], whole=None), wait_secs=60.0)
    [process] = json.loads(answers.stacks("."))["now"]
    assert (process["pid"], process["step"], process["source"]) == (os.getpid(), 7, "⟦py-spy⟧")
    assert process["holds_lock"] == "⟦MainThread⟧"
    [thread] = process["threads"]
    assert len(thread["frames"]) == 30 and thread["frames"][-3:] == [f"⟦{frame}⟧" for frame in OWN]


def test_json_has_all_of_it(run: Callable[..., Any], outside: list[OutsideStacks], session: StacksFile) -> None:
    """For programs, each look."""
    outside += [OutsideStacks(problem=PROBLEM)]
    done = run("stacks", "--json", os.getpid())
    assert done.exit_code == 1
    [process] = json.loads(done.stdout)["processes"]
    assert (process["pid"], process["session"], process["source"], process["threads"]) == (os.getpid(), "s1", None, [])
    assert process["problem"] == PROBLEM and process["step"] == 7
    assert process["hang_timeout_secs"] == 6.0 and process["progress_age_secs"] >= AGE_SECS
    assert process["kernel"][1] == {"id": 99, "name": "io", "state": "D", "waits_in": "nfs_wait"}


def test_a_target_without_a_process_is_refused(run: Callable[..., Any], tmp_path: Path, session: StacksFile) -> None:
    """With the reason in one line: no process, no session, an ended one, another machine."""
    assert "There is no process 4194304 " in run("stacks", 4194304).stderr
    assert "There is no process 0 " in run("stacks", 0).stderr
    other = tmp_path / "other"
    assert "Expected the number of a process, or a logdir." in run("stacks", other).stderr
    other.mkdir()
    assert "No session trains in" in run("stacks", other).stderr
    RunFile(other, session="s2").lives(1.7e9, ended="completed")
    done = run("stacks", other)
    assert (done.exit_code, "has ended (completed)" in done.stderr) == (2, True)


def test_a_program_without_a_session_is_found_by_its_restarter(
    run: Callable[..., Any], outside: list[OutsideStacks], tmp_path: Path
) -> None:
    """Its launch names it; a process that has the number now, but began at another time, is another one."""
    outside += [OutsideStacks(stacks={"MainThread": OWN})]
    began = started_at(os.getpid())
    assert began is not None
    here = {"host": socket.gethostname(), "pid": os.getpid()}
    launch(tmp_path / "logs" / "mine", 1, began, **here)
    assert run("stacks", tmp_path / "logs").stdout.startswith(f"Process {os.getpid()}\n")
    launch(tmp_path / "other" / "run", 1, began - 3600.0, **here)
    assert "No session trains in" in run("stacks", tmp_path / "other").stderr


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give files to others")
def test_another_users_files_name_no_process(
    run: Callable[..., Any], outside: list[OutsideStacks], tmp_path: Path
) -> None:
    """Who writes the number of another user's process into heartbeat file, launch or session is shown nothing of it,
    and nobody is told to end it."""
    outside += [OutsideStacks(stacks={"MainThread": OWN})]
    began, logdir = started_at(os.getpid()), tmp_path / "logs"
    assert began is not None
    RunFile(logdir / "session", session="s2").lives(1.7e9, pid=os.getpid(), boot=boot_id())
    launch(logdir / "launch", 1, began, host=socket.gethostname(), pid=os.getpid())
    assert "not of that file's owner" not in run("stacks", logdir / "session").stderr
    for path in (logdir, *logdir.rglob("*")):
        os.chown(path, 65534, 65534)
    assert "is not of that file's owner" in run("stacks", logdir / "session").stderr
    assert "No session trains in" in run("stacks", logdir / "launch").stderr


SCRIPT = (
    HOLD_LOCK_OF_INTERPRETER
    + """
ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(-1), 0, 0, 0)  # whoever asks may read this process
print("hangs", flush=True)
hold_lock_of_interpreter()
"""
)


@pytest.mark.skipif(find_py_spy() is None, reason="py-spy is not installed")
def test_a_process_that_holds_the_interpreter_s_lock_is_read_from_outside(run: Callable[..., Any]) -> None:
    """Nothing in it runs any more; the line that hangs is shown."""
    with subprocess.Popen([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE) as hung:
        try:
            assert hung.stdout is not None and hung.stdout.readline() == b"hangs\n"
            while HANG not in (done := run("stacks", hung.pid)).stdout:  # it may be before that line yet
                assert hung.poll() is None and done.exit_code == 0
        finally:
            hung.kill()
    assert "MainThread holds the interpreter's lock.\n" in done.stdout
    assert done.exit_code == 0


@pytest.mark.parametrize(
    "state, tick_age_secs, holder",
    [("S", -AGE_SECS, None), ("S", AGE_SECS, "MainThread"), ("R", -AGE_SECS, "MainThread")],
)
def test_a_thread_that_sleeps_while_the_monitor_runs_does_not_hold_the_lock(
    session: StacksFile, tmp_path: Path, state: str, tick_age_secs: float, holder: str | None
) -> None:
    """py-spy reads a process that goes on, so it may name one. A monitor that stands still does not contradict it."""
    page = next(page for each in (tmp_path / "memory").iterdir() if (page := read_page(each)) is not None)
    page = replace(page, ticks=9, tick_at=time.monotonic() - tick_age_secs)
    seen = command.ProcessStacks(
        pid=5,
        page=page,
        progress_age_secs=1.0,
        source="py-spy",
        stacks={"MainThread": OWN},
        title="now",
        states=(ThreadState(id=5, name="python", state=state, waits_in="futex_do_wait"),),
        outside=OutsideStacks(stacks={"MainThread": OWN}, threads={"MainThread": 5}, holds_lock="MainThread"),
    )
    assert seen.holds_lock == holder


def test_the_page_that_the_liveness_file_names_is_found_wherever_it_is(
    run: Callable[..., Any], tmp_path: Path, outside: list[OutsideStacks]
) -> None:
    """Of a session that was given another directory, or of another user."""
    outside += [OutsideStacks(stacks={"MainThread": OWN})]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    page = ProgressPage.create(elsewhere, session_id="s2")
    page.step_is(7, 1)
    file = RunFile(tmp_path / "other", session="s2")
    file.lives(1.7e9, pid=os.getpid(), boot=boot_id(), page=str(page.path))
    assert "\nstep 7, phase unknown: " in run("stacks", tmp_path / "other").stdout
    page.close()
