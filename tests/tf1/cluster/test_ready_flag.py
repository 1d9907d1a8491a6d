"""`ReadyFlag`: a chief marks its model as ready, in a variable beside the model's."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

from supervisor_core.tf1.cluster.ready_flag import ReadyFlag, ready_flag_for

v1 = tf.compat.v1
CPU = "/device:CPU:0"


def ops_of(graph: Any) -> list[Any]:
    """Return the operations that a graph has for the ready_flag."""
    return [op for op in graph.get_operations() if op.name.startswith("supervisor_model_is_ready")]


def test_nothing_is_announced_at_first(graph: Any) -> None:
    """What is missing is said, for the ready check; by whom is not known."""
    mark = ReadyFlag(graph, CPU)
    with v1.Session(v1.train.Server.create_local_server().target) as sess:
        assert sess.run(mark.missing).tolist() == [b"the chief is still initialising the model (init_fn)"]
        assert mark.set_by(sess) is None


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


def test_the_last_one_to_announce_is_known(graph: Any) -> None:
    """After `clear` it is as if never set; clearing an unset flag is no error."""
    mark = ReadyFlag(graph, CPU)
    with v1.Session() as sess:
        mark.clear(sess)
        mark.set(sess, "a")
        mark.set(sess, "b")
        assert mark.set_by(sess) == "b"
        mark.clear(sess)
        assert mark.set_by(sess) is None
        assert sess.run(mark.missing).size == 1


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


def test_the_mark_is_in_no_collection(graph: Any) -> None:
    """It is neither saved, nor initialised, nor counted among the model's variables."""
    before = {name: list(graph.get_collection(name)) for name in graph.get_all_collection_keys()}
    ReadyFlag(graph, CPU)
    assert {name: list(graph.get_collection(name)) for name in graph.get_all_collection_keys()} == before


def test_a_graph_without_placed_variables_needs_none(graph: Any) -> None:
    """No other process sees a variable without a device; an empty graph has none."""
    assert ready_flag_for(graph) is None
    v1.get_variable("weight", initializer=1.0)
    assert ready_flag_for(graph) is None
    assert ops_of(graph) == []


@pytest.mark.parametrize("resource", [True, False])
def test_the_mark_is_where_the_variables_are(graph: Any, resource: bool) -> None:
    """On the device of the first of them; what is placed elsewhere in the program around it counts for nothing."""
    with tf.device("/job:ps/task:1"):
        v1.get_variable("weight", initializer=1.0, use_resource=resource)
    with tf.device("/job:ps/task:0"):
        v1.get_variable("bias", initializer=1.0, use_resource=resource)
        assert ready_flag_for(graph) is not None
    assert {op.device for op in ops_of(graph)} == {"/job:ps/task:1/device:CPU:0"}


def test_the_mark_is_where_all_can_see_it(graph: Any) -> None:
    """Not on the worker's own device, though its first variable, which is local to it, or even a global one, is."""
    with tf.device("/job:worker/task:1"):
        v1.get_variable("count", initializer=1.0, collections=[v1.GraphKeys.LOCAL_VARIABLES])
        v1.get_variable("own", initializer=1.0)
    with tf.device("/job:ps/task:0"):
        v1.get_variable("weight", initializer=1.0)
    assert ready_flag_for(graph) is not None
    assert {op.device for op in ops_of(graph)} == {"/job:ps/task:0/device:CPU:0"}


def test_local_variables_alone_need_no_mark(graph: Any) -> None:
    """They are each worker's own: no chief initialises them."""
    with tf.device("/job:worker/task:1"):
        v1.get_variable("count", initializer=1.0, collections=[v1.GraphKeys.LOCAL_VARIABLES])
    assert ready_flag_for(graph) is None


def test_variables_on_a_gpu(graph: Any) -> None:
    """The mark is a text, which no GPU can hold: it is in the memory of the same task."""
    with tf.device("/job:ps/task:0/device:GPU:1"):
        v1.get_variable("weight", initializer=1.0)
    ready_flag_for(graph)
    assert {op.device for op in ops_of(graph)} == {"/job:ps/task:0/device:CPU:0"}


def test_a_mark_needs_no_program_around_it(graph: Any) -> None:
    """Neither control dependencies nor name scopes of the place where it is made matter."""
    with v1.variable_scope("tower"), tf.device(CPU):
        weight = v1.get_variable("weight", initializer=1.0)
        with tf.control_dependencies([weight]):
            mark = ready_flag_for(graph)
    assert mark is not None
    assert not any(op.control_inputs for op in ops_of(graph))
    with v1.Session() as sess:
        mark.set(sess, "a")
        assert mark.set_by(sess) == "a"
