"""Processes that train and end in the ways of the table, forked off one that has imported what they need."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

from supervisor_core.engine.logdir_hold import LogdirHold
from supervisor_core.events.telemetry import from_json
from supervisor_core.run.watch.liveness import chief_path

if "endings_page" not in sys.modules:  # only tests of this directory import it, under a name that no other module has
    spec = spec_from_file_location("endings_page", Path(__file__).with_name("page.py"))
    assert spec is not None and spec.loader is not None
    sys.modules["endings_page"] = module_from_spec(spec)
    spec.loader.exec_module(sys.modules["endings_page"])

TELEMETRY = "supervisor/"
PROGRAM, LOOPS = Path(__file__).with_name("program.py"), Path(__file__).with_name("loops.py")


class Ended:
    """A process under way, and then what is left of it."""

    def __init__(self, start: Callable[..., Any], directory: Path, program: list[str], options: dict[str, Any]) -> None:
        self.logdir = str(directory / "run")
        self.facade = program[1] if program[0] == str(LOOPS) else "graph"
        self.event = program[-1]
        self._err = directory / "err"
        run = [*program, self.logdir, json.dumps(options)]
        with self._err.open("wb") as err:
            self._process = start(run, stderr=err.fileno())
        self.pid = self._process.pid
        self.lines: list[str] = []
        self.status: int | None = None
        self.stop_timeout_secs: float | None = None
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
        if self._process.returncode is not None:  # to send a signal `subprocess` has looked, and found its end
            return False
        state = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state != "Z"

    def end(self) -> Ended:
        """Wait for its end."""
        if self.status is None:
            self.lines += [line.rstrip("\n") for line in self._process.stdout]
            self.status = self._process.wait()
        return self

    def is_taken_over(self) -> None:
        """Take its logdir, as another chief does after a suspension, and wait for its end."""
        elsewhere = Path(f"{self.logdir}-successor")
        hold = LogdirHold(elsewhere)
        hold.acquire("another")
        os.replace(chief_path(elsewhere), chief_path(self.logdir))  # all at once: it is never missing
        self.end()
        hold.release()

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


def events_of(logdir: str) -> Iterator[Any]:
    """The events of a logdir, file by file, in order."""
    for path in sorted(Path(logdir).glob("events.out.*")):
        yield from LegacyEventFileLoader(str(path)).Load()


@pytest.fixture
def read_telemetry() -> Callable[[str], list[Any]]:
    """Returns a function that reads a logdir's telemetry records, file by file, in order."""

    def read(logdir: str) -> list[Any]:
        return [
            from_json(value.tag.removeprefix(TELEMETRY), value.tensor.string_val[0].decode())
            for event in events_of(logdir)
            for value in event.summary.value
            if value.tag.startswith(TELEMETRY)
        ]

    return read


@pytest.fixture
def read_logs() -> Callable[[str], list[int]]:
    """Returns a function that reads the status of each session log of a logdir, in order."""
    return lambda logdir: [event.session_log.status for event in events_of(logdir) if event.HasField("session_log")]


@pytest.fixture
def wait_until() -> Callable[..., None]:
    """Returns a function that waits until a condition is true, and fails the test when that takes too long."""

    def wait(condition: Callable[[], object], timeout_secs: float = 120.0) -> None:
        pause, deadline = threading.Event(), time.monotonic() + timeout_secs
        while not condition():
            assert time.monotonic() < deadline
            pause.wait(0.05)

    return wait


@pytest.fixture
def start(starter_of: Callable[[str], Any], tmp_path: Path) -> Iterator[Callable[..., Ended]]:
    """Returns a function that starts a process that does what a function of `program.py` says, with options; or with a
    facade what `loops.py` does with it."""
    started: list[Ended] = []

    def begin(name: str, *, facade: str | None = None, **options: Any) -> Ended:
        directory = tmp_path / str(len(started))
        directory.mkdir()
        program = [str(PROGRAM), name] if facade is None else [str(LOOPS), facade, name]
        started.append(Ended(starter_of(facade or "graph").start, directory, program, options))
        return started[-1]

    yield begin
    for each in started:
        each.close()
