"""`Options.on_event`: a program gets what happens to its run, and whatever it does then, its training goes on."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from supervisor_core import Options, supervise
from supervisor_core.engine import ending
from supervisor_core.notify.callable import CallableService, EventCalls
from supervisor_core.notify.event import Event
from supervisor_core.notify.message import message_of
from supervisor_core.training.run import Run
from supervisor_core.training.save_point import SavePolicy
from supervisor_core.training.state import TrainingState
from tests.conftest import StillClock

SCHEMA = Path(__file__).parents[2] / "docs" / "event.schema.json"


def train(logdir: Path, on_event: Any, steps: int = 3) -> None:
    """Train, and say something of the run in the first step."""
    with supervise(logdir, state={"data": {}}, save_secs=None, options=Options(on_event=on_event)) as run:
        for step in run.steps(steps):
            if not step:
                run.notify("accuracy fell")


def kinds(events: list[dict[str, Any]]) -> list[str]:
    """What was said."""
    return [event["kind"] for event in events]


def event(text: str) -> Event:
    """Some event."""
    return Event(
        id=text, what="happened", topic="warn", kind="notice", severity="warn", run="a", logdir="/a", text=text, at=1.0
    )


def test_a_program_is_told_what_happens_to_its_run(tmp_path: Path) -> None:
    """As objects of the published schema, one at a time, in a thread; before the session has ended. What an earlier
    session said is no event again; that it was restarted is one."""
    told: list[dict[str, Any]] = []
    threads: set[str] = set()

    def on_event(event: dict[str, Any]) -> None:
        told.append(event)
        threads.add(threading.current_thread().name)

    train(tmp_path, on_event)
    assert kinds(told) == ["notice", "completed"]
    assert told[0]["text"] == f"{tmp_path.parent.name}/{tmp_path.name}: accuracy fell"
    schema = json.loads(SCHEMA.read_text("utf-8"))
    for item in told:
        jsonschema.validate(item, schema)
    assert threads == {"supervisor-on_event"}
    told.clear()
    train(tmp_path, on_event, steps=5)
    assert kinds(told) == ["restarted", "completed"]


def test_a_function_that_raises_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever it raises; it is called with the next event all the same."""
    told: list[str] = []

    def on_event(event: dict[str, Any]) -> None:
        told.append(event["kind"])
        raise SystemExit("no network")

    train(tmp_path, on_event)
    assert told == ["notice", "completed"]
    lines = [each for each in caplog.records if "on_event" in each.message and each.levelno >= logging.WARNING]
    assert [each.message for each in lines] == ["Options.on_event has raised an error, logged once: no network"]


def test_a_function_that_hangs_holds_up_the_end_for_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Not the training; which events it did not get is in the log."""
    monkeypatch.setattr(ending, "LAST_EVENTS_SECS", 0.3)
    may_return, is_called, told = threading.Event(), threading.Event(), []

    def on_event(event: dict[str, Any]) -> None:
        told.append(event["kind"])
        is_called.set()
        may_return.wait()

    def wait_when_called(calls: EventCalls, secs: float) -> None:
        assert is_called.wait(60.0)
        wait(calls, secs)

    wait = EventCalls.wait
    monkeypatch.setattr(EventCalls, "wait", wait_when_called)

    try:
        train(tmp_path, on_event)
        assert told == ["notice"]
        assert "on_event: " in caplog.text and "in time" in caplog.text
    finally:
        may_return.set()


def test_a_call_that_takes_long_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """Once, while it lasts; not one that returns in time."""
    clock = StillClock(0.0)

    def on_event(event: dict[str, Any]) -> None:
        for _ in range(3):
            clock.now += 29.0 if event["text"] == "short" else 31.0
            service.check()
            if event["text"] == "short":
                return

    service = CallableService(on_event, clock)
    service.send(message_of([event("short")]))
    clock.now += 100.0
    service.check()
    assert not caplog.records
    service.send(message_of([event("long")]))
    service.send(message_of([event("long")]))
    assert [each.message for each in caplog.records] == [
        "Options.on_event has not returned for 31 s, logged once: further events wait for it."
    ]


def test_a_forked_child_tells_nothing(tmp_path: Path) -> None:
    """It ends at once, though a lock was taken when it was forked, which no thread releases there."""
    told: list[dict[str, Any]] = []
    calls = EventCalls(told.append, str(tmp_path), "a", 0.0)
    calls.start()
    (lane,) = calls._outbox._lanes
    is_taken, has_forked = threading.Event(), threading.Event()

    def take() -> None:
        with lane._changed:
            is_taken.set()
            has_forked.wait()

    threading.Thread(target=take).start()
    is_taken.wait()
    with calls._stop._cond:  # as the thread that looks may have it
        child = os.fork()
        if not child:
            signal.alarm(20)  # which ends a child that waits
            calls.finish()
            calls.wait(60.0)
            os._exit(len(told))
    has_forked.set()
    assert os.waitpid(child, 0)[1] == 0
    calls.finish()
    calls.wait(60.0)


def test_only_the_chief_is_told(tmp_path: Path) -> None:
    """Each event is one call, in however many processes a run trains."""
    told: list[dict[str, Any]] = []
    names = {"options": Options(on_event=told.append), "policy": SavePolicy(save_secs=None)}
    train(tmp_path, None)
    with Run(str(tmp_path), state=TrainingState(objects={}), task="rank:1", **names) as run:
        run.notify("accuracy fell")
    assert told == []


PROGRAM = """
import os, signal, sys
from supervisor_core import Options, supervise

options = Options(on_event=lambda event: print(event["text"], flush=True), run_name="tuning")
with supervise(sys.argv[1], state={"data": {}}, save_secs=None, options=options) as run:
    for step in run.steps(100):
        if step == 3:
            os.kill(os.getpid(), signal.SIGTERM)
            while not run.should_stop():
                pass
"""


def test_the_end_by_a_signal_is_told_before_the_process_is_over(tmp_path: Path) -> None:
    """Within the stop's time."""
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGTERM, done.stderr
    assert done.stdout.startswith("tuning: stopped by SIGTERM at step 4"), done.stdout
