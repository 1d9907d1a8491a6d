"""`RunTraits`: what a run is to the supervision: a step or not, kept apart from snapshots or not."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from supervisor_core.tf1.run_values import elements
from supervisor_core.tf1.training_ops import ChangingOps, TrainingOps

_LOG = logging.getLogger("supervisor_core")

_QUEUE_OPS = frozenset(
    {
        "MapStage",
        "OrderedMapStage",
        "QueueClose",
        "QueueCloseV2",
        "QueueEnqueue",
        "QueueEnqueueMany",
        "QueueEnqueueManyV2",
        "QueueEnqueueV2",
        "Stage",
    }
)


class RunTraits(NamedTuple):
    """What is known of a run before it runs."""

    supervised: bool
    """Passes the gate and is reported to the observer."""
    is_step: bool
    """Moves the global step; where there is none to look at, every supervised run counts."""
    changes: bool = True
    """May change what a checkpoint holds; False where it surely only reads."""


class RunAnalysis:
    """Finds the traits of runs in one graph. Thread-safe.

    A run that only fills or closes queues is a queue runner's, wherever it comes from: it may block for as long as the
    queue is full, so nothing may wait for it, and it is no work of the training's own.

    Args:
        graph: the graph; it may still grow.
        global_step: its global step, or None.
    """

    def __init__(self, graph: Any, global_step: Any = None) -> None:
        self._graph = graph
        self._training_ops = None if global_step is None else TrainingOps(graph, global_step)
        self._changing_ops = ChangingOps(graph)
        self._warned = False

    def of(self, fetches: Any, feed_keys: Any = ()) -> RunTraits:
        """Return the traits of a run of these fetches, in any form that ``Session.run`` takes."""
        return self.of_elements(elements(self._graph, fetches), elements(self._graph, list(feed_keys or ())))

    def of_elements(self, fetched: Sequence[Any], fed: Collection[Any]) -> RunTraits:
        """Return the traits of a run of these tensors and operations."""
        if fetched and all(self._fills_queue(element) for element in fetched):
            return RunTraits(supervised=False, is_step=False)
        if self._training_ops is None:
            return RunTraits(supervised=True, is_step=True, changes=self._changes(fetched))
        tensors = [element for element in fed if isinstance(element, tf.Tensor)]
        try:
            is_step = self._training_ops.updates(fetched, tensors)
        except Exception:  # a run does not fail for want of being counted
            is_step = False
            if not self._warned:
                self._warned = True
                _LOG.warning("The graph does not show which runs are steps; some are not counted.", exc_info=True)
        return RunTraits(supervised=True, is_step=is_step, changes=is_step or self._changes(fetched))

    def _changes(self, fetched: Sequence[Any]) -> bool:
        try:
            return not fetched or self._changing_ops.reached_by(fetched)
        except Exception:  # whatever is not known to be harmless may not be
            _LOG.debug("The graph does not show whether a run changes anything.", exc_info=True)
            return True

    def _fills_queue(self, element: Any) -> bool:
        if not isinstance(element, tf.Operation):
            return False
        if element.type in _QUEUE_OPS:
            return True
        runners = self._graph.get_collection(tf.compat.v1.GraphKeys.QUEUE_RUNNERS)
        return any(element is each for runner in runners for each in getattr(runner, "enqueue_ops", ()))
