"""Reading off the graph what a saver writes: every way of making one, and what stays unknown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from supervisor_core.tf1.saver_graph import CannotSnapshot, check_is_local, has_own_save, read_saver, source_of

v1 = tf.compat.v1


def variable(name: str, *, resource: bool = True, shape: tuple[int, ...] = (2,)) -> Any:
    """A variable of the default graph."""
    return v1.get_variable(name, shape, initializer=v1.zeros_initializer(), use_resource=resource)


def reason(graph: Any, saver: Any) -> str:
    """Why this saver is refused."""
    with pytest.raises(CannotSnapshot) as caught:
        read_saver(graph, saver)
    return str(caught.value)


def test_a_default_saver_is_read_back_to_its_variables(graph: Any) -> None:
    """Names, kinds and types of what a saver of all variables writes are found, whatever they are read through."""
    variable("resource"), variable("reference", resource=False)
    found = read_saver(graph, v1.train.Saver())
    assert found.merge_device is None
    [shard] = found.shards
    assert [(item.name, item.slice_spec, item.source.kind, item.source.dtype) for item in shard] == [
        ("reference", "", "ref", tf.float32),
        ("resource", "", "resource", tf.float32),
    ]
    assert [item.source.tensor.op.type for item in shard] == ["VariableV2", "VarHandleOp"]


@pytest.mark.parametrize("resource", [True, False])
def test_a_dictionary_renames_and_partitions_keep_their_slices(graph: Any, resource: bool) -> None:
    """The names are the saver's, not the graph's; each part of a partitioned variable has its slice."""
    plain = variable("plain", resource=resource)
    parts = v1.get_variable("parts", [4, 3], partitioner=v1.fixed_size_partitioner(2), use_resource=resource)
    [shard] = read_saver(graph, v1.train.Saver({"renamed": plain, "whole": parts})).shards
    assert [(item.name, item.slice_spec) for item in shard] == [
        ("renamed", ""),
        ("whole", "4 3 0,2:0,3"),
        ("whole", "4 3 2,2:0,3"),
    ]
    assert {item.source.kind for item in shard} == {"resource" if resource else "ref"}


def test_a_sharded_saver_has_a_shard_for_each_device(graph: Any) -> None:
    """Shards come in the order of their numbers, each with its device, and with the device that merges them."""
    for number in (1, 0):
        with tf.device(f"/device:CPU:{number}"):
            variable(f"v{number}")
    found = read_saver(graph, v1.train.Saver(sharded=True))
    assert [[item.name for item in shard] for shard in found.shards] == [["v0"], ["v1"]]
    assert found.merge_device == "/device:CPU:0"


def test_a_value_read_after_something_else_is_not_taken_for_the_variable(graph: Any) -> None:
    """Where a reading waits for an operation, reading the variable in its stead would miss what that does."""
    resource = variable("v")
    with tf.control_dependencies([tf.no_op()]):
        later = tf.identity(resource.read_value())
        read_later = resource.read_value()
    assert source_of(later).kind == "plain"
    assert source_of(read_later).kind == "plain"
    assert source_of(tf.identity(resource)).kind == "resource"


def test_a_saver_whose_meaning_is_not_known_is_refused(graph: Any) -> None:
    """Each kind of saver that can only be run as it is gets a reason that names it."""

    class OwnSaver(v1.train.Saver):
        def save(self, *args: Any, **kwargs: Any) -> Any:
            return super().save(*args, **kwargs)

    assert "nothing to save" in reason(graph, v1.train.Saver(allow_empty=True))
    tensor = variable("v")
    assert "OwnSaver has a save() of its own" in reason(graph, OwnSaver())
    assert "object has a save() of its own" in reason(graph, object())
    patched = v1.train.Saver()
    patched.save = lambda *args, **kwargs: None
    assert has_own_save(patched) and not has_own_save(v1.train.Saver())
    assert "not in this graph" in reason(tf.Graph(), v1.train.Saver())
    assert "not built" in reason(graph, v1.train.Saver(defer_build=True))
    del tensor


def make_builder(save_op: Callable[..., Any]) -> Any:
    """A saver's builder whose save operation is made by this function, from the usual one."""
    from tensorflow.python.training.saver import BulkSaverBuilder

    class Builder(BulkSaverBuilder):
        pass

    Builder.save_op = lambda self, filename, saveables: save_op(super(Builder, self).save_op, filename, saveables)
    return Builder()


def test_a_builder_that_does_more_than_saving_is_refused(graph: Any) -> None:
    """A save operation that runs anything unknown, or writes elsewhere, is left alone."""
    variable("v")

    def also_print(save: Any, filename: Any, saveables: Any) -> Any:
        with tf.control_dependencies([tf.print("saving")]):
            return save(filename, saveables)

    def elsewhere(save: Any, filename: Any, saveables: Any) -> Any:
        return save(tf.strings.join([filename, "-x"]), saveables)

    def twice(save: Any, filename: Any, saveables: Any) -> Any:
        return tf.group(save(filename, saveables), save(filename, saveables))

    assert "runs PrintV2" in reason(graph, v1.train.Saver(builder=make_builder(also_print)))
    assert "writes to" in reason(graph, v1.train.Saver(builder=make_builder(elsewhere)))
    assert "has 2 SaveV2" in reason(graph, v1.train.Saver(builder=make_builder(twice)))


def sources(*devices: str) -> list[Any]:
    """Variables on these devices."""
    found = []
    for number, device in enumerate(devices):
        with tf.device(device):
            found.append(source_of(variable(f"v{number}").handle.op.outputs[0]))
    return found


def test_variables_of_a_cluster_are_not_this_process_s_own(graph: Any) -> None:
    """Where a graph or a session reaches further than the variables' own task, other processes may change them."""
    worker, server = "/job:worker/task:0/device:CPU:0", "/job:ps/task:0/device:CPU:0"
    own, remote = sources("", "/job:ps/task:0")
    check_is_local([own], lambda: pytest.fail("no one needs to look"))
    check_is_local([own, remote], lambda: ["", server, "/job:ps/device:CPU:1"])
    for devices in ([worker, server], ["/job:ps/task:1"], [worker]):
        with pytest.raises(CannotSnapshot, match="/job:ps/task:0 of a cluster with /job:"):
            check_is_local([own, remote], devices.copy)
