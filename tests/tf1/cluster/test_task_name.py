"""What a worker is called: as it says itself, as the environment says, as its graph shows."""

from __future__ import annotations

import json
import os
import socket

import pytest
import tensorflow as tf

from supervisor_core.base.options import Options
from supervisor_core.tf1.cluster.task import task_name

v1 = tf.compat.v1


UNKNOWN = f"{socket.gethostname()}-{os.getpid()}"
GRAPHS = [
    (("/job:worker/task:3",), "worker:3"),
    (("/job:ps/task:0", "/job:worker/replica:0/task:3/device:CPU:0", "/job:ps/task:1"), "worker:3"),
    (("/job:worker/task:03/device:GPU:1", "/job:worker/task:3/device:GPU:0"), "worker:3"),
    (("/device:CPU:0", "/job:trainer/task:0"), "trainer:0"),
    ((), UNKNOWN),
    (("/device:CPU:0",), UNKNOWN),
    (("/job:ps/task:0",), UNKNOWN),
    (("/job:worker/task:0", "/job:worker/task:1"), UNKNOWN),
]


def test_a_worker_is_named_by_options_environment_or_graph(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """In this order; by the one task, parameter servers aside, that its operations are placed on, or else by its
    machine and its process. An environment that makes no sense is warned of, and does not prevent training."""
    cluster = {"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}}
    for devices, expected in GRAPHS:
        with tf.Graph().as_default() as graph:
            for device in devices:
                with tf.device(device):
                    v1.placeholder(tf.float32, [])
        monkeypatch.delenv("TF_CONFIG", raising=False)
        assert task_name(Options(), graph) == expected
        monkeypatch.setenv("TF_CONFIG", json.dumps(cluster))
        assert task_name(Options(), graph) == "worker:1"
        monkeypatch.setenv("TF_CONFIG", "{nonsense")
        assert task_name(Options(worker_name="left-hand"), graph) == "left-hand"
        assert "TF_CONFIG is not JSON" not in caplog.text
        assert task_name(Options(), graph) == expected
        assert "TF_CONFIG is not JSON" in caplog.text
        caplog.clear()
