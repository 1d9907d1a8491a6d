"""`HookedRuns`: the runs of one TensorFlow session, with what hooks add to them and what they make of the results.

Source: the contract of ``tf.compat.v1.train.SessionRunHook``. Hooks are called in their order; those that leave a phase
as it is in the base class are not called for it. Only what somebody asks for is fetched, and a run nobody adds
anything to is the program's own run, with its cached plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from supervisor_core.tf1.monitored.loss_watch import LossWatch
from supervisor_core.tf1.monitored.own_hook import OwnHook
from supervisor_core.tf1.monitored.run_options import merge_run_options

_Hook = tf.compat.v1.train.SessionRunHook
_RunArgs = tf.compat.v1.train.SessionRunArgs
_RunContext = tf.compat.v1.train.SessionRunContext
_RunValues = tf.compat.v1.train.SessionRunValues


@dataclass(frozen=True)
class _Called:
    """A hook, and what there is to call of it. Of one that sleeps, only when it is due: see `OwnHook.sleeps`."""

    key: int
    before_run: Callable[[Any], Any] | None
    after_run: Callable[[Any, Any], None] | None
    is_due: Callable[[int], bool] | None = None
    wake: Callable[[Any], None] | None = None


class HookedRuns:
    """Runs in one session, with hooks.

    Args:
        session: a ``tf.compat.v1.Session``.
        hooks: in the order in which they are called.
        losses: sees the losses that hooks watch before a checkpoint can be taken of what made them.
        step: returns the step as far as it is known without a run.
    """

    def __init__(self, session: Any, hooks: Iterable[Any], losses: LossWatch, step: Callable[[], int]) -> None:
        self.stop_requested = False
        """Whether a hook has asked for the loop to end."""
        self._session = session
        self._losses = losses
        self._step = step
        active = [hook for hook in hooks if not isinstance(hook, OwnHook) or hook.watches_runs or hook.is_extended]
        called = [_called(hook) for hook in active]
        self._hooks = [hook for hook in called if hook.before_run or hook.after_run or hook.wake]
        self._may_sleep = all(hook.is_due is not None for hook in self._hooks)
        self._due_before = [hook.is_due for hook in self._hooks if hook.is_due is not None and hook.wake is None]
        self._due_after = [(hook.is_due, hook.wake) for hook in self._hooks if hook.is_due is not None and hook.wake]
        self._shows_protos = any(not isinstance(hook, OwnHook) and _overrides(hook, "after_run") for hook in active)

    def run(self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> Any:
        """Run as ``tf.compat.v1.Session.run`` does, hooks included; return the values of ``fetches``.

        Raises:
            RuntimeError: after a hook has asked for a stop, or if two feed the same tensor.
        """
        if self.stop_requested:
            raise RuntimeError("Run called even after should_stop requested.")
        if not self._hooks:
            return self._session.run(fetches, feed_dict, options, run_metadata)
        if not self._may_sleep or self._is_due_before():
            return self._run_hooked(fetches, feed_dict, options, run_metadata)
        values = self._session.run(fetches, feed_dict, options, run_metadata)
        step = self._step()
        for is_due, wake in self._due_after:
            if is_due(step):
                context = _RunContext(_RunArgs(fetches, feed_dict), self._session)
                wake(context)
                self.stop_requested = self.stop_requested or context.stop_requested
        return values

    def _run_hooked(self, fetches: Any, feed_dict: Any, options: Any, run_metadata: Any) -> Any:
        """Run with the calls before and after it of every hook that is awake."""
        context = _RunContext(_RunArgs(fetches, feed_dict), self._session)
        coming = self._step() + 1
        awake = [hook for hook in self._hooks if hook.is_due is None or hook.wake is not None or hook.is_due(coming)]
        asked: dict[int, Any] = {}
        feeds: dict[Any, Any] = {}
        for hook in awake:
            request = hook.before_run(context) if hook.before_run is not None else None
            if request is None:
                continue
            if request.fetches is not None:
                asked[hook.key] = request.fetches
            if request.feed_dict:
                _raise_if_fed_twice(feeds, request.feed_dict, "Same tensor is fed by two hooks.")
                feeds.update(request.feed_dict)
            if request.options:
                options = options or tf.compat.v1.RunOptions()
                merge_run_options(options, request.options)
        if feeds:
            if feed_dict:
                _raise_if_fed_twice(feed_dict, feeds, "Same tensor is fed by a SessionRunHook and user.")
                feeds.update(feed_dict)
            feed_dict = feeds
        if options is not None or run_metadata is not None:
            options, run_metadata = _protos(options, run_metadata)
        if not asked:
            values = self._session.run(fetches, feed_dict, options, run_metadata)
            results: dict[int, Any] = {}
        else:
            values, results = self._run_with(asked, fetches, feed_dict, options, run_metadata)
        if self._shows_protos:
            options, run_metadata = _protos(options, run_metadata)
        nothing = _RunValues(None, options, run_metadata)
        step = self._step()
        for hook in awake:
            if hook.wake is not None:
                if hook.is_due is None or hook.is_due(step):
                    hook.wake(context)
            elif hook.after_run is not None:
                found = _RunValues(results[hook.key], options, run_metadata) if hook.key in results else nothing
                hook.after_run(context, found)
        self.stop_requested = self.stop_requested or context.stop_requested
        return values

    def _is_due_before(self) -> bool:
        """Whether a hook that mostly sleeps may want something of the next run."""
        if not self._due_before:
            return False
        step = self._step() + 1
        return any([is_due(step) for is_due in self._due_before])

    def _run_with(
        self, asked: dict[int, Any], fetches: Any, feed_dict: Any, options: Any, run_metadata: Any
    ) -> tuple[Any, dict[int, Any]]:
        """Run ``fetches`` and what hooks ask for, at once."""
        together = (fetches, *asked.values())
        if asked.keys().isdisjoint(self._losses.keys):
            values, *found = self._session.run(together, feed_dict, options, run_metadata)
            return values, dict(zip(asked, found, strict=True))
        # No snapshot comes between the step and the look at its loss.
        with self._losses.between_snapshots():
            values, *found = self._session.run(together, feed_dict, options, run_metadata)
            results = dict(zip(asked, found, strict=True))
            self._losses.saw(results)
        return values, results


def _called(hook: Any) -> _Called:
    before_run, after_run = (
        getattr(hook, phase) if _overrides(hook, phase) else None for phase in ("before_run", "after_run")
    )
    if not (isinstance(hook, OwnHook) and hook.sleeps):
        return _Called(id(hook), before_run, after_run)
    wake = getattr(hook, "wake", None)
    return _Called(id(hook), None if wake else before_run, None if wake else after_run, hook.is_due, wake)


def _overrides(hook: Any, phase: str) -> bool:
    """Whether a hook does anything in this phase."""
    return getattr(getattr(hook, phase), "__func__", None) is not getattr(_Hook, phase)


def _protos(options: Any, run_metadata: Any) -> tuple[Any, Any]:
    return options or tf.compat.v1.RunOptions(), run_metadata or tf.compat.v1.RunMetadata()


def _raise_if_fed_twice(one: Mapping[Any, Any], other: Mapping[Any, Any], message: str) -> None:
    both = [key for key in one if key in other]
    if both:
        raise RuntimeError(f"{message} Conflict(s): {both}")
