"""Time in which a session's process did not run, and stalls that a killed session reported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from supervisor_core.run.fold.bounds import Allowance
from supervisor_core.run.fold.session_fold import ActivityFold
from supervisor_core.run.model.run import Run
from tests.cases import each

RunOf = Callable[..., Run]


def test_a_freeze_is_a_silence_and_not_productive(trainer: Any, run_of: RunOf) -> None:
    """Each is a span with its seconds and its cause; the buckets still sum to the wall time."""
    session = trainer().spend(10).ready().train(47).freeze(50.0, "stopped")
    thawed = session.now
    session.train(100).freeze(600.0).train(30).stop()
    run = run_of(session)
    assert [(item.session, item.since, item.until, item.secs, item.cause) for item in run.silences] == [
        ("a", thawed - 50, thawed, 50.0, "stopped"),
        ("a", thawed + 100, thawed + 700, 600.0, None),
    ]
    assert run.goodput.secs["silent"] == run.goodput.booked_secs["silent"] == 650.0
    assert run.goodput.secs["productive"] == pytest.approx(177)
    assert sum(run.goodput.secs.values()) == run.goodput.wall_secs == session.now - session.started_at
    assert run.stalls == ()


def test_what_rounding_leaves_is_no_silence() -> None:
    """A heartbeat has six digits of its seconds, the stop record all."""
    fold = ActivityFold(Allowance(None))
    fold.add(100.0, {"silent": 9.01445}, None)
    fold.add(120.0, {"silent": 9.014451857}, None)
    fold.add(130.0, {"silent": 12.0}, None)
    assert [(before, secs) for _, before, secs, _ in fold.silences.items] == [(0.0, 9.01445), (9.01445, 12.0)]


def test_silences_are_listed_once_though_a_session_writes_several_files(
    trainer: Any, events_file: Any, run_of: RunOf
) -> None:
    """A later file's heartbeats repeat what was silent before."""
    session = trainer().ready().train(20).freeze(50.0).train(20)
    later = events_file("/run/events.out.tfevents.1700000095.host.a2", session.now)
    cut = len(session.file.events)
    session.freeze(30.0).train(20)
    later.events, session.file.events = session.file.events[cut:], session.file.events[:cut]
    assert [item.secs for item in run_of(session, later).silences] == [50.0, 30.0]


@each("ended", [False, True])
def test_a_stall_of_a_killed_session_counts(trainer: Any, run_of: RunOf, ended: bool) -> None:
    """Between two heartbeats a stall began (and ended), and the session was killed: the bucket has it as the list
    does."""
    session = trainer(heartbeat_secs=60.0).ready().train(100).save(blocked_secs=0.0)
    session.budget = 3.0
    since = session.now
    session.spend(4.0, moving=False).stall("begin", since).spend(1.0, moving=False)
    if ended:
        session.stall("end", since)
        session.now += 7.0
    session.file.scalar("loss", 100, session.now)
    run = run_of(session, now=session.now + 1000)
    (stall,) = run.stalls
    assert run.state == "lost"
    assert (stall.secs, run.goodput.secs["stall"]) == (5.0, 5.0)
    assert run.goodput.secs["productive"] == pytest.approx(100 + 7 * ended)


def test_what_the_liveness_file_saw_of_a_stalled_session_is_stall(trainer: Any, run_of: RunOf) -> None:
    """Killed while it was stalled, and seen alive after its last heartbeat: those seconds are of the stall."""
    session = trainer().ready().train(100)
    since = session.now
    session.spend(330, moving=False).stall("begin", since)
    live = {"previous_outcome": "lost", "previous_step": 100, "previous_seen_at": session.now + 6.0}
    second = trainer("b", session.now + 60, attempt=2).ready(100, **live).train(10)
    assert run_of(session, second).goodput.secs["stall"] == pytest.approx(336 + 5, abs=0.6)  # half the time to the next


def test_a_stall_that_is_over_takes_no_later_second(trainer: Any, run_of: RunOf) -> None:
    """Heartbeats book what follows a stall, and what is still open after them is productive."""
    session = trainer().ready().train(100)
    since = session.now
    session.spend(330, moving=False).stall("begin", since).train(1).stall("end", since).train(28)
    run = run_of(session, now=session.now)
    assert run.goodput.secs["stall"] == pytest.approx(330, abs=1.1)
    assert run.goodput.secs["productive"] == pytest.approx(129, abs=1.1)
