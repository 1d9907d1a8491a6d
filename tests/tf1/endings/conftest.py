"""Processes that train and end in the ways of the table, forked off one that has imported tensorflow."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from forked import ForkServer

PROGRAM = Path(__file__).with_name("program.py")


class Ended:
    """A process under way, and then what is left of it."""

    def __init__(self, server: ForkServer, directory: Path, name: str, options: dict[str, Any]) -> None:
        self.logdir = str(directory / "run")
        self._err = directory / "err"
        run = [str(PROGRAM), name, self.logdir, json.dumps(options)]
        with self._err.open("wb") as err:
            self._process = server.start(run, stderr=err.fileno())
        self.pid = self._process.pid
        self.lines: list[str] = []
        self.status: int | None = None
        self.grace_secs: float | None = None
        self.ended_after = 0.0

    def expect(self, start: str) -> str:
        """Read on until a line that starts so, and return it."""
        for line in self._process.stdout:
            self.lines.append(line.rstrip("\n"))
            if line.startswith(start):
                return self.lines[-1]
        raise AssertionError(f"{start!r} did not come: {self.lines}\n{self.err}")

    def send(self, signum: int) -> None:
        """Send a signal."""
        self._process.send_signal(signum)

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
            self.lines += [line.rstrip("\n") for line in self._process.stdout]
            self.status = self._process.wait()
        return self

    def close(self) -> None:
        """Leave nothing of it behind."""
        self._process.close()

    @property
    def err(self) -> str:
        """What it wrote to standard error."""
        return self._err.read_text()

    @property
    def status_text(self) -> str:
        """How it ended, as the table says it."""
        assert self.status is not None
        return signal.Signals(-self.status).name if self.status < 0 else str(self.status)


@pytest.fixture
def start(fork_server: ForkServer, tmp_path: Path) -> Iterator[Callable[..., Ended]]:
    """Returns a function that starts a process that does what a function of the program says, with options."""
    started: list[Ended] = []

    def begin(name: str, **options: Any) -> Ended:
        directory = tmp_path / str(len(started))
        directory.mkdir()
        started.append(Ended(fork_server, directory, name, options))
        return started[-1]

    yield begin
    for each in started:
        each.close()
