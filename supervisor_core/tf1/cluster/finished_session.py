"""`FinishedSession`: what a worker gets that comes when its run has finished."""

from __future__ import annotations

from typing import Any, NoReturn

import tensorflow as tf


class FinishedSession(tf.compat.v1.Session):
    """A session in which nothing can be run: a training loop that looks at ``should_stop()`` never does.

    Whatever is run all the same raises `OutOfRangeError`, as input that has come to its end does, so that the ``with``
    block around it ends well.

    Args:
        graph: the worker's graph.
        reason: what to say.
    """

    def __init__(self, graph: Any, reason: str) -> None:
        # It runs nothing, so it takes no GPU from those that do.
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
