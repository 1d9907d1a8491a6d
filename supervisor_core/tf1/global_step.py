"""The global step of a graph: finding it, and reading it whatever it is made of."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import tensorflow as tf

_LOG = logging.getLogger("supervisor_core")

NAME = "global_step"


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


def read_global_step(sess: Any, global_step: Any) -> int:
    """Return the global step's present value.

    Args:
        sess: the session to read it in; its own uncounted ``run_internal`` is used where it has one.
        global_step: a tensor or variable of size 1, of rank 0 or more.

    Raises:
        ValueError: if it does not hold exactly one value.
    """
    run = getattr(sess, "run_internal", sess.run)
    return step_value(run(global_step), global_step)


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
