"""What the supervisor uses where the program passes nothing: the first item of a graph collection, else one made here.

Source: ``tf.compat.v1.train.Supervisor`` (contract, items 2 to 4). ``USE_DEFAULT`` is 0 and compared by identity; None
means "do without". Each function must run with the graph as default graph, before it is finalized. ``first`` returns
the first item of a collection or None; the supervisor passes its own method, which a subclass may have overridden.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import tensorflow as tf

_LOG = logging.getLogger("supervisor_core")
_KEYS = tf.compat.v1.GraphKeys
_VARIABLE_OPS = ("Variable", "VariableV2", "VarHandleOp")

USE_DEFAULT = 0
"""Stands for "use the default" in the constructors' arguments."""

First = Callable[[str], Any]


def first_in_collection(key: str) -> Any:
    """Return the first item of one of the default graph's collections; None where it is empty."""
    items = tf.compat.v1.get_collection(key)
    if len(items) > 1:
        _LOG.info("Found %d %s operations. Returning the first one.", len(items), key)
    return items[0] if items else None


def ready_op(given: Any, first: First) -> Any:
    """Return the op that names uninitialized variables."""
    return _chosen(given, first, _KEYS.READY_OP, tf.compat.v1.report_uninitialized_variables)


def ready_for_local_init_op(given: Any, first: First) -> Any:
    """Return the op that says when the local init op may run; by default only what the collection holds."""
    return first(_KEYS.READY_FOR_LOCAL_INIT_OP) if given is USE_DEFAULT else given


def init_op(given: Any, first: First) -> Any:
    """Return the op that initializes the model."""
    return _chosen(given, first, _KEYS.INIT_OP, tf.compat.v1.global_variables_initializer)


def local_init_op(given: Any, first: First) -> Any:
    """Return the op that initializes local variables and tables."""

    def both() -> Any:
        return tf.group(tf.compat.v1.local_variables_initializer(), tf.compat.v1.tables_initializer())

    return _chosen(given, first, _KEYS.LOCAL_INIT_OP, both)


def saver(given: Any, first: First) -> Any:
    """Return the saver; by default one for all global variables, unsharded, and None when there are no variables."""
    return _chosen(
        given, first, _KEYS.SAVERS, lambda: tf.compat.v1.train.Saver() if tf.compat.v1.global_variables() else None
    )


def summary_op(given: Any, first: First) -> Any:
    """Return the op that computes the summaries; None when the graph has none."""
    return _chosen(given, first, _KEYS.SUMMARY_OP, tf.compat.v1.summary.merge_all)


def global_step(given: Any, first: First, find: Callable[[], Any]) -> Any:
    """Return the global step; None when ``find`` returns none."""
    return _chosen(given, first, _KEYS.GLOBAL_STEP, find)


def check_devices(graph: Any) -> None:
    """Raise `ValueError` for a variable without a device: replicas would each keep one of their own."""
    for op in graph.get_operations():
        if op.type in _VARIABLE_OPS and not op.device:
            raise ValueError(f"When using replicas, all Variables must have their device set: {op}")


def _chosen(given: Any, first: First, key: str, make: Callable[[], Any]) -> Any:
    """Return what was given, else the collection's first item, else a new one, which is added to the collection."""
    if given is not USE_DEFAULT:
        return given
    found = first(key)
    if found is None:
        found = make()
        if found is not None:
            tf.compat.v1.add_to_collection(key, found)
    return found
