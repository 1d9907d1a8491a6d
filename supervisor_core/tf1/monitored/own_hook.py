"""`OwnHook`: what our hooks have in common: plain hooks in any session, mostly asleep in a session of ours.

A hook of ours does what TensorFlow's does, with the calls that a ``SessionRunHook`` gets and nothing else, so it works
wherever somebody drives hooks. A session of ours is a `HookHost`: it counts the steps itself, so most hooks need
nothing fetched and are called only when they are due; and it saves in the background.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import tensorflow as tf

from supervisor_core.tf1.global_step import collected_global_step, step_tensor, step_value
from supervisor_core.tf1.monitored.hook_saving import Saving

_RunArgs = tf.compat.v1.train.SessionRunArgs


class HookHost(Protocol):
    """What a session of ours offers to our hooks."""

    @property
    def global_step(self) -> Any:
        """What counts the steps, once there is a session; None in a graph without a global step."""

    def step(self) -> int:
        """Return the global step as far as it is known without a run; the runs done, where there is none."""

    def read_step(self) -> int:
        """Return the global step, read in the session; the runs done, where there is none."""

    def writer_of(self, directory: str) -> Any:
        """Return what appends to the events file of a directory: the run's, where the directory is one of the run's."""

    def saving(self, hook: Any) -> Saving | None:
        """Return what saves the checkpoints of a `CheckpointSaverHook`; None if its saver has nothing to save."""


class OwnHook:
    """A hook that may have a host."""

    sleeps: bool = False
    """Whether a host need call it only when `is_due` says so: of the coming step before a run, for those that have a
    ``before_run``; else of the step that was reached, with `wake` in place of ``after_run``."""
    is_extended: bool = False
    """Whether it is a program's own subclass with something of its own to do with every run: it never sleeps."""
    _host: HookHost | None = None
    _global_step: Any = None
    _global_step_tensor: Any = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if {"before_run", "after_run"} & set(vars(cls)) and not cls.__module__.startswith("supervisor_core."):
            cls.is_extended, cls.sleeps = True, False

    @property
    def output_dir(self) -> str | None:
        """The directory whose events file makes its session a supervised run; None where it makes none."""
        return None

    @property
    def watches_runs(self) -> bool:
        """Whether it has anything to do with the present session's runs."""
        return True

    def is_due(self, step: int) -> bool:
        """Return whether it has anything to do at this step."""
        return True

    wake: Callable[[Any], None]
    """Act on the step that was reached, given the run's context; for those that sleep until after a run."""

    def join(self, host: HookHost | None) -> None:
        """Belong to a session of ours, from before ``begin`` to after ``end``; None when it is over."""
        self._host = host

    def _writer_of(self, directory: str) -> Any:
        """The writer of a directory, the same one for everybody."""
        return writer_for(directory) if self._host is None else self._host.writer_of(directory)

    def _find_step(self) -> None:
        """Find what to fetch the global step with; called in ``begin``.

        Raises:
            RuntimeError: in a graph without one, except under a host, which counts runs then.
        """
        graph = tf.compat.v1.get_default_graph()
        self._global_step = collected_global_step(graph)
        self._global_step_tensor = step_tensor(graph)
        if self._global_step_tensor is None and self._host is None:
            raise RuntimeError(f"Global step should be created to use {type(self).__name__}.")

    def _counted(self) -> Any:
        """The global step itself; None in a graph that has none."""
        if self._global_step is None and self._host is not None:
            return self._host.global_step  # made after this hook's begin
        return self._global_step

    def _step_fetch(self) -> Any:
        """What to fetch the global step with; None in a graph that has none."""
        return self._counted() if self._global_step_tensor is None else self._global_step_tensor

    def _step_args(self) -> Any:
        """A request for the global step alone."""
        fetch = self._step_fetch()
        return None if fetch is None else _RunArgs(fetch)

    def _stale_step(self, run_values: Any) -> int:
        """The step as it was fetched with a run; where there is none, the runs before this one."""
        if run_values.results is None:
            assert self._host is not None
            return self._host.step() - 1
        return step_value(run_values.results, self._global_step_tensor)

    def _read_step(self, session: Any) -> int:
        """The global step, read now."""
        if self._host is not None:
            return self._host.read_step()
        return step_value(session.run(self._global_step_tensor), self._global_step_tensor)


def writer_for(directory: str) -> Any:
    """Return the summary writer of a directory, the same one for everybody: TensorFlow's cache has it."""
    return tf.compat.v1.summary.FileWriterCache.get(directory)
