"""Runs below ``Session.run``: prepared ahead of time, or down to their executors; and the functions they call.

PreparedRun      a run that is pruned, placed and optimized before the moment when it has to be quick
NativeCallable   a repeated run without the look-up of executors by the names of feeds and fetches: 5 to 15
                 microseconds less. It costs a second optimized copy, and is less careful than ``Session.run``: it
                 hands out an empty array for a value that was never computed (an untaken branch), and functions
                 keep their state (a seeded random sequence) per copy. So `is_safe` allows it only for runs where
                 none of this can be seen from outside
Native           the functions of TensorFlow that are not public. Without them only speed is lost: every run then
                 goes through ``tf.compat.v1.Session.run``
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from supervisor_core.tf1 import private_symbols as private
from supervisor_core.tf1.graph import needs, reached

_CONDITIONAL = frozenset({"RefSwitch", "Switch", "_SwitchN"})
_MAX_OPS = 20_000
_MAX_CONSTANT_BYTES = 1 << 20


class PreparedRun:
    """One run of a plain session, pruned, placed and optimized when this is made rather than when it first runs.

    It runs in the thread that calls it, as far as the session lets it: TensorFlow's own threads, which the training
    steps need, stay free.

    Args:
        session: a ``tf.compat.v1.Session``.

    Raises:
        tf.errors.CancelledError: if the session is closed.
    """

    def __init__(
        self, session: Any, *, feeds: Sequence[Any] = (), fetches: Sequence[Any] = (), targets: Sequence[Any] = ()
    ) -> None:
        self._session = session
        self._feeds = feeds
        self._elements = [*fetches, *targets]
        self._fetched = len(fetches)
        self._callable: Any = None
        run_options = tf.compat.v1.RunOptions(inter_op_thread_pool=-1)
        with suppress(AttributeError):  # then it runs as any other run does
            self._callable = _new_callable(session, feeds, fetches, targets, run_options=run_options)

    def __call__(self, *values: Any) -> list[Any]:
        """Run with these values fed, in the order of the feeds; return the fetched values."""
        if self._callable is not None:
            return list(self._callable(*values))
        feed_dict = dict(zip(self._feeds, values, strict=True))
        return list(self._session.run(self._elements, feed_dict)[: self._fetched])


class NativeCallable:
    """One prepared run, released with this object.

    Args:
        session: the session, kept alive by this object.
        feeds: tensors fed.
        targets: operations run.

    Raises:
        AttributeError: if this TensorFlow's sessions lack what is needed.
    """

    __slots__ = ("_callable", "run")

    def __init__(self, session: Any, feeds: Sequence[Any], fetches: Sequence[Any], targets: Sequence[Any]) -> None:
        self._callable = _new_callable(session, feeds, fetches, targets)
        run, handle = private.RUN_CALLABLE.load(), private.HANDLE.of(self._callable)
        self.run: Callable[..., list[Any]] = partial(run, private.C_SESSION.of(session), handle)
        """``(arrays, None)``, the arrays in the order of the feeds -> the values of the fetches."""


def _new_callable(
    session: Any, feeds: Sequence[Any], fetches: Sequence[Any], targets: Sequence[Any], **more: Any
) -> Any:
    """Return a run as TensorFlow prepares it; `AttributeError` if this TensorFlow's sessions lack what is needed."""
    make, options = private.MAKE_FROM_OPTIONS.of(session), private.CALLABLE_OPTIONS.load()
    return make(
        options(
            feed=[tensor.name for tensor in feeds],
            fetch=[tensor.name for tensor in fetches],
            target=[op.name for op in targets],
            **more,
        )
    )


def is_safe(graph: Any, feeds: Sequence[Any], fetches: Sequence[Any], targets: Sequence[Any]) -> bool:
    """Return whether a callable gives what ``Session.run`` gives, at no more than a little memory.

    Args:
        feeds: tensors fed.
        targets: operations run.
    """
    if any(tensor.shape.rank != 0 for tensor in fetches):
        return False
    if any(np.dtype(tensor.dtype.as_numpy_dtype).kind not in "biufc" for tensor in (*feeds, *fetches)):
        return False
    fed = {id(tensor) for tensor in feeds}
    calls: dict[str, bool] = {}
    constant_bytes = 0
    run = reached([*(tensor.op for tensor in fetches), *targets], partial(needs, fed=fed))
    for number, op in enumerate(run, 1):
        if op.type not in calls:
            calls[op.type] = _calls_functions(graph, op)
        if op.type == "Const":
            constant_bytes += _size_bytes(op.outputs[0])
        if (
            calls[op.type]
            or (fetches and op.type in _CONDITIONAL)
            or number > _MAX_OPS
            or constant_bytes > _MAX_CONSTANT_BYTES
        ):
            return False
    return True


def _calls_functions(graph: Any, op: Any) -> bool:
    if any("func" in attribute.type for attribute in op.op_def.attr):
        return True
    return private.FUNCTION.of(graph)(op.type) is not None


def _size_bytes(tensor: Any) -> int:
    elements = tensor.shape.num_elements()
    return (
        _MAX_CONSTANT_BYTES + 1 if elements is None else int(elements * max(tf.dtypes.as_dtype(tensor.dtype).size, 1))
    )


@dataclass(frozen=True, kw_only=True)
class Native:
    """What a run needs below ``Session.run``. Found by `installed`."""

    run: Callable[..., list[Any]]
    """``(c_session, options, {output: array}, fetched outputs, operations, metadata)``; what Session.run calls."""
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
