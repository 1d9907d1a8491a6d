"""One session from begin to end: what is written, what is held, what the next one knows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from supervisor_core.base.errors import LogdirInUseError
from supervisor_core.base.options import Options
from supervisor_core.engine.recorder import StopInfo
from supervisor_core.engine.session_recorder import SessionRecorder
from supervisor_core.events.chunk import Chunk, TelemetryMark
from supervisor_core.events.file_writer import FileWriter
from supervisor_core.events.telemetry import (
    CheckpointRecord,
    RecoveryRecord,
    ServiceInterval,
    ThreadStatus,
    WorkerStatus,
)
from supervisor_core.metrics.table import RUN_METRICS
from supervisor_core.run.fold.advice import Costs
from supervisor_core.run.fold.run_fold import RunFold
from supervisor_core.run.watch.liveness import chief_path
from tests.story.holds import edit, peek

RUN_INFO = next(metric for metric in RUN_METRICS if metric.name == "supervisor_run_info")


def recover(run, error: str) -> None:
    """Lose the model at step 100, and go on from step 90."""
    facts = {"session": run.session_id, "error": error, "step": 100, "restored_step": 90}
    run.recovered(RecoveryRecord(**facts, restored_checkpoint="model.ckpt-90", secs=1.0))


def test_a_session_says_who_it_is_and_how_it_ended(begin, writer) -> None:
    """Session and stop records have the same id, and are durable before the call returns."""
    run = begin(checkpoint_interval_secs=600)
    run.ready(services=(ServiceInterval(name="checkpoint", interval_secs=600),))
    run.end(StopInfo(reason="exhausted", final_checkpoint="model.ckpt-7", final_checkpoint_step=7))
    (session,), (stop,) = writer.of("session"), writer.of("stop")
    assert (session.session, session.attempt, session.facade) == (run.session_id, 1, "Test")
    assert session.services == (ServiceInterval(name="checkpoint", interval_secs=600),)
    assert (stop.session, stop.reason, stop.final_checkpoint_step) == (run.session_id, "exhausted", 7)
    assert writer.synced == ["session", "stop"]


@pytest.mark.parametrize("address", [":0", None])
def test_a_session_says_where_it_is_scraped(begin, writer, address: str | None) -> None:
    """With the port that it has got: so an exporter can list the trainings of its machine."""
    run = begin(Options(metrics_address=address))
    run.ready()
    (session,) = writer.of("session")
    assert session.metrics_address == (None if address is None else run.metrics_url.split("/")[2])
    run.end(StopInfo(reason="completed"))
    run.close(0.0)


def test_a_session_says_whose_it_is(begin, writer, monkeypatch: pytest.MonkeyPatch) -> None:
    """In its own metrics from the start, in its record once it is ready: until then the launcher may say more."""
    monkeypatch.setenv("SUPERVISOR_LABELS", "team=vision,my-team=x")
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    run = begin(Options(labels={"project": "digits"}))
    labels = run.status().labels
    assert (labels["team"], labels["project"], labels["job_id"], "my-team" in labels) == (
        "vision",
        "digits",
        "4711",
        False,
    )
    monkeypatch.setenv("WORLD_SIZE", "4")
    run.ready()
    (session,) = writer.of("session")
    assert (session.labels, session.world_size) == (labels, 4)
    (info,) = (dict(sample.labels) for sample in RUN_INFO.read(run.status(), 0.0))
    assert info["team"] == "vision" and info["world_size"] == "4"


def test_a_session_ends_once(begin, writer) -> None:
    """Whoever ends it first, loop or signal, says how."""
    run = begin()
    run.end(StopInfo(reason="signal"))
    run.end(StopInfo(reason="error"))
    assert [stop.reason for stop in writer.of("stop")] == ["signal"]
    assert run.ended


def test_the_next_session_knows_the_one_before(begin, writer) -> None:
    """Attempt, how it ended, and how many steps are done again, in the record and in the metrics."""
    run = begin()
    run.progress.step_read(100)
    run.end(StopInfo(reason="error"))
    run = begin()
    run.ready(restored_checkpoint="model.ckpt-90", restored_step=90)
    session = writer.of("session")[-1]
    assert (session.attempt, session.previous_outcome, session.restored_step) == (2, "error", 90)
    assert (session.previous_step, session.previous_seen_at) == (100, pytest.approx(session.started_at, abs=60))
    status = run.status()
    assert (status.session.attempt, status.restarts, status.steps_lost, status.global_step) == (2, {"error": 1}, 10, 90)


def test_the_next_session_knows_what_saves_and_steps_have_cost(begin, clock, tmp_path: Path) -> None:
    """Over all earlier sessions, so that the advice is for the run; not after one with unknown costs."""
    for session in (1, 2):
        run = begin(clock=clock)
        run.stop_ticks()  # a sample books what a save is taken from
        run.enter("training")
        for _ in range(10):
            clock.now += 4.0
            run.progress.run_ended(True, clock.now - 4.0, clock.now)
        run.saved(
            CheckpointRecord(session=run.session_id, trigger="timer", path="p", step=1, secs=3.0, blocked_secs=0.5)
        )
        costs = run.run_costs
        assert costs == Costs(
            trained_secs=39.5 * session,
            failures=session - 1,
            saves=session,
            save_secs=3.0 * session,
            blocked_secs=0.5 * session,
        )
        run.end(StopInfo(reason="error"))
    edit(tmp_path, costs=None)
    assert begin().run_costs is None


def test_records_have_durations_of_the_monotonic_clock(begin, writer, clock) -> None:
    """The wall clock is set back an hour between two sessions: the later one records when it began after the first."""
    run = begin(clock=clock)
    run.ready()
    clock.now += 100.0
    run.end(StopInfo(reason="signal"))
    clock.now, clock.set_back_secs = clock.now + 20.0, 3600.0
    run = begin(clock=clock)
    run.ready(restored_step=0)
    clock.now += 7.0
    run.beat()
    first, second = writer.of("session")
    assert second.started_at < first.started_at
    assert (second.attempt, second.run_started_at) == (2, first.run_started_at)
    assert (second.previous_elapsed_secs, second.previous_seen_secs) == (100.0, 20.0)
    assert [stop.elapsed_secs for stop in writer.of("stop")] == [100.0]
    beat = writer.of("heartbeat")[-1]
    assert (beat.attempt, beat.elapsed_secs) == (2, 7.0)


def test_lost_steps_are_counted_alike_by_session_and_reader(begin, writer) -> None:
    """After a recovery and a restart that took steps back, a reader of the events counts as many as the metrics do."""
    run = begin()
    run.ready()
    run.progress.step_read(100)
    run.enter("training")
    run.enter("restoring")
    recover(run, "UnavailableError: x")
    run.progress.rewound(90)
    run.enter("training")
    run.progress.step_read(95)
    run.end(StopInfo(reason="error"))
    run = begin()
    run.ready(restored_checkpoint="model.ckpt-90", restored_step=90)
    marks = [TelemetryMark(offset=at, at=1e9 + at, step=0, record=record) for at, record in enumerate(writer.records)]
    fold = RunFold("run")
    fold.update([Chunk(path="events", from_start=True, marks=tuple(marks))])
    assert run.status().steps_lost == fold.run(now=1e9 + len(marks)).steps_lost == 10 + 5


def test_a_model_that_was_kept_loses_no_steps(begin) -> None:
    """Even if it is a step before the one that its last chief recorded; later losses count from there."""
    run = begin()
    run.progress.step_read(100)
    run.end(StopInfo(reason="signal"))
    run = begin()
    run.ready(restored_step=99, adopted=True)
    assert (run.status().steps_lost, run.status().global_step) == (0, 99)
    run.end(StopInfo(reason="error"))
    run = begin()
    run.ready(restored_checkpoint="model.ckpt-90", restored_step=90)
    assert run.status().steps_lost == 9


def test_lost_steps_are_absent_where_they_are_not_known(begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No logdir; a session before that was killed before it knew its step; sessions before, but no file of theirs.
    Known: a first session has lost none, and until it has restored another has lost what those before had."""
    assert begin(logdir=None).status().steps_lost is None
    first = begin()
    assert first.status().steps_lost == 0
    first.progress.step_read(100)
    first.end(StopInfo(reason="error"))
    second = begin()
    second.ready(restored_checkpoint="model.ckpt-90", restored_step=90)
    second.end(StopInfo(reason="error"))
    third = begin()
    assert third.status().steps_lost == 10
    third.end(StopInfo(reason="error"))
    edit(tmp_path, step=None)
    fourth = begin()
    fourth.ready(restored_checkpoint="model.ckpt-90", restored_step=90)
    assert fourth.status().steps_lost is None
    recover(fourth, "E")
    assert fourth.status().steps_lost is None
    fourth.end(StopInfo(reason="error"))
    Path(chief_path(tmp_path)).unlink()
    monkeypatch.setattr("supervisor_core.engine.session_recorder.newest_attempt", lambda logdir: 4)
    fifth = begin().status()
    assert (fifth.session.attempt, fifth.steps_lost) == (5, None)


def test_the_table_says_what_a_trainer_serves(begin) -> None:
    """Of a session with a past: every metric but those that only an exporter has."""
    begin().end(StopInfo(reason="error"))
    run = begin(checkpoint_interval_secs=600)
    run.ready(restored_step=5, resume_exact=False, resume_reasons=("no position",))
    run.enter("training")
    run.progress.run_ended(True, 0.0, 1.0)
    run.saved(CheckpointRecord(session=run.session_id, trigger="timer", path="p", step=6, bytes=9, secs=3.0))
    run.loss_read(True)
    run.notices.say("accuracy fell")
    thread = ThreadStatus(name="checkpoint", state="idle", last_tick_at=1.0)
    worker = WorkerStatus(name="worker:1", state="running", steps=1, last_seen_at=1.0)
    status = run.status()
    status = replace(
        status, session=replace(status.session, steps_per_sec=1.0), steps_lost=0, threads=(thread,), workers=(worker,)
    )
    names = {metric.name for metric in RUN_METRICS if list(metric.read(status, 1e9))}
    not_now = {
        "supervisor_resume_observed",
        "supervisor_run_error_info",
        "supervisor_finding",
        "supervisor_finding_since_timestamp_seconds",
        "supervisor_finding_text_info",
        "supervisor_checkpoint_recommended_interval_seconds",
        "supervisor_checkpoint_present_interval_seconds",
        "supervisor_stall_info",
        "supervisor_watchdog_acted_total",
    }
    assert names | not_now == {metric.name for metric in RUN_METRICS if metric.served_by in ("both", "trainer")}


def test_saves_are_counted_written_and_their_hold_up_booked(begin, writer) -> None:
    """A good one is the newest success; a bad one leaves it so, and is seen."""
    run = begin()
    run.enter("training")
    good = CheckpointRecord(
        session=run.session_id, trigger="timer", path="model.ckpt-5", step=5, bytes=10, secs=1.0, blocked_secs=0.1
    )
    run.saved(good)
    run.saved(CheckpointRecord(session=run.session_id, trigger="timer", error="OSError: no space"))
    status = run.status()
    assert (status.session.saves, status.session.save_failures, status.checkpoint.last_success.step) == (2, 1, 5)
    assert status.session.save_error == "OSError: no space"
    assert writer.of("checkpoint")[0] == good
    assert writer.synced == ["checkpoint", "checkpoint"]


def settle(run: SessionRecorder) -> None:
    """Wait until the liveness file has all that it is to have."""
    live = run._liveness
    assert live is not None
    with live._state_lock:
        assert live._state_lock.wait_for(lambda: live._tried >= live._asked, 60.0)


def take_over(logdir: Path, run: SessionRecorder) -> None:
    """Put another chief's record in the liveness file, as one on another host does that finds this one dead: long after
    its last write."""
    settle(run)
    record = peek(logdir)
    assert record is not None
    edit(logdir, session="another", attempt=record.attempt + 1, host="another-host", pid=77)


def test_a_chief_that_was_taken_over_appends_nothing(begin, tmp_path) -> None:
    """Neither telemetry nor its stop record reaches the events file, and the other chief's liveness file stays."""
    writer = FileWriter(str(tmp_path))
    run = begin(writer=writer)
    run.ready()
    writer.flush()
    take_over(tmp_path, run)
    before = peek(tmp_path)
    files = {path: path.stat().st_size for path in (tmp_path).glob("*tfevents*")}
    assert files
    run.beat()
    run.end(StopInfo(reason="error", error="taken over"))
    writer.close()
    assert {path: path.stat().st_size for path in (tmp_path).glob("*tfevents*")} == files
    assert peek(tmp_path) == before


def test_a_session_that_has_ended_still_closes_its_events_file(begin, tmp_path) -> None:
    """Once the lock is released, another chief may come: later events go into the ended session's file."""
    writer = FileWriter(str(tmp_path))
    run = begin(writer=writer)
    run.end(StopInfo(reason="completed"))
    take_over(tmp_path, run)
    written = writer.written
    writer.scalar("a", 1.0, 1)
    writer.close()
    assert writer.written == written + 1
    with pytest.raises(LogdirInUseError):
        run.publisher.check()
