from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from click.testing import CliRunner

from examples.demo import inspection
from examples.demo.acts import Play
from examples.demo.metrics import Reading
from examples.demo.story import Story
from supervisor_core.cli import main


@dataclass
class Shown:
    """Remembers what was shown."""

    acts: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def act(self, title: str) -> None:
        self.acts.append(title)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def progress(self, reading: Reading, epoch: float | None) -> None:
        pass


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """`tb-supervisor` runs in the test's process, in a tenth of the time; test_inspection.py has the real command."""

    def run(*arguments: str, columns: int = 80) -> tuple[str, str]:
        done = CliRunner().invoke(main, arguments)
        return done.stdout, done.stderr

    monkeypatch.setattr(inspection, "tb_supervisor", run)


def perform(command: list[str], directory: Path, patience_secs: float = 60.0) -> tuple[Story, Shown]:
    """Play with a command in place of the training; return what was seen and what was shown."""
    shown = Shown()
    play = Play(
        command,
        run=directory / "run",
        outputs=directory,
        directory=directory,
        steps=100,
        show=shown,
        patience_secs=patience_secs,
    )
    return play.perform(), shown


def test_a_training_that_ends_at_once_is_shown_with_its_last_output(tmp_path: Path) -> None:
    """The story is broken off, with the exit status, the end of the output and where all of it is."""
    story, shown = perform([sys.executable, "-c", "raise SystemExit('no digits today')"], tmp_path)
    assert story.broken_off is not None
    assert story.broken_off.startswith("the training ended (exit status 1) before it was ready.")
    assert story.broken_off.endswith("no digits today")
    assert str(tmp_path / "session-1.txt") in story.broken_off
    assert story.session(1).exit_status == 1
    assert shown.acts == ["A training starts"]


def test_a_training_that_does_nothing_is_given_up(tmp_path: Path) -> None:
    """When nothing has moved for the patience, the story is broken off, and the process is gone."""
    story, _ = perform([sys.executable, "-c", "__import__('threading').Event().wait()"], tmp_path, patience_secs=0.0)
    assert story.broken_off is not None
    assert story.broken_off.startswith("no progress for 0 s before it was ready.")
