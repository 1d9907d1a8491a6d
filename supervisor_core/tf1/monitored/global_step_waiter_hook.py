"""`GlobalStepWaiterHook`: a worker that begins when the others have come so far."""

from __future__ import annotations

import logging
from typing import Any

import tensorflow as tf

from supervisor_core.tf1.monitored.runtime_hook import RuntimeHook

_LOG = logging.getLogger("supervisor_core")

POLL_SECS = 0.5
"""Seconds between two looks at the global step."""
TELL_EVERY_STEPS = 1000
"""How many steps lie between two lines in the log that say how far the others are."""


class GlobalStepWaiterHook(RuntimeHook, tf.compat.v1.train.GlobalStepWaiterHook):
    """Holds the first run back until the global step has come so far.

    TensorFlow's own is replaced because it sleeps, and goes on waiting when a stop was requested; this one ends the
    loop then. Without a global step it does not wait.

    Args:
        wait_until_step: the global step to wait for.
    """

    def __init__(self, wait_until_step: int) -> None:
        self._wait_until_step = wait_until_step
        self._waits = wait_until_step > 0
        self._coord: Any = None

    def begin(self) -> None:
        """Wait once more."""
        self._waits = self._wait_until_step > 0

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Learn who may request a stop."""
        self._coord = coord
        self.watches_runs = self.runtime.global_step is not None

    def before_run(self, run_context: Any) -> None:
        """Wait, the first time."""
        if not self._waits:
            return
        _LOG.info("Waiting for global step %d before starting training.", self._wait_until_step)
        told = 0
        while (step := self.runtime.read_step()) < self._wait_until_step:
            if step - told >= TELL_EVERY_STEPS:
                told = step
                _LOG.info("Waiting for global step %d; it is %d.", self._wait_until_step, step)
            if self._coord.wait_for_stop(POLL_SECS):
                run_context.request_stop()
                return
        self._waits = False
