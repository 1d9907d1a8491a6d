"""What the command's tests share: runs to look at, and a terminal to type at."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner, Result
from rich.console import Console, Group, RenderableType

from supervisor_core.cli import main
from supervisor_core.cli.timeline import timeline
from supervisor_core.run.judge.finding import Finding
from supervisor_core.run.model.run import Restart, Run, Session

START = 1795222244.0
END = START + 1000.0


def session(number: int, since: float, until: float, outcome: Any, **more: Any) -> Session:
    """A session of our own, from one second after `START` to another."""
    known = {"session": f"s{number}", "attempt": number, "outcome": outcome, "inferred": False, **more}
    return Session(started_at=START + since, ended_at=START + until, **known)


def restart(number: int, from_step: int, to_step: int, downtime_secs: float = 100.0, **more: Any) -> Restart:
    """The restart after a session, 500 s after `START` where nothing else is said."""
    steps = {"from_step": from_step, "to_step": to_step, "rewind_steps": from_step - to_step}
    ends = {"from_session": f"s{number}", "to_session": f"s{number + 1}", "reason": "lost", "inferred": False}
    return Restart(**{"at": START + 500.0, "downtime_secs": downtime_secs, **steps, **ends, **more})


def text(what: RenderableType | list[RenderableType], width: int = 120) -> str:
    """What a terminal would show, without the blanks at the lines' ends."""
    console = Console(width=width, color_system=None, highlight=False)
    with console.capture() as captured:
        console.print(Group(*what) if isinstance(what, list) else what, crop=False)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def shown(run: Run, width: int = 120, found: Sequence[Finding] = ()) -> str:
    """What a terminal shows of a run, 1000 s after `START`, with what is said of it."""
    return text(timeline(run, END, width, found), width)


@pytest.fixture(scope="session")
def writer(module_at: Callable[[str], ModuleType]) -> ModuleType:
    """The module that writes checkpoints byte by byte, from the checkpoint tests."""
    return module_at("checkpoint/bundle_writer.py")


@pytest.fixture
def run() -> Callable[..., Result]:
    """Returns a function that runs ``tb-supervisor`` with these arguments."""
    # Click keeps standard error apart by itself from 8.2 on; before, it has to be asked to.
    apart = {"mix_stderr": False} if "mix_stderr" in inspect.signature(CliRunner).parameters else {}
    return lambda *arguments: CliRunner(**apart).invoke(main, [str(argument) for argument in arguments])
