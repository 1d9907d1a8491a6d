"""`HostedHook`: base class of the supervisor's hooks, which run in any session and cost less in a supervised one.

In any session a hook needs only the calls of a ``SessionRunHook``. A supervised session also hosts them: it counts
the steps, so that most hooks fetch nothing and are called only when they are due, and it saves in the background.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from supervisor_core.base.clock import SYSTEM_CLOCK, Clock
from supervisor_core.storage.local import absolute
from supervisor_core.tf1.global_step import collected_global_step, step_tensor, step_value

_RunArgs = tf.compat.v1.train.SessionRunArgs


class HostedHook:
    """A hook that uses its host if it has one."""

    sleeps: bool = False
    """Whether a host calls it only when `is_due`: asked about the coming step if it has a ``before_run``; otherwise
    about the step that was reached, and `wake` is called instead of ``after_run``."""
    is_extended: bool = False
    """Whether it is a program's subclass with its own ``before_run`` or ``after_run``: it never sleeps."""
    output_dir: str | None = None
    """The directory whose events file it writes, which makes its session supervised; None if it writes none. The same
    one whatever the working directory becomes."""
    given_dir: str | None = None
    """The same directory, as the program has named it."""
    _host: Any = None
    """The `MonitoredRuntime` of a supervised session."""
    _global_step: Any = None
    _global_step_tensor: Any = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if {"before_run", "after_run"} & set(vars(cls)) and not cls.__module__.startswith("supervisor_core."):
            cls.is_extended, cls.sleeps = True, False

    @property
    def is_active(self) -> bool:
        """Whether it takes part in the present session's calls."""
        return True

    def is_due(self, step: int) -> bool:
        """Return whether it has work at this step."""
        return True

    wake: Callable[[Any], None]
    """Act on the step that was reached, given the call's context."""

    def join(self, host: Any) -> None:
        """Set the host, before ``begin``; None after ``end``."""
        self._host = host

    def _writer_of(self, directory: str, given: str | None) -> Any:
        """The shared writer of a directory. In an unsupervised session it is TensorFlow's, which knows it by the
        program's name for it."""
        return writer_for(given or directory) if self._host is None else self._host.writer_of(directory)

    def _find_step(self) -> None:
        """Find the tensor of the global step; called in ``begin``.

        Raises:
            RuntimeError: in a graph without one, unless a host counts calls instead.
        """
        graph = tf.compat.v1.get_default_graph()
        self._global_step = collected_global_step(graph)
        self._global_step_tensor = step_tensor(graph)
        if self._global_step_tensor is None and self._host is None:
            raise RuntimeError(f"Global step should be created to use {type(self).__name__}.")

    def _counted(self) -> Any:
        """The global step's variable; None in a graph without one."""
        if self._global_step is None and self._host is not None:
            return self._host.global_step  # created after this hook's begin
        return self._global_step

    def _step_fetch(self) -> Any:
        """What to fetch to get the global step; None in a graph without one."""
        return self._counted() if self._global_step_tensor is None else self._global_step_tensor

    def _step_args(self) -> Any:
        """A request for the global step alone."""
        fetch = self._step_fetch()
        return None if fetch is None else _RunArgs(fetch)

    def _stale_step(self, run_values: Any) -> int:
        """The step that was fetched with the call; without a global step, the number of earlier calls."""
        if run_values.results is None:
            assert self._host is not None
            return int(self._host.step()) - 1
        return step_value(run_values.results, self._global_step_tensor)

    def _read_step(self, session: Any) -> int:
        """The global step, read now."""
        if self._host is not None:
            return int(self._host.read_step())
        return step_value(session.run(self._global_step_tensor), self._global_step_tensor)


class WritingHook(HostedHook):
    """A hook that appends to the events file of a directory, or to a writer that it was given, when it is due."""

    _timer: StepTimer
    _output_dir: str | None
    _summary_writer: Any

    def _write_to(self, output_dir: str | None, summary_writer: Any) -> None:
        """Set where it writes to; called by the constructor."""
        self._output_dir = output_dir
        self._summary_writer = summary_writer
        if output_dir and summary_writer is None:
            self.output_dir, self.given_dir = absolute(output_dir), output_dir

    def begin(self) -> None:
        """Find the writer and the global step.

        Raises:
            RuntimeError: in a graph without one, except in a supervised session.
        """
        if self.output_dir:
            self._summary_writer = self._writer_of(self.output_dir, self.given_dir)
        self._find_step()

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Restart the interval: after a recovery the step may be an earlier one."""
        self._timer.reset()

    def is_due(self, step: int) -> bool:
        """Return whether it is due at this step."""
        return self._timer.should_trigger_for_step(step)


def writer_for(directory: str) -> Any:
    """Return the summary writer of a directory from TensorFlow's cache, so that everyone shares one."""
    return tf.compat.v1.summary.FileWriterCache.get(directory)


class StepTimer(tf.compat.v1.train.SecondOrStepTimer):
    """Is due at first, then at an interval of seconds or steps.

    Source: ``tf.compat.v1.train.SecondOrStepTimer``, which uses the wall clock and stops working when
    that is set back. Here an interval has passed when either clock says so: the monotonic clock is right when the wall
    clock was set back, the wall clock when the machine was suspended. Returned durations are monotonic.

    Args:
        every_secs: interval in seconds.
        every_steps: interval in steps.

    Raises:
        ValueError: unless exactly one of the two is given.
    """

    def __init__(
        self, every_secs: float | None = None, every_steps: int | None = None, *, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        super().__init__(every_secs, every_steps)
        self.every_secs = every_secs
        self.every_steps = every_steps
        self._clock = clock

    def reset(self) -> None:
        """Be due at once."""
        self._last_step: int | None = None
        self._last_monotonic = self._last_wall = 0.0

    def should_trigger_for_step(self, step: int) -> bool:
        """Return whether it is due at this step; False at the step at which it last was."""
        last = self._last_step
        if last is None:
            return True
        if step == last:
            return False
        if self.every_steps is not None:
            return step >= last + self.every_steps
        assert self.every_secs is not None
        clock = self._clock
        return (
            clock.monotonic() >= self._last_monotonic + self.every_secs
            or clock.wall() >= self._last_wall + self.every_secs
        )

    def update_last_triggered_step(self, step: int) -> tuple[float | None, int | None]:
        """Record that it was due at this step; return seconds and steps since the last time, (None, None) at first."""
        now, before = self._clock.monotonic(), self._last_step
        elapsed = (None, None) if before is None else (now - self._last_monotonic, step - before)
        self._last_step, self._last_monotonic, self._last_wall = step, now, self._clock.wall()
        return elapsed

    def last_triggered_step(self) -> int | None:
        """Return the step at which it was last due; None before the first."""
        return self._last_step
