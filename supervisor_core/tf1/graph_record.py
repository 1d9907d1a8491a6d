"""`GraphRecord`: the model's graph, as the logdir and the events file hold it."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from supervisor_core.events.file_writer import FileWriter


class GraphRecord:
    """Writes ``graph.pbtxt`` at every start, and graph and meta graph once into each events file.

    Args:
        graph: the graph.
        graph_def: the same as it is trained, with its shapes.
        meta_graph_def: that with its collections and saver.
    """

    def __init__(self, graph: Any, graph_def: Any, meta_graph_def: Any) -> None:
        self._graph = graph
        self._graph_def = graph_def
        self._meta_graph_def = meta_graph_def
        self._is_in_events = False

    def write(self, logdir: str | None, writer: Any) -> None:
        """Write what is not there yet.

        Args:
            logdir: where ``graph.pbtxt`` goes; None writes none.
            writer: the summary writer, or None.
        """
        if logdir:
            tf.io.write_graph(self._graph_def, logdir, "graph.pbtxt")
        if writer and not self._is_in_events:
            writer.add_graph(
                _Serialized(self._graph, self._graph_def) if isinstance(writer, FileWriter) else self._graph
            )
            writer.add_meta_graph(self._meta_graph_def)
            self._is_in_events = True

    def writer_was_closed(self) -> None:
        """Take note that the next events file is a new one."""
        self._is_in_events = False


class _Serialized:
    """A graph that is serialized already, as a `FileWriter` takes a graph."""

    def __init__(self, graph: Any, graph_def: Any) -> None:
        self._graph_def = graph_def
        self.get_collection = graph.get_collection

    def as_graph_def(self, add_shapes: bool) -> Any:
        return self._graph_def
