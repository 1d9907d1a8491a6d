"""`managed_session`: the ``with`` block around a training loop, and what its end means."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from supervisor_core.runtime.coordinator import Coordinator
from supervisor_core.tf1.cluster.connect import close_with_timeout
from supervisor_core.tf1.lifecycle import Lifecycle
from supervisor_core.tf1.stop_state import StopReason
from supervisor_core.tf1.tf_errors import explain_finalized

_LOG = logging.getLogger("supervisor_core")

RELEASE_AFTER_SECS = 30.0
"""How long threads may take to end by themselves before the session is closed under them, in seconds, if half of
``stop_grace_secs`` is not less."""


class Managed(Protocol):
    """What the block needs of a supervisor."""

    @property
    def coord(self) -> Coordinator:
        """Its coordinator."""

    def prepare_or_wait_for_session(self, *, master: str, config: Any, start_standard_services: bool) -> Any:
        """Return a session whose model is ready."""

    def request_stop(self, ex: BaseException) -> None:
        """Report an error, and ask everything to stop."""

    def stop(self, *, close_summary_writer: bool) -> None:
        """Stop the services, and save what is not saved."""


@contextmanager
def managed_session(
    supervisor: Managed,
    lifecycle: Lifecycle,
    *,
    prepared: Callable[[Any], object],
    close_summary_writer: bool,
    master: str,
    config: Any,
    start_standard_services: bool,
) -> Iterator[Any]:
    """Prepare a session, yield it, save and stop; see `Supervisor.managed_session`.

    A subclass may override what is called here, with the arguments that the original passes: no others are passed.
    """
    with lifecycle.stopping.signals.watched():
        try:
            try:
                sess = supervisor.prepare_or_wait_for_session(
                    master=master, config=config, start_standard_services=start_standard_services
                )
                prepared(sess)
            except BaseException:
                _give_up(supervisor, lifecycle, close_summary_writer)
                raise
            # A run that blocks in a dequeue is released by closing the session, before the grace time is over.
            supervisor.coord.register_release(sess.close, after_secs=RELEASE_AFTER_SECS)
            yield from _guarded(supervisor, lifecycle, sess, close_summary_writer)
        finally:
            lifecycle.stopping.stop_serving()


def _guarded(supervisor: Managed, lifecycle: Lifecycle, sess: Any, close_summary_writer: bool) -> Iterator[Any]:
    reason = lifecycle.stop_reason
    try:
        try:
            yield sess
        except BaseException as error:
            if lifecycle.stopping.hands_off:
                raise
            reason.stop_was_requested |= supervisor.coord.should_stop()
            reason.body_error = error
            if not isinstance(error, Exception):
                raise
            explain_finalized(error)
            supervisor.request_stop(error)
        finally:
            _stop(supervisor, reason, close_summary_writer)
    finally:
        if not lifecycle.stopping.hands_off:  # whose TensorFlow has no threads that could close anything
            close_with_timeout(sess, lifecycle.stopping.closing_secs)
    _raise_unless_clean(reason, supervisor)


def _raise_unless_clean(reason: StopReason, supervisor: Managed) -> None:
    """Raise the body's error, which the coordinator ignores if a stop had been requested before."""
    error = reason.body_error
    if error is not None and not reason.is_clean(error, supervisor.coord):
        raise error


def _stop(supervisor: Managed, reason: StopReason, close_summary_writer: bool) -> None:
    body_error = reason.body_error
    reason.ignores_live_threads = True
    try:
        supervisor.stop(close_summary_writer=close_summary_writer)
    except BaseException as error:
        if body_error is not None and error is not body_error and error.__context__ is None:
            error.__context__ = body_error
        raise


def _give_up(supervisor: Managed, lifecycle: Lifecycle, close_summary_writer: bool) -> None:
    """End what a failed preparation has begun; its own error is the one that counts."""
    if not lifecycle.has_begun:  # refused: not a word into the run of the one at work
        if lifecycle.writer is not None:
            lifecycle.writer.close()
        return
    lifecycle.stop_reason.ignores_live_threads = True
    try:
        supervisor.stop(close_summary_writer=close_summary_writer)
    except Exception as error:
        _LOG.info("Stopping after a failed preparation failed: %s", error)
