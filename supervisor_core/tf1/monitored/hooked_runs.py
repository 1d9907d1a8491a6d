"""`HookedRuns`: the runs of one TensorFlow session, with what hooks add to them and what they make of the results.

Source: the contract of ``tf.compat.v1.train.SessionRunHook``. Hooks are called in their order; those that leave a phase
as it is in the base class are not called for it. Only what somebody asks for is fetched, and a run nobody adds
anything to is the program's own run, with its cached plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import tensorflow as tf

from supervisor_core.tf1.monitored.loss_watch import LossWatch
from supervisor_core.tf1.monitored.run_options import merge_run_options
from supervisor_core.tf1.monitored.runtime_hook import RuntimeHook

_Hook = tf.compat.v1.train.SessionRunHook
_RunArgs = tf.compat.v1.train.SessionRunArgs
_RunContext = tf.compat.v1.train.SessionRunContext
_RunValues = tf.compat.v1.train.SessionRunValues


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
        active = [hook for hook in hooks if not isinstance(hook, RuntimeHook) or hook.watches_runs or hook.is_extended]
        self._before = [(hook, hook.before_run) for hook in active if _overrides(hook, "before_run")]
        self._after = [(id(hook), hook.after_run) for hook in active if _overrides(hook, "after_run")]
        self._is_hooked = bool(self._before or self._after)
        self._step = step
        sleepers: list[Any] = [hook for hook in active if isinstance(hook, RuntimeHook) and hook.sleeps]
        self._may_sleep = len(sleepers) == len(active)
        self._due_before = [hook.is_due for hook in sleepers if _overrides(hook, "before_run")]
        self._due_after = [(hook.is_due, hook.after_run) for hook in sleepers if not _overrides(hook, "before_run")]
        self._shows_protos = any(not isinstance(hook, RuntimeHook) and _overrides(hook, "after_run") for hook in active)

    def run(self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> Any:
        """Run as ``tf.compat.v1.Session.run`` does, hooks included; return the values of ``fetches``.

        Raises:
            RuntimeError: after a hook has asked for a stop, or if two feed the same tensor.
        """
        if self.stop_requested:
            raise RuntimeError("Run called even after should_stop requested.")
        if not self._is_hooked:
            return self._session.run(fetches, feed_dict, options, run_metadata)
        if self._may_sleep and not self._is_due_before():
            values = self._session.run(fetches, feed_dict, options, run_metadata)
            step = self._step()
            for is_due, after_run in self._due_after:
                if is_due(step):
                    self._wake(after_run, fetches, feed_dict, options, run_metadata)
            return values
        context = _RunContext(_RunArgs(fetches, feed_dict), self._session)
        asked: dict[int, Any] = {}
        feeds: dict[Any, Any] = {}
        for hook, before_run in self._before:
            request = before_run(context)
            if request is None:
                continue
            if request.fetches is not None:
                asked[id(hook)] = request.fetches
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
        if self._after:
            if self._shows_protos:
                options, run_metadata = _protos(options, run_metadata)
            nothing = _RunValues(None, options, run_metadata)
            for key, after_run in self._after:
                found = _RunValues(results[key], options, run_metadata) if key in results else nothing
                after_run(context, found)
            if context.stop_requested:
                self.stop_requested = True
        return values

    def _is_due_before(self) -> bool:
        """Whether a hook that mostly sleeps may want something of the next run."""
        if not self._due_before:
            return False
        step = self._step() + 1
        return any([is_due(step) for is_due in self._due_before])

    def _wake(self, after_run: Any, fetches: Any, feed_dict: Any, options: Any, run_metadata: Any) -> None:
        context = _RunContext(_RunArgs(fetches, feed_dict), self._session)
        after_run(context, _RunValues(None, options, run_metadata))
        self.stop_requested = self.stop_requested or context.stop_requested

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


def _overrides(hook: Any, phase: str) -> bool:
    """Whether a hook does anything in this phase."""
    return getattr(getattr(hook, phase), "__func__", None) is not getattr(_Hook, phase)


def _protos(options: Any, run_metadata: Any) -> tuple[Any, Any]:
    return options or tf.compat.v1.RunOptions(), run_metadata or tf.compat.v1.RunMetadata()


def _raise_if_fed_twice(one: Mapping[Any, Any], other: Mapping[Any, Any], message: str) -> None:
    both = [key for key in one if key in other]
    if both:
        raise RuntimeError(f"{message} Conflict(s): {both}")
