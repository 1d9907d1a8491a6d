"""Contract part 2: two chiefs on one logdir, and workers that wait for theirs."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from ports import free_port

from supervisor_core.base.errors import LogdirInUseError
from supervisor_core.base.options import Options
from supervisor_core.engine.tf_config import TaskIdentity
from supervisor_core.tf1.cluster import wait
from supervisor_core.tf1.cluster.task import ClusterTask
from tests.story.holds import Chief

v1 = tf.compat.v1


def test_a_second_chief_is_refused(ours: Any, build_model: Callable[..., Any], train: Any, logdir: str) -> None:
    """While one chief is at work the second is refused, with what holds the logdir; the first is not disturbed."""
    model = build_model()
    supervisor = ours.Supervisor(logdir=logdir)
    with supervisor.managed_session() as sess:
        with pytest.raises(LogdirInUseError) as raised:
            train()
        sess.run(model.train_op)
        assert not supervisor.should_stop()
    text = str(raised.value)
    assert logdir in text
    assert "this very process" in text
    assert "exclusive_logdir=False" in text
    assert v1.train.latest_checkpoint(logdir) == f"{logdir}/model.ckpt-1"


def test_a_refused_chief_says_nothing_in_the_others_run(
    ours: Any, build_model: Callable[..., Any], train: Any, logdir: str, read_events: Any, read_telemetry: Any
) -> None:
    """The refused one logs no STOP and writes no record into the run of the one at work."""
    build_model()
    with ours.Supervisor(logdir=logdir).managed_session():
        with pytest.raises(LogdirInUseError):
            train()
        _, *others = read_events(logdir)
    assert [event for file in others for event in file if not event.file_version] == []


def ready_at_look(number: int) -> Any:
    """Return a ready op that names something missing until it is looked at for the so-many-th time."""
    looks: list[int] = []

    def look() -> Any:
        looks.append(1)
        return np.array([b"weight"] if len(looks) < number else [], dtype=object)

    return v1.py_func(look, [], tf.string, stateful=True)


def test_waiting_lasts_as_long_as_was_asked(ours: Any) -> None:
    """With a wait shorter than the poll interval the worker still looks more than once, soon."""
    manager = ours.SessionManager(ready_op=ready_at_look(3), recovery_wait_secs=3600)
    manager.wait_for_session("", max_wait_secs=60).close()


def test_waiting_says_what_it_waits_for(ours: Any) -> None:
    """The error of a wait that was in vain names what was not initialized."""
    manager = ours.SessionManager(ready_op=ready_at_look(1000), recovery_wait_secs=0.01)
    with pytest.raises(tf.errors.DeadlineExceededError, match="weight"):
        manager.wait_for_session("", max_wait_secs=0.05)


@pytest.mark.parametrize("ended", ["completed", "exhausted", "requested"])
def test_a_worker_of_a_finished_run_waits_for_no_chief(
    ours: Any, build_model: Callable[..., Any], logdir: str, ended: str
) -> None:
    """The run is over: it gets a closed session, and a stop, so that its program ends well."""
    chief = Chief(logdir)
    chief.acquire("chief")
    chief.release(ended)
    with tf.device("/cpu:0"):
        model = build_model()
    supervisor = ours.Supervisor(logdir=logdir, is_chief=False, options=Options(finished_wait_secs=0.0))
    with supervisor.managed_session("") as sess:
        assert supervisor.should_stop()
        with pytest.raises(tf.errors.OutOfRangeError, match=f"ended \\({ended}\\)"):
            sess.run(model.train_op)


@pytest.mark.parametrize("ended", [None, "signal", "error", "not yet begun"])
def test_a_worker_of_a_run_that_goes_on_waits_for_its_chief(
    ours: Any, build_model: Callable[..., Any], logdir: str, ended: str | None
) -> None:
    """It has not begun, or its chief was cut off or failed, and will be started again: as long as was asked."""
    chief = Chief(logdir)
    if ended != "not yet begun":
        chief.acquire("chief")
    if ended in ("signal", "error"):
        chief.release(ended)
    with tf.device("/cpu:0"):
        build_model()
    supervisor = ours.Supervisor(
        logdir=logdir, is_chief=False, recovery_wait_secs=0.01, options=Options(finished_wait_secs=0.0)
    )
    with pytest.raises(tf.errors.DeadlineExceededError, match="Waited for the chief"):
        supervisor.prepare_or_wait_for_session("", max_wait_secs=0.05)
    chief.release("requested")


@pytest.fixture
def without_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ClusterTask]:
    """A worker of a cluster whose parameter server does not run; it comes after the test, so that nothing blocks."""
    monkeypatch.setattr(wait, "_known", {})
    monkeypatch.setattr(wait, "LEAST_SECS", 0.0)
    monkeypatch.setattr(wait, "NAME_SECS", 60.0)
    with socket.socket() as own, socket.socket() as server:
        for each in (own, server):
            each.bind(("127.0.0.1", free_port()))  # none that the system gives to others once it is closed
        addresses = {job: (f"127.0.0.1:{each.getsockname()[1]}",) for job, each in (("worker", own), ("ps", server))}
        own.close()
        task = ClusterTask(TaskIdentity(cluster=addresses, type="worker"))
        task.start_server()
        yield task
        server.close()
        ClusterTask(TaskIdentity(cluster=addresses, type="ps")).start_server()
        for thread in threading.enumerate():
            if thread.name.startswith("supervisor_cluster"):
                thread.join(60.0)
                assert not thread.is_alive()


@pytest.mark.parametrize("is_chief", [True, False])
def test_a_cluster_that_does_not_answer_is_waited_for_as_long_as_was_asked(
    ours: Any, build_model: Callable[..., Any], logdir: str, without_server: ClusterTask, is_chief: bool
) -> None:
    """TensorFlow waits for a parameter server without end; chief and worker do not, and name it."""
    with without_server.device():
        build_model()
    supervisor = ours.Supervisor(logdir=logdir, is_chief=is_chief)
    with pytest.raises(tf.errors.DeadlineExceededError) as raised:
        supervisor.prepare_or_wait_for_session(
            without_server.target, config=without_server.session_config(), max_wait_secs=0.01
        )
    address = without_server.cluster.task_address("ps", 0)
    assert str(raised.value) == (
        f"Session was not ready after waiting 0.01 secs. Waited for ps:0 ({address}): unreachable"
    )


def test_a_second_chief_can_be_allowed(ours: Any, build_model: Callable[..., Any], train: Any, logdir: str) -> None:
    """With `Options(exclusive_logdir=False)` no chief is refused."""
    build_model()
    with ours.Supervisor(logdir=logdir).managed_session():
        assert train(options=Options(exclusive_logdir=False)) == (0, 0)
