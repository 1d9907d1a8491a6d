"""A process that holds variables for the others: it stays while anybody needs them, and says how it is."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.base.options import Options
from supervisor_core.engine.liveness_writer import LivenessFile
from supervisor_core.process.identity import this_machine
from supervisor_core.run.model.liveness_record import LivenessRecord
from supervisor_core.tf1.cluster.task import CHECK_SECS, ParameterServer
from tests.story.holds import Chief

FILE = ".supervisor.live/ps-0.json"


class Script:
    """Waits by doing what happens next; fails the test after the last happening."""

    def __init__(self, clock: Any) -> None:
        self.clock = clock
        self.waits: list[float] = []
        self.happenings: Iterator[Callable[[], object]] = iter(())

    def runs(self, *happenings: Callable[[], object]) -> None:
        """Have these happen, one with each wait; one that returns True asks the server to end."""
        self.happenings = iter(happenings)

    def wait(self, secs: float) -> bool:
        self.waits.append(secs)
        self.clock.now += secs
        happening = next(self.happenings, None)
        assert happening is not None, "it does not end"
        return happening() is True


@pytest.fixture
def script(clock_at: Callable[[float], Any]) -> Script:
    """What happens while the server waits."""
    return Script(clock_at(1.7e9))


@pytest.fixture
def serve(logdir: str, script: Script) -> Callable[..., None]:
    """Returns a function that serves as ``ps:0`` while these things happen."""

    def run(*happenings: Callable[[], object], **options: Any) -> None:
        script.runs(*happenings)
        options = {"finished_wait_secs": 0.0, **options}
        server = ParameterServer(logdir, "ps:0", Options(**options), wait=script.wait, clock=script.clock)
        server.serve()

    return run


@pytest.fixture
def chief(logdir: str) -> Chief:
    """A chief that has not begun."""
    return Chief(logdir)


def nothing() -> None:
    """Let time pass."""


def says(logdir: str, name: str = "worker:0", pid: int | None = None, **values: Any) -> Callable[[], None]:
    """Return a function that writes a process's heartbeat."""
    here = this_machine()
    fields = {"session": f"s-{name}", "host": here.host, "boot": here.boot, "pids": here.pids, "started_at": 1.0}
    fields |= {"written_at": 1.0, "beats": 1, "interval_secs": 10.0, "phase": "training", **values}
    record = LivenessRecord(task=name, pid=os.getpid() if pid is None else pid, **fields)  # type: ignore[arg-type]
    return lambda: LivenessFile(logdir, name, record.session).write(record) and None


def last_word(logdir: str) -> dict[str, Any]:
    """Return what the server's file says."""
    record: dict[str, Any] = json.loads((Path(logdir) / FILE).read_bytes())
    return record


def test_it_says_that_it_serves(serve: Callable[..., None], logdir: str) -> None:
    """In a heartbeat of its own, from the beginning; asked to end it says that too."""
    seen: list[str] = []

    def look() -> bool:
        while not (Path(logdir) / FILE).exists():
            pass
        seen.append(last_word(logdir)["phase"])
        return True

    serve(look)
    assert seen == ["serving"]
    word = last_word(logdir)
    assert (word["task"], word["phase"], word["ended"]) == ("ps:0", "stopped", "requested")


def test_it_ends_when_the_run_has_finished(
    serve: Callable[..., None], chief: Chief, script: Script, logdir: str
) -> None:
    """At the next check after the chief's end, as completed, without time to restart."""
    serve(nothing, lambda: chief.acquire("a") and None, nothing, lambda: chief.release("completed") and None)
    assert script.waits == [CHECK_SECS] * 4
    assert last_word(logdir)["ended"] == "completed"


@pytest.mark.parametrize("reason", ["signal", "error"])
def test_a_run_that_is_cut_off_is_waited_for(serve: Callable[..., None], chief: Chief, reason: str) -> None:
    """Its chief comes back: the variables stay where they are."""
    serve(lambda: chief.acquire("a") and None, lambda: chief.release(reason) and None, *[nothing] * 100, lambda: True)


def test_it_stays_while_a_worker_trains(serve: Callable[..., None], chief: Chief, logdir: str) -> None:
    """One that goes on after its chief would be torn from its variables; one that stalls may go on."""
    chief.acquire("a")
    serve(
        says(logdir),
        lambda: chief.release("completed") and None,
        nothing,
        says(logdir, beats=2, stalled=True),
        nothing,
        says(logdir, beats=3, ended="completed", phase="stopped"),
    )
    assert last_word(logdir)["ended"] == "completed"


def test_a_signal_is_its_last_word(script: Script, logdir: str) -> None:
    """A stop record is written; then the process ends as the signal would have ended it."""
    server = ParameterServer(logdir, "ps:0", Options(), wait=script.wait, clock=script.clock)
    script.runs(lambda: os.kill(os.getpid(), signal.SIGINT), lambda: server._stop.wait(60.0))
    with pytest.raises(KeyboardInterrupt):
        server.serve()
    assert last_word(logdir)["ended"] == "signal"


def test_it_serves_though_nothing_can_be_read_or_written(serve: Callable[..., None], logdir: str) -> None:
    """Where the logdir should be there is a file: variables are held all the same."""
    Path(logdir).write_text("in the way")
    serve(*[nothing] * 5, lambda: True)


@pytest.mark.parametrize(
    "values",
    [
        {"ended": "error", "phase": "stopped"},
        {"waiting_for": "the chief"},
        {"phase": "starting"},
        {"pid": 2**22 + 1},
        {"phase": "serving", "name": "ps:1"},
    ],
)
def test_who_does_not_train_does_not_keep_it(
    serve: Callable[..., None], chief: Chief, logdir: str, values: dict[str, Any]
) -> None:
    """A worker that failed, was killed, or has not yet begun; and another parameter server."""
    chief.acquire("a")
    serve(says(logdir, **values), lambda: chief.release("completed") and None)
