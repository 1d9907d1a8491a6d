"""Where the wall time went: against scripted truths, and that it always sums to the whole."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from supervisor_core.run.fold.goodput import is_down
from supervisor_core.run.fold.run_fold import RunFold
from supervisor_core.run.model.run import BUCKETS, Run
from tests.cases import each

RunOf = Callable[..., Run]
POINT = 0.001
"""A tenth of a percentage point, as a share."""
WASTED, DOWNTIME = "wasted_progress_from_disruption", "infrastructure_recovery_from_disruption"


def shares(run: Run) -> dict[str, float]:
    """Each bucket's share of the wall time."""
    return {bucket: secs / run.goodput.wall_secs for bucket, secs in run.goodput.secs.items()}


def test_a_run_with_everything_in_it(trainer: Any, run_of: RunOf) -> None:
    """Start, steps, saves, evaluation, a stall, a freeze, a crash with steps to do again, downtime, a restore, a
    planned stop."""
    first = trainer("a").spend(60).ready()
    for _ in range(3):
        first.train(595, 2.0).save(blocked_secs=10.0).train(5, 2.0)
    first.enter("evaluating").spend(120)
    first.enter("training").train(101, 2.0)  # killed after step 1901; 1795 is the last on disk
    second = trainer("b", first.now + 300, attempt=2).spend(30)
    second.enter("restoring").spend(40)
    second.ready(1795).train(400, 2.0)
    since = second.now
    second.spend(700, moving=False).stall("begin", since)
    second.enter("training").train(100, 2.0).freeze(250).train(100, 2.0).stop("completed")
    run = run_of(first, second, now=second.now + 1e5)
    wall = second.now - first.started_at
    truth = {
        "productive": 3 * (1200 - 10) + 800 + 400,
        "program_startup": 60 + 30,
        "checkpoint_restore": 40,
        "unproductive_checkpoint_save": 30,
        WASTED: 106 * 2 - 10,
        DOWNTIME: 300,
        "other": 120,
        "stall": 700,
        "silent": 250,
        "at_risk": 0,
    }
    assert sum(truth.values()) == wall
    assert shares(run) == pytest.approx({name: secs / wall for name, secs in truth.items()}, abs=POINT)
    assert run.goodput.ratio == shares(run)["productive"]
    assert not run.goodput.inferred


@each("reason, gap", [("completed", 0), ("exhausted", 0), ("signal", 86400), ("requested", 86400)])
def test_the_time_after_a_completed_session_is_none_of_the_run(
    trainer: Any, run_of: RunOf, reason: str, gap: int
) -> None:
    """A training that was complete, and is continued a day later, was not down in between; one that was stopped was."""
    first = trainer("a").spend(10).ready().train(100, 1.0).stop(reason)
    second = trainer("b", first.now + 86400, attempt=2).spend(10).ready(100).train(100, 1.0).stop("completed")
    run = run_of(first, second, now=second.now + 1e5)
    assert run.goodput.wall_secs == pytest.approx(220 + gap)
    assert run.goodput.secs[DOWNTIME] == run.restarts[0].downtime_secs == pytest.approx(gap)
    assert run.goodput.ratio == pytest.approx(200 / (220 + gap))
    assert run.goodput.booked_secs[DOWNTIME] == pytest.approx(gap)


@each("restored", [100, 480, 950])
def test_what_is_wasted_is_what_is_done_again(trainer: Any, run_of: RunOf, restored: int) -> None:
    """Steps of changing speed: the seconds of those after the restored step are wasted, interpolated between beats."""
    first = trainer("a").spend(10).ready().train(500, 0.4).train(500, 3.7).spend(5)
    second = trainer("b", first.now + 20).spend(10).ready(restored).train(2000, 0.5)
    slow = min(1000 - restored, 500) * 3.7 + max(0, 500 - restored) * 0.4 + 5
    run = run_of(first, second)
    assert shares(run)[WASTED] == pytest.approx(slow / run.goodput.wall_secs, abs=POINT)


@each("restored", [100, 480, 950, 1000])
def test_what_a_recovery_takes_back_is_wasted(trainer: Any, run_of: RunOf, restored: int) -> None:
    """Steps that a session does again itself, after a recovery, are wasted like those after a restart; the time of the
    recovery goes to its phase, and no step is lost twice."""
    session = trainer().spend(10).ready().train(500, 0.4).train(500, 3.7).beat().spend(3)  # in the midst of a step
    session.recover(restored, lasts=30.0).train(1200, 0.5).stop()
    slow = min(1000 - restored, 500) * 3.7 + max(0, 500 - restored) * 0.4 + 3
    run = run_of(session)
    goodput = run.goodput
    assert goodput.secs[WASTED] == pytest.approx(slow, abs=2.5)
    assert goodput.secs["productive"] == pytest.approx(500 * 0.4 + 500 * 3.7 + 3 + 600 - slow, abs=2.5)
    assert goodput.secs["checkpoint_restore"] == 30.0
    assert sum(goodput.secs.values()) == goodput.wall_secs == session.now - session.started_at
    assert (run.steps_lost, run.recoveries[0].rewind_steps, run.step) == (
        1000 - restored,
        1000 - restored,
        restored + 1200,
    )


def test_recoveries_and_restarts_one_upon_the_other(trainer: Any, run_of: RunOf) -> None:
    """A recovery of a recovery, one that goes back behind the session's start, a restart after it: each step that was
    done again is wasted once for each time it was done before."""
    first = trainer("a").ready().train(1000).beat()
    second = trainer("b", first.now + 100, attempt=2).ready(900).train(300)  # 100 of the first one's again
    second.recover(1100).train(200).recover(1100).train(50)  # 100 and 200 of its own
    second.recover(800).train(20).beat()  # 100 more of the first one's; and, of its own, 900 to 1100, and those 50
    third = trainer("c", second.now + 100, attempt=3).ready(810).train(100)  # 10
    run = run_of(first, second, third)
    lost = [100, 100, 200, 350, 10]
    assert [item.rewind_steps for item in run.restarts] == [lost[0], lost[4]]
    assert [item.rewind_steps for item in run.recoveries] == lost[1:4]
    assert run.steps_lost == sum(lost)
    assert run.goodput.secs[WASTED] == pytest.approx(sum(lost), abs=12)
    assert run.goodput.secs["productive"] == pytest.approx(800 + 10 + 100, abs=12)
    assert run.goodput.booked_secs[WASTED] == run.goodput.secs[WASTED]


def test_a_recovery_to_an_unknown_step_wastes_nothing(trainer: Any, run_of: RunOf) -> None:
    """Where the resumed step is unknown, nothing is taken back."""
    run = run_of(trainer().ready().train(100).recover(None).train(100).stop())
    assert (run.goodput.secs[WASTED], run.steps_lost, run.recoveries[0].rewind_steps, run.step) == (0.0, 0, None, 200)


def test_a_model_that_outlived_its_chief_loses_nothing(trainer: Any, run_of: RunOf) -> None:
    """A chief that finds its model alive goes on from where it stands: no steps are lost, neither its predecessor's,
    whose last seconds count as kept too, nor those that workers did in between."""
    first = trainer("a").ready().train(1000)
    second = trainer("b", first.now + 60, attempt=2).spend(5).ready(1040, adopted=True).train(100)
    run = run_of(first, second)
    (restart,) = run.restarts
    assert (restart.from_step, restart.to_step, restart.rewind_steps) == (999, 1040, 0)
    assert (run.sessions[1].first_step, run.sessions[1].adopted, run.steps_lost) == (1040, True, 0)
    assert (run.goodput.secs[WASTED], run.goodput.secs[DOWNTIME]) == (0.0, 60 - 5)
    assert run.goodput.booked_secs["productive"] == pytest.approx(1000 + 5 + 100, abs=10)


def test_an_adopted_model_may_stand_before_the_reported_step(trainer: Any, run_of: RunOf) -> None:
    """A predecessor that reported a few steps too many has not lost them: the model was adopted."""
    first = trainer("a").ready().train(1000)
    second = trainer("b", first.now + 60, attempt=2).ready(990, adopted=True).train(100)
    run = run_of(first, second)
    assert (run.restarts[0].rewind_steps, run.steps_lost, run.goodput.secs[WASTED]) == (0, 0, 0.0)
    third = trainer("c", second.now + 60, attempt=3).ready(500).train(10)
    assert run_of(first, second, third).goodput.secs[WASTED] == pytest.approx(500 + 100, abs=20)


def test_a_planned_stop_with_a_checkpoint_wastes_nothing(trainer: Any, run_of: RunOf) -> None:
    """A session that went on exactly where the one before it stopped loses no second."""
    first = trainer("a").ready().train(995).spend(0.7).stop("signal")
    run = run_of(first, trainer("b", first.now + 5).ready(995).train(10))
    assert (run.goodput.secs[WASTED], run.steps_lost) == (0.0, 0)


def test_a_killed_session_lived_half_a_heartbeat_longer(trainer: Any, run_of: RunOf) -> None:
    """A session dies between two heartbeats: half of what was left until the next counts as lost work, not as downtime;
    one that ended as planned is believed to the second."""
    first = trainer("a").ready().train(1000)
    second = trainer("b", first.now + 60, heartbeat_secs=0.0).ready(1000).train(10)
    third = trainer("c", second.now + 60).ready(1010).train(10).stop("signal")
    fourth = trainer("d", third.now + 2).ready(1020)
    goodput = run_of(first, second, third, fourth).goodput
    unheard = second.now - second.file.events[-1][0]
    assert (goodput.secs[WASTED], goodput.secs[DOWNTIME]) == (5.0, 60 - 5 + 60 + unheard + 2)


def test_a_dead_run_is_down_until_it_is_given_up(trainer: Any, run_of: RunOf) -> None:
    """While it may be alive, the time since it was last seen goes to its phase. Once it is lost that time is downtime,
    for a day; then it ends where it was last seen, until a restart follows."""
    session = trainer().ready().train(1000)
    alive = run_of(session, now=session.now + 8)
    assert alive.goodput.secs["productive"] == pytest.approx(1008)
    lost = [run_of(session, now=session.now + later) for later in (31, 3600, 86401, 1103 * 86400)]
    assert [run.state for run in lost] == ["lost"] * 4
    assert [run.goodput.secs[DOWNTIME] for run in lost] == [pytest.approx(31), pytest.approx(3600), 0.0, 0.0]
    assert [run.goodput.wall_secs for run in lost] == [pytest.approx(secs) for secs in (1031, 4600, 1000, 1000)]
    assert all(run.advice == lost[0].advice and run.goodput.booked_secs[DOWNTIME] == 0.0 for run in lost)
    assert run_of(session, now=session.now + 31).goodput.booked_secs["productive"] == pytest.approx(1000)
    resumed = trainer("b", session.now + 3600, attempt=2).ready(999).train(10)
    assert run_of(session, resumed).goodput.secs[DOWNTIME] == pytest.approx(3600, abs=10)


def test_an_inferred_goodput_says_so(events_file: Any, run_of: RunOf) -> None:
    """Without telemetry the use of a session's time is unknown: there is no ratio, and no productive second."""
    first = events_file("/run/events.out.tfevents.1000.host", 1000.0).scalars("loss", range(101), 1000.0, 10.0)
    second = events_file("/run/events.out.tfevents.3000.host", 3000.0).scalars("loss", range(50, 151), 3000.0, 10.0)
    goodput = run_of(first, second, now=1e9).goodput
    assert goodput.inferred
    assert goodput.ratio is None
    assert {bucket: secs for bucket, secs in goodput.secs.items() if secs} == {
        "other": pytest.approx(1500),
        WASTED: pytest.approx(500),
        DOWNTIME: pytest.approx(1000),
    }


def unused_secs(run: Run) -> float:
    """Return the time between completed sessions and the next starts."""
    found, until = 0.0, run.sessions[0].started_at
    for before, after in pairwise(run.sessions):
        until = max(until, before.ended_at)
        found += max(0.0, after.started_at - until) if before.outcome == "completed" else 0.0
    return found


STRETCH = st.tuples(
    st.sampled_from(["train", "save", "stall", "freeze", "evaluating", "checkpointing", "clock", "beat", "recover"]),
    st.floats(0, 500, allow_subnormal=False),
)
SESSION = st.tuples(st.floats(-50, 500), st.booleans(), st.booleans(), st.lists(STRETCH, max_size=5))


@settings(max_examples=120)
@example(sessions=[(0.0, False, False, [("save", 188.50077350576194), ("train", 272.0), ("recover", 5.0)])], later=0.0)
@given(sessions=st.lists(SESSION, max_size=4), later=st.floats(-100, 1000))
def test_buckets_sum_to_the_wall_time(sessions: Any, later: float, trainer: Any) -> None:
    """Whatever happens, clocks that jump and sessions that overlap included: no bucket is below 0, the sum is the wall
    time exactly, a session's own sum to its length; and, with steady clocks, no counter ever falls."""
    fold, now, step = RunFold("run"), 1_700_000_000.0, 0
    before = dict.fromkeys(BUCKETS, 0.0)
    steady = all(gap >= 0 and "clock" not in dict(stretches) for gap, _, _, stretches in sessions)
    for index, (gap, ends, adopts, stretches) in enumerate(sessions):
        session = trainer(str(index), now + gap, attempt=index + 1, heartbeat_secs=40.0).spend(3)
        session.ready(step + 3 if adopts else max(0, step - 7), adopted=adopts)
        for kind, secs in stretches:
            if kind == "train":
                session.train(5, secs / 5)
            elif kind == "save":
                session.save(blocked_secs=secs / 10)
            elif kind == "stall":
                session.spend(secs, moving=False)
            elif kind == "freeze":
                session.freeze(secs)
            elif kind == "clock":
                session.now -= secs / 10
            elif kind == "recover":
                session.recover(max(0, session.step - int(secs) % 13), lasts=secs / 10)
            elif kind == "beat":
                session.beat()
            else:
                session.enter(kind).spend(secs).enter("training")
        if ends:
            session.stop()
        step, now = session.step, session.now
        for chunk in session.file.chunks(range(1, len(session.file.events))):
            fold.update([chunk])
            booked = fold.run(now).goodput.booked_secs
            assert not steady or all(booked[bucket] >= before[bucket] for bucket in BUCKETS)
            before = dict(booked)
    run = fold.run(now + later)
    goodput = run.goodput
    assert min(goodput.secs.values()) >= 0
    assert sum(goodput.secs.values()) == goodput.wall_secs
    if run.sessions:
        is_alive = run.sessions[-1].outcome == "running"
        ends_at = max(session.ended_at or 0.0 for session in run.sessions)
        wall = max(ends_at, now + later if is_alive or is_down(run.state, run.sessions[-1], now + later) else 0.0)
        assert goodput.wall_secs == pytest.approx(wall - run.sessions[0].started_at - unused_secs(run), abs=1e-3)
    for session in run.sessions:
        assert sum(session.activity_secs.values()) == pytest.approx(session.ended_at - session.started_at, abs=1e-3)
