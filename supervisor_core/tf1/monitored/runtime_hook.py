"""`RuntimeHook`: a hook that works through the runtime of the monitored session it belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from supervisor_core.tf1.monitored.runtime import MonitoredRuntime


class RuntimeHook:
    """What the hooks have in common that share the session's one writer, its step count and its checkpoints."""

    watches_runs: bool = True
    """Whether it is to be asked before and told after each run."""
    sleeps: bool = False
    """Whether it has nothing to do with a run unless `is_due` says so: of the step to come before it, of the step that
    was reached after it."""
    is_extended: bool = False
    """Whether it is a program's own subclass with something of its own to do with every run."""
    _runtime: MonitoredRuntime | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if {"before_run", "after_run"} & set(vars(cls)) and not cls.__module__.startswith("supervisor_core."):
            cls.is_extended, cls.sleeps = True, False

    @property
    def output_dir(self) -> str | None:
        """The directory whose events file it writes to; None where it brings a writer of its own, or writes none."""
        return None

    @property
    def runtime(self) -> MonitoredRuntime:
        """The runtime of its session.

        Raises:
            RuntimeError: if it belongs to none.
        """
        if self._runtime is None:
            name = type(self).__name__
            raise RuntimeError(
                f"{name} works in sessions of supervisor_core only: use supervisor_core.MonitoredSession or "
                f"MonitoredTrainingSession, or tf.compat.v1.train.{name} in TensorFlow's own."
            )
        return self._runtime

    def is_due(self, step: int) -> bool:
        """Tell whether it has anything to do at this step; for those that sleep."""
        return True

    def join(self, runtime: MonitoredRuntime) -> None:
        """Belong to a session from now on; called before ``begin``."""
        self._runtime = runtime
