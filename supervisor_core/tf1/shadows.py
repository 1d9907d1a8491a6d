"""`Shadows`: holds one moment of the model, beside the model, while it is written to disk.

prepare   big copies of ref variables get their memory, while training goes on
take      between two steps, every value that the saver saves is put aside: a resource variable's by sharing its
          buffer, of which the variable's next update makes a copy (0.1 ms for 500 MB); a ref variable's by copying
          it, since its updates write into the buffer whoever else reads it
write     what was put aside is written under the saver's names, while training goes on: straight from memory where
          that can be done (`write_bundle`), else by TensorFlow's ``SaveV2``
drop      nothing is held any longer
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import tensorflow as tf

from supervisor_core.checkpoint.bundle_writer import write_bundle
from supervisor_core.checkpoint.filesystem import local_path
from supervisor_core.tf1.global_step import step_value
from supervisor_core.tf1.prepared_run import PreparedRun
from supervisor_core.tf1.saver_graph import Item, Source, Unshadowable, check_is_local, read_saver, source_of
from supervisor_core.tf1.shadow_operations import ShadowOperations

SCOPE = "supervisor_shadow"
"""The name scope of every operation that is added to the graph."""


class Shadows:
    """The shadows of one saver's values in one graph. Not thread-safe: one save at a time.

    Made by `Shadows.build`; used in the order of the module's docstring, after `bind`.
    """

    writes_from_memory = True
    """Whether TensorFlow's writer is passed by where it can be."""

    def __init__(self, operations: ShadowOperations, sources: list[Source], step_name: str | None) -> None:
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
        sources = [item.source for item in (*saved.items, *([] if step is None else [step]))]
        check_is_local(sources, lambda: (op.device for op in graph.get_operations()))
        with graph.as_default(), graph.control_dependencies(None), graph.device(None), graph.name_scope(SCOPE):
            operations = ShadowOperations(saved, step)
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

    def write(self, path: str) -> None:
        """Write the snapshot as the saver would write a checkpoint. Training may go on meanwhile.

        Args:
            path: the checkpoint's, in a directory that exists.
        """
        assert self._taken, "take() comes before each write()"  # or TensorFlow would wait for ever
        self._taken = False
        local = local_path(path)
        if self.writes_from_memory and self._runs.fetch is not None and local is not None:
            write_bundle(local, self._operations.tensors(self._runs.fetch()))
            return
        part = path + (".part" if path.startswith("s3://") else "_temp/part")
        self._runs.write(*(path, part)[: len(self._operations.prefixes)])

    def drop(self) -> None:
        """Hold nothing any longer, whether or not a snapshot was taken, and written."""
        holding = self._holding
        self._taken = self._holding = False
        if holding:
            self._runs.drop()


class _Runs:
    """What there is to run, worked out for one session."""

    def __init__(self, session: Any, operations: ShadowOperations) -> None:
        self._session = session
        self._operations = operations
        self.prepare = PreparedRun(session, targets=operations.prepare) if operations.prepare else None
        self.take = PreparedRun(session, fetches=operations.step, targets=operations.take)
        self.drop = PreparedRun(session, targets=operations.drop)
        self.fetch: PreparedRun | None = None
        # From a session in this process values come as they are in its memory; from another they would be sent.
        if operations.fetches and not getattr(session, "sess_str", "elsewhere"):
            self.fetch = PreparedRun(session, fetches=operations.fetches)

    @cached_property
    def write(self) -> PreparedRun:
        return PreparedRun(self._session, feeds=self._operations.prefixes, targets=[self._operations.write])


def _step_item(graph: Any, global_step: Any) -> Item:
    found = graph.as_graph_element(global_step)
    tensor = found.outputs[0] if isinstance(found, tf.Operation) else found
    source = source_of(tensor)
    return Item(tensor.op.name, "", tensor, source)
