from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from examples.demo.story import Story, checks
from examples.demo.summary import show_checks, show_figures


def test_the_figures_are_those_of_the_run(monkeypatch: pytest.MonkeyPatch, story: Story) -> None:
    """Sessions, restarts, recomputed steps, checkpoints, accuracy, the files, and what to type next."""
    monkeypatch.setattr("examples.demo.summary.command", lambda name: name)
    text = StringIO()
    show_figures(Console(file=text, width=120), story, Path("logs"), Path("logs/digits"))
    rows = [[cell.strip() for cell in line.split("│")[1:3]] for line in text.getvalue().splitlines() if "│" in line]
    assert rows == [
        ["sessions", "3"],
        ["restarts", "2"],
        ["recomputed steps after SIGKILL", "at least 38, at most 60"],
        ["recomputed steps after SIGTERM", "0"],
        ["checkpoints written", "7"],
        ["test accuracy", "99.0%"],
    ]
    for line in (
        "Checkpoints and events: logs/digits",
        "Output and last metrics of each session: logs",
        "  tensorboard --logdir logs",
        "  tb-supervisor verify logs/digits",
    ):
        assert line in text.getvalue().splitlines()


def test_the_checks_show_their_numbers(story: Story) -> None:
    """Each promise has a line with yes or NO and the numbers it rests on."""
    story.session(3).exit_status = 1
    text = StringIO()
    show_checks(Console(file=text, width=200), checks(story))
    (line,) = [line for line in text.getvalue().splitlines() if "trains to the end" in line]
    assert "NO" in line
    assert "status 1, step 2500 of 2500, on disk 2500" in line
    assert text.getvalue().count("│ yes ") == 11
