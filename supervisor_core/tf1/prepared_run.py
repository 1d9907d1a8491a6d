"""`PreparedRun`: a run that is worked out before the moment when it has to be quick."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from supervisor_core.tf1 import private_symbols as private


class PreparedRun:
    """One run of a plain session, pruned, placed and optimized when this is made rather than when it first runs.

    It runs in the thread that calls it, as far as the session lets it: TensorFlow's own threads, which the training
    steps need, stay free.

    Args:
        session: a ``tf.compat.v1.Session``.
        feeds: tensors to feed.
        fetches: tensors to return.
        targets: operations to run.

    Raises:
        tf.errors.CancelledError: if the session is closed.
    """

    def __init__(
        self, session: Any, *, feeds: Sequence[Any] = (), fetches: Sequence[Any] = (), targets: Sequence[Any] = ()
    ) -> None:
        self._session = session
        self._feeds = feeds
        self._elements = [*fetches, *targets]
        self._fetched = len(fetches)
        self._callable: Any = None
        try:
            make = private.MAKE_FROM_OPTIONS.of(session)
            options = private.CALLABLE_OPTIONS.load()
        except AttributeError:  # then it runs as any other run does
            return
        self._callable = make(
            options(
                feed=[tensor.name for tensor in feeds],
                fetch=[tensor.name for tensor in fetches],
                target=[op.name for op in targets],
                run_options=tf.compat.v1.RunOptions(inter_op_thread_pool=-1),
            )
        )

    def __call__(self, *values: Any) -> list[Any]:
        """Run with these values fed, in the order of the feeds; return the fetched values."""
        if self._callable is not None:
            return list(self._callable(*values))
        feed_dict = dict(zip(self._feeds, values, strict=True))
        return list(self._session.run(self._elements, feed_dict)[: self._fetched])
