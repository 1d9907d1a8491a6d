"""`SummarySaverHook`: summaries every so many steps or seconds, of the very runs that train."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from supervisor_core.tf1.monitored.runtime_hook import RuntimeHook
from supervisor_core.tf1.monitored.step_timer import StepTimer

_RunArgs = tf.compat.v1.train.SessionRunArgs


class SummarySaverHook(RuntimeHook, tf.compat.v1.train.SummarySaverHook):
    """Appends summaries: arguments and moments are those of ``tf.compat.v1.train.SummarySaverHook``.

    TensorFlow's own is replaced because it fetches the global step with every run, opens an events file of its own,
    goes by the wall clock, and refuses a graph without a global step. Here the summary op runs with the steps
    that are due, and other runs stay as they are. Without a global step runs are counted, and summaries bear no step.

    Args:
        save_steps: steps between two summaries.
        save_secs: seconds between two summaries.
        output_dir: the run's directory.
        summary_writer: where summaries go. Default: the session's one writer, where there is an ``output_dir``.
        scaffold: whose summary op to run.
        summary_op: a tensor of serialized summaries, or a list of such.

    Raises:
        ValueError: unless exactly one of ``scaffold`` and ``summary_op``, and of ``save_steps`` and ``save_secs``, is
            given.
    """

    sleeps = True

    def is_due(self, step: int) -> bool:
        """Tell whether it is time at this step."""
        return self._timer.is_due(step)

    def __init__(
        self,
        save_steps: int | None = None,
        save_secs: float | None = None,
        output_dir: str | None = None,
        summary_writer: Any = None,
        scaffold: Any = None,
        summary_op: Any = None,
    ) -> None:
        if (scaffold is None) == (summary_op is None):
            raise ValueError("Exactly one of scaffold or summary_op must be provided.")
        self._timer = StepTimer(every_secs=save_secs, every_steps=save_steps)
        self._output_dir = output_dir
        self._summary_writer = summary_writer
        self._scaffold = scaffold
        self._summary_op = summary_op
        self._request: Any = None
        self._requested = False

    @property
    def output_dir(self) -> str | None:
        """The directory whose events file it writes to."""
        return None if self._summary_writer is not None else self._output_dir

    def begin(self) -> None:
        """Find the writer."""
        if self._summary_writer is None and self._output_dir:
            self._summary_writer = self.runtime.writer_of(self._output_dir)

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Find the summary op."""
        op = self._scaffold.summary_op if self._summary_op is None else self._summary_op
        ops = op if isinstance(op, list) else [op]
        self._request = None if op is None else _RunArgs(ops)
        self.watches_runs = self._request is not None and self._summary_writer is not None
        self._timer.reset()

    def before_run(self, run_context: Any) -> Any:
        """Ask for the summaries, if it will be time by the end of this run."""
        self._requested = self._timer.is_due(self.runtime.step() + 1)
        return self._request if self._requested else None

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Append what was asked for."""
        if not self._requested or run_values.results is None:
            return
        step = self.runtime.read_step()
        self._timer.triggered(step)
        for summary in run_values.results:
            self._summary_writer.add_summary(summary, None if self.runtime.global_step is None else step)

    def end(self, session: Any = None) -> None:
        """Hand everything to the operating system."""
        if self._summary_writer is not None:
            self._summary_writer.flush()
