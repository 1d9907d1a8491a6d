"""`away`: whether an error means that a process of the cluster is gone, or not quite there yet."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import tensorflow as tf

AWAY = (tf.errors.AbortedError, tf.errors.UnavailableError)
"""What is raised when a process of the cluster is gone: a session that reached it is of no use any more."""

# What a server answers that is asked for its own device while it is being started.
_STARTING = re.compile(r"/job:\S+ unknown device\.")


def away(error: Exception) -> Exception | None:
    """Return the error that says so, `AbortedError` or `UnavailableError`; None if this one means something else."""
    if isinstance(error, tf.errors.InvalidArgumentError) and _STARTING.search(error.message):
        gone: Exception = tf.errors.UnavailableError(error.node_def, error.op, error.message)
        return gone
    return error if type(error) in AWAY else None


@contextmanager
def told_as_away() -> Iterator[None]:
    """Have errors that mean that a process is away raised as `AbortedError` or `UnavailableError`, all of them."""
    try:
        yield
    except tf.errors.InvalidArgumentError as error:
        gone = away(error)
        if gone is None:
            raise
        raise gone from error
