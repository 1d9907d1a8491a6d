"""`TensorFlowWriter`: has TensorFlow's own ``SaveV2`` write values that are held in memory.

It does so in a graph and a session of its own, so that the graph that is trained has none of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from supervisor_core.tf1.native_runs import PreparedRun
from supervisor_core.tf1.saver_graph import SaverGraph, Shard


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

    def _save(self, shard: Shard, prefix: Any) -> Any:
        return tf.raw_ops.SaveV2(
            prefix=prefix,
            tensor_names=[item.name for item in shard.items],
            shape_and_slices=[item.slice_spec for item in shard.items],
            tensors=[self._values[item.source.key] for item in shard.items],
        )


def _as_fed(value: Any, dtype: Any) -> Any:
    if isinstance(value, bytes):
        return np.array(value, object)
    return np.asarray(value).view(dtype.as_numpy_dtype) if dtype.is_quantized else np.asarray(value)
