"""`SummarySaverHook`: summaries every so many steps or seconds, of the very runs that train."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from supervisor_core.tf1.global_step import step_value
from supervisor_core.tf1.monitored.own_hook import OwnHook
from supervisor_core.tf1.monitored.step_timer import StepTimer

_RunArgs = tf.compat.v1.train.SessionRunArgs
_START = tf.compat.v1.SessionLog(status=tf.compat.v1.SessionLog.START)


class SummarySaverHook(OwnHook, tf.compat.v1.train.SummarySaverHook):
    """Appends summaries: arguments and moments are those of ``tf.compat.v1.train.SummarySaverHook``.

    TensorFlow's own is replaced because it goes by the wall clock. In a session of ours runs without summaries stay as
    they are, and a graph without a global step will do: runs are counted, and summaries bear no step.

    Args:
        save_steps: steps between two summaries.
        save_secs: seconds between two summaries.
        output_dir: the run's directory.
        summary_writer: where summaries go. Default: the writer of ``output_dir``.
        scaffold: whose summary op to run.
        summary_op: a tensor of serialized summaries, or a list of such.

    Raises:
        ValueError: unless exactly one of ``scaffold`` and ``summary_op``, and of ``save_steps`` and ``save_secs``, is
            given.
    """

    sleeps = True

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
        self._has_writer = summary_writer is not None
        self._output_dir = output_dir
        self._summary_writer = summary_writer
        self._scaffold = scaffold
        self._summary_op = summary_op
        self._next_step: int | None = None
        self._request_summary = False

    @property
    def output_dir(self) -> str | None:
        """The directory whose events file it writes to."""
        return None if self._has_writer else self._output_dir

    @property
    def watches_runs(self) -> bool:
        """Whether there are summaries, and somewhere to write them."""
        return self._summary_writer is not None and self._get_summary_op() is not None

    def is_due(self, step: int) -> bool:
        """Return whether it is time at this step."""
        return self._next_step is None or self._timer.should_trigger_for_step(step)

    def begin(self) -> None:
        """Find the writer and the global step.

        Raises:
            RuntimeError: in a graph without one, except in a session of ours.
        """
        if self.output_dir:
            self._summary_writer = self._writer_of(self.output_dir)
        self._next_step = None
        self._find_step()

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Count from here on: a session that was recovered may be at an earlier step."""
        self._timer.reset()

    def before_run(self, run_context: Any) -> Any:
        """Ask for the summaries, if it will be time by the end of this run."""
        coming = self._next_step if self._host is None else self._host.step() + 1
        self._request_summary = coming is None or self.is_due(coming)
        step, summary_op = self._step_fetch(), self._get_summary_op() if self._request_summary else None
        requests = {} if step is None else {"global_step": step}
        return _RunArgs(requests if summary_op is None else {**requests, "summary": summary_op})

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Append what was asked for."""
        writer, is_first = self._summary_writer, self._next_step is None
        if writer is None:
            return
        if is_first or self._request_summary or "global_step" not in run_values.results:
            step = self._read_step(run_context.session)
        else:
            step = step_value(run_values.results["global_step"], self._step_fetch()) + 1
        if is_first and self._host is None:  # a host has said so itself
            writer.add_session_log(_START, step)
        if self._request_summary:
            self._timer.update_last_triggered_step(step)
            for summary in run_values.results.get("summary", ()):
                writer.add_summary(summary, None if self._step_fetch() is None else step)
        self._next_step = step + 1

    def end(self, session: Any = None) -> None:
        """Hand everything to the operating system."""
        if self._summary_writer is not None:
            self._summary_writer.flush()

    def _get_summary_op(self) -> list[Any] | None:
        """Return the tensors to run. Of the original's own name, since programs override it."""
        op = self._scaffold.summary_op if self._summary_op is None else self._summary_op
        return op if op is None or isinstance(op, list) else [op]
