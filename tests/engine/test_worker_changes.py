"""`WorkerChanges`: which heartbeats contain the cluster's other processes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervisor_core.engine.monitor import WorkerChanges
from supervisor_core.events.telemetry import WorkerStatus

ONE = WorkerStatus(name="worker:1", state="running", steps=5)


class Cluster:
    """Workers as they are, and the time."""

    def __init__(self, *workers: WorkerStatus) -> None:
        self.workers = workers
        self.now = 100.0
        self.news = WorkerChanges(lambda: self.workers, 60.0, lambda: self.now)


def test_no_cluster_is_no_news() -> None:
    """A run on its own says nothing of workers, however long it lasts."""
    cluster = Cluster()
    assert cluster.news.take() is None
    cluster.now += 1000
    assert cluster.news.take() is None


def test_steps_alone_are_written_once_per_interval() -> None:
    """Only steps have changed: they are written when the interval is over."""
    cluster = Cluster(ONE)
    assert [worker.steps for worker in cluster.news.take() or ()] == [5]
    cluster.workers = (replace(ONE, steps=6, last_seen_at=160.0),)
    cluster.now += 59
    assert cluster.news.take() is None
    cluster.now += 1
    assert [worker.steps for worker in cluster.news.take() or ()] == [6]


@pytest.mark.parametrize(
    "change", [{"state": "lost"}, {"started_at": 7.0}, {"waiting_for": "the chief"}, {"error": "ValueError"}]
)
def test_a_change_is_written_at_once(change: dict[str, object]) -> None:
    """Another state, another process, another thing that it waits for."""
    cluster = Cluster(ONE)
    cluster.news.take()
    cluster.workers = (replace(ONE, **change),)  # type: ignore[arg-type]
    assert cluster.news.take() is not None
    assert cluster.news.take() is None


def test_the_last_one_that_goes_leaves_an_empty_list() -> None:
    """No process is left: that is a change, written once."""
    cluster = Cluster(ONE)
    cluster.news.take()
    cluster.workers = ()
    assert cluster.news.take() == ()
    assert cluster.news.take() is None
