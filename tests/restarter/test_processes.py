"""`tb-supervisor run` with real processes: no orphan whichever is killed, signals, statuses, what is kept."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.run.model.program_launch import launch_text
from supervisor_core.run.watch.logdir_watch import LogdirWatch
from tests.restarter.conftest import training

FAMILY = """
import os, time
def forever(leave):
    if leave:
        os.setsid()
    while True:
        time.sleep(1000)
def start(leave):
    # Of the daemon the parent ends at once, so that it is an orphan in a session of its own.
    out, into = os.pipe()
    first = os.fork()
    if first == 0:
        if leave and os.fork():
            os._exit(0)
        os.write(into, b"%d" % os.getpid())
        os.close(into)
        forever(leave)
    if leave:
        os.waitpid(first, 0)
    return int(os.read(out, 20))
print(os.getppid(), os.getpid(), start(False), start(True), flush=True)
forever(False)
"""


@pytest.mark.parametrize("victim", ["restarter", "keeper", "leader"])
def test_whichever_process_is_killed_no_other_is_left(restarter: Callable[..., Any], victim: str) -> None:
    """kill -9 of any one ends the program, its child and its daemon; a restarter that lives starts it again."""
    running = restarter(FAMILY, "--max-backoff", "1ms")
    keeper, leader, child, daemon = map(int, running.line())
    running.watch(keeper, leader, child, daemon)
    os.kill({"restarter": running.process.pid, "keeper": keeper, "leader": leader}[victim], signal.SIGKILL)
    running.wait_gone()
    if victim == "restarter":
        assert running.status() == -signal.SIGKILL
        return
    again = list(map(int, running.line()))
    running.watch(*again)
    running.process.send_signal(signal.SIGTERM)
    assert running.status() == -signal.SIGTERM, running.log
    running.wait_gone()


LISTENING = r"""
import os, signal, sys, time
def say(signum, frame):
    os.write(1, signal.Signals(signum).name.encode() + b"\n")
    if len(sys.argv) > 1 and signum == signal.SIGTERM:
        sys.exit(int(sys.argv[1]))
for signum in (signal.SIGTERM, signal.SIGUSR1):
    signal.signal(signum, say)
ready, is_ready = os.pipe()
if os.fork() == 0:
    signal.signal(signal.SIGTERM, lambda *_: (os.write(1, b"the child, too\n"), os._exit(0)))
    os.write(is_ready, b"1")
    while True:
        time.sleep(1000)
os.read(ready, 1)
print(os.getpid(), os.environ["SUPERVISOR_STOP_TIMEOUT_SECS"], flush=True)
while True:
    time.sleep(1000)
"""


def test_a_signal_goes_to_the_program_alone(restarter: Callable[..., Any]) -> None:
    """To a stopped one as well; to its children only when it has ended, and once. The status is the program's own."""
    running = restarter(LISTENING, "--stop-timeout", "60s", arguments=("7",))
    leader, secs = running.line()
    assert float(secs) == 60.0
    running.process.send_signal(signal.SIGUSR1)
    assert running.line() == ["SIGUSR1"], (leader, running.log)
    os.kill(int(leader), signal.SIGSTOP)
    running.process.send_signal(signal.SIGTERM)
    assert running.line() == ["SIGTERM"]
    assert running.status() == 7, running.log
    assert running.rest() == b"the child, too\n"


def test_a_program_that_does_not_stop_is_killed(restarter: Callable[..., Any]) -> None:
    """A little after the stop timeout; the restarter ends by the signal that it got, whatever the program died of."""
    running = restarter(LISTENING, "--stop-timeout", "100ms")
    running.watch(int(running.line()[0]))
    running.process.send_signal(signal.SIGTERM)
    assert running.status() == -signal.SIGTERM
    assert "Program did not exit in 0.15 s; sending SIGKILL." in running.log
    running.wait_gone()


def test_a_second_signal_hurries_and_a_third_kills(restarter: Callable[..., Any]) -> None:
    """Each is passed on; whoever sends the third does not wait any more."""
    running = restarter(LISTENING, "--stop-timeout", "600s")
    running.line()
    running.process.send_signal(signal.SIGTERM)
    assert running.line() == ["SIGTERM"]
    while not running.has_line(0.2):  # two within half a second are one: a batch system signals every process
        running.process.send_signal(signal.SIGTERM)
    while running.process.poll() is None:
        running.process.send_signal(signal.SIGTERM)
        running.has_line(0.2)
    assert running.status() == -signal.SIGTERM


FAILING = """
import os, sys
print(os.getpid(), flush=True)
sys.stderr.write("x" * 100_000 + "\\n")
def step():
    raise RuntimeError("no such device")
step()
"""


def test_a_program_that_fails_alike_is_given_up_and_everything_is_recorded(
    restarter: Callable[..., Any], tmp_path: Path
) -> None:
    """Three launches, the same failure: status 93; the records say why, and the state on disk goes on counting, until
    it is reset."""
    running = restarter(FAILING, "--max-backoff", "1ms")
    assert running.status() == 93, running.log
    assert "3 identical failures: RuntimeError at program.py:6 in step" in running.log
    assert running.log.count("x" * 100_000) == 3  # all of standard error is copied
    run = LogdirWatch(str(tmp_path / "logs")).refresh().runs["."].run
    assert [launch.attempt for launch in run.launches] == [1, 2, 3]
    assert [launch.pid for launch in run.launches] == [int(running.line()[0]) for _ in range(3)]
    last = run.launches[-1]
    assert (last.cause, last.exit_code, last.error) == ("error", 1, "RuntimeError at program.py:6 in step")
    assert (last.action, last.decided_by, last.progress) == ("end", "program", None)
    assert last.stderr is not None and last.stderr.endswith("RuntimeError: no such device\n")
    assert launch_text(run.launches[0]).startswith(
        "restarted by tb-supervisor: RuntimeError: no such device at program.py:6"
    )
    assert (run.sessions, run.state) == ((), "failed")  # a launch is no session
    assert f"--reset; without it the counts go on ({tmp_path / 'logs' / '.supervisor.restarts'})" in running.log
    kept = json.loads((tmp_path / "logs" / ".supervisor.restarts").read_text())
    assert kept["state"]["attempt"] == 3 and kept["state"]["launched_at"] is None
    # The next restarter gives it one launch, not three.
    again = restarter(FAILING, "--max-backoff", "1ms")
    assert again.status() == 93 and "4 identical failures" in again.log
    reset = restarter(FAILING, "--max-backoff", "1ms", "--reset", "--identical-limit", "1")
    assert reset.status() == 93 and "launch 5 has ended" in reset.log and "1 identical failure:" in reset.log


LOGGING = """
import sys
from supervisor_core.events import EventsWriter
writer = EventsWriter(sys.argv[1])
writer.scalar("loss", 1.0, 1)
writer.close()
"""


@pytest.mark.parametrize(
    ("program", "cause", "advice"),
    [
        ("import os; os.kill(os.getpid(), 15)", "preempted", "Find what sends SIGTERM to the program"),
        ("import sys; sys.exit(75)", "requested", "Find why the program ends with status 75"),
    ],
)
def test_a_program_that_is_stopped_before_it_gets_anywhere_is_given_up(
    restarter: Callable[..., Any], tmp_path: Path, program: str, cause: str, advice: str
) -> None:
    """By the limit of all launches without progress, after waits; the last line says what to look for."""
    logs = str(tmp_path / "logs")
    running = restarter(LOGGING + program, "--max-backoff", "1ms", arguments=(logs,), is_isolated=False)
    assert running.status() == 93, running.log
    launches = LogdirWatch(str(tmp_path / "logs")).refresh().runs["."].run.launches
    assert [(launch.cause, launch.counted) for launch in launches[1:]] == [(cause, True), (cause, True), (cause, False)]
    assert f"3 launches without progress. It is not started again: status 93. {advice}" in running.log
    assert f"If the newest checkpoint is in doubt, `tb-supervisor inspect --run=. -- {logs}` says so" in running.log


HANGING = """
import ctypes, os, pathlib, time
from supervisor_core.process.page_writer import ProgressPage
from supervisor_core.process.progress_page import LAST_PROGRESS, STEPS
from supervisor_core.process.runtime_directory import private_directory
page = ProgressPage.create(private_directory(), session_id=f"s{os.getpid()}")
print(os.getpid(), flush=True)
hung = pathlib.Path("HUNG")
if not hung.exists():
    hung.write_text("")
    page.step_is(100, 1)
    page.counts[STEPS], page.times[LAST_PROGRESS] = 7, time.monotonic()
    page.update(phase="training", hang_timeout_secs=0.5, act_after_secs=1.0)  # from now on any pause is a hang
    ctypes.PyDLL(None).pause()  # holds the interpreter's lock
page.close()
"""


def test_a_program_whose_interpreter_is_blocked_is_brought_back(
    restarter: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its page in memory shows the hang and the exact step; it is ended, recorded and started again."""
    monkeypatch.setenv("SUPERVISOR_RUNTIME_DIR", str(tmp_path / "memory"))
    program = HANGING.replace("HUNG", str(tmp_path / "hung"))
    running = restarter(program, "--max-backoff", "1ms", "--hang-timeout", "1s", is_isolated=False)
    first, second = int(running.line()[0]), int(running.line()[0])
    assert running.status() == 0, running.log
    assert "launch 1 hangs: no progress in phase training" in running.log
    hung, done = LogdirWatch(str(tmp_path / "logs")).refresh().runs["."].run.launches
    assert (hung.pid, hung.cause, hung.decided_by, hung.step, hung.session) == (
        first,
        "hang",
        "watchdog",
        107,
        f"s{first}",
    )
    assert (done.pid, done.cause, done.step) == (second, "completed", None)


def test_of_several_ranks_a_launch_names_the_session_that_the_events_have(
    restarter: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The chief's, though the rank that hangs began later: else its end counts as what the chief's last record says, a
    signal, and nobody gets a message."""
    monkeypatch.setenv("SUPERVISOR_RUNTIME_DIR", str(tmp_path / "memory"))
    chief = """chief = ProgressPage.create(private_directory(), session_id=f"chief-{os.getpid()}", attempt=1)
chief.update(phase="training", hang_timeout_secs=1000.0, act_after_secs=1000.0)
page = """
    program = HANGING.replace("HUNG", str(tmp_path / "hung")).replace("page = ", chief, 1)
    running = restarter(program, "--max-backoff", "1ms", "--hang-timeout", "1s", is_isolated=False)
    first = int(running.line()[0])
    assert running.status() == 0, running.log
    hung = LogdirWatch(str(tmp_path / "logs")).refresh().runs["."].run.launches[0]
    assert (hung.cause, hung.session) == ("hang", f"chief-{first}")


def test_a_directory_for_pages_that_goes_away_is_missed(
    running: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the system's own, with the user's last login: that no hang is seen any more is said, once."""
    monkeypatch.setenv("SUPERVISOR_RUNTIME_DIR", str(tmp_path / "memory"))
    options = ["--hang-action", "observe", "--stop-timeout", "1s"]
    restarter = running(*training(tmp_path, how="hangs"), options=options)
    pid = restarter.line()[1]
    while "launch 1 may hang: " not in restarter.log:  # the restarter has seen the page then
        assert not restarter.has_line(0.05)
    shutil.rmtree(tmp_path / "memory")
    said = f"{tmp_path / 'memory'} was removed, with the progress page of process {pid}: a hang is not seen any more"
    while said not in restarter.log:
        assert not restarter.has_line(0.05)
    restarter.process.send_signal(signal.SIGTERM)
    assert restarter.status() == -signal.SIGTERM
    assert restarter.log.count("was removed") == 1


def test_a_logdir_in_use_and_a_program_that_is_missing(tmp_path: Path, run_command: list[str]) -> None:
    """95 and nothing is started; 93, and no second try."""
    logs = tmp_path / "logs"
    missing = [*run_command, "--logdir", str(logs), "--", str(tmp_path / "nothing")]
    done = subprocess.run(missing, capture_output=True, text=True, timeout=60)
    assert done.returncode == 93 and f"there is no file '{tmp_path / 'nothing'}'" in done.stderr
    with (logs / ".supervisor.restarts.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(missing, capture_output=True, text=True, timeout=60)
    assert done.returncode == 95 and f"in use by another tb-supervisor run: process {os.getpid()} (" in done.stderr


IN_A_CONTAINER = r"""
import os, signal, sys, time
def zombies():
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] == "Z":
            found.append(name)
    return found
if os.fork() == 0:
    os.fork()  # its child becomes an orphan
    os._exit(0)
os.wait()
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
until = time.monotonic() + 60
while (left := zombies()) and time.monotonic() < until:
    time.sleep(0.01)
print(len(left), flush=True)
while True:
    time.sleep(1000)
"""
"""Says how many processes that have ended were not reaped, then waits for SIGTERM."""


def test_as_process_1_it_reaps_and_stops(tmp_path: Path, run_command: list[str]) -> None:
    """Of a container: it reaps what it never started, of whoever ran there before it and of the program; SIGTERM, which
    a process 1 without a handler does not see, stops the program; its status is that of the program."""
    unshare = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    may = shutil.which("unshare") and not subprocess.run([*unshare, "true"], capture_output=True, timeout=60).returncode
    if not may:
        pytest.skip("this user may not create a namespace of processes here (unshare --pid)")
    program = tmp_path / "program.py"
    program.write_text(IN_A_CONTAINER)
    command = [*run_command, "--logdir", str(tmp_path / "logs"), "--", sys.executable, "-I", str(program)]
    before = ["sh", "-c", 'true & exec "$@"', "sh"]  # leaves a child that it does not wait for
    log = tmp_path / "log"
    with log.open("wb") as stderr:
        outer = subprocess.Popen([*unshare, *before, *command], stdout=subprocess.PIPE, stderr=stderr)
    with outer:
        assert outer.stdout is not None
        try:
            assert outer.stdout.readline() == b"0\n", log.read_text()
            (inner,) = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
            os.kill(int(inner), signal.SIGTERM)
            assert outer.wait(60.0) == 7, log.read_text()
        finally:
            outer.kill()
