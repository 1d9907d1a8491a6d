"""In what state a process of the cluster is, from what it said last."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor_core.engine.worker_registry import ObservedWorker, by_name, state_of
from supervisor_core.events.telemetry import WorkerStatus
from supervisor_core.run.model.liveness_record import LivenessRecord


def record(**values: Any) -> LivenessRecord:
    """What a process says that trains."""
    said = {"task": "worker:1", "session": "a" * 16, "host": "h", "pid": 1, "started_at": 1.0, "written_at": 2.0}
    return LivenessRecord(**{**said, "beats": 1, "interval_secs": 10.0, "phase": "training", **values})


@pytest.mark.parametrize(
    ("said", "silent_secs", "is_gone", "state"),
    [
        ({}, 0.0, False, "running"),
        ({"phase": "checkpointing"}, 60.0, False, "running"),
        ({"phase": "starting"}, 0.0, False, "waiting"),
        ({"phase": "restoring"}, 0.0, False, "waiting"),
        ({"waiting_for": "the chief"}, 0.0, False, "waiting"),
        ({"waiting_for": "the chief", "stalled": True}, 0.0, False, "waiting"),
        ({"stalled": True}, 0.0, False, "stalled"),
        ({"stalled": True}, 60.1, False, "lost"),
        ({}, 60.1, False, "lost"),
        ({"interval_secs": 30.0}, 60.1, False, "running"),
        ({"interval_secs": 30.0}, 90.1, False, "lost"),
        ({}, 0.0, True, "lost"),
        ({"ended": "completed"}, 999.0, False, "stopped"),
        ({"ended": "signal"}, 999.0, False, "stopped"),
        ({"ended": "error"}, 999.0, False, "failed"),
    ],
)
def test_the_state_of_a_process(said: dict[str, Any], silent_secs: float, is_gone: bool, state: str) -> None:
    """Its own word on its end first; then silence, three of its own beats at least; then what it says that it does."""
    assert state_of(record(**said), silent_secs=silent_secs, lost_after_secs=60.0, is_gone=is_gone) == state


def test_what_it_waits_for_is_known_while_it_waits() -> None:
    """Of a process that is lost it is not known."""
    said = record(waiting_for="the chief", step=3, steps=2)
    waiting = ObservedWorker(record=said, beat_monotonic=0.0, beat_at=7.0, state="waiting").status()
    assert waiting == WorkerStatus(
        name="worker:1",
        state="waiting",
        phase="training",
        waiting_for="the chief",
        step=3,
        steps=2,
        last_seen_at=7.0,
        started_at=1.0,
        host="h",
        pid=1,
    )
    assert ObservedWorker(record=said, beat_monotonic=0.0, beat_at=7.0, state="lost").status().waiting_for is None


def test_names_in_their_order() -> None:
    """Numbers as numbers, however many, and in whatever digits."""
    names = ["worker:10", "ps:0", "worker:2", "7", "worker:²", "worker:" + "9" * 30, "ps", ""]
    statuses = sorted((WorkerStatus(name=name, state="running") for name in names), key=by_name)
    ordered = [status.name for status in statuses]
    assert ordered == ["", "7", "ps", "ps:0", "worker:2", "worker:10", "worker:" + "9" * 30, "worker:²"]
