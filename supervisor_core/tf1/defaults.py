"""What the supervisor uses where the program passes nothing: the first item of a graph collection, else one made here.

Source: ``tf.compat.v1.train.Supervisor`` (contract, items 2 to 4). ``USE_DEFAULT`` is 0 and compared by identity; None
means "do without". Each function must run with the graph as default graph, before it is finalized.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from supervisor_core.tf1.graph_walk import VARIABLES

_LOG = logging.getLogger("supervisor_core")

USE_DEFAULT = 0
"""Stands for "use the default" in the constructors' arguments."""


def first_in_collection(key: str) -> Any:
    """Return the first item of one of the default graph's collections; None where it is empty."""
    items = tf.compat.v1.get_collection(key)
    if len(items) > 1:
        _LOG.info("Found %d %s operations. Returning the first one.", len(items), key)
    return items[0] if items else None


def check_devices(graph: Any) -> None:
    """Raise `ValueError` for a variable without a device: replicas would each keep one of their own."""
    for op in graph.get_operations():
        if op.type in VARIABLES and not op.device:
            raise ValueError(f"When using replicas, all Variables must have their device set: {op}")


def chosen(given: Any, key: str, make: Callable[[], Any], first: Callable[[str], Any]) -> Any:
    """Return what was given, else the collection's first item, else a new one, which is added to the collection.

    Args:
        given: what the program passed.
        key: the collection.
        make: makes a new one; may return None.
        first: see `first_in_collection`; a subclass of the supervisor may have one of its own.
    """
    if given is not USE_DEFAULT:
        return given
    found = first(key)
    if found is None:
        found = make()
        if found is not None:
            tf.compat.v1.add_to_collection(key, found)
    return found
