"""Processes that train and end in the ways of the table, forked off one that has imported tensorflow."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

import pytest

PROGRAM = Path(__file__).with_name("program.py")


class Server:
    """The process that the others are forked off."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.answer() == "ready"

    def ask(self, **request: Any) -> int:
        """Ask for something; return the number that is the answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return int(self.answer())

    def answer(self) -> str:
        """Return the next line."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def close(self) -> None:
        """End it."""
        with self.process:
            self.process.kill()


class Ended:
    """A process under way, and then what is left of it."""

    def __init__(self, server: Server, directory: Path, name: str, options: dict[str, Any]) -> None:
        self.logdir = str(directory / "run")
        self._server = server
        self._err = directory / "err"
        out = directory / "out"
        os.mkfifo(out)
        self.pid = server.ask(start=name, logdir=self.logdir, options=options, out=str(out), err=str(self._err))
        self._out: TextIO = out.open()  # waits until the process has opened it, too
        self.lines: list[str] = []
        self.status: int | None = None
        self.grace_secs: float | None = None
        self.ended_after = 0.0

    def expect(self, start: str) -> str:
        """Read on until a line that starts so, and return it."""
        for line in self._out:
            self.lines.append(line.rstrip("\n"))
            if line.startswith(start):
                return self.lines[-1]
        raise AssertionError(f"{start!r} did not come: {self.lines}\n{self.err}")

    def send(self, signum: int) -> None:
        """Send a signal."""
        os.kill(self.pid, signum)

    def send_until_it_ends(self, signum: int) -> None:
        """Send a signal again and again: what comes right after the first one counts as the same."""
        pause = threading.Event()
        while self.is_running:
            self.send(signum)
            pause.wait(0.1)

    @property
    def is_running(self) -> bool:
        """Whether it has not come to its end: a process that was not waited for is a zombie then."""
        state = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state != "Z"

    def end(self) -> Ended:
        """Wait for its end."""
        if self.status is None:
            self.lines += [line.rstrip("\n") for line in self._out]
            self._out.close()
            self.status = self._server.ask(wait=self.pid)
        return self

    @property
    def err(self) -> str:
        """What it wrote to standard error."""
        return self._err.read_text()

    @property
    def status_text(self) -> str:
        """How it ended, as the table says it."""
        assert self.status is not None
        return signal.Signals(-self.status).name if self.status < 0 else str(self.status)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A process that has imported tensorflow."""
    made = Server()
    yield made
    made.close()


@pytest.fixture
def start(server: Server, tmp_path: Path) -> Iterator[Callable[..., Ended]]:
    """Returns a function that starts a process that does what a function of the program says, with options."""
    started: list[Ended] = []

    def begin(name: str, **options: Any) -> Ended:
        directory = tmp_path / str(len(started))
        directory.mkdir()
        started.append(Ended(server, directory, name, options))
        return started[-1]

    yield begin
    for each in started:
        if each.status is None:
            os.kill(each.pid, signal.SIGKILL)
            each.end()
