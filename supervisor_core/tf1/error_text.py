"""`error_text`: an error in one line, for records that people read."""

from __future__ import annotations

import re

import tensorflow as tf

MAX_CHARS = 1000

# What TensorFlow puts around the cause, whatever it is: headings, rules, the remote call by which it came, the node.
_NOISE = re.compile(
    r"Graph execution error:|Recent warning and error logs:|=+|Additional GRPC error information.*|:UNKNOWN:.*|"
    r"\[\[\{\{node .*\}\}\]\].*"
)


def error_text(error: BaseException) -> str:
    """Return an error's type and what it says, in one line of a thousand characters at most.

    Of TensorFlow's errors the lines are left out that say nothing of the cause, and those that are said twice.

    Example:
        >>> error_text(tf.errors.UnavailableError(None, None, "Graph execution error:\\n\\nFrom ps:0:\\nSocket closed"))
        'UnavailableError: From ps:0: Socket closed'
    """
    lines = [
        line.strip() for line in str(error.message if isinstance(error, tf.errors.OpError) else error).splitlines()
    ]
    if isinstance(error, tf.errors.OpError):
        told = [line for line in lines if line and not _NOISE.fullmatch(line)]
        lines = list(dict.fromkeys(told)) or lines
    return f"{type(error).__name__}: {' '.join(line for line in lines if line)}"[:MAX_CHARS]
