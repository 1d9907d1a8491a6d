"""What a session left open ends with it: no restart carries it on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from supervisor_core.metrics.page import run_status
from supervisor_core.run.model.run import Run

RunOf = Callable[..., Run]

HALF_AN_HOUR = 1800.0


@pytest.mark.parametrize("is_stalled", [False, True], ids=["killed in a save", "killed when the save had hung"])
def test_a_save_that_a_dead_session_began_is_not_open_in_any_later_one(
    trainer: Any, run_of: RunOf, is_stalled: bool
) -> None:
    """Three sessions. The first is killed in a save that has hung; the second trains for hours, and is killed; the
    third trains. At any moment from the second session's first heartbeat on the run is healthy: it is in the phase of
    its newest session, with the hang timeout, no stall is open, and no second is counted for the save."""
    first = trainer("a").ready().train(60).enter("checkpointing")
    first.budget = HALF_AN_HOUR
    since = first.now
    first.spend(HALF_AN_HOUR + 30 if is_stalled else 20, moving=False)
    if is_stalled:
        first.stall("begin", since)
    second = trainer("b", first.now + 30, attempt=2)
    sessions = [first, second]

    def check(phase: str) -> None:
        run = run_of(*sessions, now=sessions[-1].now + 1)
        status = run_status(run, sessions[-1].now + 1)
        assert (run.state, status.state, status.stalled, status.session.phase) == ("running", "running", False, phase)
        assert status.session.progress_timeout_secs == 300.0
        assert [stall.until is None for stall in run.stalls] == [False] * is_stalled
        left_open = {bucket: run.goodput.secs[bucket] for bucket in ("stall", "unproductive_checkpoint_save")}
        assert sum(left_open.values()) == pytest.approx(first.now - since, abs=10)

    second.enter("restoring").spend(5)
    check("restoring")
    second.ready(0, previous_outcome="lost")
    for _ in range(5):
        check("training")
        second.train(60, secs_per_step=HALF_AN_HOUR / 60)
    sessions.append(trainer("c", second.now + 30, attempt=3).ready(0, previous_outcome="lost"))
    for _ in range(3):
        check("training")
        sessions[-1].train(60, secs_per_step=HALF_AN_HOUR / 60)


def test_a_stall_ends_with_a_recovery(trainer: Any, run_of: RunOf) -> None:
    """The framework's session is lost in a stall, and recreated: a boundary within the session, with no stall after
    it."""
    session = trainer().ready().train(100)
    since = session.now
    session.spend(330, moving=False).stall("begin", since)
    assert run_of(session).state == "stalled"
    session.recover(50)
    assert run_of(session).state == "running"
    session.train(1).stall("end", since).train(60)
    run = run_of(session)
    assert (run.state, [stall.until is None for stall in run.stalls]) == ("running", [False])


def test_a_hung_service_is_no_stall_of_its_session(trainer: Any, run_of: RunOf) -> None:
    """The session trains on, and may stall and move again meanwhile: each has its own begin and end. A service that
    hangs when its session dies ends with it."""
    session = trainer().ready().train(100)
    hung_since = session.now - 60
    session.stall("begin", hung_since, service="checkpoint").train(30)
    run = run_of(session)
    assert (run.state, run.stalls) == ("running", ())
    assert [(stall.service, stall.until) for stall in run.service_stalls] == [("checkpoint", None)]
    since = session.now
    session.spend(330, moving=False).stall("begin", since)
    assert run_of(session).state == "stalled"
    session.train(1).stall("end", since).stall("end", hung_since, service="checkpoint").train(20)
    session.stall("begin", session.now - 60, service="checkpoint").train(10)
    later = trainer("b", session.now + 60, attempt=2).ready(100, previous_outcome="lost").train(10)
    run = run_of(session, later)
    assert (run.state, [stall.secs for stall in run.stalls]) == ("running", [pytest.approx(331)])
    assert [stall.until is None for stall in run.service_stalls] == [False, False]
    assert [stall.stacks for stall in run.service_stalls] == [{"MainThread": ("train.py:1 main",)}] * 2
