"""`Graph is finalized`: which op was being added, where, and what to do instead."""

from __future__ import annotations

import os
import traceback
from types import TracebackType

import tensorflow as tf

_FINALIZED = "Graph is finalized and cannot be modified."
_TENSORFLOW = os.path.dirname(tf.__file__)


def explain_finalized(error: BaseException) -> None:
    """Complete the text of TensorFlow's error over a finalized graph, in place; any other error stays as it is."""
    if type(error) is not RuntimeError or error.args != (_FINALIZED,):
        return
    op = _op_being_added(error.__traceback__)
    frame = next(
        (
            item
            for item in reversed(traceback.extract_tb(error.__traceback__))
            if not item.filename.startswith(_TENSORFLOW)
        ),
        None,
    )
    where = f" at {frame.filename}:{frame.lineno} ({frame.line})" if frame else ""
    error.args = (
        f"{_FINALIZED} The op {op} was being added{where}. The supervisor finalizes the graph when it is constructed, "
        "since a graph that grows with every step slows training down and fills the memory: create the op once, before "
        "Supervisor(...), and only run it in the training loop.",
    )


def _op_being_added(trace: TracebackType | None) -> str:
    described = "of unknown type"
    while trace is not None:
        values = trace.tb_frame.f_locals
        op_type = values.get("op_type") or values.get("op_type_name")
        if isinstance(op_type, str):
            name = values.get("name")
            described = f"{name.rstrip('/')!r} of type {op_type}" if isinstance(name, str) else f"of type {op_type}"
        trace = trace.tb_next
    return described
