from __future__ import annotations

from io import StringIO
from pathlib import Path

from rich.console import Console

from examples.demo.story import Story, checks
from examples.demo.summary import show_checks, show_figures


def test_the_figures_are_those_of_the_run(story: Story) -> None:
    """Sessions, restarts, steps done again, checkpoints, accuracy, the files, and what to type next."""
    text = StringIO()
    show_figures(Console(file=text, width=120), story, Path("logs"), Path("logs/digits"))
    rows = [[cell.strip() for cell in line.split("│")[1:3]] for line in text.getvalue().splitlines() if "│" in line]
    assert rows == [
        ["sessions", "3"],
        ["restarts", "2"],
        ["steps done again after SIGKILL", "at least 38, at most 60"],
        ["steps done again after SIGTERM", "0"],
        ["checkpoints written", "7"],
        ["test accuracy", "99.0%"],
    ]
    for line in (
        "Checkpoints and events: logs/digits",
        "What each session printed, and its last metrics: logs",
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
    assert text.getvalue().count("│ yes ") == 10


def test_an_unfinished_run_shows_what_is_unknown() -> None:
    """Figures that were never seen are unknown, not 0, and nothing is offered to look at that is not there."""
    text = StringIO()
    show_figures(Console(file=text, width=120), Story(steps=1), Path("logs"), Path("logs/digits"))
    assert text.getvalue().count("unknown") == 3
    assert "tensorboard" not in text.getvalue()
