"""`Native`: the parts of TensorFlow's Session that are not public, and whether this TensorFlow has them.

Without them nothing is lost but speed: every run then goes through ``tf.compat.v1.Session.run``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from supervisor_core.tf1 import private_symbols as private


@dataclass(frozen=True, kw_only=True)
class CallableFunctions:
    """What a run that is prepared down to its executors needs."""

    make: Callable[..., int]
    """``(c_session, serialized CallableOptions)`` -> handle."""
    run: Callable[..., list[Any]]
    """``(c_session, handle, arrays, metadata)``."""
    release: Callable[..., None]
    """``(c_session, handle)``."""
    options: Any
    """The class ``CallableOptions``."""


@dataclass(frozen=True, kw_only=True)
class Native:
    """What a run needs below ``Session.run``. Found by `installed`."""

    run: Callable[..., list[Any]]
    """``(c_session, options, {output: array}, fetched outputs, operations, metadata)``; what Session.run calls."""
    callables: CallableFunctions | None
    """None where this TensorFlow lacks one of them."""
    as_array: Callable[[Any, Any], Any]
    """``(value, numpy type)`` -> the array that Session.run would feed."""
    as_scalar: Callable[[Any, Any], Any]
    """``(numpy type, int)`` -> the value that Session.run compares with the int to see whether it fits."""
    expansions: list[Any]
    """What Session.run takes apart, by type; programs may register more."""
    base: Any
    """The class that defines ``run``."""
    original_run: Any
    """Its ``run``, as it was when this module looked: a profiler may put another in its place."""


def installed() -> Native | None:
    """Return what the installed TensorFlow offers, or None if anything is missing or not TensorFlow's own."""
    try:
        base = private.BASE_SESSION.load()
        if base.run.__module__ != base.__module__:
            return None  # a profiler has put its own in that place, to see every run
        return Native(
            run=private.RUN.load(),
            callables=_callables(),
            as_array=_as_array(),
            as_scalar=private.AS_SCALAR.load(),
            expansions=private.EXPANSIONS.load(),
            base=base,
            original_run=base.run,
        )
    except AttributeError:
        return None


def _as_array() -> Any:
    try:
        return private.AS_ARRAY.load()
    except AttributeError:
        return np.asarray


def _callables() -> CallableFunctions | None:
    try:
        make = private.MAKE_CALLABLE.load()
        new_buffer, delete_buffer = private.NEW_BUFFER.load(), private.DELETE_BUFFER.load()

        def make_callable(c_session: Any, options: bytes) -> int:
            buffer = new_buffer(options)
            try:
                return int(make(c_session, buffer))
            finally:
                delete_buffer(buffer)

        return CallableFunctions(
            make=make_callable,
            run=private.RUN_CALLABLE.load(),
            release=private.RELEASE_CALLABLE.load(),
            options=private.CALLABLE_OPTIONS.load(),
        )
    except AttributeError:
        return None
