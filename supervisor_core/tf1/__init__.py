"""The graph-mode facades on ``tf.compat.v1``: the only package here, beside the Keras one, that imports tensorflow.

Importing it has the log follow TensorFlow's verbosity, unless the program configures this project's logger. All
messages go to the logger ``supervisor_core``. A program that was written for the original does not know it, and says
``tf.compat.v1.logging.set_verbosity(INFO)``. So a link between that logger and the root has the level of TensorFlow's
logger, whenever that is set, and writes to standard error where no other handler does, with time and name. A level, a
handler or ``propagate = False`` on ``supervisor_core`` itself counts as configured, and is left alone.
"""

from __future__ import annotations

import logging
import sys

_LOGGER = "supervisor_core"
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class _TensorFlowVerbosity(logging.Logger):
    """The link. It is in no registry; the loggers around it take it for a parent and a child like any other."""

    @property
    def level(self) -> int:
        """The level of TensorFlow's logger; 0, which leaves it to the root, as long as nothing has set one."""
        return logging.getLogger("tensorflow").level

    @level.setter
    def level(self, value: int) -> None:
        """Ignore the level that the constructor sets."""


class _LastHandler(logging.Handler):
    """Writes to standard error what no other handler would write."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        if logging.getLogger(_LOGGER).handlers or logging.getLogger().handlers:
            return
        try:
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()
        except Exception:  # as all of logging's handlers: a message that cannot be written ends no training
            self.handleError(record)


def _follow_tensorflow() -> None:
    """Put the link in its place; once is enough, and more often changes nothing."""
    logger = logging.getLogger(_LOGGER)
    if isinstance(logger.parent, _TensorFlowVerbosity):
        return
    link = _TensorFlowVerbosity(f"{_LOGGER}.verbosity")
    link.parent = logger.parent
    handler = _LastHandler()
    handler.setFormatter(logging.Formatter(_FORMAT))
    link.addHandler(handler)
    logger.parent = link


_follow_tensorflow()
