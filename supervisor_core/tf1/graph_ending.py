"""`GraphEnding`: the end of a session of the graph-mode facades, with TensorFlow's errors."""

from __future__ import annotations

import tensorflow as tf

from supervisor_core.engine import open_sessions
from supervisor_core.engine.ending import Ending
from supervisor_core.tf1 import private_symbols as private
from supervisor_core.tf1.tf_errors import error_text


class GraphEnding(Ending):
    """See the module's docstring, and `Ending`."""

    stop_log = tf.compat.v1.SessionLog(status=tf.compat.v1.SessionLog.STOP)  # the writer may be TensorFlow's

    def is_exhausted(self, error: BaseException) -> bool:
        """See `Ending.is_exhausted`."""
        return isinstance(error, (tf.errors.OutOfRangeError, StopIteration))

    def is_cancelled(self, error: BaseException) -> bool:
        """See `Ending.is_cancelled`."""
        return type(error) is tf.errors.CancelledError

    def describe(self, error: BaseException) -> str:
        """See `Ending.describe`."""
        return error_text(error)

    def is_abandoned_in(self, logdir: str | None) -> bool:
        """Whether the program has closed the TensorFlow session, of a run in this directory, and stopped nothing."""
        return self._state.logdir == logdir and private.CLOSED.get(self._state.tf_session, False)


def end_abandoned(logdir: str | None) -> None:
    """End the sessions in a directory whose TensorFlow session a program has closed without stopping anything."""
    for each in open_sessions.endings():
        if isinstance(each, GraphEnding) and each.is_abandoned_in(logdir):
            each.record(None)
