"""`WatchedLoss`: a tensor that must be finite for a checkpoint to be taken."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from supervisor_core.base.errors import OptionsError
from supervisor_core.tf1.graph_walk import VARIABLES, reached
from supervisor_core.tf1.native_runs import PreparedRun

_READS = VARIABLES | {"DisableCopyOnRead", "ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape"}


class WatchedLoss:
    """Reads the watched loss between two steps, from the model's variables alone.

    Computing a loss from input would consume that input, and be the loss of another step. So it has to be kept in a
    variable, or follow from variables.

    Args:
        graph: the graph.
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
