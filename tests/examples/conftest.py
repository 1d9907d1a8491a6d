"""A story in which every promise was kept, for the tests to spoil."""

from __future__ import annotations

from signal import SIGKILL, SIGTERM

import pytest

from examples.demo.hanging import HangSeen
from examples.demo.inspection import Inspected
from examples.demo.story import SessionSeen, Story
from supervisor_core.events.telemetry import CheckpointRecord, Record, SessionRecord, StopRecord


def session_record(attempt: int, restored_step: int | None) -> SessionRecord:
    """Return the record of a session's start."""
    return SessionRecord(
        session=f"s{attempt}",
        attempt=attempt,
        host="host",
        pid=100 + attempt,
        facade="Supervisor",
        started_at=1000.0 * attempt,
        restored_step=restored_step,
    )


def saved(attempt: int, *steps: int) -> tuple[Record, ...]:
    """Return the records of good checkpoints."""
    return tuple(CheckpointRecord(session=f"s{attempt}", trigger="timer", path="p", step=step) for step in steps)


@pytest.fixture
def story() -> Story:
    """Killed at 640 in the middle of the 7th epoch, stopped at 1100, finished at 2500."""
    first = SessionSeen(
        start_step=0,
        ready=True,
        last_step=640,
        checkpoints=[300, 600],
        exit_status=-SIGKILL,
        newest_checkpoint=600,
        records=(session_record(1, None), *saved(1, 0, 300, 600)),
    )
    second = SessionSeen(
        start_step=600,
        ready=True,
        end_step=1100,
        last_step=1100,
        checkpoints=[900, 1100],
        exit_status=-SIGTERM,
        newest_checkpoint=1100,
        records=(
            session_record(2, 600),
            *saved(2, 900, 1100),
            StopRecord(session="s2", reason="signal", signal="SIGTERM", step=1100, final_checkpoint_step=1100),
        ),
    )
    third = SessionSeen(
        start_step=1100,
        ready=True,
        end_step=2500,
        last_step=2500,
        checkpoints=[1500, 2500],
        exit_status=0,
        newest_checkpoint=2500,
        test_accuracy=0.99,
        records=(session_record(3, 1100), *saved(3, 1500, 2500), StopRecord(session="s3", reason="completed")),
    )
    inspected = Inspected(
        state="completed",
        outcomes=("lost", "signal", "completed"),
        resumed_at=(600, 1100),
        again=((38, 60), (0, 0)),
        checkpoints=7,
    )
    hang = HangSeen(
        exit_status=0,
        causes=("hang", "completed"),
        texts=("restarted by tb-supervisor: hung at digits.py:88 in block_the_interpreter", "completed"),
        hung_at=400,
        resumed_at=378,
        last_step=600,
    )
    return Story(
        steps=2500,
        steps_per_epoch=100,
        sessions=[first, second, third],
        events_files=3,
        inspected=inspected,
        hang=hang,
    )
