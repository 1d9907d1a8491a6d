"""What an exporter serves of a run: the trainer's metrics, from its events alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import pytest

from supervisor_core.events.telemetry import NoticeRecord, ResumeRecord, WorkerStatus
from supervisor_core.metrics.page import run_status
from supervisor_core.metrics.table import RUN_METRICS
from supervisor_core.run.model.run import BUCKETS, Run
from supervisor_core.run.status import RunStatus
from tests.cases import each

RunOf = Callable[..., Run]

TIMES = (
    "supervisor_time_seconds_total",
    "supervisor_run_time_seconds_total",
    "supervisor_phase",
    "supervisor_restarts_total",
)


def served(status: RunStatus, now: float) -> dict[str, float]:
    """Return the samples with no label but the run's."""
    return {
        metric.name: sample.value
        for metric in RUN_METRICS
        for sample in metric.read(status, now)
        if set(sample.labels) == {"run"} and not sample.suffix
    }


def test_a_live_run_is_served_as_its_trainer_would(killed: Any, resumed: Any, run_of: RunOf) -> None:
    """Session, step, restarts, progress, budget, saves: under the trainer's names."""
    resumed.save(blocked_secs=0.25).save(error="OSError: full").spend(2, moving=False).beat()
    now = resumed.now + 3
    status = run_status(run_of(killed, resumed, now=now), now, label="mine")
    assert (status.run, status.active, status.session.phase) == ("mine", True, "training")
    session, saved = status.session, status.checkpoint.last_success
    assert session is not None and saved is not None
    assert (session.session, session.attempt) == ("b", 2)
    assert (status.restarts, status.steps_lost) == ({"lost": 1}, 187)
    assert (status.global_step, status.session.steps) == (1300, 300)
    assert (status.session.last_progress_at, status.session.progress_timeout_secs) == (resumed.now - 2, 300.0)
    assert (session.started_at, status.session_seen_at) == (resumed.started_at, resumed.now)
    assert (saved.step, saved.at, saved.bytes) == (1300, resumed.now - 2, 1000)
    assert (session.saves, session.save_failures) == (2, 1)
    assert status.session.reported_secs == resumed.secs  # the newest session's, as that session serves it itself
    assert sum(status.run_activity_secs.values()) > sum(status.session.reported_secs.values()) + 1000
    blocked = session.blocked_secs
    assert blocked is not None and (sum(blocked.counts), blocked.sum) == (1, 0.25)
    assert status.checkpoint.recommended_interval_secs is None  # one failure says too little
    samples = served(status, now)
    assert samples["supervisor_checkpoint_age_seconds"] == 5
    assert samples["supervisor_stalled"] == 0
    assert 0 < samples["supervisor_goodput_ratio"] < 1


def test_step_and_progress_are_of_the_same_moment(killed: Any, run_of: RunOf) -> None:
    """A step that only a scalar shows, between two heartbeats, is progress; one that a heartbeat had is none."""
    beat_at, step = killed.beat().now, killed.step
    status = run_status(run_of(killed), killed.now + 5)
    assert (status.global_step, status.session.last_progress_at) == (step, beat_at)
    killed.file.scalar("loss", step, beat_at + 2.0)
    assert run_status(run_of(killed), killed.now + 5).session.last_progress_at == beat_at
    killed.file.scalar("loss", step + 3, beat_at + 3.0).scalar("lr", step + 3, beat_at + 3.5)
    status = run_status(run_of(killed), killed.now + 5)
    assert (status.global_step, status.session.last_progress_at) == (step + 3, beat_at + 3.0)


def test_the_table_says_what_an_exporter_serves(killed: Any, resumed: Any, trainer: Any, run_of: RunOf) -> None:
    """Of a run with a past, a cluster and services: every metric but those that only a trainer has."""
    resumed.stop("error")
    third = trainer("c", resumed.now + 60, attempt=3).spend(10).ready(1000, previous_outcome="error", resume_exact=True)
    third.threads = ({"name": "checkpoint", "state": "idle", "ticks": 3, "last_tick_at": third.now},)
    third.workers = ({"name": "worker:1", "state": "running", "steps": 3, "last_seen_at": third.now},)
    third.loss_finite, third.rate = True, 1.0
    check = ResumeRecord(session=third.id, compared=3, equal=3)
    third.file.record(check, third.step, third.now)
    third.file.record(NoticeRecord(session=third.id, text="accuracy fell"), third.step, third.now)
    third.train(30).save().beat()
    status = run_status(run_of(killed, resumed, third), third.now)
    assert status.session is not None
    status = replace(status, session=replace(status.session, versions={"supervisor": "1"}))
    status = replace(status, launches={"oom": 1}, restarting=False)
    names = {metric.name for metric in RUN_METRICS if list(metric.read(status, third.now))}
    not_now = {
        "supervisor_run_error_info",
        "supervisor_run_end_timestamp_seconds",
        "supervisor_stall_info",
        "supervisor_finding",
        "supervisor_finding_text_info",
        "supervisor_finding_since_timestamp_seconds",
        "supervisor_clock_skew_seconds",
        "supervisor_watchdog_acted_total",
        "supervisor_checkpoint_recommended_interval_seconds",
        "supervisor_checkpoint_present_interval_seconds",
    }
    assert names | not_now == {metric.name for metric in RUN_METRICS if metric.served_by in ("both", "exporter")}


DAY = 86_400.0


@each(
    "reason, later, state, has_end",
    [
        (None, 1.0, "running", False),
        (None, 60.0, "lost", False),
        (None, 6 * DAY, "lost", False),
        (None, 8 * DAY, "lost", True),
        ("completed", 0.0, "completed", True),
        ("exhausted", 0.0, "completed", True),
        ("requested", 0.0, "stopped", True),
        ("signal", 0.0, "stopped", True),
        ("error", 0.0, "failed", True),
    ],
)
def test_a_run_is_active_until_it_dies_or_ends(
    trainer: Any, run_of: RunOf, reason: str | None, later: float, state: str, has_end: bool
) -> None:
    """A lost one has no end for 7 days, as somebody may start it again; when that is can be chosen. Its progress does
    not move."""
    session = trainer().spend(13).ready().train(1187)
    if reason is not None:
        session.stop(reason)
    now = session.now + later
    status = run_status(run_of(session, now=now), now)
    assert (status.state, status.active, status.ended_at is not None) == (state, state == "running", has_end)
    if reason is None:
        assert status.session.last_progress_at == status.session_seen_at == session.now
    else:
        assert (status.session.phase, status.steps_per_sec, status.error) == ("stopped", None, None)
    if later == 6 * DAY:
        assert run_status(run_of(session, now=now), now, forget_after_secs=DAY).ended_at is not None


def test_of_a_run_without_telemetry_nothing_is_made_up(events_file: Any, run_of: RunOf) -> None:
    """No phase, no state, no steps of a session: only what the events show."""
    file = events_file("/run/events.out.tfevents.1.host", 1e9).log("START", 0, 1e9)
    file.log("CHECKPOINT", 40, 1e9 + 40, "model.ckpt").scalars("loss", range(99), 1e9)
    samples = served(run_status(run_of(file), 1e9 + 100), 1e9 + 100)
    assert samples["supervisor_global_step"] == 98
    assert samples["supervisor_checkpoint_last_success_step"] == 40
    assert set(samples) == {
        "supervisor_session_start_timestamp_seconds",
        "supervisor_sessions_total",
        "supervisor_global_step",
        "supervisor_steps_per_second",
        "supervisor_last_progress_timestamp_seconds",
        "supervisor_progress_timeout_seconds",
        "supervisor_checkpoint_age_seconds",
        "supervisor_checkpoint_last_success_timestamp_seconds",
        "supervisor_checkpoint_last_success_step",
        "supervisor_loss_finite",
    }
    status = run_status(run_of(file), 1e9 + 100)
    assert not any(
        samples for metric in RUN_METRICS for samples in [list(metric.read(status, 1e9))] if metric.name in TIMES
    )
    (phase,) = [metric for metric in RUN_METRICS if metric.name == "supervisor_phase"]
    assert not list(phase.read(run_status(run_of(file), 1e9 + 100), 1e9 + 100))
    assert served(run_status(run_of(file.log("STOP", 0, 1e9 + 99)), 1e9), 1e9)["supervisor_active"] == 0


def test_the_speed_of_another_writer_is_that_of_its_points(events_file: Any, run_of: RunOf) -> None:
    """One point of each of two tags every 50 steps and 20 s: 2.5 steps a second, while it writes; evaluations count
    epochs and change nothing."""
    file = events_file("/run/events.out.tfevents.1.host", 1e9)
    for number in range(40):
        at = 1e9 + 20 * number
        file.scalar("train/loss", 50 * number, at).scalar("train/lr", 50 * number, at + 0.01)
        if number % 10 == 9:
            file.scalar("val/accuracy", number // 10, at + 0.5)
    now = 1e9 + 800
    assert run_status(run_of(file, now=now), now).steps_per_sec == pytest.approx(2.5)
    assert run_status(run_of(file, now=now + 900), now + 900).steps_per_sec is None


def test_an_empty_run_is_in_no_known_state(run_of: RunOf) -> None:
    """Of a run without events it is served that it has had no sessions, and that its state is unknown."""
    assert run_status(run_of(), 1e9).state == "unknown"
    assert served(run_status(run_of(), 1e9), 1e9) == {"supervisor_sessions_total": 0}


def test_threads_are_those_of_the_last_session(killed: Any, resumed: Any, run_of: RunOf) -> None:
    """No two threads of one name are served, though each session has its own."""
    for session in (killed, resumed):
        session.threads = ({"name": "checkpoint", "state": "idle", "ticks": session.attempt, "interval_secs": 600},)
        session.beat()
    [thread] = run_status(run_of(killed, resumed), resumed.now).threads
    assert (thread.name, thread.ticks, thread.interval_secs) == ("checkpoint", 2, 600)


WORKERS: tuple[dict[str, Any], ...] = (
    {"name": "ps:0", "state": "running", "last_seen_at": 1e10, "started_at": 4.0, "host": "h", "pid": 3},
    {"name": "worker:1", "state": "lost", "last_seen_at": 7.0, "step": 30, "steps": 12, "phase": "training"},
    {"name": "worker:2", "state": "failed", "error": "OSError: x"},
    {"name": "worker:3", "state": "waiting", "waiting_for": "the model"},
    {"name": "worker:4", "state": "stopped"},
)


def with_workers(session: Any) -> Any:
    """A chief that reports a worker in each state."""
    session.workers = WORKERS
    return session.beat()


def test_workers_are_those_of_a_chief_that_lives(killed: Any, resumed: Any, run_of: RunOf) -> None:
    """Field by field as its latest heartbeat has them, and none that only an earlier chief knew, or that it names no
    more; nothing was seen later than now."""
    killed.workers = ({"name": "worker:0", "state": "running"},)
    resumed.workers = ({"name": "worker:9", "state": "running"},)
    run = run_of(killed.beat(), with_workers(resumed.beat().train(1)))
    assert len(run.workers) == len(WORKERS) + 2
    now = resumed.now + 1
    assert [asdict(worker) for worker in run_status(run, now).workers] == [
        {**asdict(WorkerStatus(**worker)), "last_seen_at": seen}
        for worker, seen in zip(WORKERS, (now, 7.0, None, None, None), strict=True)
    ]


@pytest.mark.parametrize(
    ("reason", "later", "left"),
    [
        (None, 86_400.0, ["worker:1", "worker:2"]),
        ("error", 1.0, ["worker:1", "worker:2"]),
        ("completed", 1.0, []),
        ("exhausted", 1.0, []),
        ("requested", 1.0, []),
        ("signal", 1.0, []),
    ],
)
def test_of_a_dead_chiefs_workers_only_what_still_holds_is_listed(
    killed: Any, run_of: RunOf, reason: str | None, later: float, left: list[str]
) -> None:
    """A lost worker stays lost, a running one becomes unknown; after a planned end none is listed."""
    with_workers(killed)
    if reason is not None:
        killed.stop(reason)
    status = run_status(run_of(killed, now=killed.now + later), killed.now + later)
    assert [worker.name for worker in status.workers] == left
    (up,) = [metric for metric in RUN_METRICS if metric.name == "supervisor_worker_up"]
    assert {sample.labels["worker"]: sample.value for sample in up.read(status, killed.now)} == dict.fromkeys(left, 0)


def test_counted_seconds_never_fall(killed: Any, resumed: Any, fold_of: Any) -> None:
    """After a restart `productive` stands still until the lost steps are made up for; these count as wasted at once."""
    fold = fold_of(killed)
    before = run_status(fold.run(killed.now + 1), killed.now + 1).run_activity_secs
    chunks = resumed.file.chunks(range(1, len(resumed.file.events)))
    productive = []
    for chunk in chunks:
        fold.update([chunk])
        now = chunk.last_at or 0.0
        after = run_status(fold.run(now), now).run_activity_secs
        assert all(after[bucket] >= before[bucket] for bucket in BUCKETS)
        productive.append(after["productive"])
        before = after
    assert productive[0] == productive[len(productive) // 2] < productive[-1]
    assert before["wasted_progress_from_disruption"] == pytest.approx(187 + 5, abs=1)
    assert before["infrastructure_recovery_from_disruption"] == 60 - 5
    assert sum(before.values()) == pytest.approx(resumed.now - killed.started_at, abs=11)


def test_another_clock_gives_no_progress_in_the_future(killed: Any, run_of: RunOf) -> None:
    """Progress by a clock that is ahead of ours happened now at the latest."""
    now = killed.now - 500
    assert run_status(run_of(killed, now=now), now).session.last_progress_at == now


def test_versions_and_facts_are_those_of_the_record(trainer: Any, run_of: RunOf) -> None:
    """Build and run facts are those of the session record."""
    session = trainer().spend(1).ready(versions={"tensorflow": "2.21.0"})
    status = run_status(run_of(session), session.now)
    facts = {
        name: dict(sample.labels)
        for name in ("supervisor_build_info", "supervisor_run_info")
        for metric in RUN_METRICS
        if metric.name == name
        for sample in metric.read(status, session.now)
    }
    assert facts["supervisor_build_info"] == {"run": "run", "tensorflow": "2.21.0"}
    assert facts["supervisor_run_info"] == {
        "run": "run",
        "host": "host",
        "pid": "1",
        "facade": "Supervisor",
        "session_id": session.id,
    }
