"""Of several ranks the one that failed by itself is why the run failed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from supervisor_core.events.telemetry import HeartbeatRecord, SessionRecord, StopRecord, WorkerStatus
from supervisor_core.metrics.page import run_status
from supervisor_core.run.model.run import Run
from tests.cases import each

T0 = 1_700_000_000.0
LOST = "RuntimeError: [tcp/pair.cc:561] Connection closed by peer [127.0.0.1]:15006"


@each("order", [(1, 2), (2, 1)])
def test_the_error_that_came_first(events_file: Any, run_of: Callable[..., Run], order: tuple[int, int]) -> None:
    """Rank 1 failed, the others have lost it."""
    errors = {1: "RuntimeError: boom", 2: LOST}
    workers = tuple(
        WorkerStatus(name=f"rank:{rank}", state="failed", error=errors[rank], last_seen_at=T0 + 5.0 + rank)
        for rank in order
    )
    run = run_of(failed(events_file, LOST, workers), now=T0 + 20.0)
    expected = f"RuntimeError: boom on rank 1; then on rank 0: {LOST}"
    assert (run.state, run.failure, run.failure_error) == ("failed", expected, expected)
    assert run_status(run, T0 + 20.0).error == expected


def test_an_error_of_its_own_stays(events_file: Any, run_of: Callable[..., Run]) -> None:
    """Another rank's error does not replace it."""
    worker = WorkerStatus(name="rank:1", state="failed", error="RuntimeError: boom", last_seen_at=T0 + 5.0)
    own = run_of(failed(events_file, "KeyError: 1", (worker,)), now=T0 + 20.0)
    assert own.failure == "KeyError: 1"


def test_a_rank_that_was_killed(events_file: Any, run_of: Callable[..., Run]) -> None:
    """It has no error: the error of losing it has its name."""
    killed = WorkerStatus(name="rank:1", state="lost", last_seen_at=T0 + 5.0, host="node-7", pid=4711)
    also = WorkerStatus(name="rank:2", state="failed", error=LOST, last_seen_at=T0 + 5.0)
    run = run_of(failed(events_file, LOST, (killed, also)), now=T0 + 20.0)
    text = "lost rank 1 (process 4711 on node-7), which was killed or has crashed"
    assert run.failure == f"RuntimeError: {text}: [tcp/pair.cc:561] Connection closed by peer [127.0.0.1]:15006"
    assert run_status(run, T0 + 20.0).error == run.failure


@pytest.mark.parametrize(
    "other",
    [{"state": "lost"}, {"state": "stopped", "phase": "stopped"}],
    ids=["two are lost", "one ended before, perhaps"],
)
def test_no_rank_is_named_where_it_may_be_another_one(
    events_file: Any, run_of: Callable[..., Run], other: dict[str, Any]
) -> None:
    """A launcher kills the ranks that are left after a while."""
    killed = WorkerStatus(name="rank:1", state="lost", last_seen_at=T0 + 5.0)
    also = WorkerStatus(name="rank:2", last_seen_at=T0 + 6.0, **other)
    assert run_of(failed(events_file, LOST, (killed, also)), now=T0 + 20.0).failure == LOST


def failed(events_file: Any, error: str, workers: tuple[WorkerStatus, ...]) -> Any:
    """Return the events of a session that failed, and what it had seen of the other ranks."""
    made = events_file("events", created_at=T0)
    made.record(SessionRecord(session="a", attempt=1, started_at=T0), 0, T0)
    beat = HeartbeatRecord(session="a", phase="training", step=3, steps=3, workers=workers, elapsed_secs=9.0)
    made.record(beat, 3, T0 + 9.0)
    return made.record(StopRecord(session="a", reason="error", error=error, step=3, elapsed_secs=9.0), 3, T0 + 9.0)
