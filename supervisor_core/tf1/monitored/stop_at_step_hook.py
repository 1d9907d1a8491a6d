"""`StopAtStepHook`: ends the loop at a step."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from supervisor_core.tf1.monitored.own_hook import OwnHook


class StopAtStepHook(OwnHook, tf.compat.v1.train.StopAtStepHook):
    """Ends the loop after so many steps, or at a step: arguments as of ``tf.compat.v1.train.StopAtStepHook``.

    TensorFlow's own is replaced because it does not find a global step that is a resource variable by its name. As
    there, the step is fetched with each run, since a training must not be one step longer than it was to be.

    Args:
        num_steps: how many steps to do, from the first session's first.
        last_step: the step to end at.

    Raises:
        ValueError: unless exactly one of the two is given.
    """

    def __init__(self, num_steps: int | None = None, last_step: int | None = None) -> None:
        if num_steps is None and last_step is None:
            raise ValueError("One of num_steps or last_step must be specified.")
        if num_steps is not None and last_step is not None:
            raise ValueError("Only one of num_steps or last_step can be specified.")
        self._num_steps = num_steps
        self._last_step = last_step

    def begin(self) -> None:
        """Find the global step.

        Raises:
            RuntimeError: in a graph without one. In a session of ours another hook may still make it.
        """
        self._find_step()

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Find the step to end at.

        Raises:
            RuntimeError: without a global step.
        """
        if self._step_fetch() is None:
            raise RuntimeError("Global step should be created to use StopAtStepHook.")
        if self._last_step is None:
            assert self._num_steps is not None
            self._last_step = self._read_step(session) + self._num_steps

    def before_run(self, run_context: Any) -> Any:
        """Ask for the step."""
        return self._step_args()

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Stop, if this was the last step."""
        # What was fetched may be the step from before the run, or from after it.
        last_step = self._last_step or 0
        if self._stale_step(run_values) + 1 >= last_step and self._read_step(run_context.session) >= last_step:
            run_context.request_stop()
