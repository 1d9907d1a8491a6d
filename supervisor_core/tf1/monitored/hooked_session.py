"""`HookedSession`: calls ``run`` of one TensorFlow session together with what hooks ask for.

Source: the contract of ``tf.compat.v1.train.SessionRunHook``. Hooks are called in their order, and only for the phases
that they override. A call to which no hook adds anything is the program's own call, with its cached plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from supervisor_core.engine.progress import Progress
from supervisor_core.engine.step_lock import StepLock
from supervisor_core.tf1.monitored.hosted_hook import HostedHook

_Hook = tf.compat.v1.train.SessionRunHook
_RunArgs = tf.compat.v1.train.SessionRunArgs
_RunContext = tf.compat.v1.train.SessionRunContext
_RunValues = tf.compat.v1.train.SessionRunValues


@dataclass(frozen=True)
class _Called:
    """A hook and the methods to call on it; those of a sleeping hook only when it is due (`HostedHook.sleeps`)."""

    key: int
    before_run: Callable[[Any], Any] | None
    after_run: Callable[[Any, Any], None] | None
    is_due: Callable[[int], bool] | None = None
    wake: Callable[[Any], None] | None = None


class HookedSession:
    """One session whose ``run`` calls hooks.

    Args:
        session: a ``tf.compat.v1.Session``.
        hooks: in the order in which they are called.
        losses: gets the hooks' losses before a checkpoint of that state can be taken.
        progress: has the estimated step.
    """

    def __init__(self, session: Any, hooks: Iterable[Any], losses: HookLosses, progress: Progress) -> None:
        self.stop_requested = False
        """Whether a hook requested a stop."""
        self._session = session
        self._losses = losses
        self._progress = progress
        active = [hook for hook in hooks if not isinstance(hook, HostedHook) or hook.is_active or hook.is_extended]
        called = [_called(hook) for hook in active]
        self._hooks = [hook for hook in called if hook.before_run or hook.after_run or hook.wake]
        self._may_sleep = all(hook.is_due is not None for hook in self._hooks)
        self._due_before = [hook.is_due for hook in self._hooks if hook.is_due is not None and hook.wake is None]
        self._due_after = [(hook.is_due, hook.wake) for hook in self._hooks if hook.is_due is not None and hook.wake]
        self._shows_protos = any(not isinstance(hook, HostedHook) and _overrides(hook, "after_run") for hook in active)

    def run(self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> Any:
        """Run as ``tf.compat.v1.Session.run`` does, hooks included; return the values of ``fetches``.

        Raises:
            RuntimeError: after a hook requested a stop, or if two feed the same tensor.
        """
        if self.stop_requested:
            raise RuntimeError("Run called even after should_stop requested.")
        if not self._hooks:
            return self._session.run(fetches, feed_dict, options, run_metadata)
        if not self._may_sleep or (self._due_before and self._is_due_before()):
            return self._run_hooked(fetches, feed_dict, options, run_metadata)
        values = self._session.run(fetches, feed_dict, options, run_metadata)
        step = self._progress.step_estimate
        for is_due, wake in self._due_after:
            if is_due(step):
                context = _RunContext(_RunArgs(fetches, feed_dict), self._session)
                wake(context)
                self.stop_requested = self.stop_requested or context.stop_requested
        return values

    def _run_hooked(self, fetches: Any, feed_dict: Any, options: Any, run_metadata: Any) -> Any:
        """Run, and call the hooks that are awake before and after."""
        context = _RunContext(_RunArgs(fetches, feed_dict), self._session)
        coming = self._progress.step_estimate + 1
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
        step = self._progress.step_estimate
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
        """Whether a sleeping hook may add something to the next call."""
        step = self._progress.step_estimate + 1
        return any([is_due(step) for is_due in self._due_before])

    def _run_with(
        self, asked: dict[int, Any], fetches: Any, feed_dict: Any, options: Any, run_metadata: Any
    ) -> tuple[Any, dict[int, Any]]:
        """Run ``fetches`` and what hooks ask for in one call."""
        together = (fetches, *asked.values())
        if asked.keys().isdisjoint(self._losses.keys):
            values, *found = self._session.run(together, feed_dict, options, run_metadata)
            return values, dict(zip(asked, found, strict=True))
        # A snapshot between the step and its loss would save a model that the loss may show to be NaN.
        self._losses.step_lock.acquire_shared()
        try:
            values, *found = self._session.run(together, feed_dict, options, run_metadata)
            results = dict(zip(asked, found, strict=True))
            self._losses.saw(results)
        finally:
            self._losses.step_lock.release_shared()
        return values, results


def _called(hook: Any) -> _Called:
    before_run, after_run = (
        getattr(hook, phase) if _overrides(hook, phase) else None for phase in ("before_run", "after_run")
    )
    if not (isinstance(hook, HostedHook) and hook.sleeps):
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
        raise RuntimeError(f"{message} Conflict(s): {', '.join(map(str, both))}")


class HookLosses:
    """The newest value of each loss that a ``NanTensorHook`` checks, for checkpoints to check too.

    The hook alone is too late: the checkpoint hook is called before the user's hooks, a timer may fire between a step
    and its hooks, and a hook that only stops the loop lets the last step be saved. Each would save a NaN model as the
    newest checkpoint.

    Args:
        hooks: the session's hooks.
        step_lock: keeps snapshots out.
    """

    def __init__(self, hooks: Iterable[Any], step_lock: StepLock) -> None:
        self.keys = frozenset(id(hook) for hook in hooks if isinstance(hook, tf.compat.v1.train.NanTensorHook))
        """The ids of the hooks whose results are losses."""
        self.step_lock = step_lock
        self._newest: dict[int, Any] = {}

    def saw(self, results: Mapping[int, Any]) -> None:
        """Record the results of a call, by hook id."""
        for key in self.keys:
            if key in results:
                self._newest[key] = results[key]

    def clear(self) -> None:
        """Drop the losses: the model was restored or initialised."""
        self._newest.clear()

    def newest(self) -> Any:
        """Return the newest losses as one array; None if there are none yet."""
        if not self._newest:
            return None
        return np.concatenate([np.asarray(value, np.float64).reshape(-1) for value in self._newest.values()])


_LARGEST = ("trace_level", "timeout_in_ms", "inter_op_thread_pool")
_EITHER = ("output_partition_graphs", "report_tensor_allocations_upon_oom")


def merge_run_options(options: Any, wanted: Any) -> None:
    """Merge ``wanted`` into ``options`` in place: the larger number, flags or-ed, debug watches of both."""
    for name in _LARGEST:
        setattr(options, name, max(getattr(options, name), getattr(wanted, name)))
    for name in _EITHER:
        setattr(options, name, getattr(options, name) or getattr(wanted, name))
    debug, more = options.debug_options, wanted.debug_options
    debug.debug_tensor_watch_opts.extend(more.debug_tensor_watch_opts)
    debug.reset_disk_byte_usage = debug.reset_disk_byte_usage or more.reset_disk_byte_usage
