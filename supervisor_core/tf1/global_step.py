"""The global step of a graph: finding it, and reading it whatever it is made of."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

_LOG = logging.getLogger("supervisor_core")

NAME = "global_step"
READ_CACHE = "global_step_read_op_cache"
"""The graph's collection in which TensorFlow keeps the tensor that its own hooks and increments read the step with."""


def find_global_step(graph: Any) -> Any:
    """Return the graph's integer variable or tensor called ``global_step``, or None.

    Ref and resource variables are found alike. One that is not an integer is not used, and that is said.
    """
    for variable in graph.get_collection(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES):
        if variable.op.name == NAME:
            return variable if _is_integer(variable) else None
    try:
        tensor = graph.get_tensor_by_name(f"{NAME}:0")
    except KeyError:
        return None
    return tensor if _is_integer(tensor) else None


def collected_global_step(graph: Any) -> Any:
    """Return the global step in the graph's collection of that name, or else what `find_global_step` finds."""
    collected = graph.get_collection(tf.compat.v1.GraphKeys.GLOBAL_STEP)
    return collected[0] if len(collected) == 1 else find_global_step(graph)


def step_tensor(graph: Any) -> Any:
    """Return what a hook fetches beside a run to read the global step; None for a graph that has none.

    That is the one tensor which TensorFlow's own hooks share, made where it is missing; its increments wait for it, so
    it holds the step before the run. In a finalized graph without it, the global step itself.
    """
    cached = graph.get_collection(READ_CACHE)
    if len(cached) == 1:
        return cached[0]
    step = collected_global_step(graph)
    if step is None or graph.finalized:
        return step
    # A scope that ends in a slash is taken as it is, whatever scope is open.
    with graph.as_default(), graph.control_dependencies(None), graph.name_scope(f"{step.op.name}/"):
        read = (step.read_value() if hasattr(step, "read_value") else step) + 0  # a copy of the variable
    graph.add_to_collection(READ_CACHE, read)
    return read


def read_global_step(sess: Any, global_step: Any) -> int:
    """Return the global step's present value.

    Args:
        sess: the session to read it in; see `internal_run`.
        global_step: a tensor or variable of size 1, of rank 0 or more.

    Raises:
        ValueError: if it does not hold exactly one value.
    """
    return step_value(internal_run(sess)(global_step), global_step)


def internal_run(sess: Any) -> Callable[..., Any]:
    """Return a session's own uncounted ``run_internal``; ``run`` of one that is not ours."""
    run: Callable[..., Any] = getattr(sess, "run_internal", sess.run)
    return run


def step_value(value: Any, global_step: Any) -> int:
    """Return a fetched global step as an int; `ValueError` unless it holds exactly one value."""
    array = np.asarray(value)
    if array.size != 1:
        raise ValueError(f"The global step {global_step} holds {array.size} values; expected one.")
    return int(array.reshape(-1)[0])


def _is_integer(item: Any) -> bool:
    if item.dtype.base_dtype in (tf.int32, tf.int64):
        return True
    _LOG.warning("Found 'global_step' is not an int type: %s", item.dtype)
    return False
