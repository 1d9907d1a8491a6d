"""How a supervised session ends: every ending, from its cause to its last write, in the order in which it happens.

    training    until the loop leaves its block, the program calls ``stop()`` or ``close()``, a signal comes, another
                chief takes the logdir over, or the interpreter ends
    stopping    a stop is requested: `Stopping.stop`, or in a signal's thread (`StopSignals`)
    saving      what is not on disk, if a session that ends like this is to be saved: `Stopping.save`
    joining     services, queue runners and loops have the remaining time to end
    recording   the stop record; the lock is released: `Stopping.record`
    closing     STOP, and the writer is closed: `Stopping.close_writer`
    ended       metrics linger, then the process ends as a signal would have ended it: `StopSignals.watched`

There is one `StopDeadline`: made at the signal, or at a stop without one, and handed down to everything that waits. The
loop's own thread goes through the states. From a signal on, another thread watches the deadline, writes the last
records itself where the loop's does not get there, and ends the process; and should that hang too, a C thread, which
needs no interpreter, does. ``docs/stopping.md`` has the table: what ends how.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from supervisor_core.clock import Clock
from supervisor_core.errors import EventsWriteError, LogdirInUseError, SaveFailedError, WaitTimeoutError
from supervisor_core.events.telemetry import Trigger
from supervisor_core.options import Options
from supervisor_core.runtime.deadline import Deadline
from supervisor_core.tf1 import open_sessions
from supervisor_core.tf1 import private_symbols as private
from supervisor_core.tf1.checkpoint_manager import CheckpointManager
from supervisor_core.tf1.stop_signals import AGAIN_SECS, StopSignals
from supervisor_core.tf1.stop_state import EndingSession, StopDeadline, StopReason

_LOG = logging.getLogger("supervisor_core")
_STOP = tf.compat.v1.SessionLog(status=tf.compat.v1.SessionLog.STOP)


class Stopping:
    """The ending of one session after the other; see the module's docstring.

    Args:
        session: what ends.
        options: grace time and what is to be saved.
        clock: replaced in tests.
    """

    def __init__(self, session: EndingSession, options: Options, clock: Clock) -> None:
        self.reason = StopReason()
        """What has been seen so far of the session's end."""
        self.deadline = StopDeadline(options.signal_grace_secs, clock)
        """Until when it has time."""
        self.signals = StopSignals(self, session, options, clock)
        """What SIGTERM and SIGINT do to the session."""
        self.has_left_loop = threading.Event()
        """Set when the loop's thread has come to `stop`."""
        self._session = session
        self._options = options
        self._pid: int | None = None
        self._gone = False
        self._record_lock, self._close_lock = threading.RLock(), threading.RLock()

    def begin(self) -> None:
        """Forget the ending of the session before. A signal that came while this one was prepared still counts."""
        pid = os.getpid()
        signum = self.signals.begin(in_child=self._pid not in (None, pid))
        self._pid = pid
        self.reason = StopReason(signum=signum, handled_before=id(sys.exc_info()[1]))
        if signum is None:
            self.deadline.forget()
        self.has_left_loop.clear()

    def begun(self, at_exit: Callable[[BaseException | None], object]) -> None:
        """Have the session stopped when the interpreter ends, should nothing else stop it.

        Args:
            at_exit: stops it; is given the exception that ends the interpreter, if there is one.
        """
        open_sessions.opened(self, at_exit)

    # The end, in order. In the thread of the loop, or of whoever stops the session.

    def stop(
        self,
        grace_secs: float,
        *,
        save: Callable[[], object],
        join: Callable[[float], object],
        close: Callable[[], object],
    ) -> None:
        """End the session; in a forked child nothing happens.

        Args:
            grace_secs: seconds that this may take without a signal; after one its deadline counts.
            save: saves what is not on the disk yet; see `save`.
            join: waits for the threads; is given the seconds that it may take.
            close: closes the writers; see `close_writer`.

        Raises:
            BaseException: what one of these raises, the first one that does.
        """
        if self.hands_off:
            return
        coord = self._session.coord
        self.reason.stop_was_requested |= coord.should_stop()
        self.reason.note_error_under_way()
        self.signals.settle(grace_secs)
        self.has_left_loop.set()
        coord.request_stop()
        raised: BaseException | None = None
        try:
            try:
                save()
            finally:
                join(self.deadline.join_secs(grace_secs))
        except BaseException as error:
            raised = error
            raise
        finally:
            try:
                self.record(raised)
            finally:
                close()

    def save(self, checkpoints: CheckpointManager | None = None) -> None:
        """Save what is not on disk yet, if a session that ends like this is to be saved.

        After a signal a save that cannot be done in time is given up; the log and the stop record say why.

        Args:
            checkpoints: saves it. Default: the session's own.

        Raises:
            SaveFailedError: if it could not be saved, and there was no signal.
        """
        run = self._session.begun
        if run is None or run.ended or self.hands_off:
            return
        run.enter("stopping")
        checkpoints = self.serving(checkpoints)
        if checkpoints is None or not self._is_save_wanted():
            return
        with run.phase("checkpointing"):
            try:
                self._save(checkpoints)
            except SaveFailedError as error:
                if self.reason.signum is None:
                    raise
                self._give_up_save(error)

    def record(self, error: BaseException | None) -> None:
        """Write the stop record and release the lock; once per session.

        Args:
            error: what stopping raised, if anything.
        """
        run, deadline = self._session.begun, self.deadline.for_records
        if run is None or self.hands_off or not self._record_lock.acquire(timeout=deadline.timeout):
            return
        try:
            open_sessions.closed(self)
            run.end(self.reason.stop_info(error, self._session.coord), deadline)
        finally:
            self._record_lock.release()

    def close_writer(self) -> None:
        """Append STOP and close the writer, which the signal's thread may be doing at the same moment."""
        writer, deadline = self._session.writer, self.deadline.for_records
        if writer is None or self.hands_off or getattr(writer, "closed", False):
            return
        if not self._close_lock.acquire(timeout=deadline.timeout):
            return
        try:
            _close(writer, None if self._session.is_guest else _STOP, deadline)
        finally:
            self._close_lock.release()

    @property
    def closing_secs(self) -> float:
        """How long to wait for the TensorFlow session to be closed, in seconds."""
        return max(AGAIN_SECS, self.deadline.for_records.timeout)

    def stop_serving(self) -> None:
        """Stop serving metrics; lingers until the end has been seen, as far as the moment allows."""
        if (run := self._session.begun) is None or self.hands_off:
            return
        linger_secs = self._options.metrics_linger_secs if self.reason.signum != signal.SIGINT else 0.0
        run.close(linger_secs if self.reason.signum is None else self.deadline.linger_secs(linger_secs))

    # In a signal's thread, where the loop's may not get there; or at another session's end in this process.

    def save_beside(self) -> None:
        """Save a checkpoint while the loop goes on, so that nothing is lost if the loop never ends. Never raises."""
        checkpoints = self.serving()
        if checkpoints is None or not self._is_save_wanted():
            return
        try:
            self._save(checkpoints)
        except Exception as error:  # the process is about to end; the loop may still get to its own save
            self._give_up_save(error)

    def write_last_records(self) -> None:
        """Write what the loop's thread writes at its end."""
        self.record(None)
        self.close_writer()
        self.stop_serving()

    def ended_by(self, signum: int, at: float | None) -> None:
        """Save and record; another session of this process is about to end it by a signal, which came at that time."""
        if self._options.handle_signals and not self.hands_off:
            if self.reason.signum is None:
                self.deadline.signalled(at)
                self.reason.signum = signum
            self._session.coord.request_stop()
            self.save_beside()
            self.write_last_records()

    # The final save. The loop's thread and a signal's may both come to it: the second one finds nothing to save.

    def serving(self, given: CheckpointManager | None = None) -> CheckpointManager | None:
        """Return what saves the session under way, ``given`` or its own; None where nothing is to be saved."""
        run, checkpoints = self._session.begun, given or self._session.checkpoints
        return None if run is None or run.ended or checkpoints is None or not checkpoints.serving else checkpoints

    def _is_save_wanted(self) -> bool:
        """Whether a session that ends like this is to be saved."""
        if self.signals.interrupted and isinstance(self.reason.body_error, KeyboardInterrupt):
            return False  # saved when the signal came; whoever sends a second one wants to be gone
        failure = self.reason.failure(self._session.coord)
        if isinstance(failure, LogdirInUseError):
            return False  # another chief's logdir by now
        return self._options.save_on_stop if failure is None else self._options.save_on_error

    def _save(self, checkpoints: CheckpointManager) -> None:
        """Save, and record the checkpoint; `SaveFailedError` if it could not be saved, or not in time."""
        reason, deadline = self.reason, self.deadline
        trigger: Trigger = "final" if reason.signum is None else "signal"
        saved = checkpoints.save_last(
            trigger, lambda: not self._is_save_wanted(), lambda: deadline.for_save, deadline.for_end
        )
        reason.final_checkpoint, reason.final_checkpoint_step = saved
        reason.save_error = None

    def _give_up_save(self, error: BaseException) -> None:
        """Log that there will be no final checkpoint, and why."""
        self.reason.save_error = error
        _LOG.error("%s", error, exc_info=None if isinstance(error, SaveFailedError) else error)

    # Whether there is anything to end, for the interpreter's exit and for the process's other sessions.

    @property
    def hands_off(self) -> bool:
        """Whether this session is to be left alone: in a forked child of its process, and when the interpreter ends and
        has stopped it."""
        return self._gone or self._pid not in (None, os.getpid())

    def leave_alone(self) -> None:
        """Do nothing from now on, whatever is called: what the interpreter still finalizes can start no threads."""
        self._gone = True
        self.signals.leave_alone()

    def comes_to_exit(self, error: BaseException | None) -> None:
        """Record that the interpreter ends: there was no block, and no thread is waited for."""
        self.reason.body_error, self.reason.ignores_live_threads = error, True

    def is_abandoned_in(self, logdir: str | None) -> bool:
        """Whether the program has closed the TensorFlow session, of a run in this directory, and stopped nothing."""
        return self._session.logdir == logdir and private.CLOSED.get(self._session.session, False)

    @property
    def is_heeded(self) -> bool:
        """Whether the main thread asks whether to stop."""
        return self._session.coord.is_heeded

    @property
    def is_watching(self) -> bool:
        """Whether a signal stops this session, and it has not ended."""
        return self.signals.is_watching


def _close(writer: Any, last: Any, deadline: Deadline) -> None:
    """Append a last session log, unless it is None, and close the writer; what fails is logged.

    Args:
        writer: the summary writer; only our own knows a time limit.
        last: the session log.
        deadline: until when to wait for the disk.
    """
    try:
        if last is not None:
            writer.add_session_log(last)
        if hasattr(writer, "sync"):
            writer.close(deadline.timeout)
        else:
            writer.close()
    except (EventsWriteError, WaitTimeoutError) as error:  # what ended the session is what its end is to raise
        _LOG.error("%s", error)
