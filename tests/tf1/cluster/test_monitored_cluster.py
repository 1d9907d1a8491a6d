"""A cluster of real processes under `MonitoredTrainingSession`: lost sessions are recreated within a process.

One cluster lives through all of it; each test looks at a part of its story.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import tensorflow as tf

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def story(open_cluster: Callable[..., Any], until: Callable[..., None]) -> Iterator[Any]:
    """A training from its begin to its end, and what befell it."""
    with open_cluster("MonitoredTrainingSession") as cluster:
        cluster.start("ps:0", "chief:0", "worker:0")
        cluster.steps["begin"] = cluster["chief:0"].step("ready at step")
        cluster["worker:0"].line("ready at step")
        cluster["chief:0"].step("trained to")
        until(lambda: tf.train.latest_checkpoint(cluster.logdir))

        cluster["ps:0"].kill()
        cluster.lines["chief waits"] = cluster["chief:0"].line("Waiting for", "ps:0")
        cluster.steps["saved"] = int(tf.train.latest_checkpoint(cluster.logdir).rpartition("-")[2])
        cluster.lines["worker waits"] = cluster["worker:0"].line("Waiting for", "ps:0")
        until(cluster.sees("worker:0", "waiting"))
        cluster.start("ps:0")
        cluster.steps["chief goes on"] = cluster["chief:0"].step("trained to")
        cluster.steps["worker goes on"] = cluster["worker:0"].step("trained to")
        until(cluster.sees("worker:0", "running"))

        cluster["chief:0"].kill()
        cluster.steps["without a chief"] = cluster["worker:0"].step("trained to")
        cluster.start("chief:0")
        cluster.steps["chief is back"] = cluster["chief:0"].step("ready at step")

        for task in ("chief:0", "worker:0"):
            cluster[task].enough()
        for task in ("chief:0", "worker:0", "ps:0"):
            cluster.codes[task] = cluster[task].ended()
        cluster.start("worker:1")
        cluster.codes["late worker"] = cluster["worker:1"].ended()
        cluster.lines["late worker"] = cluster["worker:1"].line("has finished")
        yield cluster


def test_a_killed_parameter_server_is_waited_for(story: Any) -> None:
    """Chief and worker wait for it, by name and address, and go on in the same processes once it is back."""
    address = story.addresses["ps"][0]
    assert f"ps:0 ({address})" in story.lines["chief waits"]
    assert f"ps:0 ({address})" in story.lines["worker waits"]
    assert story.steps["worker goes on"] > 0


def test_the_loss_is_a_restart_within_the_session(story: Any) -> None:
    """The chief restores its newest checkpoint, and records it: the lost steps, the time it took."""
    first = story.run().sessions[0]
    [recovery] = [each for each in story.run().recoveries if each.session == first.id]
    assert "UnavailableError" in recovery.error
    assert recovery.restored_step >= story.steps["saved"]
    assert recovery.restored_checkpoint.endswith(f"-{recovery.restored_step}")
    assert (first.recoveries, first.outcome) == (1, "lost")


def test_a_killed_chief_finds_its_model_alive(story: Any) -> None:
    """What the worker did in between is kept."""
    assert story.steps["chief is back"] >= story.steps["without a chief"]
    assert story.run().sessions[1].adopted


def test_the_facade_is_recorded(story: Any) -> None:
    """A run says which facade wrote it; all else is as under a `Supervisor`."""
    assert {session.facade for session in story.run().sessions} == {"MonitoredTrainingSession"}
    assert story.run().state == "completed"


def test_all_end_with_status_0(story: Any) -> None:
    """Chief, worker, and the parameter server by itself; a worker that comes late ends at once, and well."""
    assert set(story.codes.values()) == {0}
    assert "ended (completed)" in story.lines["late worker"]
