"""`Snapshot`: holds one moment of the model in memory while it is written to disk. It adds nothing to the graph.
`WatchedLoss`: a tensor that must be finite at that moment.

prepare   memory is got for the values that have to be copied, once, while training goes on
take      between two steps every value that the saver saves is fetched. A prepared callable hands values out as they
          are in TensorFlow's memory, so this copies nothing (0.1 ms for 500 MB). What is large is copied here, on all
          processors, into memory of the save before. Of the rest a resource variable's buffer is kept: the variable's
          next update finds it in use and makes a copy of its own, in new memory. A ref variable's updates write into
          the buffer whoever else holds it, so it is copied
write     the values are written under the saver's names while training goes on: straight from memory where that can be
          done (`write_bundle`), else by `TensorFlowWriter`
drop      nothing is held any longer

What is fetched are the inputs of the saver's own ``SaveV2`` operations. So the graph that is trained is the graph that
is recorded and exported, to the last node.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from supervisor_core.base.errors import OptionsError
from supervisor_core.checkpoint.blocks import IN_THREAD, BlockWriter
from supervisor_core.checkpoint.bundle_writer import TensorData, write_bundle
from supervisor_core.checkpoint.nan_check import has_nan
from supervisor_core.storage.local import local_path
from supervisor_core.tf1.global_step import step_value
from supervisor_core.tf1.graph import VARIABLES, reached
from supervisor_core.tf1.native_runs import PreparedRun
from supervisor_core.tf1.saver_graph import (
    Item,
    SaverGraph,
    SaverSource,
    check_is_local,
    read_saver,
    source_of,
)

Array = np.ndarray[Any, Any]

_READS = VARIABLES | {"DisableCopyOnRead", "ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape"}

_NUMBERS = frozenset(
    {tf.bool, tf.bfloat16, tf.half, tf.float32, tf.float64, tf.complex64, tf.complex128}
    | {tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8, tf.uint16, tf.uint32, tf.uint64}
    | {tf.qint8, tf.qint16, tf.qint32, tf.quint8, tf.quint16}
)
"""What is in memory as it is in a checkpoint."""

_FRESH = frozenset({"LookupTableExport", "LookupTableExportV2"})
"""What hands out values of its own, that nothing writes into afterwards."""

_SHARE_BYTES = 32 << 20
"""What is worth a thread of its own to copy: some 3 ms."""

_COPYING_THREADS = 4
_PARTS = 16
"""How many parts of equal size a thread's share has, or more smaller ones."""

_ALIGNMENT_BYTES = 64
_PAGE_BYTES = 4096


class Snapshot:
    """One moment at a time of what a saver saves. Not thread-safe: one save at a time.

    Args:
        graph: the graph, finalized or not; it stays as it is.
        saver: a ``tf.compat.v1.train.Saver``.
        global_step: an integer of size 1 in the graph, variable or tensor, to be read in the same moment.
        blocks: what writes the values.

    Raises:
        CannotSnapshot: if this saver can only be run as it is; says why.
    """

    writes_from_memory = True
    """Whether TensorFlow's writer is passed by where it can be."""

    def __init__(self, graph: Any, saver: Any, global_step: Any = None, blocks: BlockWriter = IN_THREAD) -> None:
        self._saved = read_saver(graph, saver)
        step = None if global_step is None else _step_item(graph, global_step)
        self._by_source: dict[str, list[Item]] = {}
        for item in self._saved.items:
            self._by_source.setdefault(item.source.key, []).append(item)
        first = [items[0] for items in self._by_source.values()]
        self._fetches = [item.value for item in first] + ([] if step is None else [step.value])
        self._sources = [item.source for item in (*first, *([] if step is None else [step]))]
        self.size_bytes = sum(math.inf if (size := _size_bytes(item.source)) is None else size for item in first)
        """How much there is to write; infinite where that is only known when it is taken."""
        self._step = None if step is None else step.value
        self._writes_bundle = _is_plain(self._saved)
        self._blocks = blocks
        copies_all = self._writes_bundle and blocks.takes(self.size_bytes)
        self._copied = [number for number, item in enumerate(first) if copies_all or not _is_kept(item)]
        self._sizes = [_size_bytes(first[number].source) for number in self._copied]
        self._writer: TensorFlowWriter | None = None
        self._session: Any = None
        self._fetch: PreparedRun | None = None
        self._room: dict[int, Array | None] = {}
        self._values: list[Any] | None = None
        check_is_local(self._sources, lambda: (op.device for op in graph.get_operations()))

    def bind(self, session: Any) -> bool:
        """Prepare everything for this session that would otherwise take time between two steps.

        Args:
            session: a plain ``tf.compat.v1.Session``, whose runs wait for nothing.

        Returns:
            Whether a snapshot can be taken in it. Not where values come through a server: they would be sent as one
            message, which takes longer than having the server write them, and has its limit at 2 GB.

        Raises:
            tf.errors.CancelledError: if it is closed.
            CannotSnapshot: if it reaches a cluster whose other processes may change these variables.
        """
        if session is not self._session:
            check_is_local(self._sources, lambda: (device.name for device in session.list_devices()))
            self._fetch = None if getattr(session, "sess_str", "") else PreparedRun(session, fetches=self._fetches)
            self._session, self._values = session, None
        return self._fetch is not None

    def prepare(self) -> None:
        """Get the memory for what is copied, once: its pages appear as they are first written. Training may go on
        meanwhile."""
        if not self._room:
            self._room = dict(zip(self._copied, _new_room(self._sizes), strict=True))

    def take(self) -> int | None:
        """Put this moment aside: call it between two steps. Return the global step, if there is one."""
        assert self._fetch is not None, "bind() comes first"
        assert self._values is None, "drop() comes between two snapshots"
        values = self._fetch()
        step = None if self._step is None else step_value(values.pop(), self._step)
        copies: list[tuple[Array, Array]] = []
        for number in self._copied:
            values[number] = _copy(values[number], self._room.get(number), copies)
        _copy_all(copies)
        self._values = values
        return step

    def write(self, path: str) -> str | None:
        """Write the snapshot as the saver would write a checkpoint; return the name of a tensor that has NaN, if there
        is one. Training may go on meanwhile.

        Args:
            path: the checkpoint's, in a directory that exists.
        """
        assert self._values is not None, "take() comes before each write()"
        values, self._values = self._values, None
        local = local_path(path)
        if self.writes_from_memory and self._writes_bundle and local is not None:
            return write_bundle(local, self._tensors(values), self._blocks, self.size_bytes)
        if self._writer is None:
            self._writer = TensorFlowWriter(self._saved)
        arrays = zip(self._by_source.values(), values, strict=True)
        with_nan = next((items[0].name for items, value in arrays if _has_nan(value)), None)
        self._writer.write(path, values)
        return with_nan

    def drop(self) -> None:
        """Let the values go, whether or not a snapshot was taken, and written. The memory for copies stays for the next
        save: new pages take longer than the copying."""
        self._values = None

    def _tensors(self, values: list[Any]) -> Iterator[TensorData]:
        """The values as they go into a checkpoint; each is let go of when the next one is asked for."""
        values.reverse()
        for items in self._by_source.values():
            value = np.asarray(values.pop())
            data = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
            for item in items:
                yield TensorData(item.name, item.source.dtype.as_datatype_enum, value.dtype.name, value.shape, data)
            del value, data


def _step_item(graph: Any, global_step: Any) -> Item:
    found = graph.as_graph_element(global_step)
    tensor = found.outputs[0] if isinstance(found, tf.Operation) else found
    return Item(tensor.op.name, "", tensor, source_of(tensor))


def _is_kept(item: Item) -> bool:
    """Whether nothing writes into what is fetched for an item, for as long as it is held."""
    return item.source.kind == "resource" or item.value.op.type in _FRESH


def _is_plain(saved: SaverGraph) -> bool:
    """Whether a checkpoint is no more than numbers in one file: no text, parts of variables, shards."""
    return len(saved.shards) == 1 and all(item.source.dtype in _NUMBERS and not item.slice_spec for item in saved.items)


def _size_bytes(source: SaverSource) -> int | None:
    """How much memory a copy takes; None if that is only known when it is made."""
    if source.dtype == tf.string or not source.shape.is_fully_defined():
        return None
    return int(source.shape.num_elements() * source.dtype.size)


def _has_nan(value: Any) -> bool:
    array = np.ascontiguousarray(value)
    return array.dtype.kind in "fcV" and has_nan(array.dtype.name, array.reshape(-1).view(np.uint8))


def _new_room(sizes: list[int | None]) -> list[Array | None]:
    """Return memory for copies of these sizes, its pages in place."""
    aligned = [-(-(size or 0) // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES for size in sizes]
    memory = np.empty(sum(aligned), np.uint8)
    memory[::_PAGE_BYTES] = 0
    room: list[Array | None] = []
    start = 0
    for size, length in zip(sizes, aligned, strict=True):
        room.append(None if size is None else memory[start : start + size])
        start += length
    return room


def _copy(value: Any, room: Array | None, copies: list[tuple[Array, Array]]) -> Any:
    """Return what is going to be a copy of a value, once all copies are made.

    Args:
        room: memory for it, which is used if it has its size.
        copies: takes what has to be copied: where to, and where from.
    """
    if isinstance(value, bytes) or value.flags.owndata:  # handed out as a copy: text, and by sessions of another make
        return value
    source = value.reshape(-1).view(np.uint8)
    if room is None or len(room) != len(source):
        room = np.empty(len(source), np.uint8)
    copies.append((room, source))
    return room.view(value.dtype).reshape(value.shape)


def _copy_all(copies: list[tuple[Array, Array]]) -> None:
    """Copy on several processors: training waits for it."""
    total = sum(len(target) for target, _ in copies)
    threads = min(_COPYING_THREADS, os.cpu_count() or 1, 1 + total // _SHARE_BYTES)
    size = total // (_PARTS * threads) + 1
    parts = [
        (target[start : start + size], source[start : start + size])
        for target, source in copies
        for start in range(0, len(target), size)
    ]
    parts.sort(key=lambda part: len(part[0]))  # so that each share has as many large ones
    shares = [parts[number::threads] for number in range(threads)]
    helpers = [threading.Thread(target=_copy_share, args=(each,), daemon=True) for each in shares[1:]]
    for helper in helpers:
        helper.start()
    _copy_share(shares[0])
    for helper in helpers:
        helper.join()


def _copy_share(share: list[tuple[Array, Array]]) -> None:
    for target, source in share:
        np.copyto(target, source)


class TensorFlowWriter:
    """Writes what a saver writes, in its shards: text, parts of variables, and to every file system of TensorFlow's.

    Args:
        saved: what the saver saves.
    """

    def __init__(self, saved: SaverGraph) -> None:
        self._values: dict[str, Any] = {}
        graph = tf.Graph()
        with graph.as_default():
            for item in saved.items:
                if item.source.key not in self._values:
                    self._values[item.source.key] = tf.compat.v1.placeholder(item.source.dtype)
            self._prefixes = [tf.compat.v1.placeholder(tf.string, [])]
            write = self._write(saved)
        session = tf.compat.v1.Session(graph=graph, config=tf.compat.v1.ConfigProto(device_count={"GPU": 0}))
        self._run = PreparedRun(session, feeds=[*self._prefixes, *self._values.values()], targets=[write])

    def write(self, path: str, values: list[Any]) -> None:
        """Write a checkpoint.

        Args:
            path: the checkpoint's, in a directory that exists.
            values: one for each of the saver's sources, in the order in which they first appear.

        Raises:
            tf.errors.OpError: if it cannot be written.
        """
        part = path + (".part" if path.startswith("s3://") else "_temp/part")
        feeds = self._values.values()
        arrays = [_as_fed(value, feed.dtype) for value, feed in zip(values, feeds, strict=True)]
        values.clear()
        self._run(*(path, part)[: len(self._prefixes)], *arrays)

    def _write(self, saved: SaverGraph) -> Any:
        if saved.merge_device is None:
            return self._save(saved.shards[0], self._prefixes[0])
        part = tf.compat.v1.placeholder(tf.string, [])
        self._prefixes.append(part)
        names = [
            tf.raw_ops.ShardedFilename(basename=part, shard=number, num_shards=len(saved.shards))
            for number in range(len(saved.shards))
        ]
        saves = [self._save(shard, name) for shard, name in zip(saved.shards, names, strict=True)]
        with tf.control_dependencies(saves):
            return tf.raw_ops.MergeV2Checkpoints(
                checkpoint_prefixes=tf.stack(names), destination_prefix=self._prefixes[0], delete_old_dirs=True
            )

    def _save(self, shard: tuple[Item, ...], prefix: Any) -> Any:
        return tf.raw_ops.SaveV2(
            prefix=prefix,
            tensor_names=[item.name for item in shard],
            shape_and_slices=[item.slice_spec for item in shard],
            tensors=[self._values[item.source.key] for item in shard],
        )


def _as_fed(value: Any, dtype: Any) -> Any:
    if isinstance(value, bytes):
        return np.array(value, object)
    return np.asarray(value).view(dtype.as_numpy_dtype) if dtype.is_quantized else np.asarray(value)


class WatchedLoss:
    """Reads the watched loss between two steps, from the model's variables alone.

    Computing a loss from input would consume that input, and be the loss of another step. So it has to be kept in a
    variable, or follow from variables.

    Args:
        watched: a tensor or variable of it, or its name.

    Raises:
        OptionsError: if it is not in the graph, or needs input; says what and why.

    Example:
        last_loss = tf.compat.v1.get_variable("last_loss", [], trainable=False)
        train_op = tf.group(train_op, last_loss.assign(loss))
        options = Options(watched_loss=last_loss)
    """

    def __init__(self, graph: Any, watched: Any) -> None:
        try:
            found = graph.as_graph_element(watched)
        except (KeyError, TypeError, ValueError) as error:
            raise OptionsError(f"Options.watched_loss is {watched!r}, which is not in the graph: {error}") from error
        self.tensor = found.outputs[0] if isinstance(found, tf.Operation) else found
        """What is watched."""
        self.name = str(self.tensor.name)
        obstacle = _obstacle(self.tensor.op)
        if obstacle is not None:
            raise OptionsError(
                f"Options.watched_loss is {self.name!r}, which cannot be read between two steps: it needs "
                f"{obstacle.name!r} ({obstacle.type}). Keep the loss in a variable that the training op assigns, and "
                "watch that."
            )
        self._session: Any = None

    def bind(self, session: Any) -> None:
        """Get ready to read in this session."""
        if session is not self._session:
            self._read = PreparedRun(session, fetches=[self.tensor])
            self._session = session

    def read(self) -> Any:
        """Return its present value."""
        return np.asarray(self._read()[0])


def _obstacle(op: Any) -> Any:
    """An operation before this one that takes input, has an effect, or is different each time; None without any."""
    for needed in reached([op]):
        writes = any(argument.is_ref for argument in needed.op_def.input_arg)
        if needed.type.startswith("Placeholder") and needed.type != "PlaceholderWithDefault":
            return needed
        if needed.type not in _READS and (writes or needed.op_def.is_stateful):
            return needed
    return None
