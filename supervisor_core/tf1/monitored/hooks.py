"""Hooks for summaries, step rates, stopping and waiting, and the classes of TensorFlow to use with them.

Each takes the arguments of its original in ``tf.compat.v1.train``. All use a clock that a change of the wall clock does
not stop, and sleep in a supervised session until they are due. `CheckpointSaverHook` has a file of its own.
"""

from __future__ import annotations

import logging
import time
from typing import Any

import tensorflow as tf

from supervisor_core.tf1 import private_symbols as private
from supervisor_core.tf1.global_step import collected_global_step, step_value
from supervisor_core.tf1.monitored.hosted_hook import HostedHook, StepTimer, WritingHook
from supervisor_core.tf1.services import write_rate

_RunArgs = tf.compat.v1.train.SessionRunArgs
_START = tf.compat.v1.SessionLog(status=tf.compat.v1.SessionLog.START)


# TensorFlow's own classes that need no replacement: none writes to the run, and `HookLosses` reads NanTensorHook's
# losses. They are here so that programs import everything from supervisor_core.
Scaffold = tf.compat.v1.train.Scaffold
SessionCreator = tf.compat.v1.train.SessionCreator
SessionRunHook = tf.compat.v1.train.SessionRunHook
SessionRunArgs = tf.compat.v1.train.SessionRunArgs
SessionRunContext = tf.compat.v1.train.SessionRunContext
SessionRunValues = tf.compat.v1.train.SessionRunValues
CheckpointSaverListener = tf.compat.v1.train.CheckpointSaverListener
LoggingTensorHook = tf.compat.v1.train.LoggingTensorHook
NanTensorHook = tf.compat.v1.train.NanTensorHook
NanLossDuringTrainingError = tf.compat.v1.train.NanLossDuringTrainingError
FinalOpsHook = tf.compat.v1.train.FinalOpsHook
FeedFnHook = tf.compat.v1.train.FeedFnHook
ProfilerHook = tf.compat.v1.train.ProfilerHook


class SummarySaverHook(WritingHook, tf.compat.v1.train.SummarySaverHook):
    """Appends summaries at the same steps as ``tf.compat.v1.train.SummarySaverHook``, computed in the training call.

    In a supervised session calls without summaries fetch nothing extra, and a graph needs no global step: calls are
    counted, and summaries have no step.

    Args:
        save_steps: steps between two summaries.
        save_secs: seconds between two summaries.
        output_dir: the run's directory.
        summary_writer: default: the writer of ``output_dir``.
        scaffold: its summary op is run.
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
        self._write_to(output_dir, summary_writer)
        self._scaffold = scaffold
        self._summary_op = summary_op
        self._next_step: int | None = None
        self._request_summary = False

    @property
    def is_active(self) -> bool:
        """Whether there are both summaries and a writer."""
        return self._summary_writer is not None and self._get_summary_op() is not None

    def is_due(self, step: int) -> bool:
        """Return whether it is due at this step."""
        return self._next_step is None or super().is_due(step)

    def begin(self) -> None:
        """See `WritingHook.begin`."""
        self._next_step = None
        super().begin()

    def before_run(self, run_context: Any) -> Any:
        """Ask for the summaries if they are due after this call."""
        coming = self._next_step if self._host is None else self._host.step() + 1
        self._request_summary = coming is None or self.is_due(coming)
        step, summary_op = self._step_fetch(), self._get_summary_op() if self._request_summary else None
        requests = {} if step is None else {"global_step": step}
        return _RunArgs(requests if summary_op is None else {**requests, "summary": summary_op})

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Append the summaries."""
        writer, is_first = self._summary_writer, self._next_step is None
        if writer is None:
            return
        if is_first or self._request_summary or "global_step" not in run_values.results:
            step = self._read_step(run_context.session)
        else:
            step = step_value(run_values.results["global_step"], self._step_fetch()) + 1
        if is_first and self._host is None:  # a host writes START itself
            writer.add_session_log(_START, step)
        if self._request_summary:
            self._timer.update_last_triggered_step(step)
            for summary in run_values.results.get("summary", ()):
                writer.add_summary(summary, None if self._step_fetch() is None else step)
        self._next_step = step + 1

    def end(self, session: Any = None) -> None:
        """Flush the writer."""
        if self._summary_writer is not None:
            self._summary_writer.flush()

    def _get_summary_op(self) -> list[Any] | None:
        """Return the tensors to run. Of the original's own name, since programs override it."""
        op = self._scaffold.summary_op if self._summary_op is None else self._summary_op
        return op if op is None or isinstance(op, list) else [op]


_LOG = logging.getLogger("supervisor_core")
_NOT_INCREASED = (
    "The global step (tf.train.get_global_step) has not been increased by the last run: it is still %s. Pass it to "
    "Optimizer.apply_gradients or Optimizer.minimize."
)
TIMES_TO_WARN = 5
"""How often to warn that the global step does not increase."""


class StepCounterHook(WritingHook, tf.compat.v1.train.StepCounterHook):
    """Appends the steps per second, as ``<global step's name>/sec``.

    In a supervised session it does not fetch the global step, and does nothing in a graph without one.

    Args:
        every_n_steps: steps between two values.
        every_n_secs: seconds between two values.
        output_dir: the run's directory.
        summary_writer: default: the writer of ``output_dir``.

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
        self._write_to(output_dir, summary_writer)
        self._summary_tag: str | None = None
        self._steps_per_run = 1
        self._last_global_step: int | None = None

    def _set_steps_per_run(self, steps_per_run: int) -> None:
        """Set the steps per call."""
        self._steps_per_run = steps_per_run

    @property
    def is_active(self) -> bool:
        """Whether there is a global step."""
        return self._step_fetch() is not None

    def before_run(self, run_context: Any) -> Any:
        """Fetch the global step."""
        return self._step_args()

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Append the rate if it is due; warn if the step has not increased."""
        if self._step_fetch() is None:
            return
        stale = self._stale_step(run_values)
        if self.is_due(stale + self._steps_per_run):
            self.wake(run_context)
        if stale == self._last_global_step:
            _warn(stale)
        self._last_global_step = stale

    def wake(self, run_context: Any) -> None:
        """Append the rate if it is due."""
        step = self._read_step(run_context.session)
        if not self.is_due(step):
            return
        secs, steps = self._timer.update_last_triggered_step(step)
        if secs and steps is not None:
            self._log_and_record(steps, secs, step)

    def _log_and_record(self, elapsed_steps: int, elapsed_time: float, global_step: int) -> None:
        """Append the rate. Of the original's own name, since programs override it."""
        tag = self._summary_tag or f"{self._counted().op.name}/sec"
        write_rate(self._summary_writer, tag, elapsed_steps / elapsed_time, global_step)


def _warn(step: int) -> None:
    try:
        log_first_n = private.LOG_FIRST_N.load()  # looked up in its module, where programs and tests replace it
    except AttributeError:
        log_first_n = tf.compat.v1.logging.log_first_n
    log_first_n(tf.compat.v1.logging.WARN, _NOT_INCREASED, TIMES_TO_WARN, step)


class StopAtStepHook(HostedHook, tf.compat.v1.train.StopAtStepHook):
    """Requests a stop after a number of steps, or at a step; finds a global step that is a resource variable, too.

    Args:
        num_steps: number of steps, counted from the first session's first step.
        last_step: the last step.

    Raises:
        ValueError: unless exactly one of the two is given.
    """

    def begin(self) -> None:
        """Find the global step; `RuntimeError` in a graph without one."""
        self._global_step_tensor = _required_step(self)


class GlobalStepWaiterHook(HostedHook, tf.compat.v1.train.GlobalStepWaiterHook):
    """Delays the first call until the global step has reached a value, or a stop is requested.

    Args:
        wait_until_step: the global step to wait for.
    """

    sleeps = True

    def __init__(self, wait_until_step: int) -> None:
        super().__init__(wait_until_step)
        self._wait_until_step = wait_until_step
        self._coord: Any = None

    def is_due(self, step: int) -> bool:
        """Return whether the wait is not over."""
        return not self._worker_is_started

    def begin(self) -> None:
        """Find the global step; `RuntimeError` in a graph without one."""
        self._global_step_tensor = _required_step(self)
        self._worker_is_started = self._wait_until_step <= 0

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Keep the coordinator, to see stop requests."""
        self._coord = coord

    def before_run(self, run_context: Any) -> None:
        """Wait before the first call."""
        if self._worker_is_started:
            return
        _LOG.info("Waiting for global step %d before starting training.", self._wait_until_step)
        while step_value(run_context.session.run(self._global_step_tensor), None) < self._wait_until_step:
            if self._coord is None:  # called by hand: no stop can be requested
                time.sleep(POLL_SECS)
            elif self._coord.wait_for_stop(POLL_SECS):
                run_context.request_stop()
                return
        self._worker_is_started = True


POLL_SECS = 0.5
"""Seconds between two reads of the global step."""


def _required_step(hook: Any) -> Any:
    step = collected_global_step(tf.compat.v1.get_default_graph())
    if step is None:
        raise RuntimeError(f"Global step should be created to use {type(hook).__name__}.")
    return step
