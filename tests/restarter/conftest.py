"""`tb-supervisor run` as a process, with programs that need nothing but the standard library."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from forked import ForkServer

from supervisor_core.run.model.run import Run
from supervisor_core.run.watch.logdir_watch import LogdirWatch

MAIN = "from supervisor_core.cli import main; main()"
COMMAND = [sys.executable, "-c", MAIN, "run"]
WAIT_SECS = 60.0
"""Longer than anything takes on a busy machine."""

TRAINING = """
import os, sys, threading
import supervisor_core
class Model:
    steps = 0
    def state_dict(self):
        if run.should_stop():
            print("saves", flush=True)
        return {"steps": self.steps}
    def load_state_dict(self, state):
        self.steps = int(state["steps"])
logdir, steps, how = sys.argv[1:]
model, pause = Model(), threading.Event()
timeouts = {"evaluating": 1.0} if how == "hangs" else {}
options = supervisor_core.Options(hang_timeout_secs=timeouts, dump_blocked_stacks=False)
run = supervisor_core.supervise(logdir, state={"model": model}, save_secs=None, options=options)
with run:
    first = model.steps
    for step in run.steps(int(steps)):
        model.steps += 1
        with open(logdir + "/steps", "w") as file:
            file.write(str(model.steps))
        if model.steps == first + 3:
            print("trains", os.getpid(), flush=True)
        if model.steps == 10 and how == "fails":
            raise RuntimeError("as asked")
        if model.steps == 10 and how == "hangs" and not os.path.exists(logdir + "/hung"):
            open(logdir + "/hung", "w").close()
            with run.phase("evaluating"):
                pause.wait()
        while model.steps == 10 and how == "waits" and not os.path.exists(logdir + "/go"):
            pause.wait(0.01)
        pause.wait(0.01)
"""
FOREVER = 1_000_000


class Running:
    """A restarter, and what its program writes to standard output.

    Args:
        server: forks the process, unless there is a command before it.
        arguments: those of ``tb-supervisor run``.
        log: where its standard error goes.
        before: a command that ends by running it.
    """

    def __init__(self, server: ForkServer, arguments: list[str], log: Path, before: Sequence[str] = ()) -> None:
        self._log = log
        with log.open("wb") as stderr:
            if before:
                run = [*before, *COMMAND, *arguments]
                self.process: Any = subprocess.Popen(run, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr)
            else:
                run = ["-c", MAIN, "run", *arguments]
                self.process = server.start(run, dict(os.environ), stderr=stderr.fileno())
        self._output = self.process.stdout
        self._data = b""
        self._watched: dict[int, int] = {}

    def line(self) -> list[str]:
        """The next line that the program writes, in words; waits for it."""
        while b"\n" not in self._data:
            assert select.select([self._output], [], [], WAIT_SECS)[0], self.log
            data = os.read(self._output.fileno(), 4096)
            assert data, self.log
            self._data += data
        line, _, self._data = self._data.partition(b"\n")
        return line.decode().split()

    def has_line(self, secs: float) -> bool:
        """Whether there is another line, within some seconds."""
        return b"\n" in self._data or bool(select.select([self._output], [], [], secs)[0])

    def rest(self) -> bytes:
        """All that the program wrote after the lines that were taken, once it and its restarter have ended."""
        data = self._data
        while more := os.read(self._output.fileno(), 1 << 16):
            data += more
        return data

    def watch(self, *pids: int) -> None:
        """Hold on to processes, so that their ends can be waited for."""
        for pid in pids:
            self._watched[pid] = os.pidfd_open(pid)

    def wait_gone(self) -> None:
        """Wait until every process that is held has ended."""
        for pid, handle in self._watched.items():
            assert select.select([handle], [], [], WAIT_SECS)[0], f"{pid} still runs: {self.log}"

    def status(self) -> int:
        """Wait for the restarter's end; its status, or minus the signal."""
        return self.process.wait(WAIT_SECS)

    @property
    def log(self) -> str:
        """What is on standard error so far."""
        return self._log.read_text()

    def leader(self) -> int:
        """The program's process id, as the log says; waits for it."""
        until = time.monotonic() + WAIT_SECS
        while (found := re.search(r"started: process (\d+)", self.log)) is None:
            assert self.process.poll() is None and time.monotonic() < until, self.log
            time.sleep(0.01)
        return int(found[1])

    def close(self) -> None:
        """End everything that is left."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(WAIT_SECS)
        for handle in self._watched.values():
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
            os.close(handle)
        self._output.close()
        self.process.stdin.close()


def training(directory: Path, steps: int = FOREVER, how: str = "trains") -> list[str]:
    """The command of a supervised training of some steps. In its tenth it ``fails``, or ``hangs`` the first time, in a
    phase that nothing else is in: no other pause is a hang; or it ``waits`` for the file ``go`` in its logdir."""
    path = directory / "train.py"
    path.write_text(TRAINING)
    return [sys.executable, str(path), str(directory / "logs"), str(steps), how]


def run_of(directory: Path) -> Run:
    """What the logdir says."""
    return LogdirWatch(str(directory / "logs")).refresh().runs["."].run


def assert_last_step_is_saved(directory: Path) -> None:
    """The newest checkpoint is of the last step that was trained."""
    logs = directory / "logs"
    newest = max(int(path.name.partition("-")[2]) for path in (logs / "checkpoints").glob("ckpt-*"))
    assert newest == int((logs / "steps").read_text())


@pytest.fixture
def run_command() -> list[str]:
    """The command, up to its options."""
    return COMMAND


@pytest.fixture
def running(command_server: ForkServer, tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Returns a function that starts ``tb-supervisor run`` with a command, and options before it."""
    started: list[Running] = []

    def start(*command: str, options: Sequence[str] = (), before: Sequence[str] = ()) -> Running:
        arguments = ["--logdir", str(tmp_path / "logs"), *options, "--", *command]
        started.append(Running(command_server, arguments, tmp_path / f"log{len(started)}", before))
        return started[-1]

    yield start
    for each in started:
        each.close()


@pytest.fixture
def restarter(running: Callable[..., Running], tmp_path: Path) -> Callable[..., Running]:
    """Returns a function that starts ``tb-supervisor run`` with a program of Python, and options before it."""

    def start(program: str, *options: str, arguments: tuple[str, ...] = (), is_isolated: bool = True) -> Running:
        path = tmp_path / "program.py"
        path.write_text(program)
        return running(sys.executable, *(["-I"] if is_isolated else []), str(path), *arguments, options=options)

    return start
