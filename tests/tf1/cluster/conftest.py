"""A cluster of real processes on this machine: a parameter server, a chief, two workers."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pytest
from ports import free_port

from supervisor_core.run.model import Run, WorkerHistory
from supervisor_core.watch.logdir_watch import LogdirWatch

PROGRAM = Path(__file__).with_name("program.py")
SERVER = Path(__file__).with_name("server.py")
JOBS = {"ps": 1, "chief": 1, "worker": 2}
PATIENCE_SECS = 120.0


class Server:
    """The process that the cluster's are forked off: it has imported tensorflow."""

    def __init__(self) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            arguments = [sys.executable, str(SERVER), str(theirs.fileno())]
            environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
            self._process = subprocess.Popen(arguments, env=environment, pass_fds=[theirs.fileno()])
        assert self._channel.recv(5) == b"ready"

    def start(self, run: list[str], environment: dict[str, str]) -> Forked:
        """Start a program."""
        read_input, write_input = os.pipe()
        read_output, write_output = os.pipe()
        pid = self._ask({"run": run, "environment": environment}, read_input, write_output)
        os.close(read_input)
        os.close(write_output)
        assert isinstance(pid, int)
        return Forked(pid, os.fdopen(write_input, "w"), os.fdopen(read_output), self)

    def poll(self, pid: int) -> int | None:
        """Return a process's status if it has ended."""
        return self._ask({"poll": pid})

    def close(self) -> None:
        """End it."""
        self._channel.close()
        self._process.wait()

    def _ask(self, request: dict[str, Any], *descriptors: int) -> int | None:
        socket.send_fds(self._channel, [json.dumps(request).encode()], descriptors)
        answer: int | None = json.loads(self._channel.recv(64))
        return answer


@dataclass
class Forked:
    """What the tests need of a `subprocess.Popen`."""

    pid: int
    stdin: IO[str]
    stdout: IO[str]
    _server: Server
    returncode: int | None = None

    def kill(self) -> None:
        if self.returncode is None:
            os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float = PATIENCE_SECS) -> int:
        pause, deadline = threading.Event(), time.monotonic() + timeout
        while self.returncode is None:
            self.returncode = self._server.poll(self.pid)
            if self.returncode is None:
                if time.monotonic() > deadline:
                    raise subprocess.TimeoutExpired(str(self.pid), timeout)
                pause.wait(0.02)
        return self.returncode


class Process:
    """One process of a cluster."""

    def __init__(self, process: Forked | subprocess.Popen[str]) -> None:
        self._process = process
        self.lines: list[str] = []
        self._told = threading.Condition()
        self._read = 0
        self._reader = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()

    def line(self, *parts: str) -> str:
        """Return the next line that holds all these parts; fail if none comes, or the process ends before."""
        deadline = time.monotonic() + PATIENCE_SECS
        while True:
            with self._told:
                while self._read < len(self.lines):
                    self._read += 1
                    line = self.lines[self._read - 1]
                    if all(part in line for part in parts):
                        return line
                alive = self._reader.is_alive()
                assert alive and time.monotonic() < deadline, f"no line with {parts} in:\n" + "\n".join(self.lines)
                self._told.wait(1.0)

    def step(self, *parts: str) -> int:
        """Return the number at the end of the next line that holds these parts."""
        return int(self.line(*parts).rpartition(" ")[2])

    def enough(self) -> None:
        """Have it end in good order."""
        assert self._process.stdin is not None
        self._process.stdin.write("enough\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        """Kill it, as `kill -9` does."""
        self._process.kill()
        self._process.wait()

    def ended(self) -> int:
        """Return its exit code once it has ended."""
        try:
            return self._process.wait(PATIENCE_SECS)
        except subprocess.TimeoutExpired:
            raise AssertionError("it does not end:\n" + "\n".join(self.lines)) from None

    def close(self) -> None:
        """Leave nothing of it behind."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._told:
                self.lines.append(line.rstrip("\n"))
                self._told.notify_all()
        with self._told:
            self._told.notify_all()


@dataclass
class Cluster:
    """Processes by their task, ``worker:0``; see the module's docstring."""

    facade: str
    logdir: str
    addresses: dict[str, list[str]]
    server: Server
    prefixes: dict[str, list[str]] = field(default_factory=dict)
    """What a task's command begins with: how to get into another network."""
    processes: dict[str, Process] = field(default_factory=dict)
    steps: dict[str, int] = field(default_factory=dict)
    """What a story tells: steps at its turns,"""
    lines: dict[str, str] = field(default_factory=dict)
    """lines that were said,"""
    codes: dict[str, int] = field(default_factory=dict)
    """and how processes ended."""
    _open: ExitStack = field(default_factory=ExitStack)

    def start(self, *tasks: str, **environment: str) -> None:
        """Start processes."""
        for task in tasks:
            job, _, index = task.partition(":")
            config = {"cluster": self.addresses, "task": {"type": job, "index": int(index)}}
            run = [str(PROGRAM), self.facade, self.logdir]
            variables = {"TF_CONFIG": json.dumps(config), "TF_CPP_MIN_LOG_LEVEL": "3", **environment}
            if task in self.prefixes:
                made: Forked | subprocess.Popen[str] = subprocess.Popen(
                    [*self.prefixes[task], sys.executable, *run],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    env={**os.environ, **variables},
                )
            else:
                made = self.server.start(run, variables)
            process = Process(made)
            self._open.callback(process.close)
            self.processes[task] = process

    def __getitem__(self, task: str) -> Process:
        return self.processes[task]

    def run(self) -> Run:
        """Return what the chief's events files tell of the run."""
        return LogdirWatch(self.logdir).refresh().runs["."].run

    def worker(self, name: str) -> WorkerHistory | None:
        """Return what the chief has told of another process."""
        runs = LogdirWatch(self.logdir).refresh().runs
        return next((worker for run in runs.values() for worker in run.run.workers if worker.name == name), None)

    def sees(self, name: str, state: str) -> Callable[[], bool]:
        """Return a function that tells whether the chief has told that a process is in this state."""
        return lambda: (worker := self.worker(name)) is not None and worker.state == state

    def close(self) -> None:
        """Leave no process behind."""
        self._open.close()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A process that has imported tensorflow."""
    made = Server()
    yield made
    made.close()


@pytest.fixture(scope="module")
def open_cluster(tmp_path_factory: pytest.TempPathFactory, server: Server) -> Callable[..., Any]:
    """Returns a function that opens a cluster for a ``with`` block, no process of which is started yet."""

    @contextmanager
    def opened(facade: str, host: str = "127.0.0.1") -> Iterator[Cluster]:
        addresses = {job: [f"{host}:{free_port(host)}" for _ in range(count)] for job, count in JOBS.items()}
        cluster = Cluster(facade, str(tmp_path_factory.mktemp("cluster") / "run"), addresses, server)
        try:
            yield cluster
        finally:
            cluster.close()

    return opened


@pytest.fixture(scope="module")
def until() -> Callable[[Callable[[], object]], None]:
    """Returns a function that waits until a condition is true, and fails when that takes too long."""

    def wait(condition: Callable[[], object]) -> None:
        pause, deadline = threading.Event(), time.monotonic() + PATIENCE_SECS
        while not condition():
            assert time.monotonic() < deadline, f"not true within {PATIENCE_SECS} s"
            pause.wait(0.1)

    return wait
