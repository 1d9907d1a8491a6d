"""The process that sends the messages of ``run``: what it gets, and when it ends without its restarter."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from types import SimpleNamespace

import pytest

from supervisor_core.notify.changes import Changes
from supervisor_core.notify.secret import Secret
from supervisor_core.notify.settings import NotifySettings
from supervisor_core.notify.watcher import Looked
from supervisor_core.restarter import watching
from supervisor_core.restarter.watch_child import END, WatchChild, WatchOrder
from supervisor_core.restarter.watching import QUIET_SECS, Lifeline
from supervisor_core.run.fold.run_fold import RunFold
from supervisor_core.run.model.program_launch import ProgramLaunch
from supervisor_core.run.model.run import Session
from supervisor_core.run.model.snapshot import WatchedRun
from supervisor_core.run.model.thresholds import Thresholds
from tests.cases import each

ORDER = WatchOrder(logdir="/runs/tuning", began_at=5.0, settings=NotifySettings(ping=Secret("http://h/token")))


def looked(state: str, session: str = "s1") -> Looked:
    """A look at one run."""
    known = Session(session=session, attempt=1, outcome="lost", inferred=False, started_at=1.0, ended_at=2.0)
    run = replace(RunFold("tuning").run(1.0, lambda path: None), state=state, sessions=(known,))
    return Looked(at=1.0, runs={"tuning": WatchedRun(run=run, files=())})


class Line:
    """A lifeline without a process."""

    killed_at: float | None = None


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The monotonic time."""
    times = [1000.0]
    monkeypatch.setattr(watching, "_now", lambda: times[0])
    return times


def test_an_order_is_read_as_it_was_written() -> None:
    """With the secrets, which nothing else shows."""
    order = replace(ORDER, thresholds=Thresholds(dead_hold_secs=7.0))
    assert "token" in order.encode() and "\n" not in order.encode()
    assert WatchOrder.decode(order.encode().encode()) == order
    assert "token" not in repr(order)


@each("state, secs", [("lost", 150.0), ("completed", 150.0), ("running", QUIET_SECS)])
def test_without_a_restarter_it_ends(now: list[float], state: str, secs: float) -> None:
    """Once what its death has led to was said, or after an hour in which nothing changes."""
    line = Line()
    orphan = watching._Orphan(ORDER, line)  # type: ignore[arg-type]
    assert not orphan.is_over(looked(state))
    now[0] += 10 * QUIET_SECS
    assert not orphan.is_over(looked(state)), "the restarter lives"
    line.killed_at = now[0]
    now[0] += secs - 1.0
    assert not orphan.is_over(looked(state))
    now[0] += 1.0
    assert orphan.is_over(looked(state))
    assert not orphan.is_over(looked("stalled")), "something has changed"


def test_a_run_that_was_started_again_is_not_its_own(now: list[float]) -> None:
    """It ends once it has said that, though the run goes on."""
    line = Line()
    orphan = watching._Orphan(ORDER, line)  # type: ignore[arg-type]
    assert not orphan.is_over(looked("running"))
    line.killed_at = now[0]
    assert not orphan.is_over(looked("lost"))
    assert not orphan.is_over(looked("running", "s2"))
    now[0] += 149.0
    assert not orphan.is_over(looked("stalled", "s2"))
    now[0] += 1.0
    assert orphan.is_over(looked("running", "s2"))


LAST = ProgramLaunch(
    launch="node-3-11-4", state="end", attempt=4, cause="error", error="OSError at train.py:14", action="end",
    reason="3 launches without progress", started_at=90.0, ended_at=95.0,
)  # fmt: skip


@each("recorded, session", [
        (None, None),
        (replace(LAST, state="begin", cause=None, action=None, reason=None, ended_at=None), Session(
            session="s1", attempt=1, outcome="running", inferred=True, started_at=1.0, ended_at=2.0
        )),
        (replace(LAST, launch="node-3-11-2", action="restart", reason="progress", ended_at=60.0), Session(
            session="s1", attempt=1, outcome="lost", inferred=True, gone=True, started_at=1.0, ended_at=2.0
        )),
    ])  # fmt: skip
def test_a_last_launch_that_the_disk_had_no_room_for_is_sent(
    recorded: ProgramLaunch | None, session: Session | None
) -> None:
    """It says why the training is not started again, whatever of it is in the logdir."""
    runs = {}
    if recorded is not None and session is not None:
        run = replace(RunFold("tuning").run(100.0), state="unknown", restarting=True, launches=(recorded,))
        runs["tuning"] = WatchedRun(run=replace(run, sessions=(session,)), directory="/runs/tuning", files=())
    look = watching.with_last_launch(Looked(at=100.0, runs=runs), "/runs/tuning", LAST)
    *_, sent = Changes(since=1.5).of(look.runs, 100.0, is_last=True)
    text = (
        "tuning: The training has failed: given up by tb-supervisor: OSError at train.py:14; attempt 4; 3 launches with"
    )
    assert (sent.run, sent.topic, sent.kind, sent.text[: len(text)]) == ("tuning", "page", "failed", text)


def test_the_restarter_says_its_last_launch() -> None:
    """As it is, whatever its texts hold."""
    read, write = os.pipe()
    last = replace(LAST, stderr="line 1\nline 2 \u2028 \u00e4 end ")
    child = WatchChild.__new__(WatchChild)
    child._process = SimpleNamespace(stdin=os.fdopen(write, "wb"), poll=lambda: 0)  # type: ignore[assignment]
    child.end(lambda secs: False, 60.0, last)
    with os.fdopen(read, "rb") as lines:
        line = Lifeline(lines)
        line.thread.join(60.0)
    assert line.over.is_set() and line.unrecorded == last


@each("said", [END + b"\n", END, END + b' {"launch": "a', b""])
def test_the_restarter_ends_in_order_or_is_killed(said: bytes) -> None:
    """SIGTERM ends the process only where there is no restarter that says so."""
    read, write = os.pipe()
    with os.fdopen(read, "rb") as lines:
        line = Lifeline(lines)
        line.terminated(signal.SIGTERM)
        assert not line.over.is_set() and not line.hurried.is_set()
        os.write(write, said)
        os.close(write)
        line.thread.join(60.0)
    assert line.over.is_set() == said.endswith(b"\n")
    assert (line.killed_at is None) == said.endswith(b"\n")
    line.terminated(signal.SIGTERM)
    assert line.over.is_set() and line.hurried.is_set()


@each("cause, kind", [("completed", "completed"), ("stopped", "stopped")])
def test_a_planned_end_that_the_disk_had_no_room_for(cause: str, kind: str) -> None:
    """It is no death."""
    end = replace(LAST, cause=cause, error=None, reason=None)
    look = watching.with_last_launch(looked("running"), "/runs/tuning", end)
    assert [(item.kind, item.topic) for item in Changes(since=1.5).of(look.runs, 100.0, is_last=True)] == [
        (kind, "end")
    ]
