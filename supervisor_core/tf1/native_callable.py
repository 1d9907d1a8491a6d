"""`NativeCallable`: a run that TensorFlow has prepared down to its executors, and when preparing one is safe and pays.

It skips the look-up of executors by the names of feeds and fetches, some 5 to 15 microseconds of each run. It costs a
second optimized copy of what is run, and it is less careful than ``Session.run``: it hands out an empty array for a
value that was never computed (an untaken branch), and functions keep their state (a seeded random sequence) per copy.
So it is made only for runs where none of this can be told from outside.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from supervisor_core.tf1 import private_symbols as private
from supervisor_core.tf1.native import CallableFunctions

_CONDITIONAL = frozenset({"RefSwitch", "Switch", "_SwitchN"})
_MAX_OPS = 20_000
_MAX_CONSTANT_BYTES = 1 << 20


class NativeCallable:
    """One prepared run, released with this object.

    Args:
        functions: those of TensorFlow.
        session: the session, kept alive by this object.
        feeds: tensors fed.
        fetches: tensors fetched.
        targets: operations run.

    Raises:
        AttributeError: if this TensorFlow's sessions lack what is needed.
    """

    __slots__ = ("_c_session", "_functions", "_handle", "_session", "run")

    def __init__(
        self,
        functions: CallableFunctions,
        session: Any,
        feeds: Sequence[Any],
        fetches: Sequence[Any],
        targets: Sequence[Any],
    ) -> None:
        self._functions = functions
        self._session = session
        self._c_session = private.C_SESSION.of(session)
        options = functions.options(
            feed=[tensor.name for tensor in feeds],
            fetch=[tensor.name for tensor in fetches],
            target=[op.name for op in targets],
        )
        private.EXTEND_GRAPH.of(session)()
        self._handle = functions.make(self._c_session, options.SerializeToString())
        self.run = partial(functions.run, self._c_session, self._handle)
        """``(arrays, None)``, the arrays in the order of the feeds -> the values of the fetches."""

    def __del__(self) -> None:
        handle = getattr(self, "_handle", None)
        if handle is not None and not private.CLOSED.get(self._session, True):
            self._functions.release(self._c_session, handle)


def is_safe(graph: Any, feeds: Sequence[Any], fetches: Sequence[Any], targets: Sequence[Any]) -> bool:
    """Return whether a callable gives what ``Session.run`` gives, at no more than a little memory.

    Args:
        graph: the graph of all these.
        feeds: tensors fed.
        fetches: tensors fetched.
        targets: operations run.
    """
    if any(tensor.shape.rank != 0 for tensor in fetches):
        return False
    if any(np.dtype(tensor.dtype.as_numpy_dtype).kind not in "biufc" for tensor in (*feeds, *fetches)):
        return False
    fed = {id(tensor) for tensor in feeds}
    pending = [*(tensor.op for tensor in fetches), *targets]
    seen: set[str] = set()
    calls: dict[str, bool] = {}
    constant_bytes = 0
    while pending:
        op = pending.pop()
        if op.name in seen:
            continue
        seen.add(op.name)
        if op.type not in calls:
            calls[op.type] = _calls_functions(graph, op)
        if op.type == "Const":
            constant_bytes += _size_bytes(op.outputs[0])
        if (
            calls[op.type]
            or (fetches and op.type in _CONDITIONAL)
            or len(seen) > _MAX_OPS
            or constant_bytes > _MAX_CONSTANT_BYTES
        ):
            return False
        pending.extend(tensor.op for tensor in op.inputs if id(tensor) not in fed)
        pending.extend(op.control_inputs)
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
