"""The cluster's other processes over time, from their chiefs' heartbeats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from supervisor_core.events.telemetry import WorkerStatus
from supervisor_core.run.fold.run_fold import RunFold
from supervisor_core.run.fold.session_fold import WorkerFold, natural_order
from supervisor_core.run.model.run import Run, WorkerHistory, WorkerSpan
from tests.cases import each

RunOf = Callable[..., Run]


def beat_of(state: Any, started_at: float | None = 1.0, name: str = "worker:1", **more: Any) -> WorkerStatus:
    """Return a worker as a heartbeat reports it."""
    return WorkerStatus(name=name, state=state, started_at=started_at, **more)


BEATS: list[tuple[float, WorkerStatus]] = [
    (10.0, beat_of("waiting", waiting_for="the model")),
    (20.0, beat_of("running", step=5, steps=2)),
    (30.0, beat_of("running", step=25, steps=12)),
    (40.0, beat_of("lost", last_seen_at=31.0)),
    (50.0, beat_of("failed", error="OSError: gone")),
    (60.0, beat_of("running", 55.0, step=30, steps=1)),
    (70.0, beat_of("running", 65.0, step=40, steps=1, last_seen_at=69.5, host="h", pid=7, phase="training")),
]
SPANS = (
    WorkerSpan(state="waiting", since=10.0, until=20.0, started_at=1.0),
    WorkerSpan(state="running", since=20.0, until=40.0, started_at=1.0),
    WorkerSpan(state="lost", since=40.0, until=50.0, started_at=1.0),
    WorkerSpan(state="failed", since=50.0, until=60.0, started_at=1.0, error="OSError: gone"),
    WorkerSpan(state="running", since=60.0, until=70.0, started_at=55.0),
    WorkerSpan(state="running", since=70.0, until=75.0, started_at=65.0),
)


def history(worker: WorkerFold, beat_at: float | None = 70.0) -> WorkerHistory:
    """Return the history up to 75 s."""
    found = worker.report("a", beat_at, 75.0)
    assert found is not None
    return found.history


def test_spans_follow_the_states_and_the_processes() -> None:
    """One span per stretch of one state of one process, from the heartbeat that first reports it to that of the next;
    and the last word on everything else."""
    worker = WorkerFold("worker:1")
    for at, beat in BEATS:
        worker.beat(at, beat)
    assert history(worker) == WorkerHistory(
        name="worker:1",
        state="running",
        spans=SPANS,
        starts=3,
        session="a",
        last_seen_at=69.5,
        started_at=65.0,
        phase="training",
        step=40,
        steps=1,
        host="h",
        pid=7,
    )


def test_only_the_newest_spans_are_kept() -> None:
    """A worker that flaps for days takes no more memory than the newest spans do, and each of its starts counts."""
    worker = WorkerFold("worker:1", 3)
    for at, beat in BEATS:
        worker.beat(at, beat)
    assert history(worker).spans == SPANS[-4:]  # the present one is not finished
    assert history(worker).starts == 3


def test_a_worker_that_is_not_named_any_more_has_an_end() -> None:
    """Its last span ends with the last heartbeat that named it, not with the session."""
    worker = WorkerFold("worker:1")
    worker.beat(10.0, beat_of("running"))
    worker.beat(20.0, beat_of("running"))
    assert history(worker, beat_at=30.0).spans[-1].until == 20.0
    assert history(worker, beat_at=20.0).spans[-1].until == 75.0


def test_a_process_whose_start_is_not_known_is_the_same_one() -> None:
    """Only another start makes another process."""
    worker = WorkerFold("worker:1")
    for at, started_at in ((1.0, None), (2.0, 0.5), (3.0, None), (4.0, 0.5)):
        worker.beat(at, beat_of("running", started_at))
    found = history(worker, beat_at=4.0)
    assert found.spans == (WorkerSpan(state="running", since=1.0, until=75.0, started_at=0.5),)
    assert found.starts == 1


def test_of_two_with_one_name_the_later_one_counts(trainer: Any, run_of: RunOf) -> None:
    """The later one in the heartbeat; its spans do not flap."""
    session = trainer().ready()
    session.workers = (beat_of("lost"), beat_of("running"))
    (worker,) = run_of(session.train(30)).workers
    assert (worker.state, len(worker.spans)) == ("running", 1)


def test_names_are_sorted_as_people_count() -> None:
    """By the numbers in them, however long; and no name breaks it."""
    names = ["worker:10", "ps:0", "worker:2", "h-7", "", "worker:02", "9" * 9999, "worker:", "²"]
    assert sorted(names, key=natural_order) == [
        "",
        "9" * 9999,
        "h-7",
        "ps:0",
        "worker:",
        "worker:02",
        "worker:2",
        "worker:10",
        "²",
    ]


def two_chiefs(trainer: Any) -> tuple[Any, Any]:
    """A chief that is killed and its successor, 60 s later; of their workers one is restarted in between."""
    first = trainer("a").spend(5).ready()
    first.workers = (beat_of("running", name="worker:10"), beat_of("running"), beat_of("running", name="ps:0"))
    first.train(100)
    second = trainer("b", first.now + 60, attempt=2).spend(5).ready(80)
    second.workers = (beat_of("running", name="worker:10"), beat_of("waiting", 90.0))
    second.train(100)
    return first, second


def test_workers_go_on_over_their_chiefs(trainer: Any, run_of: RunOf) -> None:
    """By name over the whole run; the time between two chiefs is left out, and who is the same process is not counted
    twice."""
    first, second = two_chiefs(trainer)
    ps, one, ten = run_of(first, second).workers
    assert [worker.name for worker in (ps, one, ten)] == ["ps:0", "worker:1", "worker:10"]
    assert [worker.starts for worker in (ps, one, ten)] == [1, 2, 1]
    assert [worker.session for worker in (ps, one, ten)] == ["a", "b", "b"]
    assert [(span.state, span.started_at) for span in one.spans] == [("running", 1.0), ("waiting", 90.0)]
    assert [span.state for span in ten.spans] == ["running", "running"]
    assert ten.spans[0].until == first.file.events[-1][0]
    assert ten.spans[1].since == next(at for at, event in second.file.events if getattr(event.record, "workers", ()))


@each("kept", [None, 2])
def test_it_does_not_matter_when_one_looks(trainer: Any, kept: int | None) -> None:
    """A fold that is asked after each event returns the same as one that is asked once: settled sessions keep
    their reports."""
    sessions, now = [], 1_700_000_000.0
    for index in range(5):
        session = trainer(str(index), now, attempt=index + 1).ready()
        for state in ("running", "lost", "running"):
            session.workers = (beat_of(state, float(index)), beat_of("running", 0.5, name=f"worker:{index}"))
            session.train(15)
        sessions.append(session)
        now = session.now + 60
    often, once = RunFold("run", kept_ticks=kept), RunFold("run", kept_ticks=kept)
    for session in sessions:
        for chunk in session.file.chunks(range(1, len(session.file.events))):
            often.update([chunk])
            often.run(now)
        once.update(session.file.chunks())
    found = once.run(now).workers
    assert often.run(now).workers == found
    worker = next(each for each in found if each.name == "worker:1")
    assert worker.starts == 5 if kept is None else len(worker.spans) == 2
    assert list(worker.spans) == sorted(worker.spans, key=lambda span: span.since)


def test_chiefs_whose_clocks_disagree(trainer: Any, run_of: RunOf) -> None:
    """Spans are in the order of their times, whatever the order in which they were reported."""
    first = trainer("a").ready()
    first.workers = (beat_of("running"),)
    first.train(100)
    second = trainer("b", first.started_at + 50, attempt=2).ready()
    second.workers = (beat_of("waiting"),)
    second.train(10)
    first.workers = (beat_of("stalled"),)
    first.train(20)
    (worker,) = run_of(first, second).workers
    assert [span.state for span in worker.spans] == ["running", "waiting", "stalled"]
    assert worker.state == "waiting"
