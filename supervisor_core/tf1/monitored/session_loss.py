"""`SessionLoss`: whether a TensorFlow session that was lost is to be replaced once more, and after how long."""

from __future__ import annotations

import logging

from supervisor_core.options import Options
from supervisor_core.runtime.retry import Backoff

_LOG = logging.getLogger("supervisor_core")


class SessionLoss:
    """Counts the losses that come one after another with no run in between, up to `Options.max_recoveries`.

    Args:
        options: the bound, and the waits.
    """

    def __init__(self, options: Options) -> None:
        self._bound = options.max_recoveries
        self._backoff = Backoff(initial_secs=options.retry_initial_secs, max_secs=options.retry_max_secs)
        self._runs = -1
        self.in_a_row = 0
        """Losses since a run ended well."""

    def delay_secs(self, error: Exception, runs: int) -> float:
        """Return how long to wait before the session is recreated.

        Args:
            error: what was raised.
            runs: how many runs have ended well by now.

        Raises:
            Exception: the error itself, when the bound is reached.
        """
        if runs != self._runs:
            self.in_a_row, self._runs = 0, runs
        self.in_a_row += 1
        if self._bound is not None and self.in_a_row > self._bound:
            _LOG.error(
                "The TensorFlow session was lost %d times in a row, more than Options.max_recoveries allows.",
                self.in_a_row,
            )
            raise error
        return self._backoff.next_delay(self.in_a_row)
