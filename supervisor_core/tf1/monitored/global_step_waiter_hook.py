"""`GlobalStepWaiterHook`: a worker that begins when the others have come so far."""

from __future__ import annotations

import logging
import time
from typing import Any

import tensorflow as tf

from supervisor_core.tf1.monitored.own_hook import OwnHook

_LOG = logging.getLogger("supervisor_core")

POLL_SECS = 0.5
"""Seconds between two looks at the global step."""
TELL_EVERY_STEPS = 1000
"""How many steps lie between two lines in the log that say how far the others are."""


class GlobalStepWaiterHook(OwnHook, tf.compat.v1.train.GlobalStepWaiterHook):
    """Holds the first run back until the global step has come so far.

    TensorFlow's own is replaced because it goes on waiting when a stop was requested; this one ends the loop then.

    Args:
        wait_until_step: the global step to wait for.
    """

    sleeps = True

    def __init__(self, wait_until_step: int) -> None:
        self._wait_until_step = wait_until_step
        self._waits = wait_until_step > 0
        self._coord: Any = None

    @property
    def watches_runs(self) -> bool:
        """Whether there is a step to wait for."""
        return self._waits and self._step_fetch() is not None

    def is_due(self, step: int) -> bool:
        """Return whether it still waits."""
        return self._waits

    def begin(self) -> None:
        """Wait once more.

        Raises:
            RuntimeError: in a graph without a global step. A session of ours does not wait then.
        """
        self._find_step()
        self._waits = self._wait_until_step > 0

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Learn who may request a stop."""
        self._coord = coord

    def before_run(self, run_context: Any) -> None:
        """Wait, the first time."""
        if not self._waits:
            return
        _LOG.info("Waiting for global step %d before starting training.", self._wait_until_step)
        told = 0
        while (step := self._read_step(run_context.session)) < self._wait_until_step:
            if step - told >= TELL_EVERY_STEPS:
                told = step
                _LOG.info("Waiting for global step %d; it is %d.", self._wait_until_step, step)
            if self._coord is None:  # driven by hand: nobody can request a stop
                time.sleep(POLL_SECS)
            elif self._coord.wait_for_stop(POLL_SECS):
                run_context.request_stop()
                return
        self._waits = False
