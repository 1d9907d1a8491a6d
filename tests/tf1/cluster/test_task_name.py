"""What a worker is called: as it says itself, as the environment says, as its graph shows."""

from __future__ import annotations

import json
import os
import socket
from typing import Any

import pytest
import tensorflow as tf

from supervisor_core.base.options import Options
from supervisor_core.tf1.cluster.task import task_name

v1 = tf.compat.v1


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is said but what a test says."""
    monkeypatch.delenv("TF_CONFIG", raising=False)


def place(*devices: str) -> None:
    """Add an op on each device to the default graph."""
    for device in devices:
        with tf.device(device):
            v1.placeholder(tf.float32, [])


def test_as_it_says_itself(graph: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An option comes before all else, which is not even read."""
    monkeypatch.setenv("TF_CONFIG", "{nonsense")
    place("/job:worker/task:3")
    assert task_name(Options(worker_name="left-hand"), graph) == "left-hand"


def test_as_the_environment_says(graph: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """TF_CONFIG comes before the graph."""
    cluster = {"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(cluster))
    place("/job:worker/task:3")
    assert task_name(Options(), graph) == "worker:1"


@pytest.mark.parametrize(
    ("devices", "name"),
    [
        (("/job:worker/task:3",), "worker:3"),
        (("/job:ps/task:0", "/job:worker/replica:0/task:3/device:CPU:0", "/job:ps/task:1"), "worker:3"),
        (("/job:worker/task:03/device:GPU:1", "/job:worker/task:3/device:GPU:0"), "worker:3"),
        (("/device:CPU:0", "/job:trainer/task:0"), "trainer:0"),
    ],
)
def test_as_its_graph_shows(graph: Any, devices: tuple[str, ...], name: str) -> None:
    """By the one task, parameter servers aside, that its operations are placed on."""
    place(*devices)
    assert task_name(Options(), graph) == name


@pytest.mark.parametrize(
    "devices", [(), ("/device:CPU:0",), ("/job:ps/task:0",), ("/job:worker/task:0", "/job:worker/task:1")]
)
def test_nothing_says(graph: Any, devices: tuple[str, ...]) -> None:
    """Then it is called by its machine and its process; an environment without a cluster says nothing either."""
    place(*devices)
    assert task_name(Options(), graph) == f"{socket.gethostname()}-{os.getpid()}"


def test_an_environment_that_makes_no_sense(
    graph: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It does not prevent training: a warning is logged, and the graph gives the name."""
    monkeypatch.setenv("TF_CONFIG", "{nonsense")
    place("/job:worker/task:3")
    assert task_name(Options(), graph) == "worker:3"
    assert "TF_CONFIG is not JSON" in caplog.text
