from __future__ import annotations

from pathlib import Path

from examples.demo.inspection import Inspected, inspect_run, newest_checkpoint
from supervisor_core import supervise
from supervisor_core.events.telemetry import CheckpointRecord, StopRecord, summary_bytes
from supervisor_core.events.writer import EventsWriter


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
