"""`GraphRecord`: the model's graph, as the logdir and the events file hold it."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from supervisor_core.events.file_writer import FileWriter


class GraphRecord:
    """Writes the graph: ``graph.pbtxt`` for people, graph and meta graph for TensorBoard.

    Args:
        graph: the graph.
        graph_def: the same as it is trained, with its shapes.
        meta_graph_def: that with its collections and saver.
    """

    def __init__(self, graph: Any, graph_def: Any, meta_graph_def: Any) -> None:
        self._graph = graph
        self._graph_def = graph_def
        self._meta_graph_def = meta_graph_def

    def write_file(self, logdir: str) -> None:
        """Write ``graph.pbtxt``."""
        tf.io.write_graph(self._graph_def, logdir, "graph.pbtxt")

    def write_events(self, writer: Any) -> None:
        """Add graph and meta graph to an events file."""
        writer.add_graph(_Serialized(self._graph, self._graph_def) if isinstance(writer, FileWriter) else self._graph)
        writer.add_meta_graph(self._meta_graph_def)


class _Serialized:
    """A graph that is serialized already, as a `FileWriter` takes a graph."""

    def __init__(self, graph: Any, graph_def: Any) -> None:
        self._graph_def = graph_def
        self.get_collection = graph.get_collection

    def as_graph_def(self, add_shapes: bool) -> Any:
        return self._graph_def
