"""A `Supervisor`'s cluster of real processes: every kind of them is killed and started again, and all go on.

One cluster lives through all of it, in the order of the module; each test looks at a part of its story.
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
    with open_cluster("Supervisor") as cluster:
        lose_worker(cluster, until)
        lose_chief(cluster)
        lose_server(cluster, until)
        finish(cluster)
        yield cluster


def lose_worker(cluster: Any, until: Callable[..., None]) -> None:
    """A worker is killed, and started again."""
    cluster.start("chief:0", GATE="1")
    cluster.start("ps:0", "worker:0")
    cluster["chief:0"].line("in init_fn")
    cluster.lines["waits for init_fn"] = cluster["worker:0"].line("Waiting for the chief", "init_fn")
    cluster["chief:0"].enough()
    cluster.steps["begin"] = cluster["chief:0"].step("ready at step")
    cluster["worker:0"].line("ready at step")
    for name in ("worker:0", "ps:0"):
        until(cluster.sees(name, "running"))
    cluster["worker:0"].kill()
    until(cluster.sees("worker:0", "lost"))
    cluster.steps["others went on"] = cluster["chief:0"].step("trained to")
    cluster.start("worker:0")
    cluster.steps["worker is back"] = cluster["worker:0"].step("ready at step")
    until(cluster.sees("worker:0", "running"))


def lose_chief(cluster: Any) -> None:
    """The chief is killed, and started again while the workers train."""
    cluster["chief:0"].kill()
    cluster.steps["saved when the chief was killed"] = newest_step(cluster.logdir)
    cluster.steps["without a chief"] = 0
    while cluster.steps["without a chief"] <= cluster.steps["saved when the chief was killed"]:
        cluster.steps["without a chief"] = cluster["worker:0"].step("trained to")
    cluster.start("chief:0")
    cluster.lines["chief is back"] = cluster["chief:0"].line("alive in the cluster")
    cluster.steps["chief is back"] = cluster["chief:0"].step("ready at step")
    while newest_step(cluster.logdir) < cluster.steps["chief is back"]:
        cluster["chief:0"].line("Saved checkpoint")


def lose_server(cluster: Any, until: Callable[..., None]) -> None:
    """The parameter server is killed; all end with an error, and are started again, the worker first."""
    cluster["ps:0"].kill()
    cluster.steps["saved when the server was killed"] = newest_step(cluster.logdir)
    for name in ("chief:0", "worker:0"):
        cluster.codes[f"{name} without a server"] = cluster[name].ended()
    cluster.start("worker:0")
    cluster.lines["waits for the server"] = cluster["worker:0"].line("Waiting for", "ps:0")
    cluster.start("ps:0")
    cluster.lines["waits for the chief"] = cluster["worker:0"].line("Waiting for the chief")
    cluster.start("chief:0")
    cluster.steps["restored"] = cluster["chief:0"].step("ready at step")
    cluster["worker:0"].line("ready at step")
    until(cluster.sees("worker:0", "running"))


def finish(cluster: Any) -> None:
    """The training ends; a worker comes late."""
    cluster["chief:0"].enough()
    cluster.codes["chief"] = cluster["chief:0"].ended()
    cluster.steps["end"] = newest_step(cluster.logdir)
    cluster["worker:0"].enough()
    for name in ("worker:0", "ps:0"):
        cluster.codes[name] = cluster[name].ended()
    cluster.start("worker:1")
    cluster.codes["late worker"] = cluster["worker:1"].ended()
    cluster.lines["late worker"] = cluster["worker:1"].line("has finished")


def newest_step(logdir: str) -> int:
    """Return the newest checkpoint's step; -1 where there is none."""
    newest = tf.train.latest_checkpoint(logdir)
    return -1 if newest is None else int(newest.rpartition("-")[2])


def test_a_killed_worker_is_missed_and_comes_back(story: Any) -> None:
    """The others continue; the chief records that it was lost, and that another process took its place."""
    # Not 0 at the beginning: the worker may have done a step before the chief reads it.
    assert story.steps["worker is back"] > story.steps["begin"]
    worker = story.worker("worker:0")
    assert worker.starts == 3
    states = [span.state for span in worker.spans]
    assert states.index("lost") < len(states) - 1 - states[::-1].index("running")


def test_a_killed_chief_finds_its_model_alive(story: Any) -> None:
    """The workers go on without it; the one that comes after it keeps what they did, and loses nothing."""
    assert story.steps["chief is back"] >= story.steps["without a chief"]
    first, second, *_ = story.run().sessions
    assert first.id in story.lines["chief is back"]
    assert (first.outcome, second.adopted, second.restored_checkpoint) == ("lost", True, None)
    assert second.restored_step >= story.steps["without a chief"]
    assert story.run().restarts[0].rewind_steps == 0


def test_a_killed_parameter_server_takes_the_run_back_to_its_checkpoint(story: Any) -> None:
    """Chief and workers end with an error, as they do under the original; started again, they go on from the newest
    checkpoint."""
    assert all(story.codes[f"{name} without a server"] == 1 for name in ("chief:0", "worker:0"))
    third = story.run().sessions[2]
    assert not third.adopted
    assert story.steps["restored"] >= third.restored_step >= story.steps["saved when the server was killed"]


def test_a_worker_of_a_cluster_does_not_start_before_init_fn(story: Any) -> None:
    """All variables are initialised, and the chief is not through with its `init_fn`: the worker waits for that."""
    assert story.lines["waits for init_fn"]


def test_all_end_with_status_0(story: Any) -> None:
    """The chief saves its last step; worker and parameter server end too, the latter by itself."""
    assert (story.codes["chief"], story.codes["worker:0"], story.codes["ps:0"]) == (0, 0, 0)
    run = story.run()
    assert run.state == "completed"
    assert story.steps["end"] == run.sessions[-1].last_step


def test_a_worker_that_comes_late_ends_at_once(story: Any) -> None:
    """The run has finished: it says so, trains nothing, and ends well."""
    assert story.codes["late worker"] == 0
    assert "ended (completed)" in story.lines["late worker"]
    assert not any(line.startswith("ready") for line in story["worker:1"].lines)


def test_a_clusters_checkpoints_are_named_by_the_step_in_them(story: Any) -> None:
    """The workers go on while they are saved: the name, the record and what is stored agree all the same."""
    on_disk = [saved for saved in story.run().checkpoints if saved.ok and tf.io.gfile.exists(f"{saved.path}.index")]
    assert on_disk
    for saved in on_disk:
        assert saved.path.endswith(f"-{saved.step}")
        assert tf.train.load_checkpoint(saved.path).get_tensor("global_step") == saved.step
