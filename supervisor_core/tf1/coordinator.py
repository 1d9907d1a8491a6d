"""`Coordinator`, `LooperThread` and `ServiceThread` that pass TensorFlow's own ``isinstance`` checks.

The behaviour is the neutral runtime's; TensorFlow's classes are only bases, so that queue runners,
``tf.train.LooperThread`` and programs that check for ``tf.train.Coordinator`` take ours.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import tensorflow as tf

from supervisor_core.base.clock import SYSTEM_CLOCK, Clock
from supervisor_core.engine.coordinator import RuntimeCoordinator
from supervisor_core.engine.service import RuntimeLooperThread, RuntimeServiceThread


class Coordinator(RuntimeCoordinator, tf.compat.v1.train.Coordinator):
    """Coordinates threads; see `supervisor_core.engine.coordinator.RuntimeCoordinator`.

    Args:
        clean_stop_exception_types: exceptions that end the run cleanly. Default: ``(tf.errors.OutOfRangeError,)``.
        clock: replaced in tests.
    """

    def __init__(
        self, clean_stop_exception_types: Iterable[type[BaseException]] | None = None, *, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        types = (
            (tf.errors.OutOfRangeError,) if clean_stop_exception_types is None else tuple(clean_stop_exception_types)
        )
        RuntimeCoordinator.__init__(self, types, clock=clock)


class _OriginalLooperThread(tf.compat.v1.train.LooperThread):
    """TensorFlow's class for the ``isinstance`` checks alone: its own constructor would register a second time."""

    def __init__(self, target: Callable[..., object] | None = None, daemon: bool | None = None) -> None:
        threading.Thread.__init__(self, target=target, daemon=daemon)


class ServiceThread(RuntimeServiceThread, _OriginalLooperThread):
    """A periodic service; see `supervisor_core.engine.service.RuntimeServiceThread`."""


class LooperThread(RuntimeLooperThread, _OriginalLooperThread):
    """Calls a target periodically; see `supervisor_core.engine.service.RuntimeLooperThread`."""

    @staticmethod
    def loop(
        coord: RuntimeCoordinator,
        timer_interval_secs: float | None,
        target: Callable[..., object],
        args: Iterable[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> LooperThread:
        """Start a thread of this class that calls ``target(*args, **kwargs)`` on its interval, and return it."""
        looper = LooperThread(coord, timer_interval_secs, target=target, args=args, kwargs=kwargs)
        looper.start()
        return looper
