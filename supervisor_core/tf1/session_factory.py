"""`SessionFactory`: makes the sessions of one supervisor, and supervises those that others have made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from supervisor_core.clock import Clock
from supervisor_core.runtime.gate import Gate
from supervisor_core.tf1.lifecycle import Lifecycle
from supervisor_core.tf1.session import SupervisedSession


class SessionFactory:
    """Makes supervised sessions that share a gate, and are watched by the session's progress.

    Args:
        gate: keeps steps and snapshots apart.
        lifecycle: whose present session's progress is told of every run.
        global_step: what makes a run a step.
        clock: the time.
        begin: called before a session is made while none is under way, as by a program that prepares its own.
    """

    def __init__(
        self,
        gate: Gate,
        lifecycle: Lifecycle,
        global_step: Any,
        clock: Clock,
        begin: Callable[[], object] = lambda: None,
    ) -> None:
        self._gate = gate
        self._lifecycle = lifecycle
        self._global_step = global_step
        self._clock = clock
        self._begin = begin

    def new(self, target: str, graph: Any, config: Any) -> Any:
        """Return a new session on a TensorFlow master."""
        if not self._lifecycle.is_under_way:
            self._begin()
        return self.supervise(tf.compat.v1.Session(target, graph=graph, config=config))

    def supervise(self, sess: Any) -> Any:
        """Return a session that does what this one does, supervised; this one itself if it is none of TensorFlow's."""
        if isinstance(sess, SupervisedSession) or type(sess) is not tf.compat.v1.Session:
            return sess
        return SupervisedSession.around(
            sess,
            gate=self._gate,
            observer=self._lifecycle.run.progress,
            global_step=self._global_step,
            clock=self._clock,
        )
