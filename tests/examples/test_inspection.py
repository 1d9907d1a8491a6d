from __future__ import annotations

from io import StringIO
from pathlib import Path

from rich.console import Console

from examples.demo.inspection import Inspected, inspect_run, newest_checkpoint, show_run, write_report
from examples.demo.summary import show_inspection
from supervisor_core import supervise
from supervisor_core.events.telemetry import CheckpointRecord, StopRecord, summary_bytes
from supervisor_core.events.writer import EventsWriter

ROOT = Path(__file__).parents[2]


def write(run: Path) -> None:
    """Write a session that saved once and completed."""
    with EventsWriter(run) as writer:
        writer.summary(summary_bytes(CheckpointRecord(session="s", trigger="timer", path="m-3", step=3)), 3)
        writer.summary(summary_bytes(StopRecord(session="s", reason="completed", step=4)), 4)


def test_a_run_is_inspected_by_the_command(tmp_path: Path) -> None:
    """State, how its sessions ended, where they went on, its good checkpoints."""
    write(tmp_path / "run")
    expected = Inspected(state="completed", outcomes=("completed",), resumed_at=(), again=(), checkpoints=1)
    assert inspect_run(tmp_path / "run") == expected


def test_the_newest_checkpoint_is_the_one_that_the_command_would_resume_from(tmp_path: Path) -> None:
    """Of any framework's run; None where there is none."""
    with supervise(tmp_path / "run", save_secs=None) as run:
        for _ in run.steps(3):
            pass
    assert newest_checkpoint(tmp_path / "run") == (3, None)
    assert newest_checkpoint(tmp_path / "none") == (None, None)


def test_what_cannot_be_inspected_is_none(tmp_path: Path) -> None:
    """No events files: None, no exception."""
    assert inspect_run(tmp_path) is None


def test_the_timeline_is_shown_as_the_command_prints_it(tmp_path: Path) -> None:
    """For the width of the terminal; markup in it stays what it is."""
    write(tmp_path / "run")
    text = show_run(tmp_path, "run", 150)
    assert text.startswith("run  ✓ completed")
    shown = StringIO()
    show_inspection(Console(file=shown, width=150), text + "[bold]\n")
    assert shown.getvalue().endswith(text + "[bold]\n")


def test_the_page_of_a_run_is_written_by_the_command(tmp_path: Path) -> None:
    """Into a directory that is made for it; what went wrong is one line."""
    write(tmp_path / "logs" / "run")
    target = tmp_path / "build" / "demo" / "report.html"
    problem = write_report(tmp_path / "logs", "run", target)
    if (ROOT / "tb_plugin" / "static" / "index.js").exists():
        assert problem is None and "<title>run - Supervisor report</title>" in target.read_text()
    else:
        assert problem is not None and "make frontend" in problem
    assert write_report(tmp_path / "logs", "none", target) == (
        f"Error: {tmp_path}/logs has no run 'none'; it has 1 run: 'run'."
    )
