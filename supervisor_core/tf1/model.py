"""`SupervisedModel`: the graph that is supervised, and which of its ops do what.

Everything here is settled when the supervisor is constructed, before the graph is finalized.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from supervisor_core.tf1 import defaults
from supervisor_core.tf1.cluster.announcement import announcement_for

_VARIABLE_OPS = ("Variable", "VariableV2", "VarHandleOp")


class SupervisedModel:
    """A graph and its ops, each as given, or else its collection's first item, or else made here.

    Args:
        graph: the model's graph. Default: the default graph.
        is_chief: whether this process initialises, restores, saves and writes.
        ready_op: see `Supervisor`, as for the others.
        ready_for_local_init_op: the same.
        init_op: the same.
        init_feed_dict: the same.
        local_init_op: the same.
        summary_op: the same.
        saver: the same.
        global_step: the same.
        announces: whether chief and workers say by a mark of their own that the model is ready.

    Raises:
        ValueError: if this is no chief and a variable has no device.
    """

    def __init__(
        self,
        *,
        graph: Any,
        is_chief: bool,
        ready_op: Any,
        ready_for_local_init_op: Any,
        init_op: Any,
        init_feed_dict: Mapping[Any, Any] | None,
        local_init_op: Any,
        summary_op: Any,
        saver: Any,
        global_step: Any,
        announces: bool,
    ) -> None:
        self._graph = graph if graph is not None else tf.compat.v1.get_default_graph()
        self._is_chief = is_chief
        self._init_feed_dict = init_feed_dict
        with self._graph.as_default():
            self._ready_op = defaults.ready_op(ready_op)
            self._ready_for_local_init_op = defaults.ready_for_local_init_op(ready_for_local_init_op)
            self._init_op = defaults.init_op(init_op)
            self._local_init_op = defaults.local_init_op(local_init_op)
            self._saver = defaults.saver(saver)
            self._summary_op = defaults.summary_op(summary_op)
            self._global_step = defaults.global_step(global_step)
            # The last that is added: the graph is captured as it is trained, to the last node.
            self._announcement = announcement_for(self._graph) if announces else None
        self._graph_def = self._graph.as_graph_def(add_shapes=True)
        self._meta_graph_def = tf.compat.v1.train.export_meta_graph(
            graph_def=self._graph_def, graph=self._graph, saver_def=self._saver.saver_def if self._saver else None
        )
        if not is_chief:
            self._check_devices()

    @property
    def is_chief(self) -> bool:
        """Whether this process initialises, restores, saves and writes."""
        return self._is_chief

    @property
    def init_op(self) -> Any:
        """What initialises the model, or None."""
        return self._init_op

    @property
    def init_feed_dict(self) -> Mapping[Any, Any] | None:
        """Feeds for ``init_op``, or None."""
        return self._init_feed_dict

    @property
    def ready_op(self) -> Any:
        """What names the variables that are not initialized, or None."""
        return self._ready_op

    @property
    def ready_for_local_init_op(self) -> Any:
        """What names the variables that keep ``local_init_op`` from running, or None."""
        return self._ready_for_local_init_op

    @property
    def summary_op(self) -> Any:
        """What computes the summaries, or None."""
        return self._summary_op

    @property
    def global_step(self) -> Any:
        """What counts the steps, or None."""
        return self._global_step

    @property
    def saver(self) -> Any:
        """What saves and restores, or None."""
        return self._saver

    def _check_devices(self) -> None:
        for op in self._graph.get_operations():
            if op.type in _VARIABLE_OPS and not op.device:
                raise ValueError(f"When using replicas, all Variables must have their device set: {op}")
