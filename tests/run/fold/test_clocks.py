"""The wall clock is set, between sessions or within one: order, rewinds, downtimes, states and goodput stay right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from supervisor_core.run.model.run import Run
from tests.cases import each

RunOf = Callable[..., Run]
HOUR = 3600.0


def seen(before: Any, downtime_secs: float | None, **more: Any) -> dict[str, Any]:
    """Return what a session's record says of the one before it, by its liveness file; None: it ran elsewhere."""
    return {
        "previous_outcome": "lost",
        "previous_step": before.step,
        "previous_seen_at": before.now,
        "previous_elapsed_secs": before.elapsed_secs,
        "previous_seen_secs": downtime_secs,
        "run_started_at": before.started_at,
        **more,
    }


def three(trainer: Any, second_by: float = 0.0, third_by: float = 0.0) -> list[Any]:
    """Return a killed session, one that is stopped by a signal, and one that trains; clocks are off by so much."""
    first = trainer("a").spend(12).ready().train(500).save().train(188)
    start = first.now + 60
    second = trainer("b", start + second_by, attempt=2).spend(10)
    second.ready(500, **seen(first, 60.0)).train(300).save().stop("signal")
    third = trainer("c", second.now - second_by + 30 + third_by, attempt=3).spend(10)
    third.ready(800, **seen(second, 30.0, previous_outcome="signal", run_started_at=first.started_at)).train(100)
    return [first, second, third]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
@pytest.mark.parametrize(
    "offsets", [(-HOUR, 0.0), (HOUR, 0.0), (-HOUR, -HOUR), (HOUR, HOUR), (0.0, -HOUR), (0.0, HOUR)]
)
def test_a_clock_set_between_sessions_changes_nothing(
    trainer: Any, run_of: RunOf, offsets: tuple[float, float], order: tuple[int, ...]
) -> None:
    """Set back or forward an hour, and back again: sessions, rewinds, downtimes, state and goodput are the same."""
    right = three(trainer)
    expected = run_of(*right)
    sessions = three(trainer, *offsets)
    run = run_of(*(sessions[index] for index in order), now=sessions[-1].now + 1.0)
    assert [(session.id, session.attempt, session.outcome) for session in run.sessions] == [
        ("a", 1, "lost"),
        ("b", 2, "signal"),
        ("c", 3, "running"),
    ]
    assert [restart.rewind_steps for restart in run.restarts] == [188, 0]
    assert [restart.downtime_secs for restart in run.restarts] == pytest.approx([60.0, 30.0])
    assert (run.state, run.step, run.steps_lost) == ("running", 899, 188)
    assert run.last_event_at == sessions[-1].now
    assert run.goodput.wall_secs == pytest.approx(expected.goodput.wall_secs)
    assert dict(run.goodput.secs) == pytest.approx(dict(expected.goodput.secs))
    assert dict(run.goodput.booked_secs) == pytest.approx(dict(expected.goodput.booked_secs))


@each("by", [-HOUR, HOUR])
def test_a_stop_by_a_signal_is_seen_though_the_clock_was_set(trainer: Any, run_of: RunOf, by: float) -> None:
    """After SIGTERM the run is stopped, whatever an earlier session's clock said."""
    sessions = three(trainer, by, by)
    sessions[-1].stop("signal", signal="SIGTERM")
    assert run_of(*sessions, now=sessions[-1].now + 100.0).state == "stopped"


@each("by", [-HOUR, HOUR])
def test_a_clock_set_within_a_session_changes_nothing(trainer: Any, run_of: RunOf, by: float) -> None:
    """Set while it trains: the session lasts as long as it did, moves as it does, and is resumed as it was."""

    def both(by: float) -> list[Any]:
        first = trainer("a").spend(12).ready().train(500).save().train(103).set_clock(by).train(85)
        second = trainer("b", first.now + 60, attempt=2).spend(10).ready(500, **seen(first, 60.0)).train(20)
        return [first, second]

    [alone] = both(by)[:1]
    run = run_of(alone, now=alone.now + 1.0)
    assert (run.state, run.last_event_at) == ("running", alone.now)
    [session] = run.sessions
    assert session.ended_at == alone.now
    assert session.last_progress_at == alone.now
    assert (session.ended_at or 0.0) - (session.started_at or 0.0) == pytest.approx(alone.elapsed_secs)
    assert run_of(alone, now=alone.now + 100.0).state == "lost"
    sessions = both(by)
    expected, run = run_of(*both(0.0)), run_of(*sessions, now=sessions[-1].now + 1.0)
    assert [restart.rewind_steps for restart in run.restarts] == [188]
    assert [restart.downtime_secs for restart in run.restarts] == pytest.approx([60.0])
    assert dict(run.goodput.secs) == pytest.approx(dict(expected.goodput.secs))


def test_on_another_machine_the_downtime_is_unknown(trainer: Any, run_of: RunOf) -> None:
    """Its clock may be behind: the order is that of the attempts, and no downtime is made up."""
    first = trainer("a").spend(12).ready().train(500)
    second = trainer("b", first.now + 60 - HOUR, attempt=2).spend(10).ready(0, **seen(first, None)).train(20)
    run = run_of(second, first, now=second.now + 1.0)
    assert [session.id for session in run.sessions] == ["a", "b"]
    [restart] = run.restarts
    assert (restart.rewind_steps, restart.downtime_secs) == (500, None)
    assert run.goodput.secs["infrastructure_recovery_from_disruption"] == 0.0
    assert run.goodput.wall_secs == pytest.approx(first.elapsed_secs + second.elapsed_secs + 1.0)


def test_records_of_earlier_versions_are_ordered_by_their_attempts(trainer: Any, run_of: RunOf) -> None:
    """Without the newer fields the attempts still say which session came first."""
    sessions = three(trainer, -HOUR, -2 * HOUR)
    later = ("previous_elapsed_secs", "previous_seen_secs", "run_started_at", "elapsed_secs")
    for session in sessions:
        session.file.events = [
            (
                at,
                replace(
                    mark, record=replace(mark.record, **{name: None for name in later if hasattr(mark.record, name)})
                ),
            )
            for at, mark in session.file.events
        ]
    run = run_of(*sessions)
    assert [session.id for session in run.sessions] == ["a", "b", "c"]
    assert [restart.rewind_steps for restart in run.restarts] == [188, 0]
    assert [restart.downtime_secs for restart in run.restarts] == [None, None]


def test_a_count_that_begins_again_comes_later(trainer: Any, run_of: RunOf) -> None:
    """Where somebody deleted the liveness file, attempts begin at 1 again: those sessions follow, by time."""
    before = three(trainer)
    again = trainer("d", before[-1].now + 500, attempt=1).spend(5).ready(800, run_started_at=before[-1].now + 500)
    after = trainer("e", again.now + 40, attempt=2).spend(5)
    after.ready(800, **seen(again, 40.0, run_started_at=again.started_at))
    run = run_of(after, *before, again)
    assert [session.id for session in run.sessions] == ["a", "b", "c", "d", "e"]


def test_a_session_that_died_while_starting_keeps_its_place(trainer: Any, run_of: RunOf) -> None:
    """Heartbeats hold the attempt, so a session without a session record keeps its place."""
    first = trainer("a").spend(12).ready().train(500)
    died = trainer("b", first.now + 60 - HOUR, attempt=2)
    died.phase = "restoring"
    died.spend(25)
    third = trainer("c", died.now + 5 + 2 * HOUR, attempt=3).spend(5)
    third.ready(0, **seen(died, 5.0, run_started_at=first.started_at)).train(10)
    run = run_of(third, died, first, now=third.now + 1.0)
    assert [session.id for session in run.sessions] == ["a", "b", "c"]
    assert run.restarts[1].downtime_secs == pytest.approx(5.0)


def test_another_writer_s_files_are_set_among_the_sessions_by_time(
    trainer: Any, events_file: Any, run_of: RunOf
) -> None:
    """What was there before the first session comes before it."""
    sessions = three(trainer, -HOUR)
    start = sessions[0].started_at - 4 * HOUR
    old = events_file("/run/events.out.tfevents.1.old", start).log("START", 1, start + 1)
    old.scalars("loss", range(1, 100), start + 2)
    run = run_of(*sessions, old, now=sessions[-1].now + 1.0)
    assert [session.id for session in run.sessions] == ["inferred-1", "a", "b", "c"]
    assert run.first_step == 1
