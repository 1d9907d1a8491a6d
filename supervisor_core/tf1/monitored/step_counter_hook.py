"""`StepCounterHook`: how many steps a second."""

from __future__ import annotations

import logging
from typing import Any

import tensorflow as tf

from supervisor_core.tf1.monitored.runtime_hook import RuntimeHook
from supervisor_core.tf1.monitored.step_timer import StepTimer

_LOG = logging.getLogger("supervisor_core")


class StepCounterHook(RuntimeHook, tf.compat.v1.train.StepCounterHook):
    """Appends the steps per second, as ``<global step's name>/sec``: arguments as of the original.

    TensorFlow's own is replaced because it fetches the global step with every run, goes by the wall clock, and refuses
    a graph without a global step. This one reads the step when it is time; without a global step it does nothing.

    Args:
        every_n_steps: steps between two rates.
        every_n_secs: seconds between two rates.
        output_dir: the run's directory.
        summary_writer: where rates go. Default: the session's one writer.

    Raises:
        ValueError: unless exactly one of ``every_n_steps`` and ``every_n_secs`` is given.
    """

    sleeps = True

    def is_due(self, step: int) -> bool:
        """Tell whether it is time at this step."""
        return self._timer.is_due(step)

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
        self._output_dir = output_dir
        self._summary_writer = summary_writer
        self._summary_tag: str | None = None

    @property
    def output_dir(self) -> str | None:
        """The directory whose events file it writes to."""
        return None if self._summary_writer is not None else self._output_dir

    def begin(self) -> None:
        """Find the writer."""
        if self._summary_writer is None and self._output_dir:
            self._summary_writer = self.runtime.writer_of(self._output_dir)

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Count from here on."""
        global_step = self.runtime.global_step
        self._summary_tag = None if global_step is None else f"{global_step.op.name}/sec"
        self.watches_runs = self._summary_tag is not None
        self._timer.reset()

    before_run = tf.compat.v1.train.SessionRunHook.before_run

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Append the rate, if it is time."""
        if self._summary_tag is None or not self._timer.is_due(self.runtime.step()):
            return
        step = self.runtime.read_step()
        if not self._timer.is_due(step):
            return
        since = self._timer.triggered(step)
        if since is None or since[0] <= 0:
            return
        self._log_and_record(since[1], since[0], step)

    def _log_and_record(self, elapsed_steps: int, elapsed_time: float, global_step: int) -> None:
        """Append the rate. Of the original's own name, since programs override it."""
        rate = elapsed_steps / elapsed_time
        if self._summary_writer is not None:
            value = tf.compat.v1.Summary.Value(tag=self._summary_tag, simple_value=rate)
            self._summary_writer.add_summary(tf.compat.v1.Summary(value=[value]), global_step)
        _LOG.info("%s: %g", self._summary_tag, rate)
