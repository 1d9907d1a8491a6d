"""The master string ``local``: a session of this process that goes through a server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

import supervisor_core
from supervisor_core.tf1.cluster.connect import LocalMaster
from supervisor_core.tf1.session_manager import SessionManager
from tests.cases import each

v1 = tf.compat.v1


@each("master", ["", "grpc://a:1", "locally"])
def test_other_masters_stay_as_they_are(master: str) -> None:
    """No server is made for them."""
    local = LocalMaster()
    assert local.target_of(master) == master
    assert local._server is None


@each("master", ["local", b"local"])
def test_one_server_for_all_sessions(master: Any) -> None:
    """Of one who makes sessions; another has another one, where no strange variables are."""
    local = LocalMaster()
    target = local.target_of(master)
    assert target.startswith("grpc://")
    assert local.target_of(master) == target
    assert LocalMaster().target_of(master) != target


def test_chief_and_worker_meet_there(graph: Any, build_model: Callable[..., Any]) -> None:
    """A session that waits finds the model which another of the same manager has made ready."""
    with tf.device("/cpu:0"):
        model = build_model()
    ready = v1.report_uninitialized_variables()
    manager = SessionManager(ready_op=ready, recovery_wait_secs=0.01)
    with manager.prepare_session("local", init_op=v1.global_variables_initializer()) as chief:
        chief.run(model.train_op)
        with manager.wait_for_session("local", max_wait_secs=60) as worker:
            assert worker.run(model.global_step) == 1


def test_both_facades_take_it(build_model: Callable[..., Any], logdir: str) -> None:
    """And resume from each other's checkpoints."""
    with tf.Graph().as_default():
        model = build_model()
        with supervisor_core.Supervisor(logdir=logdir).managed_session("local") as sess:
            sess.run(model.train_op)
    with tf.Graph().as_default():
        model = build_model()
        with supervisor_core.MonitoredTrainingSession("local", checkpoint_dir=logdir) as sess:
            sess.run(model.train_op)
            assert sess.run(model.global_step) == 2
