"""What a killed session did after its last heartbeat, as the session after it found in its liveness file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from supervisor_core.events.telemetry import DeathRecord, OpenStall
from supervisor_core.run.fold.end import CLOCKS_SECS
from supervisor_core.run.fold.run_fold import RunFold
from supervisor_core.run.model.run import Run

RunOf = Callable[..., Run]


@pytest.fixture
def resumed(trainer: Any, killed: Any) -> Callable[..., Any]:
    """Returns a function for the session after the killed one, with what its liveness file said: seven steps more."""

    def session(attempt: int = 2, **more: Any) -> Any:
        live = {"previous_outcome": "lost", "previous_step": 1195, "previous_seen_at": killed.now + 7.0}
        return trainer("b", killed.now + 60, attempt=attempt).spend(10).ready(1000, **{**live, **more}).train(300)

    return session


def test_steps_after_the_last_heartbeat_are_counted(killed: Any, resumed: Any, run_of: RunOf) -> None:
    """The rewind is what was really lost, the downtime begins with the last heartbeat, and no second is lost or won."""
    without = run_of(killed, resumed(previous_step=None, previous_seen_at=None))
    run = run_of(killed, resumed())
    (before,), (restart,) = without.restarts, run.restarts
    assert (before.from_step, before.rewind_steps) == (1187, 187)
    assert (restart.from_step, restart.rewind_steps) == (1195, 195)
    assert restart.downtime_secs == pytest.approx(before.downtime_secs - 7.0)
    assert run.steps_lost == 195
    assert run.sessions[0].last_step == 1195
    assert sum(run.goodput.secs.values()) == pytest.approx(without.goodput.wall_secs)
    wasted = run.goodput.secs["wasted_progress_from_disruption"]
    assert wasted == pytest.approx(187 + 7 + 5, abs=0.5)  # and half the time to the next heartbeat


def test_steps_after_the_last_record_were_no_save(killed: Any, run_of: RunOf) -> None:
    """The last phase that could be recorded on a full disk is often a save's: a session that did steps since has
    trained, and one that did none was in that phase."""
    killed.enter("checkpointing")
    before = run_of(killed).sessions[-1].activity_secs
    for step, bucket in ((1195, "productive"), (1187, "unproductive_checkpoint_save")):
        fold = RunFold("run")
        fold.update(killed.file.chunks())
        age = killed.elapsed_secs + 40.0
        fold.died(DeathRecord(session=killed.id, step=step, elapsed_secs=age))
        secs = fold.run(killed.now + 41.0).sessions[-1].activity_secs
        more = {name: value - before[name] for name, value in secs.items() if value != before[name]}
        assert more == {bucket: pytest.approx(40.0)}


def test_only_the_next_attempt_is_believed(killed: Any, resumed: Any, run_of: RunOf) -> None:
    """A file that speaks of another session than the one before says nothing about that one."""
    other = resumed(attempt=3)
    assert run_of(killed, other).restarts[0].rewind_steps == 187


def test_the_stop_record_of_a_session_counts_before_its_liveness(trainer: Any, run_of: RunOf) -> None:
    """Its stop record has the last word."""
    first = trainer("a").spend(12).ready().train(100).stop("signal")
    live = {"previous_outcome": "signal", "previous_step": 150, "previous_seen_at": first.now + 5.0}
    second = trainer("b", first.now + 60, attempt=2).spend(10).ready(100, **live).train(10)
    (restart,) = run_of(first, second).restarts
    assert (restart.from_step, restart.rewind_steps, restart.reason) == (100, 0, "signal")


def test_a_clock_that_jumped_makes_no_session_overlap_the_next(killed: Any, resumed: Any, run_of: RunOf) -> None:
    """A heartbeat that claims to be later than the next session's start ends the session there."""
    run = run_of(killed, resumed(previous_seen_at=killed.now + 3600.0))
    assert run.sessions[0].ended_at == run.sessions[1].started_at
    assert run.restarts[0].downtime_secs is None


def test_a_liveness_file_that_knows_less_takes_nothing_away(killed: Any, resumed: Any, run_of: RunOf) -> None:
    """An old heartbeat leaves the times of the events."""
    run = run_of(killed, resumed(previous_step=1100, previous_seen_at=killed.now - 80.0))
    assert run.restarts[0].rewind_steps == 187
    assert run.sessions[0].ended_at == pytest.approx(killed.now, abs=10.0)


def test_a_heartbeat_before_a_recovery_has_steps_that_it_took_back(killed: Any, resumed: Any, run_of: RunOf) -> None:
    """Killed between a recovery and the next heartbeat: what the file says was lost in the recovery, and not again."""
    killed.recover(1000)
    run = run_of(killed, resumed(previous_step=1188, previous_seen_at=killed.now - 0.5))
    assert (run.recoveries[0].rewind_steps, run.restarts[0].rewind_steps, run.steps_lost) == (188, 0, 188)
    later = run_of(killed, resumed(previous_step=1003, previous_seen_at=killed.now + 3.0))
    assert (later.restarts[0].from_step, later.steps_lost) == (1003, 188 + 3)


def test_steps_done_again_after_a_kill_have_a_bound(killed: Any, resumed: Any, run_of: RunOf) -> None:
    """It died before it wrote its liveness file again: the steps until then, at twice its rate, are the bound."""
    run = run_of(killed, resumed())
    (restart,) = run.restarts
    assert restart.rewind_steps == 195
    assert restart.rewind_steps_most == pytest.approx(195 + 2 * (10 + 1), abs=1)  # steps of a second
    assert (run.steps_lost, run.steps_lost_most) == (195, restart.rewind_steps_most)
    (without,) = run_of(killed, resumed(previous_step=None, previous_seen_at=None)).restarts
    assert without.rewind_steps == 187
    assert without.rewind_steps_most == pytest.approx(187 + 2 * (10 + 1), abs=1)


def test_an_exact_step_is_its_own_bound(killed: Any, resumed: Any, run_of: RunOf) -> None:
    """The progress page had the step that it reached: as many steps are done again, and none more."""
    run = run_of(killed, resumed(previous_step=1194, previous_step_exact=True))
    (restart,) = run.restarts
    assert (restart.from_step, restart.rewind_steps, restart.rewind_steps_most) == (1194, 194, 194)
    assert (run.steps_lost, run.steps_lost_most) == (194, 194)
    lower = run_of(killed, resumed(previous_step=1186, previous_step_exact=True))
    assert lower.restarts[0].rewind_steps == 186


def test_the_bound_holds_for_any_moment_of_death(trainer: Any, killed: Any, run_of: RunOf) -> None:
    """Whenever a session died after its last heartbeat: what it really did again lies between the two."""
    for alive_secs in (0.0, 3.0, 9.9):
        for speed in (0.5, 1.0, 2.0):
            really = 1195 + int(alive_secs * speed) - 1000
            live = {"previous_outcome": "lost", "previous_step": 1195, "previous_seen_at": killed.now + 7.0}
            second = trainer("b", killed.now + 60, attempt=2).spend(10).ready(1000, **live).train(10)
            (restart,) = run_of(killed, second).restarts
            assert restart.rewind_steps <= really <= restart.rewind_steps_most


def test_no_bound_is_above_what_the_downtime_allows(trainer: Any, killed: Any, run_of: RunOf) -> None:
    """The next session had begun by then."""
    soon = trainer("b", killed.now + 7.5, attempt=2).ready(
        1000, previous_outcome="lost", previous_step=1195, previous_seen_at=killed.now + 7.0
    )
    (restart,) = run_of(killed, soon).restarts
    assert restart.downtime_secs == pytest.approx(0.5)
    assert restart.rewind_steps_most == pytest.approx(195 + 1, abs=1)


def test_what_a_session_recorded_of_its_end_is_exact(trainer: Any, run_of: RunOf) -> None:
    """Least and most are the same after a stop record, and after a model that was found alive."""
    first = trainer("a").ready().train(100).stop("signal")
    second = trainer("b", first.now + 60, attempt=2).ready(90).train(100)
    third = trainer("c", second.now + 60, attempt=3).ready(120, adopted=True).train(10)
    run = run_of(first, second, third)
    assert [(item.rewind_steps, item.rewind_steps_most) for item in run.restarts] == [(10, 10), (0, 0)]
    assert (run.steps_lost, run.steps_lost_most) == (10, 10)


def test_a_session_that_recorded_no_step_has_no_bound(trainer: Any, run_of: RunOf) -> None:
    """Its rate is unknown."""
    first = trainer("a").spend(5).ready()
    (restart,) = run_of(first, trainer("b", first.now + 60, attempt=2).ready(0).train(5)).restarts
    assert (restart.rewind_steps, restart.rewind_steps_most) == (0, None)


HELD = OpenStall(
    phase="training", since=0.0, secs=60.0, step=1190, thread="MainThread", location="/x/train.py:8 step",
    stacks={"MainThread": ("/x/train.py:8 step",)}, timeout_secs=6.0, blocked_since=2.0,
)  # fmt: skip


@pytest.mark.parametrize("cuts", [(), (1,), (1, 2), range(40)])
def test_a_death_that_the_next_session_records_has_the_stall(killed: Any, cuts: Any) -> None:
    """It hung for a minute after its last step, which its own events do not show; wherever the file is cut."""
    elapsed = killed.now - killed.started_at + 63.0
    death = DeathRecord(session="a", step=1190, step_exact=True, elapsed_secs=elapsed, stall=HELD)
    following = type(killed)("b", killed.now + 120, attempt=2)
    following.file.record(death, 0, following.now)
    following.spend(10).ready(1000, previous_outcome="lost", previous_step=1190).train(300)
    fold = RunFold("run")
    fold.update([*killed.file.chunks(), *following.file.chunks(cuts)])
    run = fold.run(following.now)
    dead, (stall,), (restart,) = run.sessions[0], run.stalls, run.restarts
    assert (dead.outcome, dead.gone, dead.last_step, dead.ended_at) == ("lost", True, 1190, killed.now + 63.0)
    assert (stall.session, stall.location, stall.since, stall.until) == (
        "a", "/x/train.py:8 step", killed.now + 3.0, dead.ended_at,
    )  # fmt: skip
    assert (stall.blocked_since, stall.secs) == (killed.now + 5.0, 60.0)
    assert (restart.from_step, restart.rewind_steps, restart.rewind_steps_most) == (1190, 190, 190)
    assert run.goodput.secs["stall"] == pytest.approx(60.0, abs=0.5)  # and half a second, until its next sign of life
    assert restart.downtime_secs == pytest.approx(57.0)
    assert sum(run.goodput.secs.values()) == pytest.approx(following.now - killed.started_at)


@pytest.mark.parametrize("is_last", [True, False])
def test_an_exact_death_is_not_less_exact_by_what_the_liveness_file_says(killed: Any, is_last: bool) -> None:
    """Its restarter recorded the step that it reached; the next session records what the last heartbeat had."""
    elapsed = killed.now - killed.started_at + 7.5
    following = type(killed)("b", killed.now + 60, attempt=2)
    deaths = [
        DeathRecord(session="a", step=1194, step_exact=True, elapsed_secs=elapsed),
        DeathRecord(session="a", step=1150, elapsed_secs=elapsed - 2.0),
    ]
    for death in reversed(deaths) if is_last else deaths:
        following.file.record(death, 0, following.now)
    following.spend(10).ready(
        1000, previous_outcome="lost", previous_step=1190, previous_seen_at=killed.now + 7.0
    ).train(30)
    fold = RunFold("run")
    fold.update([*killed.file.chunks(), *following.file.chunks()])
    (restart,) = fold.run(following.now).restarts
    assert (restart.from_step, restart.rewind_steps, restart.rewind_steps_most) == (1194, 194, 194)


def test_nobody_died_long_after_that_was_recorded(killed: Any) -> None:
    """A record that gives a session an age of ages does not move its end into the far future."""
    following = type(killed)("b", killed.now + 120, attempt=2)
    following.file.record(DeathRecord(session="a", step=1190, elapsed_secs=999e9), 0, following.now)
    following.spend(10).ready(1000, previous_outcome="lost", previous_step=1190).train(300)
    fold = RunFold("run")
    fold.update([*killed.file.chunks(), *following.file.chunks()])
    dead = fold.run(following.now).sessions[0]
    assert dead.gone and dead.ended_at is not None
    assert killed.now <= dead.ended_at <= following.now + CLOCKS_SECS


def test_a_session_that_has_ended_did_not_die(trainer: Any) -> None:
    """Its stop record counts, and a death of a session that is not known says nothing."""
    ended = trainer("a").spend(12).ready().train(100).stop("signal")
    ended.file.record(DeathRecord(session="a", step=500, elapsed_secs=900.0, stall=HELD), 0, ended.now)
    ended.file.record(DeathRecord(session="other", step=500), 0, ended.now)
    fold = RunFold("run")
    fold.update(ended.file.chunks())
    run = fold.run(ended.now + 5.0)
    [session] = run.sessions
    assert (run.state, session.last_step, session.gone, run.stalls) == ("stopped", 100, False, ())
