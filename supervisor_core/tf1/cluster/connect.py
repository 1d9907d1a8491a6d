"""Sessions on a cluster's servers: connecting, errors of unavailable processes, closing with a timeout."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import tensorflow as tf

from supervisor_core.engine.blocking_call import BlockingCall

LOCAL = ("local", b"local")


_LOG = logging.getLogger("supervisor_core")

CLOSE_SECS = 5.0
"""How long closing a session in a cluster may take, in seconds."""


def close_session(session: Any) -> None:
    """Close a plain session; in a cluster within `CLOSE_SECS`, since TensorFlow may wait forever.

    Raises:
        Exception: what ``close`` raises.
    """
    if not is_remote(getattr(session, "sess_str", None) or ""):
        session.close()
        return
    closing = BlockingCall(session.close, name="supervisor_close")  # without threads not at all: no limit
    _await(closing, CLOSE_SECS, "A process of the cluster does not answer: the session was not closed.")


def close_with_timeout(session: Any, secs: float) -> None:
    """Close a session at the end of training, within a time limit. Never raises.

    ``close`` waits in native code, where Ctrl-C has no effect, for a call that hangs. After the time limit the session
    is left open.
    """
    try:
        try:
            closing = BlockingCall(session.close, name="supervisor_close")
        except RuntimeError:  # no thread can be started at interpreter exit
            session.close()
        else:
            _await(closing, secs, "A call that does not return blocks closing the session: it was not closed.")
    except Exception as error:  # as in the original: pending calls fail, and the error helps no caller
        _LOG.info("Closing the session failed: %s", error)


def _await(closing: BlockingCall[Any], secs: float, otherwise: str) -> None:
    """Wait for a session to be closed; after this time leave it open, with a warning."""
    if closing.wait(secs):
        closing.result()
    else:
        _LOG.warning(otherwise)


def is_remote(master: str | bytes) -> bool:
    """Return whether a session on this master goes through a server, whose cluster may block it forever."""
    return "://" in (master.decode() if isinstance(master, bytes) else master)


UNAVAILABLE = (tf.errors.AbortedError, tf.errors.UnavailableError)
"""Raised when a process of the cluster is unavailable: the session must be recreated."""

# Answer of a server that is still starting when it is asked for its own device.
_STARTING = re.compile(r"/job:\S{1,300} unknown device\.")


def as_unavailable(error: Exception) -> Exception | None:
    """Return the `AbortedError` or `UnavailableError` that an error stands for; None if it means something else."""
    if isinstance(error, tf.errors.InvalidArgumentError) and _STARTING.search(error.message):
        gone: Exception = tf.errors.UnavailableError(error.node_def, error.op, error.message)
        return gone
    return error if type(error) in UNAVAILABLE else None


@contextmanager
def raised_as_unavailable() -> Iterator[None]:
    """Convert every error that means an unavailable process to `AbortedError` or `UnavailableError`."""
    try:
        yield
    except tf.errors.InvalidArgumentError as error:
        gone = as_unavailable(error)
        if gone is None:
            raise
        raise gone from error


class FinishedSession(tf.compat.v1.Session):
    """A closed session, for a worker that starts after its run has finished; ``should_stop()`` is True for its loop.

    ``run`` raises `OutOfRangeError`, as exhausted input does, so that the ``with`` block around it ends without error.

    Args:
        graph: the worker's graph.
        reason: the text of the error.
    """

    def __init__(self, graph: Any, reason: str) -> None:
        # It runs nothing, so it must not occupy a GPU.
        super().__init__(graph=graph, config=tf.compat.v1.ConfigProto(device_count={"GPU": 0}))
        super().close()
        self._reason = reason

    def run(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise `OutOfRangeError`."""
        raise tf.errors.OutOfRangeError(None, None, self._reason)

    def partial_run_setup(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise `OutOfRangeError`."""
        self.run()

    def make_callable(self, *args: Any, **kwargs: Any) -> Any:
        """Return a callable that raises `OutOfRangeError`."""
        return self.run
