"""The master string ``local``: a session of this process that goes through a server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

import supervisor_core
from supervisor_core.tf1.cluster.connect import LocalMaster
from tests.cases import each


@each("master", ["local", b"local"])
def test_one_server_for_all_sessions(master: Any) -> None:
    """Of one who makes sessions; another has another one, where no strange variables are."""
    local = LocalMaster()
    target = local.target_of(master)
    assert target.startswith("grpc://")
    assert local.target_of(master) == target
    assert LocalMaster().target_of(master) != target


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
