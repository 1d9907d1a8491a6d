"""`ReadyFlag`: a chief marks its model as ready, in a variable beside the model's."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

from supervisor_core.tf1.session_manager import ReadyFlag, ready_flag_for

v1 = tf.compat.v1
CPU = "/device:CPU:0"


def ops_of(graph: Any) -> list[Any]:
    """Return the operations that a graph has for the ready_flag."""
    return [op for op in graph.get_operations() if op.name.startswith("supervisor_model_is_ready")]


@pytest.mark.parametrize("name", ["6f1d3c0a9b7e4d21", "", "Zähler 1"])
def test_the_mark_outlives_its_session(graph: Any, name: str) -> None:
    """Others see it in sessions of their own on the same cluster, and whose it is."""
    mark = ReadyFlag(graph, CPU)
    target = v1.train.Server.create_local_server().target
    with v1.Session(target) as sess:
        mark.set(sess, name)
    with v1.Session(target) as sess:
        assert sess.run(mark.missing).tolist() == []
        assert mark.set_by(sess) == name


@pytest.mark.parametrize(
    ("name", "shape", "dtype", "device"),
    [
        ("bias", [2], tf.float32, CPU),
        ("weight", [3], tf.float32, CPU),
        ("weight", [2], tf.float64, CPU),
        ("weight", [2], tf.float32, "/device:CPU:1"),
    ],
)
def test_another_model_is_not_the_one_announced(name: str, shape: list[int], dtype: Any, device: str) -> None:
    """A program that was changed between two chiefs finds no model, rather than one that does not fit."""

    def model(name: str, shape: list[int], dtype: Any, device: str) -> Any:
        graph = tf.Graph()
        with graph.as_default(), tf.device(device):
            v1.get_variable(name, shape, dtype)
        return graph, ReadyFlag(graph, CPU)

    target = v1.train.Server.create_local_server().target
    graph, mark = model("weight", [2], tf.float32, CPU)
    with v1.Session(target, graph=graph) as sess:
        mark.set(sess, "a")
    same, mark = model("weight", [2], tf.float32, CPU)
    with v1.Session(target, graph=same) as sess:
        assert mark.set_by(sess) == "a"
    other, mark = model(name, shape, dtype, device)
    with v1.Session(target, graph=other) as sess:
        assert mark.set_by(sess) is None
        assert sess.run(mark.missing).size == 0


def test_a_graph_without_placed_variables_needs_none(graph: Any) -> None:
    """No other process sees a variable without a device; an empty graph has none."""
    assert ready_flag_for(graph) is None
    v1.get_variable("weight", initializer=1.0)
    assert ready_flag_for(graph) is None
    assert ops_of(graph) == []


def test_the_mark_is_where_all_can_see_it(graph: Any) -> None:
    """Not on the worker's own device, though its first variable, which is local to it, or even a global one, is."""
    with tf.device("/job:worker/task:1"):
        v1.get_variable("count", initializer=1.0, collections=[v1.GraphKeys.LOCAL_VARIABLES])
        v1.get_variable("own", initializer=1.0)
    with tf.device("/job:ps/task:0"):
        v1.get_variable("weight", initializer=1.0)
    assert ready_flag_for(graph) is not None
    assert {op.device for op in ops_of(graph)} == {"/job:ps/task:0/device:CPU:0"}
