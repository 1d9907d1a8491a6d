"""Progress: what a terminal shows of a command that works for long, and where nothing is shown."""

from __future__ import annotations

import io
import os
import pty
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from rich.console import Console

from supervisor_core.cli import look, text, verify
from supervisor_core.cli.text import SHOW_AFTER_SECS, OnProgress, runs_bar
from supervisor_core.events import EventsWriter


class Hand:
    """A clock that is moved by hand."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now


class Terminal:
    """A pseudo terminal: what is written to it."""

    def __init__(self) -> None:
        self._leader, follower = pty.openpty()
        tty.setraw(follower)
        self.file = os.fdopen(follower, "w")
        self.console = Console(file=self.file, width=80, legacy_windows=False)

    def up_to(self, text: str) -> str:
        """Wait for a text; return all up to it."""
        shown = ""
        while text not in shown:
            shown += os.read(self._leader, 1 << 16).decode(errors="replace")
        return shown

    def rest(self) -> str:
        """Return what has come until now."""
        self.file.write("the end")
        self.file.flush()
        return self.up_to("the end").removesuffix("the end")

    def close(self) -> None:
        self.file.close()
        os.close(self._leader)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    """A terminal."""
    monkeypatch.setenv("TERM", "xterm")
    made = Terminal()
    yield made
    made.close()


def test_a_long_command_shows_how_much_is_done(terminal: Terminal) -> None:
    """From then on there is a line with the count, also before the first run is read; in the end it is gone, and the
    cursor is back."""
    clock = Hand()
    with runs_bar("reading", clock=clock, console=terminal.console) as on_progress:
        clock.now += SHOW_AFTER_SECS
        assert "reading" in terminal.up_to("0/?")
        on_progress(3, 10)
        terminal.up_to("3/10")
        on_progress(4, 10)
        terminal.up_to("4/10")
    rest = terminal.rest()
    assert rest.endswith("\x1b[1A\x1b[2K")  # up, and the line is erased
    assert "\x1b[?25h" in rest


def test_a_pipe_gets_nothing() -> None:
    """However long it takes: logs of CI have no bars."""
    file, clock = io.StringIO(), Hand()
    with runs_bar("reading", clock=clock, console=Console(file=file)) as on_progress:
        clock.now += 3600.0
        on_progress(3, 10)
    assert file.getvalue() == ""


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Two runs."""
    for name in ("a", "b"):
        with EventsWriter(str(tmp_path / "logs" / name)) as writer:
            writer.scalar("loss", 1.0, 7)
    return tmp_path / "logs"


@pytest.fixture
def bars(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[tuple[int, int]]]]:
    """What was shown: the words of each bar, and how much was done of how much."""
    shown: list[tuple[str, list[tuple[int, int]]]] = []

    @contextmanager
    def recorded(what: str) -> Iterator[OnProgress]:
        done: list[tuple[int, int]] = []
        shown.append((what, done))
        yield lambda *given: done.append(given)

    for module in (text, verify, look):
        monkeypatch.setattr(module, "runs_bar", recorded)
    return shown


@pytest.mark.parametrize("command, what", [("inspect", "reading"), ("verify", "events files")])
def test_the_first_look_at_many_runs(
    run: Callable[..., Result], logs: Path, bars: list[Any], command: str, what: str
) -> None:
    """Runs are counted as they are read."""
    assert run(command, logs).exit_code == 0
    assert bars == [(what, [(1, 2), (2, 2)])]
