"""Is the model ready? What a ready op's value means."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import tensorflow as tf

_LOG = logging.getLogger("supervisor_core")


def readiness(op: Any, sess: Any, what: str) -> tuple[bool, str | None]:
    """Run a ready op; return whether the model is ready, and where it is not, the reason.

    Ready means: there is no op, or its value is None, or of dtype int32, or empty. A `FailedPreconditionError` that
    speaks of uninitialized values means not ready; any other is raised.

    Args:
        op: a 1-D string tensor that names what is not initialized, or None.
        sess: the session to run it in.
        what: what is being checked, for the log.
    """
    if op is None:
        return True, None
    try:
        value = sess.run(op)
    except tf.errors.FailedPreconditionError as error:
        if "uninitialized" not in str(error):
            _LOG.warning("%s: error [%s]", what, error)
            raise
        return False, str(error)
    if value is None or value.dtype == np.int32 or value.size == 0:
        return True, None
    return False, "Variables not initialized: " + ", ".join(name.decode("utf-8") for name in value)
