"""What is known of a session's end: why it ends, and until when each part of the end has time.

`stopping` goes through the end; what it sees on the way it keeps here, and here it says what that amounts to.
"""

from __future__ import annotations

import signal
import sys
from dataclasses import dataclass
from typing import Any, Protocol

import tensorflow as tf

from supervisor_core.clock import Clock
from supervisor_core.runtime.coordinator import Coordinator
from supervisor_core.runtime.deadline import NEVER, Deadline
from supervisor_core.supervision.session_recorder import SessionRecorder, StopInfo
from supervisor_core.tf1.checkpoint_manager import CheckpointManager
from supervisor_core.tf1.tf_errors import error_text

RESERVE_SHARE, RESERVE_SECS = 0.2, 2.0
"""The part of the grace time after a signal, and at most how much of it in seconds, kept for the last records."""
RECORDS_SECS, JOIN_SECS = 10.0, 5.0
"""How long the last records may take, and threads have to end, even if the save took all of ``stop_grace_secs``."""


@dataclass
class StopReason:
    """What has been seen so far of one session's end; `stop_info` says what it amounts to."""

    signum: int | None = None
    """The signal that asked for the end."""
    body_error: BaseException | None = None
    """What the training loop raised."""
    handled_before: int = 0
    """The ``id`` of the exception that was being handled when the session began: none of its own."""
    stop_was_requested: bool = False
    """Whether a stop had been requested before the training loop ended."""
    exhausted: bool = False
    """Whether the training loop ended because the input did, and no error is to be raised for that."""
    had_finished: bool = False
    """Whether there was nothing to do: the run had finished when this process came."""
    gave_up: bool = False
    """Whether it ended while it waited for the cluster, because a stop was requested."""
    ignores_live_threads: bool = False
    """Whether a thread that does not end is only named in the log, and fails nothing."""
    save_error: BaseException | None = None
    """Why the final checkpoint was given up after a signal."""
    final_checkpoint: str | None = None
    final_checkpoint_step: int | None = None

    def note_error_under_way(self) -> None:
        """Take the exception that is passing through the program's ``finally``, or is handled in its ``except``, for
        what the training loop raised."""
        error = sys.exc_info()[1]
        if error is None or self.body_error is not None or id(error) == self.handled_before:
            return
        if isinstance(error, (tf.errors.OutOfRangeError, StopIteration)):
            self.exhausted = True
        else:
            self.body_error = error

    def failure(self, coord: Coordinator) -> BaseException | None:
        """Return the error that makes the end a failure, as far as there is one yet."""
        try:
            coord.raise_requested_exception()
        except BaseException as error:  # asked for, not handled: stopping raises it
            return error
        return None if self.body_error is None or self.is_clean(self.body_error, coord) else self.body_error

    def is_clean(self, error: BaseException, coord: Coordinator) -> bool:
        """Return whether an error of the training loop is only the way in which it ended.

        Exhausted input is; so is ``sys.exit()`` with 0 or nothing, an interrupt, any exit after a signal, a block
        that is let go without having been left, and a run that was cancelled because a stop had been requested.
        """
        if isinstance(error, SystemExit):
            return error.code in (None, 0) or self.signum is not None
        if coord.is_clean_stop(error) or isinstance(error, (KeyboardInterrupt, GeneratorExit)):
            return True
        return self.stop_was_requested and type(error) is tf.errors.CancelledError

    def stop_info(self, error: BaseException | None, coord: Coordinator) -> StopInfo:
        """Return how the session ended.

        Args:
            error: what stopping raised, if anything.
            coord: the session's coordinator.
        """
        body_error = self.body_error
        if error is None or self.is_clean(error, coord):
            error = None if body_error is None or self.is_clean(body_error, coord) else body_error
        signum = self.signum
        if signum is None and isinstance(body_error, KeyboardInterrupt):
            signum = signal.SIGINT
        facts: dict[str, Any] = {
            "final_checkpoint": self.final_checkpoint,
            "final_checkpoint_step": self.final_checkpoint_step,
        }
        if signum is not None:
            facts["signal"] = signal.Signals(signum).name
        if error is not None and not (self.gave_up and signum is not None):  # then it is the signal's doing
            return StopInfo(reason="error", error=error_text(error), **facts)
        if signum is not None:
            given_up = None if self.save_error is None else error_text(self.save_error)
            return StopInfo(reason="signal", error=given_up, **facts)
        if self.had_finished:
            return StopInfo(reason="completed", **facts)
        if self.exhausted or (body_error is not None and coord.is_clean_stop(body_error)):
            return StopInfo(reason="exhausted", **facts)
        return StopInfo(reason="requested" if self.stop_was_requested else "completed", **facts)


class StopDeadline:
    """The deadline of a session's end: made by a signal, or by a stop without one; see `docs/stopping.md`.

    Args:
        signal_secs: `Options.signal_grace_secs`.
        clock: replaced in tests.
    """

    def __init__(self, signal_secs: float, clock: Clock) -> None:
        self.for_end = NEVER
        """When the end has to be over; `NEVER` as long as nothing ends."""
        self._by_signal = False
        self._signal_secs = signal_secs
        self._clock = clock

    def forget(self) -> None:
        """There is no end under way."""
        self.for_end, self._by_signal = NEVER, False

    def signalled(self, at: float | None) -> None:
        """A signal came.

        Args:
            at: when, on the monotonic clock. Default: now.
        """
        since = self._clock.monotonic() if at is None else at
        self.for_end, self._by_signal = Deadline(since + self._signal_secs, self._clock), True

    def stopped(self, secs: float) -> None:
        """The session is stopped, and has this many seconds from now on; those of a signal before are replaced."""
        self.for_end = Deadline.after(secs, self._clock)

    @property
    def for_save(self) -> Deadline:
        """Until when there is time to save: without a signal a save takes the time that it takes."""
        return self.for_work if self._by_signal else NEVER

    @property
    def for_work(self) -> Deadline:
        """Until when there is time to wait for what has to end first."""
        if not self._by_signal:
            return self.for_end
        return self.for_end.earlier(self._reserve_secs)

    @property
    def for_records(self) -> Deadline:
        """Until when there is time for the last records."""
        if self._by_signal:
            return self.for_end
        return Deadline.after(max(RECORDS_SECS, self.for_end.remaining()), self._clock)

    def linger_secs(self, secs: float) -> float:
        """Return how many of these seconds metrics may linger: after a signal, less than there is for work. So the
        loop's thread comes to its end, and the signal's thread does not end the process as one that hangs."""
        return self.for_work.earlier(self._reserve_secs).remaining(secs) if self._by_signal else secs

    @property
    def _reserve_secs(self) -> float:
        return min(RESERVE_SECS, RESERVE_SHARE * self._signal_secs)

    def join_secs(self, grace_secs: float) -> float:
        """Return how many of a stop's seconds threads may be waited for."""
        left = self.for_work.remaining(grace_secs)
        return left if self._by_signal else max(left, min(grace_secs, JOIN_SECS))


class EndingSession(Protocol):
    """What its end needs of a session; a `Lifecycle` has it."""

    @property
    def coord(self) -> Coordinator:
        """The coordinator of the session's threads."""

    @property
    def begun(self) -> SessionRecorder | None:
        """What records the session; None before the first one."""

    @property
    def is_ready(self) -> bool:
        """Whether its model is ready."""

    @property
    def is_guest(self) -> bool:
        """Whether the logdir belongs to another process's run."""

    @property
    def session(self) -> Any:
        """The TensorFlow session; None before it is ready."""

    @property
    def logdir(self) -> str | None:
        """The run's directory; None where nothing is written."""

    @property
    def writer(self) -> Any:
        """The summary writer, or None."""

    @property
    def checkpoints(self) -> CheckpointManager | None:
        """Takes the checkpoints; None where none are taken."""
