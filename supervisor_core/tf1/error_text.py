"""`error_text`: an error in one line, for records that people read."""

from __future__ import annotations

import re

import tensorflow as tf

from supervisor_core.runtime.coordinator import text_of

MAX_CHARS = 1000

# What TensorFlow puts around the cause, whatever it is: headings, rules, the remote call by which it came, the node.
_NOISE = re.compile(
    r"Graph execution error:|Recent warning and error logs:|=+|Additional GRPC error information.*|:UNKNOWN:.*|"
    r"\[\[\{\{node .*\}\}\]\].*"
)


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
