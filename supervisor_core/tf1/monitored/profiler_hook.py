"""`ProfilerHook`: a timeline of one run, every so many steps or seconds."""

from __future__ import annotations

import logging
import os
from typing import Any

import tensorflow as tf

from supervisor_core.tf1 import private_symbols as private
from supervisor_core.tf1.monitored.own_hook import OwnHook
from supervisor_core.tf1.monitored.step_timer import StepTimer

_LOG = logging.getLogger("supervisor_core")
_RunArgs = tf.compat.v1.train.SessionRunArgs
_TRACED = tf.compat.v1.RunOptions(trace_level=tf.compat.v1.RunOptions.FULL_TRACE)


class ProfilerHook(OwnHook, tf.compat.v1.train.ProfilerHook):
    """Traces one run now and then, into ``timeline-<step>.json`` (Chrome's trace format) and the events file.

    TensorFlow's own is replaced because it opens an events file when it is constructed, and goes by the wall clock. In
    a session of ours only the first run and those that are traced cost more.

    Args:
        save_steps: steps between two traces.
        save_secs: seconds between two traces.
        output_dir: where timelines go, and whose events file. Default: the working directory.
        show_dataflow: show what each operation waited for.
        show_memory: show sizes and lives of tensors.

    Raises:
        ValueError: unless exactly one of ``save_steps`` and ``save_secs`` is given.
    """

    sleeps = True

    def __init__(
        self,
        save_steps: int | None = None,
        save_secs: float | None = None,
        output_dir: str = "",
        show_dataflow: bool = True,
        show_memory: bool = False,
    ) -> None:
        self._output_dir = os.fspath(output_dir)
        self._output_file = os.path.join(self._output_dir, "timeline-{}.json")
        self._timer = StepTimer(every_secs=save_secs, every_steps=save_steps)
        self._show_dataflow = show_dataflow
        self._show_memory = show_memory
        self._next_step: int | None = None
        self._request_summary = False

    @property
    def events_dir(self) -> str:
        """The directory whose events file the traces go to; by itself it makes its session no supervised run."""
        return self._output_dir or "."

    def is_due(self, step: int) -> bool:
        """Return whether it is time at this step; it wants to see the first run of a session too."""
        return self._next_step is None or self._timer.should_trigger_for_step(step)

    def begin(self) -> None:
        """Find the global step.

        Raises:
            RuntimeError: in a graph without one, except in a session of ours.
        """
        self._next_step = None
        self._find_step()

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Count from the first run on."""
        self._timer.reset()
        self._next_step = None

    def before_run(self, run_context: Any) -> Any:
        """Ask for a trace, if it will be time by the end of this run."""
        coming = self._next_step if self._next_step is None or self._host is None else self._host.step() + 1
        self._request_summary = coming is not None and self._timer.should_trigger_for_step(coming)
        return _RunArgs(self._step_fetch(), options=_TRACED if self._request_summary else None)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Write what was traced."""
        stale = self._stale_step(run_values)
        if self._next_step is None:
            self._timer.update_last_triggered_step(stale)
        step = stale + 1
        if self._request_summary:
            step = self._read_step(run_context.session)
            self._timer.update_last_triggered_step(step)
            self._save(step, self._output_file.format(step), run_values.run_metadata.step_stats)
            self._writer_of(self.events_dir).add_run_metadata(run_values.run_metadata, f"step_{step}")
        self._next_step = step + 1

    def _save(self, step: int, save_path: str, step_stats: Any) -> None:
        """Write a timeline. Of the original's own name, since programs override it."""
        try:
            timeline = private.TIMELINE.load()
        except AttributeError:
            return
        _LOG.info("Saving timeline for %d into '%s'.", step, save_path)
        trace = timeline(step_stats).generate_chrome_trace_format(
            show_dataflow=self._show_dataflow, show_memory=self._show_memory
        )
        with tf.io.gfile.GFile(save_path, "w") as file:
            file.write(str(trace))
