"""`SaverGraph`: what a saver writes, read off the operations that it has put into the graph.

A ``tf.compat.v1.train.Saver`` is a handful of operations around one or more ``SaveV2``, however it was made (from a
list, a dictionary, an imported meta graph, sharded, of partitioned variables). Each ``SaveV2`` has the names, the
slices and the values that go into one shard:

    filename -> SaveV2 -> identity                                                      unsharded
    filename -> StringJoin -> ShardedFilename -> SaveV2 (per device) -> MergeV2Checkpoints -> Identity   sharded

From each value the way leads back to the variable that it is read from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import tensorflow as tf

from supervisor_core.base.errors import OptionsError
from supervisor_core.tf1.graph import needs, reached

_VARIABLES = frozenset({"AutoReloadVariable", "TemporaryVariable", "Variable", "VariableV2"})
_NAMING = {"RegexFullMatch", "Select", "SelectV2", "ShardedFilename", "StaticRegexFullMatch", "StringJoin"}
_PLAIN = {"Const", "Identity", "NoOp", "Pack", "Placeholder", "PlaceholderWithDefault"}
_FRAME = frozenset({"MergeV2Checkpoints", "SaveV2", *_NAMING, *_PLAIN})
"""What a saver's save operation may consist of for its meaning to be known."""


class CannotSnapshot(Exception):  # noqa: N818 - an answer, caught by whoever asks
    """This saver can only be run as it is; the text says why, as the end of a sentence."""


@dataclass(frozen=True)
class SaverSource:
    """Where a saved value comes from."""

    kind: Literal["resource", "ref", "plain"]
    """A resource variable, a ref variable, or a value that something else computes (a table's export)."""
    tensor: Any
    """The variable's handle, its reference, or the value."""
    dtype: Any
    shape: Any
    """The static shape, which need not be known."""

    @property
    def key(self) -> str:
        """The same for two values that come from one source."""
        return str(self.tensor.name)


@dataclass(frozen=True)
class Item:
    """One entry of a checkpoint."""

    name: str
    slice_spec: str
    """Which part of a partitioned variable this is, as ``SaveV2`` takes it; empty for a whole one."""
    value: Any
    """The tensor that the saver itself writes."""
    source: SaverSource


@dataclass(frozen=True)
class SaverGraph:
    """What a saver writes."""

    shards: tuple[tuple[Item, ...], ...]
    """What each ``SaveV2`` writes."""
    merge_device: str | None
    """Where the shards are merged into one checkpoint; None for a saver that is not sharded."""

    @property
    def items(self) -> Iterator[Item]:
        """The entries of all shards."""
        return (item for shard in self.shards for item in shard)


def read_saver(graph: Any, saver: Any) -> SaverGraph:
    """Read off the graph what a saver writes.

    Args:
        graph: the graph that the saver was made for.
        saver: a ``tf.compat.v1.train.Saver``.

    Raises:
        CannotSnapshot: if that is not certain, or cannot be written in any other way.
        OptionsError: if it writes the older format.
    """
    if has_own_save(saver):
        raise CannotSnapshot(f"{type(saver).__name__} has a save() of its own")
    saver_def = saver.saver_def
    if saver_def is None:
        raise CannotSnapshot("the saver has nothing to save, or was not built")
    if saver_def.version == tf.compat.v1.train.SaverDef.V1:
        raise OptionsError(
            "The saver writes TensorFlow's older format (SaverDef.V1), which is not read here; expected V2. Leave "
            "write_version out: V2 is the default."
        )
    try:
        end = graph.get_tensor_by_name(saver_def.save_tensor_name).op
        filename = graph.get_tensor_by_name(saver_def.filename_tensor_name)
    except (KeyError, ValueError) as error:
        raise CannotSnapshot(f"the saver's operations are not in this graph: {error}") from error
    saves, merges = _find_saves(end)
    merge = merges[0] if merges else None
    if len(merges) > 1 or (merge is None and len(saves) != 1) or not saves:
        raise CannotSnapshot(f"its save operation has {len(saves)} SaveV2 and {len(merges)} MergeV2Checkpoints")
    for save in saves:
        _check_prefix(save, filename, sharded=merge is not None)
    return SaverGraph(
        tuple(_shard(save) for save in sorted(saves, key=_shard_number)), None if merge is None else merge.device
    )


def has_own_save(saver: Any) -> bool:
    """Return whether a saver's ``save`` is not TensorFlow's, so that only itself knows what it does."""
    return getattr(type(saver), "save", None) is not tf.compat.v1.train.Saver.save or "save" in vars(saver)


def source_of(tensor: Any) -> SaverSource:
    """Return where a tensor's value comes from: the variable it is read from, or the tensor itself."""
    found = tensor
    while True:
        op = found.op
        shape = tensor.shape
        if op.type in _VARIABLES:
            return SaverSource("ref", found, found.dtype.base_dtype, shape)
        if not all(control.type == "DisableCopyOnRead" for control in op.control_inputs):
            break  # something happens before it is read; only the tensor itself knows
        if op.type == "ReadVariableOp":
            return SaverSource("resource", op.inputs[0], found.dtype, shape)
        if op.type != "Identity":
            break
        found = op.inputs[0]
    return SaverSource("plain", tensor, tensor.dtype.base_dtype, tensor.shape)


def check_is_local(sources: Iterable[SaverSource], devices: Callable[[], Iterable[str]]) -> None:
    """Raise `CannotSnapshot` if other processes of a cluster may change these values: it cannot hold their steps.

    Variables without a job are this process's own. Those of a job are taken for shared as soon as there is another job
    or task too, as there is wherever a model is trained with parameter servers.

    Args:
        devices: returns those of the graph's operations, or those that a session knows; asked only where it matters.
    """
    homes = {task for source in sources if (task := _task(source.tensor.op.device))}
    tasks = {task for device in devices() if (task := _task(device))} if homes else set()
    if len(homes) > 1 or any(not _agree(task, other) for task in homes for other in tasks):
        raise CannotSnapshot(f"its variables live on {_listed(homes)} of a cluster with {_listed(tasks | homes)}")


def _find_saves(end: Any) -> tuple[list[Any], list[Any]]:
    ops = list(reached([end], _frame_before))
    saves = [op for op in ops if op.type == "SaveV2"]
    return saves, [op for op in ops if op.type == "MergeV2Checkpoints"]


def _frame_before(op: Any) -> list[Any]:
    """The operations around ``SaveV2`` before this one: not those that compute the values."""
    if op.type not in _FRAME:
        raise CannotSnapshot(f"its save operation runs {op.type} ({op.name})")
    if op.type != "SaveV2":
        return needs(op)
    return [*(tensor.op for tensor in op.inputs[:3]), *op.control_inputs]  # prefix, names and slices


def _check_prefix(save: Any, filename: Any, *, sharded: bool) -> None:
    prefix = save.inputs[0]
    if sharded and prefix.op.type != "ShardedFilename":
        raise CannotSnapshot(f"the shard of {save.name} is named by {prefix.op.type}")
    while not sharded and prefix is not filename:
        if prefix.op.type != "Identity":
            raise CannotSnapshot(f"{save.name} writes to {prefix.name}, not to {filename.name}")
        prefix = prefix.op.inputs[0]


def _shard_number(save: Any) -> int:
    prefix = save.inputs[0].op
    number = tf.get_static_value(prefix.inputs[1]) if prefix.type == "ShardedFilename" else 0
    if number is None:
        raise CannotSnapshot(f"the number of the shard of {save.name} is computed")
    return int(number)


def _shard(save: Any) -> tuple[Item, ...]:
    names, slices = (tf.get_static_value(tensor) for tensor in save.inputs[1:3])
    if names is None or slices is None:
        raise CannotSnapshot(f"the names of {save.name} are computed")
    items = []
    for name, slice_spec, tensor in zip(names, slices, save.inputs[3:], strict=True):
        if tensor.dtype.base_dtype in (tf.resource, tf.variant):
            raise CannotSnapshot(f"{name.decode()} is a {tensor.dtype.base_dtype.name}")
        items.append(Item(name.decode(), slice_spec.decode(), tensor, source_of(tensor)))
    return tuple(items)


def _task(device: str) -> tuple[str, int | None] | None:
    if "job:" not in device:
        return None
    spec = tf.DeviceSpec.from_string(device)
    return spec.job, spec.task


def _agree(task: tuple[str, int | None], other: tuple[str, int | None]) -> bool:
    return task[0] == other[0] and (task[1] == other[1] or None in (task[1], other[1]))


def _listed(tasks: set[tuple[str, int | None]]) -> str:
    return ", ".join(sorted(f"/job:{job}" + ("" if task is None else f"/task:{task}") for job, task in tasks))
