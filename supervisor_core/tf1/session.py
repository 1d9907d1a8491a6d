"""`SupervisedSession`: the session that a supervisor hands out, a real ``tf.compat.v1.Session`` that costs less.

``Session.run`` resolves its fetches and feeds for every run, which takes several times as long as a small step
itself. Here that is done once per structure (`run_cache`), with the same results and the same errors; whatever has no
plan goes through ``Session.run`` as it is. Each run holds the step lock, which keeps steps and snapshots apart, and
is reported to an observer.

The TensorFlow session proper is a plain one inside. It knows nothing of the outside, so it is closed and freed as soon
as the last of its users is gone. Queue runners and the supervisor's services use it, without the step lock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import tensorflow as tf

from supervisor_core.base.clock import SYSTEM_CLOCK, Clock
from supervisor_core.engine.progress import Progress
from supervisor_core.engine.step_lock import StepLock
from supervisor_core.tf1.cluster.connect import close_session
from supervisor_core.tf1.run_cache import run_cache_for
from supervisor_core.tf1.step_detection import RunAnalysis, RunTraits


class SupervisedSession(tf.compat.v1.Session):
    """A session whose repeated runs are cheap, watched, and kept apart from snapshots.

    It takes what ``tf.compat.v1.Session`` takes, does what it does, and raises what it raises. Runs that only fill or
    close queues neither pass the step lock nor reach the observer: they may block for long.

    Args:
        target: the execution engine to connect to; ``""`` for this process.
        graph: the graph to launch. Default: the default graph.
        step_lock: what every run passes. Default: none.
        observer: called for every run that went well. Default: none.
        global_step: the variable (or a tensor that reads it) whose update makes a run a step. Default: every run
            counts as one.
        plain: a ``tf.compat.v1.Session`` to run in, and to close when closed. Of one that is supervised it is the plain
            one inside. Default: a new one.

    Example:
        with SupervisedSession(graph=graph, step_lock=step_lock, observer=progress, global_step=step) as sess:
            while not coordinator.should_stop():
                sess.run(train_op)
    """

    def __init__(
        self,
        target: str = "",
        graph: Any = None,
        config: Any = None,
        *,
        step_lock: StepLock | None = None,
        observer: Progress | None = None,
        global_step: Any = None,
        clock: Clock = SYSTEM_CLOCK,
        plain: Any = None,
    ) -> None:
        if plain is None:
            plain = tf.compat.v1.Session(target, graph=graph, config=config)
        self._plain = plain.plain_session() if isinstance(plain, SupervisedSession) else plain
        self._step_lock = step_lock
        self._observer = observer
        # Twice in every step, so without the detour.
        self._monotonic = time.monotonic if clock is SYSTEM_CLOCK else clock.monotonic
        self._analysis = RunAnalysis(self._plain.graph, global_step)
        self._run_cache = run_cache_for(self._plain, self._analysis)

    def __getattr__(self, name: str) -> Any:
        # Whatever TensorFlow's own methods keep in a session, they find in the plain one.
        if name == "_plain":  # the constructor failed
            raise AttributeError(name)
        return getattr(self._plain, name)

    def __del__(self) -> None:
        # The original closes and deletes the session here; the plain one does so when its last user lets go of it.
        pass

    def close(self) -> None:
        """Close the session, as ``tf.compat.v1.Session.close`` does; one whose cluster does not answer is left."""
        close_session(self._plain)

    def plain_session(self) -> Any:
        """Return the plain session inside: for queue runners, whose runs may block for as long as a queue is full.

        It shares everything with this one, closing included; its runs pass no step lock and reach no observer.
        """
        return self._plain

    def run(self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> Any:
        """Run as ``tf.compat.v1.Session.run`` does: same arguments, results and errors."""
        plan, arrays, run_cache = None, None, self._run_cache
        if run_cache is not None and options is None and run_metadata is None:
            plan = run_cache.find(fetches, feed_dict)
            arrays = None if plan is None else plan.arrays(feed_dict)
        if plan is None or arrays is None:
            traits = self._traits(fetches, feed_dict)
            around: AbstractContextManager[None] = nullcontext()
            is_new = plan is None and run_cache is not None and run_cache.is_new(fetches, feed_dict)
            if is_new and traits.supervised and self._observer is not None:  # it may compile
                around = self._observer.first_call(traits.is_step)
            with around:
                result, secs = self._watched(traits, self._plain.run, fetches, feed_dict, options, run_metadata)
            if plan is None and run_cache is not None:
                run_cache.remember(fetches, feed_dict, secs)
            return result
        supervised, is_step, changes = plan.traits
        step_lock = self._step_lock if supervised else None
        try:  # an interrupt may come at any point, and must not leave the thread inside
            if step_lock is not None:
                step_lock.acquire_shared()
            started = self._monotonic()
            values = plan.run(arrays)
            ended = self._monotonic()
        finally:
            if step_lock is not None:
                step_lock.release_shared()
        if supervised and self._observer is not None:
            self._observer.run_ended(is_step, started, ended, changes)
        plan.ran(started, ended)
        return plan.results(fetches, values)

    def run_internal(self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> Any:
        """Run on behalf of the supervisor: as `run`, but past the step lock and unseen by the observer."""
        return self._plain.run(fetches, feed_dict, options, run_metadata)

    def make_callable(self, fetches: Any, feed_list: Any = None, accept_options: bool = False) -> Callable[..., Any]:
        """Return a callable as ``tf.compat.v1.Session.make_callable`` does; its calls are runs like any other."""
        if feed_list is not None:
            return super().make_callable(fetches, feed_list, accept_options)  # type: ignore[no-any-return]
        prepared: Callable[..., Any] = self._plain.make_callable(fetches, None, accept_options)
        traits = self._traits(fetches, None)

        def watched(*args: Any, **kwargs: Any) -> Any:
            return self._watched(traits, prepared, *args, **kwargs)[0]

        return watched if traits.supervised else prepared

    def partial_run(self, handle: Any, fetches: Any, feed_dict: Any = None) -> Any:
        """Continue a partial run as ``tf.compat.v1.Session.partial_run`` does; each call holds the step lock."""
        return self._watched(self._traits(fetches, feed_dict), self._plain.partial_run, handle, fetches, feed_dict)[0]

    def _traits(self, fetches: Any, feed_dict: Any) -> RunTraits:
        return self._analysis.of(fetches, feed_dict if isinstance(feed_dict, Mapping) else ())

    def _watched(self, traits: RunTraits, call: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[Any, float]:
        """Make a call as the run that it is; return its result, and how many seconds it took."""
        step_lock = self._step_lock if traits.supervised else None
        try:  # an interrupt may come at any point, and must not leave the thread inside
            if step_lock is not None:
                step_lock.acquire_shared()
            started = self._monotonic()
            result = call(*args, **kwargs)
            ended = self._monotonic()
        finally:
            if step_lock is not None:
                step_lock.release_shared()
        if traits.supervised and self._observer is not None:
            self._observer.run_ended(traits.is_step, started, ended, traits.changes)
        return result, ended - started


# Programs unwrap sessions until they come to one whose type has this name; what they run in it is supervised, too.
SupervisedSession.__name__ = SupervisedSession.__qualname__ = "Session"
