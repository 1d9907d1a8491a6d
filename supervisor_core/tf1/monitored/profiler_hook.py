"""`ProfilerHook`: a timeline of one run, every so many steps or seconds."""

from __future__ import annotations

import logging
import os
from typing import Any

import tensorflow as tf

from supervisor_core.tf1 import private_symbols as private
from supervisor_core.tf1.monitored.runtime_hook import RuntimeHook
from supervisor_core.tf1.monitored.step_timer import StepTimer

_LOG = logging.getLogger("supervisor_core")
_RunArgs = tf.compat.v1.train.SessionRunArgs


class ProfilerHook(RuntimeHook, tf.compat.v1.train.ProfilerHook):
    """Traces one run now and then, into ``timeline-<step>.json`` (Chrome's trace format) and the events file.

    TensorFlow's own is replaced because it opens an events file of its own when it is constructed, fetches the global
    step with every run, and goes by the wall clock. Only the runs that are traced cost more here.

    Args:
        save_steps: steps between two traces.
        save_secs: seconds between two traces.
        output_dir: where timelines go, and whose events file. Default: the working directory.
        show_dataflow: show what each operation waited for.
        show_memory: show sizes and lives of tensors.

    Raises:
        ValueError: unless exactly one of ``save_steps`` and ``save_secs`` is given.
    """

    def __init__(
        self,
        save_steps: int | None = None,
        save_secs: float | None = None,
        output_dir: str = "",
        show_dataflow: bool = True,
        show_memory: bool = False,
    ) -> None:
        self._output_dir = os.fspath(output_dir)
        self._timer = StepTimer(every_secs=save_secs, every_steps=save_steps)
        self._show_dataflow = show_dataflow
        self._show_memory = show_memory
        self._request = _RunArgs(None, options=tf.compat.v1.RunOptions(trace_level=tf.compat.v1.RunOptions.FULL_TRACE))
        self._requested = False

    def begin(self) -> None:
        """Wait for the first interval to pass."""
        self._timer.reset()

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Count from here on."""
        self._timer.triggered(self.runtime.read_step())

    def before_run(self, run_context: Any) -> Any:
        """Ask for a trace, if it will be time by the end of this run."""
        self._requested = self._timer.is_due(self.runtime.step() + 1)
        return self._request if self._requested else None

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Write what was traced."""
        if not self._requested:
            return
        step = self.runtime.read_step()
        self._timer.triggered(step)
        path = os.path.join(self._output_dir, f"timeline-{step}.json")
        timeline = self._timeline(run_values.run_metadata.step_stats)
        if timeline is not None:
            _LOG.info("Saving timeline for %d into '%s'.", step, path)
            with tf.io.gfile.GFile(path, "w") as file:
                file.write(timeline)
        self.runtime.writer_of(self._output_dir or ".").add_run_metadata(run_values.run_metadata, f"step_{step}", step)

    def _timeline(self, step_stats: Any) -> str | None:
        try:
            timeline = private.TIMELINE.load()
        except AttributeError:
            return None
        trace = timeline(step_stats).generate_chrome_trace_format(
            show_dataflow=self._show_dataflow, show_memory=self._show_memory
        )
        return str(trace)
