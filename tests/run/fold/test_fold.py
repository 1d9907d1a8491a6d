"""Runs with telemetry: sessions, restarts, checkpoints, stalls; in any order and in any pieces."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor_core.events.chunk import Chunk
from supervisor_core.events.telemetry import RecoveryRecord
from supervisor_core.metrics.page import run_status
from supervisor_core.run.fold.run_fold import RunFold
from supervisor_core.run.model.run import BUCKETS, Recovery, Run
from supervisor_core.run.status import StallStatus
from tests.cases import each

RunOf = Callable[..., Run]


def test_a_session_is_as_it_was_recorded(killed: Any, run_of: RunOf) -> None:
    """Steps, phase, times and the configured intervals are those of its records."""
    [session] = run_of(killed).sessions
    assert (session.id, session.attempt, session.outcome, session.inferred) == ("a", 1, "running", False)
    assert (session.first_step, session.last_step, session.steps, session.phase) == (0, 1187, 1187, "training")
    assert (session.started_at, session.ended_at) == (killed.started_at, killed.now)
    assert (session.checkpoint_interval_secs, session.heartbeat_secs, session.facade) == (600.0, 10.0, "Supervisor")
    assert sum(session.activity_secs.values()) == pytest.approx(1200)
    assert session.files == (killed.file.path,)


def test_a_restart_is_known_to_the_step(killed: Any, resumed: Any, run_of: RunOf) -> None:
    """A session that was killed, and one that goes on from its checkpoint: rewind, downtime, lost steps, all exact."""
    run = run_of(killed, resumed)
    [restart] = run.restarts
    assert (restart.from_session, restart.to_session, restart.reason) == ("a", "b", "lost")
    assert (restart.from_step, restart.to_step, restart.rewind_steps) == (1187, 1000, 187)
    assert (restart.at, restart.downtime_secs, restart.inferred) == (resumed.started_at, 60.0, False)
    assert (run.steps_lost, run.step, run.state, run.inferred) == (187, 1299, "running", False)
    assert [(session.attempt, session.outcome) for session in run.sessions] == [(1, "lost"), (2, "running")]


def test_the_stop_record_has_the_last_word_on_the_step(trainer: Any, run_of: RunOf) -> None:
    """A heartbeat counts steps as they end, and may be one ahead; a stop record was written when all had ended."""
    first = trainer("a").spend(5).ready().train(100)
    first.step += 1
    first.enter("stopping")
    first.step -= 1
    first.save().stop("signal", signal="SIGTERM")
    second = trainer("b", first.now + 30, attempt=2).spend(5).ready(100).train(10)
    run = run_of(first, second)
    assert run.sessions[0].last_step == 100
    assert (run.restarts[0].rewind_steps, run.steps_lost) == (0, 0)
    assert run_of(first).step == 100


def test_scalars_after_the_last_heartbeat_count_as_steps(killed: Any, run_of: RunOf) -> None:
    """The last step is that of the last summary, where it is later than the last heartbeat."""
    killed.file.scalar("loss", 1194, killed.now + 7)
    [session] = run_of(killed).sessions
    assert (session.last_step, session.ended_at) == (1194, killed.now + 7)


def test_a_tag_that_counts_something_else_moves_no_step(trainer: Any, run_of: RunOf) -> None:
    """Scalars by examples seen, which run ahead of the heartbeats' steps, say nothing of the step."""
    session = trainer().spend(5).ready()
    session.file.scalar("by_examples", 6400, session.now)
    session.train(100)
    session.file.scalar("by_examples", 12800, session.now).scalar("loss", 99, session.now)
    assert run_of(session).sessions[0].last_step == 99


def test_a_session_killed_before_it_recorded_a_step_has_its_scalars_steps(
    trainer: Any, events_file: Any, run_of: RunOf
) -> None:
    """START gives the first step of a new model, the scalars its last, though no heartbeat has a step."""
    session = trainer().spend(3).ready()
    session.file.events = [
        (at, replace(mark, record=replace(mark.record, step=None)) if hasattr(mark.record, "phase") else mark)
        for at, mark in session.file.events
    ]
    session.file.log("START", 0, session.now).scalars("loss", range(1, 8), session.now)
    [found] = run_of(session).sessions
    assert (found.first_step, found.last_step, found.inferred) == (0, 7, False)


def test_two_sessions_in_one_file_are_two(killed: Any, resumed: Any, run_of: RunOf) -> None:
    """A writer that is used for two sessions, one after the other, shows both."""
    apart = run_of(killed, resumed)
    killed.file.scalar("loss", 1187, killed.now)
    killed.file.events.extend(resumed.file.scalar("loss", 1301, resumed.now).events)
    run = run_of(killed)
    assert [(session.id, session.first_step) for session in run.sessions] == [("a", 0), ("b", 1000)]
    assert run.sessions[1].last_step == 1301
    assert run.restarts == apart.restarts


def test_what_is_finished_is_not_made_again(killed: Any, resumed: Any, fold_of: Any) -> None:
    """A look after new events of the last session hands out the earlier sessions' very parts."""
    fold = fold_of(killed)
    chunks = resumed.file.chunks([5, 25])
    fold.update(chunks[:1])
    before = fold.run(resumed.now, lambda path: True)
    fold.update(chunks[1:])
    after = fold.run(resumed.now + 1, lambda path: True)
    assert len(after.sessions[1].files) == 1
    assert after.sessions[1] != before.sessions[1]
    assert after.sessions[0].activity_secs is before.sessions[0].activity_secs
    assert all(new is old for new, old in zip(after.checkpoints, before.checkpoints, strict=True))


def test_a_session_that_died_while_starting_is_one(killed: Any, trainer: Any, run_of: RunOf) -> None:
    """Heartbeats without a session record make a session; its start is reckoned back, and no step is lost by it."""
    died = trainer("b", killed.now + 30, attempt=2)
    died.phase = "restoring"
    died.spend(25)
    resumed = trainer("c", died.now + 40, attempt=3).spend(5).ready(1000).train(10)
    run = run_of(killed, died, resumed)
    assert [session.id for session in run.sessions] == ["a", "b", "c"]
    assert run.sessions[1].started_at == pytest.approx(died.started_at)
    assert [restart.rewind_steps for restart in run.restarts] == [None, 187]
    assert run.steps_lost == 187
    assert run.restarts[1].from_step == 1187


def test_what_the_liveness_file_knew_beats_a_lost_stop_record(killed: Any, trainer: Any, run_of: RunOf) -> None:
    """A stop record that never reached the disk is made up for by what the next session found in the liveness file."""
    after = trainer("b", killed.now + 30, attempt=2).spend(5).ready(1000, previous_outcome="signal")
    assert run_of(killed, after).sessions[0].outcome == "signal"


def test_checkpoints_are_those_of_the_records_once(killed: Any, run_of: RunOf) -> None:
    """The standard CHECKPOINT event of the same save adds nothing; successful and failed saves are distinguished."""
    killed.file.log("CHECKPOINT", 1000, killed.now, "/run/model.ckpt-1000")
    killed.save(error="OSError: no space left")
    run = run_of(killed)
    assert [(saved.step, saved.ok, saved.path) for saved in run.checkpoints] == [
        (500, True, "/run/model.ckpt-500"),
        (1000, True, "/run/model.ckpt-1000"),
        (1188, False, None),
    ]
    assert run.checkpoints[0].secs == 2.0
    assert (run.sessions[0].saves, run.sessions[0].save_failures) == (3, 1)
    assert run.session_logs == {"START": 0, "CHECKPOINT": 1, "STOP": 0}


def test_checkpoints_are_joined_with_what_is_on_disk(killed: Any, resumed: Any, fold_of: Any) -> None:
    """A checkpoint knows whether its files are there; one that was written over is gone."""
    resumed.step = 500
    resumed.save()
    there = {"/run/model.ckpt-500"}
    fold = fold_of(killed, resumed)
    run = fold.run(resumed.now, lambda path: path in there)
    assert [(saved.session, saved.on_disk) for saved in run.checkpoints] == [("a", False), ("a", False), ("b", True)]
    there.clear()
    assert not any(saved.on_disk for saved in fold.run(resumed.now, lambda path: path in there).checkpoints)
    assert {saved.on_disk for saved in fold.run(resumed.now).checkpoints} == {None}


def test_a_stall_has_a_begin_and_an_end(trainer: Any, run_of: RunOf) -> None:
    """Begin and end are joined; the stacks are those of the begin."""
    session = trainer().ready().train(100)
    since = session.now
    session.spend(310, moving=False).stall("begin", since).spend(90, moving=False)
    assert run_of(session).stalls[0].until is None
    session.stall("end", since).train(1)
    [stall] = run_of(session).stalls
    assert (stall.since, stall.until, stall.secs, stall.step) == (since, since + 400, 400, 100)
    assert stall.stacks == {"MainThread": ("train.py:1 main",)}


@each("same_frames", [True, False])
def test_a_stall_has_a_place_and_a_second_look(same_frames: bool, trainer: Any, run_of: RunOf) -> None:
    """The record of the second look keeps the stall open, and adds whether the thread has moved, and what it did; a
    later stall has a look of its own."""
    session = trainer().ready().train(100)
    since = session.now
    place = {"thread": "MainThread", "location": "/x/train.py:1 main"}
    session.spend(310, moving=False).stall("begin", since, **place).spend(10, moving=False)
    assert run_of(session).stalls[0].same_frames is None
    session.stall("lasts", since, same_frames=same_frames, activity="waits", **place)
    run = run_of(session)
    [stall] = run.stalls
    assert (stall.until, stall.thread, stall.location) == (None, "MainThread", "/x/train.py:1 main")
    assert (stall.same_frames, stall.activity) == (same_frames, "waits")
    assert stall.stacks == {"MainThread": ("train.py:1 main",)}
    assert run.state == "stalled"
    assert run_status(run, session.now).stall == StallStatus(
        phase="training",
        thread="MainThread",
        location="train.py:1 in main",
        activity="waits" if same_frames else None,
    )
    session.stall("end", since, **place).train(1)
    later = session.now
    run = run_of(session.spend(310, moving=False).stall("begin", later))
    assert [(stall.same_frames, stall.activity) for stall in run.stalls] == [(same_frames, "waits"), (None, None)]
    session.stall("end", later).train(1)
    assert run_status(run_of(session), session.now).stall is None


def test_a_second_look_alone_is_no_stall(trainer: Any, run_of: RunOf) -> None:
    """Where the record of the begin was lost there is nothing to add to."""
    session = trainer().ready().train(100)
    assert run_of(session.stall("lasts", session.now, same_frames=True)).stalls == ()


def test_a_stall_ends_with_its_session(trainer: Any, run_of: RunOf) -> None:
    """A stall without an end record ends with the last event of its session."""
    session = trainer().ready().train(100)
    since = session.now
    session.spend(310, moving=False).stall("begin", since)
    after = trainer("b", session.now + 60).spend(5).ready(90)
    [stall] = run_of(session, after).stalls
    assert stall.until == since + 310


@pytest.mark.parametrize("part", [0.1, 0.5, 0.97])
def test_a_session_goes_on_in_another_file(killed: Any, run_of: RunOf, events_file: Any, part: float) -> None:
    """After a reopening the session is one, with the records of both files: its recoveries and its workers too."""
    killed.recover(1000).train(30).recover(1000)
    killed.workers = ({"name": "worker:1", "state": "running", "started_at": 5.0},)
    first = killed.train(30).file
    cut = int(len(first.events) * part)
    second = events_file(first.path + ".1", first.events[cut][0], first.events[cut:])
    whole, found = run_of(killed), run_of(second, replace(first, events=first.events[:cut]))
    (session,) = found.sessions
    assert session.files == (first.path, second.path)
    assert session.recoveries == 2
    assert replace(found, sessions=(replace(session, files=(first.path,)),)) == whole


def test_a_recovery_is_a_restart_within_the_session(killed: Any, run_of: RunOf) -> None:
    """When and how long, from which step to which, from what, and why, as recorded; no restart, no other session."""
    killed.recover(1000, losses=2).train(5).recover(None)
    run = run_of(killed)
    first, second = run.recoveries
    assert first == Recovery(
        session="a",
        at=killed.now - 5 - 12,
        secs=12.0,
        error="UnavailableError: gone",
        losses=2,
        step=1188,
        restored_step=1000,
        restored_checkpoint="/run/model.ckpt-1000",
    )
    assert (second.step, second.restored_step, second.rewind_steps, second.losses) == (1005, None, None, 1)
    assert (len(run.sessions), run.restarts, run.sessions[0].recoveries) == (1, (), 2)


def test_a_recovery_may_hold_anything(killed: Any, run_of: RunOf) -> None:
    """Fields of the wrong type and below 0 count as missing, but for the error, and the recovery still counts."""
    odd: dict[str, Any] = {"error": 7, "secs": None, "losses": -1, "step": "x", "restored_checkpoint": ()}
    killed.recover(None, **odd).file.record(RecoveryRecord(session="a", error="E", secs=-3.0), 1188, killed.now)
    found, another = run_of(killed).recoveries
    assert another.secs == 0.0
    assert (found.error, found.secs, found.losses, found.step, found.restored_checkpoint) == (
        "7",
        0.0,
        1,
        None,
        None,
    )


def test_a_session_is_where_its_recovery_took_it_back_to(killed: Any, trainer: Any, run_of: RunOf) -> None:
    """Scalars from before a recovery do not show the present step, those written since do; a restart
    afterwards loses only what was done since."""
    killed.enter("restoring").file.scalars("loss", range(1180, 1188), killed.now)
    killed.file.record(RecoveryRecord(session="a", error="E", restored_step=1000), 1000, killed.now)
    killed.step = 1000
    killed.enter("training")
    assert run_of(killed).step == 1000
    killed.file.scalars("loss", range(1000, 1006), killed.now)
    assert (run_of(killed).step, run_of(killed).sessions[0].last_step) == (1005, 1005)
    killed.train(20).beat()
    run = run_of(killed, trainer("b", killed.now + 60, attempt=2).ready(1000))
    assert [(item.from_step, item.rewind_steps) for item in run.restarts] == [(1020, 20)]


@pytest.mark.parametrize("step", [0, None])
def test_a_step_reported_before_training_resumes_is_ignored(killed: Any, run_of: RunOf, step: Any) -> None:
    """A heartbeat that comes between the recovery's record and the new step has the old one: where the model is now is
    what the record says, and, where that says nothing, the heartbeats once training goes on."""
    killed.enter("restoring").file.record(RecoveryRecord(session="a", error="E", restored_step=step), 0, killed.now)
    killed.beat()
    killed.step = 0
    killed.enter("training").train(20).beat()
    assert run_of(killed).step == 20


def test_a_session_says_whether_it_kept_the_model(trainer: Any, run_of: RunOf) -> None:
    """Adopted is what its record calls so, and nothing else."""
    found = [run_of(trainer().ready(7, adopted=value)).sessions[0].adopted for value in (True, False, "yes", None)]
    assert found == [True, False, False, False]


def test_a_file_that_is_read_again_replaces_its_records(killed: Any, trainer: Any, fold_of: Any) -> None:
    """Of a replaced file only the present events count; a deleted file has none."""
    fold = fold_of(killed)
    other = trainer("b").ready().train(5)
    other.file.path = killed.file.path
    fold.update(other.file.chunks())
    assert [session.id for session in fold.run(other.now).sessions] == ["b"]
    fold.update([Chunk(path=killed.file.path, from_start=True)])
    assert fold.run(other.now).sessions == ()


def test_nothing_is_a_run_too(run_of: RunOf) -> None:
    """A run without events is unknown, and every value is there."""
    run = run_of()
    assert (run.state, run.sessions, run.step, run.goodput.wall_secs, run.goodput.ratio) == (
        "unknown",
        (),
        None,
        0,
        None,
    )
    assert set(run.goodput.secs) == {*BUCKETS, "at_risk"}
    assert run.at_risk is None


@settings(max_examples=40)
@given(data=st.data())
def test_order_and_pieces_change_nothing(data: Any, trainer: Any, events_file: Any) -> None:
    """However the files are cut, and whichever comes first, the run is the same."""
    first = trainer("a").spend(12).ready().train(50, 2.0).save().train(7)
    first.file.scalars("loss", range(0, 57), first.now)
    second = trainer("b", first.now + 40).spend(25)
    third = trainer("c", second.now + 9).spend(7).ready(50)
    third.workers = ({"name": "worker:1", "state": "running", "started_at": 5.0},)
    third.train(20).recover(60).train(20).stop("signal")
    foreign = events_file("/run/events.out.tfevents.1.eval", first.now).scalars("eval", [10, 20, 5, 30], first.now)
    older = events_file("/run/events.out.tfevents.1699990000.host", 1_699_990_000.0)
    older.log("CHECKPOINT", 0, 1_699_990_001.0, "model.ckpt").log("START", 1, 1_699_990_002.0)
    older.scalars("loss", [1, 5, 9, 4, 5], 1_699_990_003.0)
    files = [first.file, second.file, third.file, foreign, older]
    whole = RunFold("run")
    for file in files:
        whole.update(file.chunks())
    queues = [
        file.chunks(data.draw(st.lists(st.integers(1, len(file.events)), max_size=4), label=file.path))
        for file in files
    ]
    pieces = RunFold("run")
    while queues := [queue for queue in queues if queue]:
        pieces.update([data.draw(st.sampled_from(queues)).pop(0)])
        if data.draw(st.booleans()):
            pieces.run(third.now)
    assert pieces.run(third.now + 5) == whole.run(third.now + 5)
