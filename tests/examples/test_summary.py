from __future__ import annotations

import sys
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from examples.demo.story import Story, checks
from examples.demo.summary import command, show_checks, show_figures, show_report


def bin_with(directory: Path, *names: str) -> Path:
    """A directory of commands, with an interpreter beside them."""
    (directory / "bin").mkdir(parents=True)
    for name in ("python", *names):
        (directory / "bin" / name).touch(mode=0o755)
    return directory / "bin"


def test_what_to_type_next_works_as_printed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, story: Story) -> None:
    """A command that the shell would not find is printed with its path, from where the demo was started."""
    own = bin_with(tmp_path / ".venv", "tensorboard", "tb-supervisor")
    monkeypatch.setattr(sys, "executable", str(own / "python"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(bin_with(tmp_path / "other", "tensorboard")))
    assert (command("tensorboard"), command("tb-supervisor")) == (".venv/bin/tensorboard", ".venv/bin/tb-supervisor")
    text = StringIO()
    show_figures(Console(file=text, width=120), story, Path("my logs"), Path("my logs/digits"))
    assert "  .venv/bin/tb-supervisor verify 'my logs/digits'" in text.getvalue().splitlines()
    monkeypatch.chdir(tmp_path / "other")
    assert command("tb-supervisor") == str(own / "tb-supervisor")
    monkeypatch.setenv("PATH", str(own))
    assert command("tb-supervisor") == "tb-supervisor"


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


def test_an_unfinished_run_shows_what_is_unknown() -> None:
    """Figures that were never seen are unknown, not 0, and nothing is offered to look at that is not there."""
    text = StringIO()
    show_figures(Console(file=text, width=120), Story(steps=1), Path("logs"), Path("logs/digits"))
    assert text.getvalue().count("unknown") == 3
    assert "tensorboard" not in text.getvalue()


def test_the_page_is_named_or_why_there_is_none() -> None:
    """Its path is a line that can be pasted."""
    text = StringIO()
    console = Console(file=text, width=40)
    show_report(console, Path("build/demo/report.html"), None)
    show_report(console, Path("build/demo/report.html"), "Error: The tab was left out.")
    lines = text.getvalue().splitlines()
    assert "The run as a page, for any browser: build/demo/report.html" in lines
    assert "The run has no page. Error: The tab was left out." in lines
