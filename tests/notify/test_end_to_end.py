"""Messages by real processes: of a training under ``run --notify``, and of ``watch`` beside one, to a receiver."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from forked import ForkServer

from tests.notify.receivers import Received, web_receiver

pytestmark = [pytest.mark.long, pytest.mark.skipif(sys.platform != "linux", reason="run works on Linux")]

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "event.schema.json").read_text())
WAIT_SECS = 60.0
TOKEN = "T0KEN-which-nobody-reads"

QUICK = """
from functools import partial
from importlib import import_module
from supervisor_core.notify import sender
from supervisor_core.restarter import watch_child
from supervisor_core.run.model.thresholds import Thresholds
limits = Thresholds(interval_secs=0.5, dead_hold_secs=1.0)
watch_child.WatchOrder = partial(watch_child.WatchOrder, interval_secs=0.5, gather_secs=0.2, thresholds=limits)
sender.Sender = partial(sender.Sender, gather_secs=0.2)
import_module("supervisor_core.cli.watch").Thresholds = lambda **_: limits
from supervisor_core.cli import main
main()
"""
"""The command with holds of seconds instead of minutes."""

TRAINING = """
import os, signal, sys, threading
import supervisor_core
logdir, *faults = sys.argv[1:]
class Model:
    steps = 0
    def state_dict(self):
        return {"steps": self.steps}
    def load_state_dict(self, state):
        self.steps = int(state["steps"])
def first(name):
    path = os.path.join(logdir, name)
    if name not in faults or os.path.exists(path):
        return False
    open(path, "w").close()
    return True
assert "SUPERVISOR_NOTIFY" not in os.environ
model, pause, is_new = Model(), threading.Event(), True
options = supervisor_core.Options(hang_timeout_secs={"evaluating": 1.0}, dump_blocked_stacks=False)
run = supervisor_core.supervise(logdir, state={"model": model}, save_secs=None, options=options)
with run:
    for step in run.steps(30):
        model.steps += 1
        if model.steps == 5:
            run.save()
        if model.steps >= 5 and is_new:
            print("trains", os.getpid(), flush=True)
            is_new = False
        if model.steps == 10 and first("killed"):
            os.kill(os.getpid(), signal.SIGKILL)
        if model.steps == 20 and first("hangs"):
            with run.phase("evaluating"):
                pause.wait()
        while model.steps == 20 and "waits" in faults and not os.path.exists(logdir + "/go"):
            pause.wait(0.01)
        pause.wait(0.01)
"""


class Running:
    """A command of ``tb-supervisor``, and what it and its program write."""

    def __init__(self, process: Any, log: Path) -> None:
        self.process, self._log = process, log
        self._data = b""

    @property
    def log(self) -> str:
        """What is on standard error so far."""
        return self._log.read_text()

    def said(self, pattern: str) -> re.Match[str]:
        """Wait until that is in the log."""
        until = time.monotonic() + WAIT_SECS
        while (found := re.search(pattern, self.log)) is None:
            assert time.monotonic() < until, self.log
            select.select([], [], [], 0.02)
        return found

    def trains(self) -> int:
        """Wait for the program's next session; its process id."""
        output = self.process.stdout.fileno()
        while b"\n" not in self._data:
            assert select.select([output], [], [], WAIT_SECS)[0], self.log
            data = os.read(output, 4096)
            assert data, self.log
            self._data += data
        line, _, self._data = self._data.partition(b"\n")
        return int(line.split()[1])

    def child(self) -> int:
        """The process that sends messages."""
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                if b"supervisor_core.restarter.watching" in path.read_bytes():
                    parent = (path.parent / "stat").read_text().rpartition(")")[2].split()[1]
                    if int(parent) == self.process.pid:
                        return int(path.parent.name)
        raise AssertionError(f"no process sends messages: {self.log}")


def wait_gone(pid: int) -> None:
    """Wait until a process has ended."""
    with suppress(ProcessLookupError):
        handle = os.pidfd_open(pid)
        assert select.select([handle], [], [], WAIT_SECS)[0], f"{pid} still runs"
        os.close(handle)


@pytest.fixture
def receiver() -> Iterator[Received]:
    """Takes the messages."""
    with web_receiver() as received:
        yield received


@pytest.fixture
def logdir(tmp_path: Path) -> Path:
    """The logdir of the training."""
    return tmp_path / "runs" / "tuning"


@pytest.fixture
def start(command_server: ForkServer, tmp_path: Path, receiver: Received) -> Iterator[Callable[..., Running]]:
    """Returns a function that starts a command, which sends to the receiver."""
    started: list[Running] = []

    def begin(*arguments: str | Path, environment: dict[str, str] | None = None) -> Running:
        log = tmp_path / f"log{len(started)}"
        given = {"SUPERVISOR_NOTIFY": receiver.url(TOKEN), "XDG_STATE_HOME": str(tmp_path / "state")}
        with log.open("wb") as stderr:
            run = ["-c", QUICK, *map(str, arguments)]
            process = command_server.start(run, {**given, **(environment or {})}, stderr=stderr.fileno())
        started.append(Running(process, log))
        return started[-1]

    yield begin
    children = []
    for each in started:
        with suppress(AssertionError):
            children.append(each.child())
        each.process.close()
    for child in children:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


@pytest.fixture
def training(start: Callable[..., Running], logdir: Path, tmp_path: Path) -> Callable[..., Running]:
    """Returns a function that starts the training under ``run``, with these faults."""

    def begin(*faults: str, options: Sequence[str] = (), environment: dict[str, str] | None = None) -> Running:
        program = tmp_path / "train.py"
        program.write_text(TRAINING)
        return start("run", *options, logdir, "--", sys.executable, program, logdir, *faults, environment=environment)

    return begin


def secrets_in(directory: Path) -> list[str]:
    """The files with the token."""
    files = [path for path in directory.rglob("*") if path.is_file()]
    assert files
    return [str(path) for path in files if TOKEN.encode() in path.read_bytes()]


def test_a_training_is_killed_hangs_and_is_completed(
    training: Callable[..., Running], receiver: Received, tmp_path: Path
) -> None:
    """Each is said once, in the words of the findings; the token is in no file and in no list of processes."""
    events = tmp_path / "events.jsonl"
    running = training("killed", "hangs", options=["--stop-timeout", "2s", "--on-event", f"tee -a {events}"])
    running.trains()
    assert not [path for path in Path("/proc").glob("[0-9]*/cmdline") if TOKEN.encode() in _read(path)]
    assert running.process.wait() == 0
    host = re.escape(os.uname().nodename)
    expected = [
        rf"tuning: lost at step \d+ on {host}: SIGKILL; restarted after .*, \d+ steps recomputed",
        r"tuning: hung .* at step \d+ on .*train\.py:\d+.*; restarted after .*",
        r"tuning: completed after .*, goodput .* %",
    ]
    told = [json.loads(line) for line in events.read_text().splitlines()]
    assert [event["kind"] for event in told] == ["restarted", "restarted", "completed"]
    for pattern, event in zip(expected, told, strict=True):
        assert re.fullmatch(pattern, event["text"]), event
        jsonschema.validate(event, SCHEMA)
        assert sum(event["text"] in f"{item['title']}\n{item['message']}" for item in receiver.items) == 1
    assert "notify 1 (json): sent: tuning: completed" in running.log
    assert not secrets_in(tmp_path)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_the_restarter_is_killed(training: Callable[..., Running], receiver: Received) -> None:
    """The process that sends messages outlives it, says that the run is lost, once, and ends."""
    running = training("waits")
    running.trains()
    child = running.child()
    assert os.getsid(child) == child
    running.process.kill()
    (message,) = receiver.wait(1)
    assert re.match(r"tuning: .*(gone|killed|lost)", message["title"]), message
    wait_gone(child)
    assert len(receiver.items) == 1


def test_the_keeper_is_killed(training: Callable[..., Running], receiver: Received, logdir: Path) -> None:
    """The restarter kills all that it has left behind, but not the process that sends messages."""
    running = training("waits")
    program = running.trains()
    child = running.child()
    keeper = int(Path(f"/proc/{program}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(keeper, signal.SIGKILL)
    running.trains()
    assert running.child() == child
    (logdir / "go").touch()
    assert running.process.wait() == 0
    told = "".join(f"{item['title']}\n{item['message']}\n" for item in receiver.items)
    assert "tuning: lost at step " in told and "; restarted after " in told and "tuning: completed after " in told


def test_the_process_that_sends_is_killed(training: Callable[..., Running], logdir: Path) -> None:
    """That is one line of the log; the training ends as ever."""
    running = training("waits")
    running.trains()
    os.kill(running.child(), signal.SIGKILL)
    running.said("warning: the process that sends messages has ended; no more are sent")
    (logdir / "go").touch()
    assert running.process.wait() == 0


def test_a_stop_does_not_wait_for_a_service_that_hangs(training: Callable[..., Running], receiver: Received) -> None:
    """With a short stop timeout the restarter ends before it answers; the message goes on alone."""
    receiver.answers.clear()
    running = training("waits", options=["--stop-timeout", "2s"])
    running.trains()
    child = running.child()
    os.kill(child, signal.SIGTERM)  # as a scheduler does, which signals every process of a job
    running.process.terminate()
    assert running.process.wait() == -signal.SIGTERM
    assert "still sends messages; it ends by itself" in running.log
    receiver.answers.set()
    (message,) = receiver.wait(1)
    assert message["title"].startswith("tuning: stopped by SIGTERM at step ")
    wait_gone(child)


def test_sigterm_ends_the_process_that_sends_once_the_restarter_is_gone(
    training: Callable[..., Running], receiver: Received
) -> None:
    """Though a service hangs; what may not have been sent is a line of the log."""
    receiver.answers.clear()
    running = training("waits", options=["--stop-timeout", "2s"])
    running.trains()
    child = running.child()
    running.process.terminate()
    running.process.wait()
    running.said(f"process {child} still sends messages; it ends by itself")
    receiver.wait(1)
    os.kill(child, signal.SIGTERM)
    wait_gone(child)


def test_a_url_of_the_environment_that_cannot_be_used(training: Callable[..., Running]) -> None:
    """It is said, without the URL, and the training runs; as an option it is a wrong call."""
    running = training(environment={"SUPERVISOR_NOTIFY": f"nosuch://{TOKEN}"})
    assert running.process.wait() == 0
    assert "No messages are sent: Apprise knows no service for notify URL 1" in running.log
    wrong = training(options=["--notify", f"nosuch://{TOKEN}"])
    assert wrong.process.wait() == 2
    assert TOKEN not in running.log + wrong.log


def test_a_second_watcher_and_a_training_that_is_killed(
    start: Callable[..., Running], receiver: Received, logdir: Path, tmp_path: Path, command_server: ForkServer
) -> None:
    """The second one says who watches. Each change is said once, though the service fails at first and the watcher is
    killed meanwhile; SIGTERM ends it in order."""
    receiver.status = 500
    program = tmp_path / "train.py"
    program.write_text(TRAINING)
    command = "watch", "--interval", "0.5", tmp_path / "runs"
    watcher = start(*command)
    watcher.said("Watching 0 runs: page, restart and end to notify 1")
    second = start(*command)
    assert second.process.wait() == 95
    pid = watcher.process.pid
    assert re.search(rf"Error: {tmp_path}/runs is watched by process {pid} on \S+ since .* UTC\.", second.log)
    trainer = command_server.start([str(program), str(logdir), "waits"])
    assert trainer.stdout.readline()
    trainer.close()
    watcher.said("not sent: it answers 500")
    kept = next((tmp_path / "state").rglob("*.json"))
    assert "tuning: Process " in kept.read_text()
    watcher.process.kill()
    watcher.process.wait()
    refused = len(receiver.items)
    receiver.status = 200
    (logdir / "go").touch()
    trainer = command_server.start([str(program), str(logdir)])
    assert trainer.wait() == 0
    trainer.close()
    watcher = start(*command)
    receiver.wait_for("tuning: completed")
    watcher.process.terminate()
    assert watcher.process.wait() == 0
    told = [f"{item['title']}\n{item['message']}" for item in receiver.items[refused:]]
    assert sum("tuning: Process " in text for text in told) == 1
    assert sum("tuning: completed after" in text for text in told) == 1
    assert sum("; restarted after" in text for text in told) == 1
    assert "Traceback" not in watcher.log + second.log
