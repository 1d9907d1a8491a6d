"""The state of a run: by its latest record, and by the time since its last event."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from supervisor_core.run.model.run import Run
from tests.cases import each

RunOf = Callable[..., Run]


@each(
    "reason, state",
    [
        ("completed", "completed"),
        ("exhausted", "completed"),
        ("requested", "stopped"),
        ("signal", "stopped"),
        ("error", "failed"),
    ],
)
def test_a_stop_record_says_how_it_ended(trainer: Any, run_of: RunOf, reason: str, state: str) -> None:
    """The reason of the stop is the session's outcome, and stays the run's state however long ago that was."""
    ended = trainer().spend(5).ready().train(20).stop(reason, error="ValueError: x" if reason == "error" else None)
    for now in (ended.now, ended.now + 1e6):
        run = run_of(ended, now=now)
        assert (run.state, run.sessions[0].outcome) == (state, reason)
    assert (run.sessions[0].error is not None) == (reason == "error")
    assert run.goodput.wall_secs == pytest.approx(25)


@each("heartbeat_secs, silence_secs", [(10.0, 30.0), (1.0, 30.0), (60.0, 180.0), (0.0, 300.0)])
def test_silence_means_lost(trainer: Any, run_of: RunOf, heartbeat_secs: float, silence_secs: float) -> None:
    """Three heartbeats must be missing, and 30 s pass; without heartbeats, the hang timeout."""
    session = trainer(heartbeat_secs=heartbeat_secs).spend(5).ready().train(200)
    heard_at = session.file.events[-1][0]
    assert run_of(session, now=heard_at + silence_secs).state == "running"
    run = run_of(session, now=heard_at + silence_secs + 0.1)
    assert (run.state, run.sessions[0].outcome, run.sessions[0].ended_at) == ("lost", "lost", heard_at)
    down = run.goodput.secs["infrastructure_recovery_from_disruption"]
    assert (run.goodput.wall_secs - down, down) == (
        pytest.approx(heard_at - run.sessions[0].started_at),
        pytest.approx(silence_secs + 0.1),
    )


def test_a_session_that_starts_is_given_the_time_that_it_takes(trainer: Any, run_of: RunOf) -> None:
    """Before the session record one heartbeat alone says nothing of an interval; two of one phase do."""
    session = trainer(heartbeat_secs=0.0)
    session.budget = 1800.0
    session.enter("restoring")
    assert run_of(session, now=session.now + 1700).state == "running"
    beating = trainer(heartbeat_secs=10.0).spend(40)
    assert run_of(beating, now=beating.now + 31).state == "lost"


def test_a_stall_is_what_the_session_says_is_one(trainer: Any, run_of: RunOf) -> None:
    """Stalled from the stall record, or from a heartbeat beyond the hang timeout, until it moves again."""
    session = trainer().spend(5).ready().train(100)
    since = session.now
    session.spend(295, moving=False)
    assert run_of(session).state == "running"
    session.spend(6, moving=False).stall("begin", since)
    run = run_of(session)
    assert (run.state, run.sessions[0].outcome) == ("stalled", "running")
    assert run.goodput.secs["stall"] > 0
    session.spend(30, moving=False)
    assert run_of(session).state == "stalled"
    session.train(1).stall("end", since).spend(20)
    assert run_of(session).state == "running"


def test_a_stalled_session_that_falls_silent_is_lost(trainer: Any, run_of: RunOf) -> None:
    """A stall ends with the last event of its session."""
    session = trainer().spend(5).ready().train(100)
    since = session.now
    session.spend(310, moving=False).stall("begin", since)
    run = run_of(session, now=session.now + 31)
    assert (run.state, run.stalls[0].until) == ("lost", session.now)


def test_a_session_that_was_silent_may_come_back(trainer: Any, fold_of: Any) -> None:
    """Lost is what silence looks like, no verdict: a process that was only suspended runs again."""
    session = trainer().spend(5).ready().train(100)
    fold = fold_of(session)
    cut = len(session.file.events)
    assert fold.run(session.now + 60).state == "lost"
    session.now += 60
    session.train(20)
    fold.update(session.file.chunks([cut])[1:])
    assert fold.run(session.now + 1).state == "running"


def test_a_clock_behind_the_trainers_is_no_silence(trainer: Any, run_of: RunOf) -> None:
    """Where the reader's clock is behind, the last event counts as of now, and no bucket falls below 0."""
    session = trainer().spend(5).ready().train(100)
    run = run_of(session, now=session.now - 50)
    assert run.state == "running"
    assert min(run.goodput.secs.values()) >= 0
