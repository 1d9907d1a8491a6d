"""The graph of a model: `reached`, from operation to operation; `GraphRecord`, as logdir and events file hold it."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

import tensorflow as tf

from supervisor_core.events.file_writer import FileWriter
from supervisor_core.storage.local import filesystem_for

VARIABLES = frozenset({"VarHandleOp", "Variable", "VariableV2"})
"""What a variable is in a graph."""


def needs(op: Any, fed: Collection[int] = frozenset()) -> list[Any]:
    """Return the operations that one waits for.

    Args:
        fed: the ids of tensors that are fed: what would compute them is not run.
    """
    return [*(tensor.op for tensor in op.inputs if id(tensor) not in fed), *op.control_inputs]


def reached(ops: Iterable[Any], following: Callable[[Any], Iterable[Any]] = needs) -> Iterator[Any]:
    """Yield operations, and all that they lead to, each once.

    Args:
        ops: where to begin.
        following: returns where one leads to; called after it was yielded.
    """
    pending, seen = list(ops), set()
    while pending:
        op = pending.pop()
        if op.name not in seen:
            seen.add(op.name)
            yield op
            pending.extend(following(op))


_LOG = logging.getLogger("supervisor_core")

GRAPH_FILE = "graph.pbtxt"


class GraphRecord:
    """Writes the graph: ``graph.pbtxt`` for people, graph and meta graph for TensorBoard.

    Args:
        graph_def: the same as it is trained, with its shapes. Default: as it is now.
        meta_graph_def: that with its collections and saver.
    """

    def __init__(self, graph: Any, graph_def: Any, meta_graph_def: Any) -> None:
        self._graph = graph
        self.graph_def = graph_def if graph_def is not None else graph.as_graph_def(add_shapes=True)
        self.meta_graph_def = meta_graph_def
        """That with its collections and saver."""

    @classmethod
    def of(cls, graph: Any, saver: Any) -> GraphRecord:
        """Return the record of a graph as it is now.

        Args:
            saver: whose ``SaverDef`` goes into it; None for none.
        """
        graph_def = graph.as_graph_def(add_shapes=True)
        saver_def = saver.saver_def if saver else None
        meta_graph_def = tf.compat.v1.train.export_meta_graph(graph_def=graph_def, graph=graph, saver_def=saver_def)
        return cls(graph, graph_def, meta_graph_def)

    def write_file(self, logdir: str) -> None:
        """Write ``graph.pbtxt`` for people to read, whole or not at all: no training ends for want of it."""
        # Not by tf.io.write_graph: TensorFlow 2.20's asks protobuf for something that protobuf 7 no longer does.
        from google.protobuf import text_format

        try:
            filesystem, directory = filesystem_for(logdir)
            filesystem.make_directory(directory)
            text: str = text_format.MessageToString(self.graph_def)
            filesystem.replace(os.path.join(directory, GRAPH_FILE), text.encode())
        except Exception as error:
            _LOG.warning("%s cannot be written; training continues without it: %s", GRAPH_FILE, error)

    def write_events(self, writer: Any) -> None:
        """Add graph and meta graph to an events file."""
        writer.add_graph(_Serialized(self._graph, self.graph_def) if isinstance(writer, FileWriter) else self._graph)
        writer.add_meta_graph(self.meta_graph_def)


class _Serialized:
    """A graph that is serialized already, as a `FileWriter` takes a graph."""

    def __init__(self, graph: Any, graph_def: Any) -> None:
        self.graph_def = graph_def
        self.get_collection = graph.get_collection

    def as_graph_def(self, add_shapes: bool) -> Any:
        return self.graph_def
