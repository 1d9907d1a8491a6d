"""TensorFlow's errors: one line that says the cause, which of them may pass, and what to do about a finalized graph.

TensorFlow turns the operating system's errors into its own (source: ``tsl/platform/status.cc`` and ``posix``), most of
them into types that also stand for a program's mistakes. The text shows which: the operating system's words follow the
file's name, as in ``/logs/model.ckpt-5.index; Read-only file system``.
"""

from __future__ import annotations

import errno
import os
import re
import traceback
from types import TracebackType

import tensorflow as tf

from supervisor_core.engine import retry
from supervisor_core.engine.coordinator import text_of

MAX_CHARS = 1000

# What TensorFlow puts around the cause, whatever it is: headings, rules, the remote call by which it came, the node.
_NOISE = re.compile(
    r"Graph execution error:|Recent warning and error logs:|=+|Additional GRPC error information.*|:UNKNOWN:.*|"
    r"\[\[\{\{node .*\}\}\]\].*"
)
_OUTSIDE = (tf.errors.UnavailableError, tf.errors.DeadlineExceededError, tf.errors.ResourceExhaustedError)
_NUMBERS = {os.strerror(number): number for number in errno.errorcode}
_SYSTEM_WORDS = re.compile("; (" + "|".join(map(re.escape, _NUMBERS)) + r")(?:\s|$)")
_REMOTE_WORDS = re.compile(r"Error executing an HTTP request|AWS|curl", re.IGNORECASE)
_FINALIZED = "Graph is finalized and cannot be modified."
_TENSORFLOW = os.path.dirname(tf.__file__)


def error_text(error: BaseException) -> str:
    """Return an error's type and what it says, in one line of a thousand characters at most.

    Of TensorFlow's errors the lines are left out that say nothing of the cause. Never raises, though the error's
    ``__str__`` may.

    Example:
        >>> error_text(tf.errors.UnavailableError(None, None, "Graph execution error:\\n\\nFrom ps:0:\\nSocket closed"))
        'UnavailableError: From ps:0: Socket closed'
    """
    is_tensorflows = isinstance(error, tf.errors.OpError)
    text: str = error.message if is_tensorflows else text_of(error)  # type: ignore[attr-defined]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if is_tensorflows:
        lines = [line for line in lines if not _NOISE.fullmatch(line)] or lines
    return f"{type(error).__name__}: {' '.join(lines)}"[:MAX_CHARS]


def is_outside_fault(error: BaseException) -> bool:
    """Return whether an error comes from outside the program and may pass, so that a retry makes sense.

    Besides what `supervisor_core.engine.retry.is_outside_fault` counts, TensorFlow's `UnavailableError`,
    `DeadlineExceededError` and `ResourceExhaustedError` (no space, no memory), any other of its errors with the
    operating system's words for such an error, and those of a remote store.
    """
    if not isinstance(error, tf.errors.OpError):
        return retry.is_outside_fault(error)
    if isinstance(error, _OUTSIDE):
        return True
    if isinstance(error, (tf.errors.CancelledError, tf.errors.InvalidArgumentError)):
        return False
    words = _SYSTEM_WORDS.search(error.message)
    if words is not None:
        return retry.is_outside_fault(OSError(_NUMBERS[words.group(1)], words.group(1)))
    return bool(_REMOTE_WORDS.search(error.message))


def explain_finalized(error: BaseException) -> None:
    """Complete the text of TensorFlow's error over a finalized graph, in place; any other error stays as it is."""
    if type(error) is not RuntimeError or error.args != (_FINALIZED,):
        return
    op = _op_being_added(error.__traceback__)
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(_TENSORFLOW)]
    where = f" at {own[-1].filename}:{own[-1].lineno} ({own[-1].line})" if own else ""
    error.args = (
        f"{_FINALIZED} The op {op} was being added{where}. The supervisor finalizes the graph when it is constructed, "
        "since a graph that grows with every step slows training down and fills the memory: create the op once, before "
        "Supervisor(...) or MonitoredTrainingSession(...), or in begin() of a hook, and only run it afterwards.",
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
