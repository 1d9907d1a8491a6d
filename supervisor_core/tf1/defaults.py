"""What the supervisor uses where the program passes nothing: the first item of a graph collection, else one made here.

Source: ``tf.compat.v1.train.Supervisor`` (contract, items 2 to 4). ``USE_DEFAULT`` is 0 and compared by identity; None
means "do without". Each function must run with the graph as default graph, before it is finalized.
"""

from __future__ import annotations

import logging
from typing import Any

import tensorflow as tf

from supervisor_core.tf1.global_step import find_global_step

_LOG = logging.getLogger("supervisor_core")
_KEYS = tf.compat.v1.GraphKeys

USE_DEFAULT = 0
"""Stands for "use the default" in the constructors' arguments."""


def ready_op(given: Any) -> Any:
    """Return the op that names uninitialized variables."""
    if given is not USE_DEFAULT:
        return given
    found = _first(_KEYS.READY_OP)
    return found if found is not None else _added(_KEYS.READY_OP, tf.compat.v1.report_uninitialized_variables())


def ready_for_local_init_op(given: Any) -> Any:
    """Return the op that tells when the local init op may run; by default only what the collection holds."""
    return _first(_KEYS.READY_FOR_LOCAL_INIT_OP) if given is USE_DEFAULT else given


def init_op(given: Any) -> Any:
    """Return the op that initializes the model."""
    if given is not USE_DEFAULT:
        return given
    found = _first(_KEYS.INIT_OP)
    return found if found is not None else _added(_KEYS.INIT_OP, tf.compat.v1.global_variables_initializer())


def local_init_op(given: Any) -> Any:
    """Return the op that initializes local variables and tables."""
    if given is not USE_DEFAULT:
        return given
    found = _first(_KEYS.LOCAL_INIT_OP)
    if found is not None:
        return found
    both = tf.group(tf.compat.v1.local_variables_initializer(), tf.compat.v1.tables_initializer())
    return _added(_KEYS.LOCAL_INIT_OP, both)


def saver(given: Any) -> Any:
    """Return the saver; by default one for all global variables, unsharded, and None when there are no variables."""
    if given is not USE_DEFAULT:
        return given
    found = _first(_KEYS.SAVERS)
    if found is None and tf.compat.v1.global_variables():
        found = _added(_KEYS.SAVERS, tf.compat.v1.train.Saver())
    return found


def summary_op(given: Any) -> Any:
    """Return the op that computes the summaries; None when the graph has none."""
    return _collected_or(given, _KEYS.SUMMARY_OP, tf.compat.v1.summary.merge_all)


def global_step(given: Any) -> Any:
    """Return the global step; None when the graph has none."""
    return _collected_or(given, _KEYS.GLOBAL_STEP, lambda: find_global_step(tf.compat.v1.get_default_graph()))


def _collected_or(given: Any, key: str, make: Any) -> Any:
    if given is not USE_DEFAULT:
        return given
    found = _first(key)
    if found is None:
        found = make()
        if found is not None:
            _added(key, found)
    return found


def _first(key: str) -> Any:
    items = tf.compat.v1.get_collection(key)
    if len(items) > 1:
        _LOG.info("Found %d %s operations. Returning the first one.", len(items), key)
    return items[0] if items else None


def _added(key: str, item: Any) -> Any:
    tf.compat.v1.add_to_collection(key, item)
    return item
