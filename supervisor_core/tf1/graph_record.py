"""`GraphRecord`: the model's graph, as the logdir and the events file hold it."""

from __future__ import annotations

import time
from typing import Any

import tensorflow as tf


class GraphRecord:
    """Writes ``graph.pbtxt`` at every start, and graph and meta graph once into each events file.

    Args:
        graph_def: the graph without what the supervisor added to it.
        meta_graph_def: the same with its collections and saver.
    """

    def __init__(self, graph_def: Any, meta_graph_def: Any) -> None:
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
            event = tf.compat.v1.Event(wall_time=time.time(), graph_def=self._graph_def.SerializeToString())
            writer.add_event(event)
            writer.add_meta_graph(self._meta_graph_def)
            self._is_in_events = True

    def writer_was_closed(self) -> None:
        """Take note that the next events file is a new one."""
        self._is_in_events = False
