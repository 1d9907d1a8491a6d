"""A cluster of real processes on this machine: a parameter server, a chief, two workers."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from forked import Forked, ForkServer
from ports import free_port

from supervisor_core.events.index import LogdirIndex
from supervisor_core.run.fold.run_fold import RunFold
from supervisor_core.run.model.run import Run, WorkerHistory
from supervisor_core.run.watch.logdir_watch import LogdirWatch

PROGRAM = Path(__file__).with_name("program.py")
JOBS = {"ps": 1, "chief": 1, "worker": 2}
PATIENCE_SECS = 120.0


class Process:
    """One process of a cluster."""

    def __init__(self, process: Forked) -> None:
        self._process = process
        self.lines: list[str] = []
        self._new_line = threading.Condition()
        self._read = 0
        self._reader = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()

    def line(self, *parts: str) -> str:
        """Return the next line that holds all these parts; fail if none comes, or the process ends before."""
        deadline = time.monotonic() + PATIENCE_SECS
        while True:
            with self._new_line:
                while self._read < len(self.lines):
                    self._read += 1
                    line = self.lines[self._read - 1]
                    if all(part in line for part in parts):
                        return line
                alive = self._reader.is_alive()
                assert alive and time.monotonic() < deadline, f"no line with {parts} in:\n" + "\n".join(self.lines)
                self._new_line.wait(1.0)

    def step(self, *parts: str) -> int:
        """Return the number at the end of the next line that holds these parts."""
        return int(self.line(*parts).rpartition(" ")[2])

    def enough(self) -> None:
        """Have it end without an error."""
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
        self._process.close()

    def _listen(self) -> None:
        for line in self._process.stdout:
            with self._new_line:
                self.lines.append(line.rstrip("\n"))
                self._new_line.notify_all()
        with self._new_line:
            self._new_line.notify_all()


@dataclass
class Cluster:
    """Processes by their task, ``worker:0``; see the module's docstring."""

    facade: str
    logdir: str
    addresses: dict[str, list[str]]
    server: ForkServer
    networks: dict[str, str] = field(default_factory=dict)
    """The networks of tasks that are in one of their own."""
    processes: dict[str, Process] = field(default_factory=dict)
    steps: dict[str, int] = field(default_factory=dict)
    """What a story records: steps at its turns,"""
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
            variables = {"TF_CONFIG": json.dumps(config), **environment}
            process = Process(
                self.server.start(run, variables, stderr=subprocess.STDOUT, network=self.networks.get(task))
            )
            self._open.callback(process.close)
            self.processes[task] = process

    def __getitem__(self, task: str) -> Process:
        return self.processes[task]

    def run(self) -> Run:
        """Return the run in the chief's events files."""
        return LogdirWatch(self.logdir).refresh().runs["."].run

    def worker(self, name: str) -> WorkerHistory | None:
        """Return what the chief has recorded of another process; a watch reads that one's own file, too."""
        fold = RunFold(".")
        for chunks in LogdirIndex(self.logdir).refresh().changed.values():
            fold.update(chunks)
        return next((worker for worker in fold.run(time.time()).workers if worker.name == name), None)

    def sees(self, name: str, state: str) -> Callable[[], bool]:
        """Return a function that returns whether the chief has recorded a process in this state."""
        return lambda: (worker := self.worker(name)) is not None and worker.state == state

    def close(self) -> None:
        """Leave no process behind."""
        self._open.close()


@pytest.fixture(scope="module")
def open_cluster(tmp_path_factory: pytest.TempPathFactory, fork_server: ForkServer) -> Callable[..., Any]:
    """Returns a function that opens a cluster for a ``with`` block, no process of which is started yet."""

    @contextmanager
    def opened(facade: str, host: str = "127.0.0.1") -> Iterator[Cluster]:
        addresses = {job: [f"{host}:{free_port(host)}" for _ in range(count)] for job, count in JOBS.items()}
        cluster = Cluster(facade, str(tmp_path_factory.mktemp("cluster") / "run"), addresses, fork_server)
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
