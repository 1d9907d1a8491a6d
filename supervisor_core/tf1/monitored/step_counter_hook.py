"""`StepCounterHook`: how many steps a second."""

from __future__ import annotations

import logging
from typing import Any

import tensorflow as tf

from supervisor_core.tf1 import private_symbols as private
from supervisor_core.tf1.monitored.own_hook import OwnHook
from supervisor_core.tf1.monitored.step_timer import StepTimer

_LOG = logging.getLogger("supervisor_core")
_NOT_INCREASED = (
    "The global step (tf.train.get_global_step) has not been increased by the last run: it is still %s. Pass it to "
    "Optimizer.apply_gradients or Optimizer.minimize."
)
TIMES_TO_WARN = 5
"""How often it is said that the global step does not rise."""


class StepCounterHook(OwnHook, tf.compat.v1.train.StepCounterHook):
    """Appends the steps per second, as ``<global step's name>/sec``: arguments as of the original.

    TensorFlow's own is replaced because it goes by the wall clock; and a session of ours need not fetch the global step
    with every run for this one, and runs without a global step, for which it does nothing.

    Args:
        every_n_steps: steps between two rates.
        every_n_secs: seconds between two rates.
        output_dir: the run's directory.
        summary_writer: where rates go. Default: the writer of ``output_dir``.

    Raises:
        ValueError: unless exactly one of ``every_n_steps`` and ``every_n_secs`` is given.
    """

    sleeps = True

    def __init__(
        self,
        every_n_steps: int | None = 100,
        every_n_secs: float | None = None,
        output_dir: str | None = None,
        summary_writer: Any = None,
    ) -> None:
        if (every_n_steps is None) == (every_n_secs is None):
            raise ValueError("exactly one of every_n_steps and every_n_secs should be provided.")
        self._timer = StepTimer(every_secs=every_n_secs, every_steps=every_n_steps)
        self._has_writer = summary_writer is not None
        self._output_dir = output_dir
        self._summary_writer = summary_writer
        self._summary_tag: str | None = None
        self._steps_per_run = 1
        self._last_global_step: int | None = None

    def _set_steps_per_run(self, steps_per_run: int) -> None:
        """Take the steps that one run does, of which the next one is due."""
        self._steps_per_run = steps_per_run

    @property
    def output_dir(self) -> str | None:
        """The directory whose events file it writes to."""
        return None if self._has_writer else self._output_dir

    @property
    def watches_runs(self) -> bool:
        """Whether there is a step to count."""
        return self._step_fetch() is not None

    def is_due(self, step: int) -> bool:
        """Return whether it is time at this step."""
        return self._timer.should_trigger_for_step(step)

    def begin(self) -> None:
        """Find the writer and the global step.

        Raises:
            RuntimeError: in a graph without one, except in a session of ours.
        """
        if self.output_dir:
            self._summary_writer = self._writer_of(self.output_dir)
        self._find_step()

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Count from here on."""
        self._timer.reset()

    def before_run(self, run_context: Any) -> Any:
        """Ask for the step."""
        return self._step_args()

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Append the rate, if it is time; warn when the step does not rise."""
        if self._step_fetch() is None:
            return
        stale = self._stale_step(run_values)
        if self.is_due(stale + self._steps_per_run):
            self.wake(run_context)
        if stale == self._last_global_step:
            _warn(stale)
        self._last_global_step = stale

    def wake(self, run_context: Any) -> None:
        """Append the rate, if it is time."""
        step = self._read_step(run_context.session)
        if not self.is_due(step):
            return
        secs, steps = self._timer.update_last_triggered_step(step)
        if secs and steps is not None:
            self._log_and_record(steps, secs, step)

    def _log_and_record(self, elapsed_steps: int, elapsed_time: float, global_step: int) -> None:
        """Append the rate. Of the original's own name, since programs override it."""
        rate = elapsed_steps / elapsed_time
        tag = self._summary_tag or f"{self._counted().op.name}/sec"
        if self._summary_writer is not None:
            value = tf.compat.v1.Summary.Value(tag=tag, simple_value=rate)
            self._summary_writer.add_summary(tf.compat.v1.Summary(value=[value]), global_step)
        _LOG.info("%s: %g", tag, rate)


def _warn(step: int) -> None:
    try:
        log_first_n = private.LOG_FIRST_N.load()  # of its own module, where programs and tests replace it
    except AttributeError:
        log_first_n = tf.compat.v1.logging.log_first_n
    log_first_n(tf.compat.v1.logging.WARN, _NOT_INCREASED, TIMES_TO_WARN, step)
