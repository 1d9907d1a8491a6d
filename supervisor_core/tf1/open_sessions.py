"""The sessions that are under way in this process, and what happens to them when the interpreter ends.

A program that calls ``prepare_or_wait_for_session()`` and never ``stop()`` ends all the same. Then this stops its
sessions, from an ``atexit`` hook: threads that are no daemons have ended by then (one of them may be what trains);
daemon threads, TensorFlow and logging still work; no thread can be started on some versions of Python (3.12.1), and no
pool of ``concurrent.futures`` takes work on any.
"""

from __future__ import annotations

import atexit
import logging
import sys
from collections.abc import Callable
from typing import Protocol

_LOG = logging.getLogger("supervisor_core")


class OpenSession(Protocol):
    """A session that has begun and not ended."""

    @property
    def hands_off(self) -> bool:
        """Whether it is to be left alone, as that of the process that this one was forked from."""

    def leave_alone(self) -> None:
        """Do nothing from now on, whatever is called."""

    def is_abandoned_in(self, logdir: str | None) -> bool:
        """Whether the program has closed the TensorFlow session, of a run in this directory, and stopped nothing."""

    def record(self, error: BaseException | None) -> None:
        """Say that it has ended."""

    @property
    def is_heeded(self) -> bool:
        """Whether the main thread asks it whether to stop."""

    @property
    def is_watching(self) -> bool:
        """Whether a signal to the process stops it, too."""

    def ended_by(self, signum: int, at: float | None) -> None:
        """Save and record: the process is about to end by a signal, which came at that time."""


Stop = Callable[[BaseException | None], object]
"""Stops a session; is given the exception that ends the interpreter, if there is one."""

_OPEN: dict[OpenSession, Stop] = {}
"""Held until they end, though the program lets go of them: that is the case to be prepared for."""


def opened(session: OpenSession, stop: Stop) -> None:
    """Have a session stopped when the interpreter ends."""
    _OPEN[session] = stop


def closed(session: OpenSession) -> None:
    """Leave a session alone, since it has ended."""
    _OPEN.pop(session, None)


def others(session: OpenSession) -> list[OpenSession]:
    """Return the sessions of this process besides one."""
    return [each for each in list(_OPEN) if each is not session and not each.hands_off]


def others_watching(session: OpenSession) -> bool:
    """Tell whether there are others that a signal to the process stops, and that have not ended yet."""
    return any(each.is_watching for each in others(session))


def end_others(session: OpenSession, signum: int, at: float | None) -> None:
    """Save and record the others, since the process is about to end by a signal."""
    for each in others(session):
        each.ended_by(signum, at)


def end_abandoned(logdir: str | None) -> None:
    """End the sessions in a directory whose TensorFlow session a program has closed without stopping anything."""
    for session in list(_OPEN):
        if session.is_abandoned_in(logdir):
            session.record(None)


def stop_open_sessions() -> None:
    """Stop all that are open; called when the interpreter ends."""
    # Where a session is interactive, the last error is not what ends it.
    error = None if hasattr(sys, "ps1") else getattr(sys, "last_value", None)
    for session, stop in list(_OPEN.items()):
        if not session.hands_off:
            _LOG.warning("The program ends without having stopped its session: it is stopped now.")
            try:
                stop(error)
            except Exception:  # the others, and the interpreter's own clean-up, are still to come
                _LOG.exception("The session could not be stopped")
            finally:
                session.leave_alone()


atexit.register(stop_open_sessions)
