"""`check_step_function`: what `MonitoredSession.run_step_fn` takes."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

_ACCEPTED = (("step_context",), ("self", "step_context"))


def check_step_function(step_fn: Callable[..., Any]) -> None:
    """Raise `ValueError` unless a function takes one argument ``step_context``, and maybe ``self`` before it."""
    arguments = _arguments(step_fn)
    if arguments not in _ACCEPTED:
        raise ValueError(
            "`step_fn` may either have one `step_context` argument, or `self` and `step_context` arguments if it's an "
            f"instance method. Got {arguments} instead."
        )


def _arguments(function: Any) -> tuple[str, ...]:
    if isinstance(function, functools.partial):
        bound = set(function.keywords)
        return tuple(name for name in _arguments(function.func)[len(function.args) :] if name not in bound)
    if not inspect.isroutine(function):  # an object that can be called
        function = function.__call__
    names = inspect.getfullargspec(function).args
    return tuple(names[1:] if inspect.ismethod(function) else names)
