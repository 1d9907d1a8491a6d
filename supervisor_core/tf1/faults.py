"""Which of TensorFlow's errors are faults of the outside world, and may pass.

TensorFlow turns the operating system's errors into its own (source: ``tsl/platform/status.cc`` and ``posix``), most of
them into types that also stand for mistakes of a program. What tells them apart is the text, in which the operating
system's words follow the file's name: ``/logs/model.ckpt-5.index; Read-only file system``.
"""

from __future__ import annotations

import errno
import os
import re

import tensorflow as tf

from supervisor_core.runtime import retry

_OUTSIDE = (tf.errors.UnavailableError, tf.errors.DeadlineExceededError, tf.errors.ResourceExhaustedError)
_NUMBERS = {os.strerror(number): number for number in errno.errorcode}
_SYSTEM_WORDS = re.compile("; (" + "|".join(map(re.escape, _NUMBERS)) + r")(?:\s|$)")
_REMOTE_WORDS = re.compile(r"Error executing an HTTP request|AWS|curl", re.IGNORECASE)


def is_outside_fault(error: BaseException) -> bool:
    """Return whether an error is the world's and may pass, so that trying again is of use.

    Besides what `supervisor_core.runtime.retry.is_outside_fault` counts, TensorFlow's `UnavailableError`,
    `DeadlineExceededError` and `ResourceExhaustedError` (no space, no memory), any other of its errors that bears the
    operating system's words for something that counts there, and those of a remote store.
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
