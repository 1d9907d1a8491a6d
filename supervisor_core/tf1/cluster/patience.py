"""`Patience`: waiting for the rest of a cluster, as long as was asked, and saying for whom."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

import tensorflow as tf

from supervisor_core.runtime.blocking_call import BlockingCall
from supervisor_core.tf1.cluster.surroundings import Surroundings

T = TypeVar("T")

_LOG = logging.getLogger("supervisor_core")

FIRST_POLL_SECS = 0.1
"""The first wait between two polls, in seconds; doubled until it is the longest."""

LOOK_SECS = 1.0
"""How often one that waits for a blocked call looks whether a stop was requested."""

LEAST_SECS = 5.0
"""How long a call has at least, however little was asked: time for one look at a cluster that answers."""

NAME_SECS = 5.0
"""For how long a call may block before it is found out who does not answer, from one time to the next; and for how long
the end of a wait is held up to find it out."""

LONG_SECS = 30.0
"""After how long a wait is worth a warning, once: who has set up no logging sees those and nothing else."""


class Patience:
    """One wait, from now on.

    Args:
        bound_secs: how long it may last; None: forever.
        longest_poll_secs: the longest time between two polls.
        surroundings: whom to ask whether to give up, and to tell what is waited for.
    """

    def __init__(self, bound_secs: float | None, longest_poll_secs: float, surroundings: Surroundings) -> None:
        self._bound_secs = float("inf") if bound_secs is None else bound_secs
        self._longest_secs = longest_poll_secs
        self._poll_secs = min(FIRST_POLL_SECS, longest_poll_secs)
        self._surroundings = surroundings
        self._began = surroundings.clock.monotonic()
        self._deadline = self._began + self._bound_secs
        self._told: str | None = None
        self._warned = False

    @property
    def remaining_secs(self) -> float:
        """How long it may last from now on; 0 when it is over."""
        return max(0.0, self._deadline - self._surroundings.clock.monotonic())

    def pause(self, what: str) -> None:
        """Wait until the next poll.

        Args:
            what: what is waited for.

        Raises:
            tf.errors.DeadlineExceededError: if it has lasted as long as it may.
            tf.errors.CancelledError: if a stop was requested.
        """
        self._check(what)
        self._tell(what)
        stopped = self._surroundings.wait(min(self._poll_secs, self.remaining_secs))
        self._poll_secs = min(2 * self._poll_secs, self._longest_secs)
        if stopped:
            self._cancel(what)

    def outlast(self, call: Callable[[], T], *, who: Callable[[], str], discard: Callable[[T], object]) -> T:
        """Make a call that may block forever, in a thread of its own, and return what it returns.

        The call has five seconds at least, however little was asked: time for one look at a cluster that answers.

        Args:
            call: what to call.
            who: says who keeps it from returning; may take a while, and what it raises ends the wait.
            discard: called with the result if it comes when nobody waits any more.

        Raises:
            tf.errors.DeadlineExceededError: if it has lasted as long as it may.
            tf.errors.CancelledError: if a stop was requested.
        """
        blocking = BlockingCall(call, name="supervisor_cluster_call", discard=discard)
        naming: BlockingCall[str] | None = None
        try:
            what, began = "the cluster to answer", self._surroundings.clock.monotonic()
            named = began
            while not blocking.wait(min(LOOK_SECS, self.remaining_secs)):
                if self._surroundings.wait(0.0):
                    self._cancel(what)
                is_over, now = not self.remaining_secs, self._surroundings.clock.monotonic()
                if naming is None and (is_over or now - named >= NAME_SECS):
                    naming, named = BlockingCall(who, name="supervisor_cluster_reach"), now
                if naming is not None and naming.wait(NAME_SECS if is_over else 0.0):
                    what, naming = naming.result(), None
                    self._tell(what)
                if is_over and not blocking.wait(max(0.0, began + LEAST_SECS - now)):
                    self._check(what)
            return blocking.result()
        except BaseException:
            blocking.abandon()
            raise

    def over(self) -> None:
        """Say that nothing is waited for any more."""
        if self._told is not None:
            self._surroundings.waiting_for(None)
        self._told = None

    def _tell(self, what: str) -> None:
        waited = self._surroundings.clock.monotonic() - self._began
        if waited >= LONG_SECS and not self._warned:
            self._warned = True
            _LOG.warning("Waiting, for %.0f s by now, for %s", waited, what)
        elif what != self._told:
            _LOG.info("Waiting for %s", what)
        if what != self._told:
            self._surroundings.waiting_for(what)
        self._told = what

    def _check(self, what: str) -> None:
        if not self.remaining_secs:
            raise tf.errors.DeadlineExceededError(
                None, None, f"Session was not ready after waiting {self._bound_secs:g} secs. Waited for {what}"
            )

    def _cancel(self, what: str) -> None:
        self._surroundings.gave_up()
        raise tf.errors.CancelledError(None, None, f"A stop was requested while waiting for {what}")
