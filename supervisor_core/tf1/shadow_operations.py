"""`ShadowOperations`: what `supervisor_core.tf1.shadows.Shadows` adds to a graph.

What is put aside waits in a staging area (``Stage``), so that a model of a thousand variables needs no more
than a few operations; only big copies have variables of their own, which can be filled in place. It is in the host's
memory: an accelerator's has rarely room for a second model.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from supervisor_core.checkpoint.bundle_writer import TensorData
from supervisor_core.tf1.saver_graph import Item, SaverGraph, Shard, Source, Unshadowable

BIG_BYTES = 32 << 20
"""From this size the C library takes an allocation's memory from the system each time: its pages appear one by one as
they are first written, which takes several times as long as copying does."""

_NUMBERS = frozenset(
    {tf.bool, tf.bfloat16, tf.half, tf.float32, tf.float64, tf.complex64, tf.complex128}
    | {tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8, tf.uint16, tf.uint32, tf.uint64}
)
_COPYABLE = _NUMBERS | {tf.string}
"""What TensorFlow can copy in memory."""

_DENSE = frozenset(
    {
        "AssignAddVariableOp",
        "AssignSubVariableOp",
        "AssignVariableOp",
        "DestroyResourceOp",
        "DisableCopyOnRead",
        "ReadVariableOp",
        "VarIsInitializedOp",
        "VariableShape",
    }
)
"""What uses a resource variable as a whole, ``ResourceApply...`` apart."""

_FRESH = frozenset({"LookupTableExport", "LookupTableExportV2"})
"""What hands out values of its own, that nothing writes into afterwards."""


class ShadowOperations:
    """The operations that put a saver's values aside, write them and drop them; made in the default graph.

    Args:
        saved: what the saver saves.
        step: the global step, to be fetched with the snapshot; None for none.

    Raises:
        Unshadowable: if one of the values cannot be copied. Nothing was added then.
    """

    def __init__(self, saved: SaverGraph, step: Item | None) -> None:
        for item in (*saved.items, *([] if step is None else [step])):
            if item.source.kind != "resource" and item.source.dtype not in _COPYABLE:
                raise Unshadowable(f"{item.name} is a {item.source.dtype.name}, which cannot be copied")
        self._unique = f"supervisor_shadow/{uuid.uuid4().hex}"
        self._taken: dict[str, Any] = {}
        self._stored: dict[str, Any] = {}
        self.prepare: list[Any] = []
        self.take: list[Any] = []
        self.drop: list[Any] = []
        sources: dict[str, list[str]] = {}
        for item in saved.items:
            source = item.source
            if source.key in self._taken or source.key in self._stored:
                continue
            host = _host(source.tensor.op.device)
            with tf.device(host):
                if _is_big(source):
                    self._copy_in_place(source)
                else:
                    self._taken[source.key] = _value(item)
                    sources.setdefault(host, []).append(source.key)
        for host, keys in sources.items():
            with tf.device(host):
                self._stage(keys, f"{self._unique}/stage{len(self.take)}")
        self.step = [] if step is None else [self._taken.get(step.source.key, step.value)]
        self._by_source: dict[str, list[Item]] = {}
        for item in saved.items:
            self._by_source.setdefault(item.source.key, []).append(item)
        numbers = all(item.source.dtype in _NUMBERS and not item.slice_spec for item in saved.items)
        # What TensorFlow's own writer has to do: text, parts of variables, shards of several devices.
        direct = numbers and len(saved.shards) == 1
        self.fetches = [self._stored[key] for key in self._by_source] if direct else []
        self.prefixes = [tf.compat.v1.placeholder(tf.string, [], name="prefix")]
        self.write = self._write(saved)

    def tensors(self, values: list[Any]) -> Iterator[TensorData]:
        """The values of ``fetches`` as they go into a checkpoint; each is let go of when the next one is asked for."""
        values.reverse()
        for items in self._by_source.values():
            value = np.asarray(values.pop())
            data = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
            for item in items:
                yield TensorData(item.name, item.source.dtype.as_datatype_enum, value.shape, data)
            del value, data

    def _stage(self, keys: list[str], name: str) -> None:
        values = [self._taken[key] for key in keys]
        dtypes = [value.dtype.base_dtype for value in values]
        self.take.append(tf.raw_ops.Stage(values=values, shared_name=name))
        self._stored.update(zip(keys, tf.raw_ops.Unstage(dtypes=dtypes, shared_name=name), strict=True))
        self.drop.append(tf.raw_ops.StageClear(dtypes=dtypes, shared_name=name))

    def _copy_in_place(self, source: Source) -> None:
        """Allocate beforehand (what is copied then does not count), and only copy between two steps."""
        rank = source.shape.rank
        everything = (1 << rank) - 1
        handle = tf.raw_ops.VarHandleOp(
            dtype=source.dtype, shape=source.shape, shared_name=f"{self._unique}/copy{len(self.prepare)}"
        )
        copy = tf.raw_ops.DeepCopy(x=source.tensor)
        self.prepare.append(tf.raw_ops.AssignVariableOp(resource=handle, value=copy))
        self.take.append(
            tf.raw_ops.ResourceStridedSliceAssign(
                ref=handle,
                begin=[0] * rank,
                end=[0] * rank,
                strides=[1] * rank,
                value=source.tensor,
                begin_mask=everything,
                end_mask=everything,
            )
        )
        self._stored[source.key] = _shared(handle, source.dtype)
        self.drop.append(tf.raw_ops.DestroyResourceOp(resource=handle, ignore_lookup_error=True))

    def _write(self, saved: SaverGraph) -> Any:
        if saved.merge_device is None:
            return self._save(saved.shards[0], self.prefixes[0])
        part = tf.compat.v1.placeholder(tf.string, [], name="part")
        self.prefixes.append(part)
        names, saves = [], []
        for number, shard in enumerate(saved.shards):
            with tf.device(shard.device):
                names.append(tf.raw_ops.ShardedFilename(basename=part, shard=number, num_shards=len(saved.shards)))
            saves.append(self._save(shard, names[-1]))
        with tf.device(saved.merge_device), tf.control_dependencies(saves):
            return tf.raw_ops.MergeV2Checkpoints(
                checkpoint_prefixes=tf.stack(names), destination_prefix=self.prefixes[0], delete_old_dirs=True
            )

    def _save(self, shard: Shard, prefix: Any) -> Any:
        with tf.device(_host(shard.device)):
            return tf.raw_ops.SaveV2(
                prefix=prefix,
                tensor_names=[item.name for item in shard.items],
                shape_and_slices=[item.slice_spec for item in shard.items],
                tensors=[self._stored[item.source.key] for item in shard.items],
            )


def _value(item: Item) -> Any:
    """The tensor to put aside for an item: one that nothing writes into afterwards."""
    source = item.source
    if source.kind == "resource":
        if _is_updated_densely(source.tensor):
            return item.value
        with tf.device(source.tensor.op.device):
            return _shared(source.tensor, source.dtype)
    return item.value if item.value.op.type in _FRESH else tf.raw_ops.DeepCopy(x=source.tensor)


def _shared(handle: Any, dtype: Any) -> Any:
    """A resource variable's value, without a copy: updating parts makes each reading one, until this takes it back."""
    with tf.control_dependencies([tf.raw_ops.DisableCopyOnRead(resource=handle)]):
        return tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype)


def _is_updated_densely(handle: Any) -> bool:
    """Whether nothing updates, or may update, parts of this variable."""
    return all(op.type in _DENSE or op.type.startswith("ResourceApply") for op in handle.consumers())


def _is_big(source: Source) -> bool:
    if source.kind != "ref" or source.dtype == tf.string or not source.shape.is_fully_defined():
        return False
    return bool(source.shape.rank and source.shape.num_elements() * source.dtype.size >= BIG_BYTES)


def _host(device: str) -> str:
    """The host of a device."""
    return str(tf.DeviceSpec.from_string(device).replace(device_type="CPU", device_index=0).to_string())
