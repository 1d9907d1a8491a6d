"""What a restarter does about a hang: stacks at once, and the end only when it has lasted."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from supervisor_core.restarter.hang import Hang, HangWatch
from supervisor_core.restarter.launch import LaunchFacts, RestarterOptions
from supervisor_core.restarter.logdir_view import LogdirView
from supervisor_core.restarter.running import Node, RunningLaunch
from tests.cases import each

HANG = Hang(phase="training", secs=7.0, hang_timeout_secs=0.0, act_after_secs=None, pid=4711)


class Program:
    """Keeps the stop signals that are sent."""

    def __init__(self) -> None:
        self.signals: list[int] = []

    def stop(self, signum: int, secs: float, *, came_from_others: bool = False) -> None:
        """Keep it."""
        self.signals.append(signum)

    def kill(self) -> None:
        """Keep it."""
        self.signals.append(signal.SIGKILL)


class Scene:
    """A restarter, a program that hangs for as long as the test says, and the looks at its stacks."""

    def __init__(self, directory: Path, log: pytest.LogCaptureFixture, **options: Any) -> None:
        log.set_level("INFO", "supervisor_core")
        log.clear()
        self._log, self.program = log, Program()
        self.taken: list[Hang] = []
        self.hang = HANG
        self.facts = LaunchFacts(attempt=3, started_at=0.0, directory=str(directory))
        node = Node(RestarterOptions(logdir=str(directory), command=("x",), **options), LogdirView(str(directory)))
        self.signals = node.signals
        self.watch = HangWatch(4711)
        self.launch = RunningLaunch(node, self.facts, stacks_of=self.take_stacks)
        self.alarm = self.launch._alarm

    def take_stacks(self, hang: Hang) -> tuple[str | None, str | None]:
        """Take the stacks."""
        self.taken.append(hang)
        return f"/stacks/{len(self.taken)}", None

    @property
    def lines(self) -> list[str]:
        """What was said."""
        return self._log.messages

    def hangs(self, secs: float | None) -> None:
        """One look at a program without progress for some seconds; None: it makes progress."""
        program: Any = self.program
        hang = None if secs is None else replace(self.hang, secs=secs)
        self.launch._check_hang(program, hang, self.watch)


Scenes = Callable[..., Scene]


@pytest.fixture
def scenes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Scenes:
    """Returns a function that makes a scene, with these options of the command line."""
    return partial(Scene, tmp_path, caplog)


def test_a_hang_is_shown_at_its_hang_timeout_and_ended_when_it_has_lasted(scenes: Scenes) -> None:
    """Two looks at the stacks; between them nothing is done."""
    scene = scenes()
    for secs in (7.0, 8.0, 299.0):
        scene.hangs(secs)
    assert scene.lines == ["launch 3 may hang: no progress in phase training for 7 s (hang timeout 0 s)"]
    assert (scene.program.signals, len(scene.taken)) == ([], 1)
    scene.hangs(300.0)
    scene.hangs(121.0)
    assert scene.program.signals == [signal.SIGTERM]
    assert len(scene.taken) == 2 and scene.alarm.stacks is not None and scene.alarm.stacks.path == "/stacks/2"
    assert "launch 3 hangs: no progress in phase training for 300 s" in scene.lines[1] and len(scene.lines) == 2


def test_a_program_that_cannot_run_python_is_killed(scenes: Scenes) -> None:
    """Native code holds the interpreter's lock, so no signal is seen; its monitor has not ticked for long."""
    scene = scenes()
    scene.hang = replace(HANG, session="s")
    scene.watch.readings["s"] = Mock(pid=4711, ticks=9, tick_at=time.monotonic() - 60.0)
    scene.hangs(7.0)
    scene.hangs(300.0)
    assert scene.program.signals == [signal.SIGKILL]
    assert scene.lines[-1].startswith("Native code blocks Python in process 4711: ")


@each(
    "page_secs, given_secs, ended_after_secs",
    [(None, None, 300.0), (None, 40.0, 40.0), (20.0, None, 20.0), (900.0, 30.0, 900.0), (20.0, 60.0, 20.0)],
)
def test_a_hang_is_ended_when_its_own_watchdog_would_act(
    scenes: Scenes,
    page_secs: float | None,
    given_secs: float | None,
    ended_after_secs: float,
) -> None:
    """By the number in its page: the session has had the restarter's option from its environment, and may have one of
    its own, which comes first."""
    scene = scenes(hang_timeout_secs=given_secs)
    scene.hang = replace(HANG, act_after_secs=page_secs)
    scene.hangs(7.0)
    scene.hangs(ended_after_secs - 1.0)
    assert scene.program.signals == []
    scene.hangs(ended_after_secs)
    assert scene.program.signals == [signal.SIGTERM]
    assert f"; stopping it after {ended_after_secs:g} s (" in scene.lines[1]


def test_progress_ends_the_alarm(scenes: Scenes) -> None:
    """The next hang is a new one, with stacks of its own."""
    scene = scenes()
    scene.hangs(7.0)
    scene.hangs(None)
    scene.hangs(None)
    assert scene.lines[1:] == ["launch 3 makes progress again"]
    scene.hangs(11.0)
    assert scene.program.signals == [] and len(scene.taken) == 2


def test_observing_ends_nothing(scenes: Scenes) -> None:
    """It says what it would have done, once."""
    scene = scenes(hang_timeout_secs=1.0, hang_action="observe")
    for secs in (7.0, 8.0, 9.0):
        scene.hangs(secs)
    assert scene.program.signals == []
    assert "; not stopped (--hang-action observe)" in scene.lines[1] and len(scene.lines) == 2


@each("secs", [7.0, 1000.0])
def test_a_program_that_was_asked_to_stop_has_a_deadline_already(scenes: Scenes, secs: float) -> None:
    """Its last save may take longer than a step."""
    scene = scenes(hang_timeout_secs=1.0)
    scene.signals.stop_signal = signal.SIGTERM
    scene.hangs(secs)
    scene.hangs(secs)
    assert (scene.program.signals, scene.taken, scene.lines) == ([], [], [])


@each("stop_secs, kill_secs", [(25.0, 28.0), (1.0, 1.5)])
def test_what_does_not_stop_is_killed_when_a_session_would_have_ended_itself(
    scenes: Scenes, stop_secs: float, kill_secs: float
) -> None:
    """Three seconds after the stop timeout, or half of it: whatever asks for the stop."""
    program: Any = Program()
    asked = scenes(stop_timeout_secs=stop_secs)
    asked.launch._stop_signalled(program, signal.SIGTERM)
    assert asked.lines == [f"SIGTERM: stopping the program; it has {stop_secs:g} s to exit"]
    hung = scenes(stop_timeout_secs=stop_secs)
    hung.hangs(7.0)
    hung.hangs(300.0)
    assert (asked.launch._given_secs, hung.launch._given_secs) == (kill_secs, kill_secs)
