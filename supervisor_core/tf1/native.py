"""`Native`: the parts of TensorFlow's Session that are not public, and whether this TensorFlow has them.

Without them nothing is lost but speed: every run then goes through ``tf.compat.v1.Session.run``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Native:
    """What a run needs below ``Session.run``. Found by `find_native`."""

    run: Callable[..., list[Any]]
    """``(c_session, options, {output: array}, fetched outputs, operations, metadata)``; what Session.run calls."""
    make_callable: Callable[..., int]
    """``(c_session, serialized CallableOptions)`` -> handle."""
    run_callable: Callable[..., list[Any]]
    """``(c_session, handle, arrays, metadata)``."""
    release_callable: Callable[..., None]
    """``(c_session, handle)``."""
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


def find_native(client: ModuleType, wrappers: ModuleType, numpy_compat: ModuleType) -> Native | None:
    """Return what these modules of TensorFlow offer, or None if anything is missing or not TensorFlow's own.

    Args:
        client: ``tensorflow.python.client.session``.
        wrappers: ``tensorflow.python.client.pywrap_tf_session``.
        numpy_compat: ``tensorflow.python.util.numpy_compat``.
    """
    try:
        base = client.BaseSession
        if base.run.__module__ != base.__module__:
            return None  # a profiler has put its own in that place, to see every run
        make, new_buffer, delete_buffer = (
            wrappers.TF_SessionMakeCallable,
            wrappers.TF_NewBufferFromString,
            wrappers.TF_DeleteBuffer,
        )

        def make_callable(c_session: Any, options: bytes) -> int:
            buffer = new_buffer(options)
            try:
                return int(make(c_session, buffer))
            finally:
                delete_buffer(buffer)

        return Native(
            run=wrappers.TF_SessionRun_wrapper,
            make_callable=make_callable,
            run_callable=wrappers.TF_SessionRunCallable,
            release_callable=wrappers.TF_SessionReleaseCallable,
            as_array=numpy_compat.np_asarray,
            as_scalar=client._convert_to_numpy_obj,
            expansions=client._REGISTERED_EXPANSIONS,
            base=base,
            original_run=base.run,
        )
    except AttributeError:
        return None


def installed() -> Native | None:
    """Return what the installed TensorFlow offers, or None."""
    try:
        from tensorflow.python.client import pywrap_tf_session
        from tensorflow.python.client import session as client
        from tensorflow.python.util import numpy_compat
    except ImportError:
        return None
    return find_native(client, pywrap_tf_session, numpy_compat)
