"""`Shadows`: holds one moment of the model, beside the model, while it is written to disk.

    prepare   big copies of ref variables get their memory, while training goes on
    take      between two steps, every value that the saver saves is put aside: a resource variable's by sharing its
              buffer, of which the variable's next update makes a copy (0.1 ms for 500 MB); a ref variable's by copying
              it, since its updates write into the buffer whoever else reads it
    write     what was put aside is written under the saver's names, while training goes on
    drop      nothing is held any longer

What was put aside waits in a staging area of the graph (TensorFlow's ``Stage``), so that a model of a thousand
variables needs no more than a few operations; only big copies have variables of their own, which can be filled in
place. It is in the host's memory: an accelerator's has rarely room for a second model.
"""

from __future__ import annotations

import uuid
from typing import Any

import tensorflow as tf

from supervisor_core.tf1.global_step import step_value
from supervisor_core.tf1.prepared_run import PreparedRun
from supervisor_core.tf1.saver_graph import (
    Item,
    SaverGraph,
    Shard,
    Source,
    Unshadowable,
    check_is_local,
    read_saver,
    source_of,
)

SCOPE = "supervisor_shadow"
"""The name scope of every operation that is added to the graph."""

BIG_BYTES = 32 << 20
"""From this size the C library takes an allocation's memory from the system each time: its pages appear one by one as
they are first written, which takes several times as long as copying does."""

_COPYABLE = frozenset(
    {tf.bool, tf.string, tf.bfloat16, tf.half, tf.float32, tf.float64, tf.complex64, tf.complex128}
    | {tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8, tf.uint16, tf.uint32, tf.uint64}
)
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


class Shadows:
    """The shadows of one saver's values in one graph. Not thread-safe: one save at a time.

    Made by `Shadows.build`; used in the order of the module's docstring, after `bind`.
    """

    def __init__(self, operations: _Operations, sources: list[Source], step_name: str | None) -> None:
        self._operations = operations
        self._sources = sources
        self._session: Any = None
        self._taken = False
        self._holding = False
        self.step_name = step_name
        """The name under which the saver saves the global step; None if it does not."""

    @classmethod
    def build(cls, graph: Any, saver: Any, global_step: Any = None) -> Shadows:
        """Add the shadows of what a saver saves to its graph.

        Args:
            graph: the graph, not finalized.
            saver: a ``tf.compat.v1.train.Saver``; it stays as it is.
            global_step: an integer of size 1 in the graph, variable or tensor, to be read in the same moment.

        Raises:
            Unshadowable: if this saver can only be run as it is; says why. Nothing was added then.
        """
        if graph.finalized:
            raise Unshadowable("the graph is finalized")
        saved = read_saver(graph, saver)
        step = None if global_step is None else _step_item(graph, global_step)
        items = [*saved.items, *([] if step is None else [step])]
        sources = [item.source for item in items]
        check_is_local(sources, lambda: (op.device for op in graph.get_operations()))
        for item in items:
            if item.source.kind != "resource" and item.source.dtype not in _COPYABLE:
                raise Unshadowable(f"{item.name} is a {item.source.dtype.name}, which cannot be copied")
        with graph.as_default(), graph.control_dependencies(None), graph.device(None), graph.name_scope(SCOPE):
            operations = _Operations(saved, step)
        names = [item.name for item in saved.items if step is not None and item.source.key == step.source.key]
        return cls(operations, sources, names[0] if names else None)

    def bind(self, session: Any) -> None:
        """Get ready to work in this session, so that nothing is left to be worked out between two steps.

        Args:
            session: a plain ``tf.compat.v1.Session``, whose runs wait for nothing.

        Raises:
            tf.errors.CancelledError: if it is closed.
            Unshadowable: if it reaches a cluster whose other processes may change these variables.
        """
        if session is self._session:
            return
        check_is_local(self._sources, lambda: (device.name for device in session.list_devices()))
        self._runs = _Runs(session, self._operations)
        self._session, self._taken, self._holding = session, False, False

    def prepare(self) -> None:
        """Get the memory for the snapshot, where that takes longer than filling it. Training may go on meanwhile."""
        if self._runs.prepare is not None:
            self._holding = True
            self._runs.prepare()

    def take(self) -> int | None:
        """Put this moment aside: call it between two steps. Return the global step, if there is one."""
        assert not self._taken, "drop() comes between two snapshots"
        self._holding = True
        values = self._runs.take()
        self._taken = True
        return step_value(values[0], self._operations.step[0]) if values else None

    def write(self, prefix: str) -> None:
        """Write the snapshot as the saver would write a checkpoint. Training may go on meanwhile.

        Args:
            prefix: the checkpoint's path.
        """
        assert self._taken, "take() comes before each write()"  # or TensorFlow would wait for ever
        self._taken = False
        part = prefix + (".part" if prefix.startswith("s3://") else "_temp/part")
        self._runs.write(*(prefix, part)[: len(self._operations.prefixes)])

    def drop(self) -> None:
        """Hold nothing any longer, whether or not a snapshot was taken, and written."""
        holding = self._holding
        self._taken = self._holding = False
        if holding:
            self._runs.drop()


class _Runs:
    """What there is to run, worked out for one session."""

    def __init__(self, session: Any, operations: _Operations) -> None:
        self.prepare = PreparedRun(session, targets=operations.prepare) if operations.prepare else None
        self.take = PreparedRun(session, fetches=operations.step, targets=operations.take)
        self.write = PreparedRun(session, feeds=operations.prefixes, targets=[operations.write])
        self.drop = PreparedRun(session, targets=operations.drop)


class _Operations:
    """What is added to the graph; made inside the name scope."""

    def __init__(self, saved: SaverGraph, step: Item | None) -> None:
        self._unique = f"{SCOPE}/{uuid.uuid4().hex}"
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
        self.prefixes = [tf.compat.v1.placeholder(tf.string, [], name="prefix")]
        self.write = self._write(saved)

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
        self._stored[source.key] = tf.raw_ops.ReadVariableOp(resource=handle, dtype=source.dtype)
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


def _step_item(graph: Any, global_step: Any) -> Item:
    found = graph.as_graph_element(global_step)
    tensor = found.outputs[0] if isinstance(found, tf.Operation) else found
    source = source_of(tensor)
    return Item(tensor.op.name, "", tensor, source)


def _value(item: Item) -> Any:
    """The tensor to put aside for an item: one that nothing writes into afterwards."""
    source = item.source
    if source.kind == "resource":
        if _is_updated_densely(source.tensor):
            return item.value
        # Sparse updates make every reading a copy from then on. This takes that back, until the next of them.
        with tf.device(source.tensor.op.device):
            shared = tf.raw_ops.DisableCopyOnRead(resource=source.tensor)
            with tf.control_dependencies([shared]):
                return tf.raw_ops.ReadVariableOp(resource=source.tensor, dtype=source.dtype)
    return item.value if item.value.op.type in _FRESH else tf.raw_ops.DeepCopy(x=source.tensor)


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
