"""How a supervised session ends: every ending, from its cause to its last write, in the order in which it happens.

    training    until the loop leaves its block, the program calls ``stop()`` or ``close()``, a signal comes, another
                chief takes the logdir over, or the interpreter ends
    stopping    a stop is requested: `Ending.stop`, or in a signal's thread (`StopSignals`)
    saving      what is not on disk, if a session that ends like this is to be saved: `Ending.save`
    joining     services, queue runners and loops have the remaining time to end
    recording   the stop record; the lock is released: `Ending.record`
    closing     STOP, and the writer is closed: `Ending.close_writer`
    ended       metrics linger, then the process ends as a signal would have ended it: `StopSignals`

There is one `StopDeadline`: made at the signal, or at a stop without one, and handed down to everything that waits. The
loop's own thread goes through the states. From a signal on, another thread watches the deadline, writes the last
records itself where the loop's does not get there, and ends the process; and should that hang too, a C thread, which
needs no interpreter, does. ``docs/stopping.md`` has the table: what ends how.
"""

from __future__ import annotations

import errno
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

from supervisor_core.base.clock import Clock
from supervisor_core.base.errors import (
    EventsWriteError,
    LogdirInUseError,
    SaveFailedError,
    StalledError,
    WaitTimeoutError,
)
from supervisor_core.base.options import Options
from supervisor_core.engine import open_sessions
from supervisor_core.engine.coordinator import text_of
from supervisor_core.engine.deadline import Deadline
from supervisor_core.engine.environment import LAST_PUSH_SECS
from supervisor_core.engine.recorder import StopInfo
from supervisor_core.engine.saving import Checkpoints, loss_text
from supervisor_core.engine.session_state import SessionState, StopReason
from supervisor_core.engine.signal_watch import drop_lost_terminal
from supervisor_core.engine.stop_signals import AGAIN_SECS, StopSignals
from supervisor_core.events.telemetry import Trigger
from supervisor_core.process.stacks import MAIN_THREAD, location, python_stacks, user_line, whereabouts

_LOG = logging.getLogger("supervisor_core")

LAST_EVENTS_SECS = 5.0
"""How long the end waits at most until `Options.on_event` was called with the last events, in seconds."""
HANG_UP_SECS = 1.0
"""How long SIGHUP is waited for after an error that a lost terminal has caused, in seconds: a shell passes it on."""

STOP_LOG = b"\x08\x02"
"""``SessionLog(status=STOP)``, as the writer of this project takes it."""

_WAITS = {
    "checkpointing": "The final checkpoint was not saved",
    "joining": "The threads of the session did not end",
    "recording": "The stop record was not written",
    "closing": "The events file was not written to the end",
    "serving": "The metrics server did not end",
}


class Ending:
    """The ending of one session after the other; see the module's docstring. A facade with errors of its own kind, or
    another way to save, has a subclass.

    Args:
        state: the session.
        options: what is to be saved.
        clock: replaced in tests.
    """

    stop_log: Any = STOP_LOG
    """The session log that ends the events file."""

    def __init__(self, state: SessionState, options: Options, clock: Clock) -> None:
        self.signals = StopSignals(self, state, options, clock)
        """What a signal does to the session."""
        self._state = state
        self._options = options
        self._pid: int | None = None
        self._is_unsaved = False
        self._gone = False
        self._record_lock, self._close_lock = threading.RLock(), threading.RLock()

    # What a facade has of its own.

    def is_exhausted(self, error: BaseException) -> bool:
        """Return whether an error of the training loop says that its input has ended."""
        return isinstance(error, StopIteration)

    def is_cancelled(self, error: BaseException) -> bool:
        """Return whether an error says that a call was cancelled, as by a stop request."""
        return False

    def describe(self, error: BaseException) -> str:
        """Return an error's type and text, for a record. Never raises."""
        return f"{type(error).__name__}: {text_of(error)}"

    def last_step(self) -> int | None:
        """Return the step of `stop_log`; None for none, as in the original."""
        return None

    def work_done(self) -> int:
        """Return a number that grows while the program trains. Without a lock: a signal's handler asks."""
        return 0 if (recorder := self._state.recorder) is None else recorder.progress.changes

    # The session's begin.

    def begin(self) -> None:
        """Forget the ending of the session before. A signal that came while this one was prepared still counts."""
        pid = os.getpid()
        signum = self.signals.begin(in_child=self._pid not in (None, pid))
        self._pid = pid
        self._state.reason = StopReason(signum=signum, handled_before=id(sys.exc_info()[1]))
        self._state.ending = None
        if signum is None:
            self._state.deadline.reset()
        self._state.has_left_loop.clear()

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
        if self.is_inactive:
            return
        coord, reason, deadline = self._state.coord, self._state.reason, self._state.deadline
        reason.stop_was_requested |= coord.should_stop()
        self._note_error_under_way()
        if _is_of_lost_terminal(reason.body_error):
            self.signals.wait(HANG_UP_SECS)
        self.signals.catch_up(grace_secs)
        self._state.has_left_loop.set()
        coord.request_stop()
        raised: BaseException | None = None
        try:
            try:
                self._state.ending = "checkpointing"
                save()
            finally:
                self._state.ending = "joining"
                join(deadline.join_secs(grace_secs))
        except BaseException as error:
            raised = error
            raise
        finally:
            if self._is_unsaved:  # said now, as a save may have been under way
                self._is_unsaved = False
                _LOG.warning("After an error no checkpoint is saved. %s", self.loss_text)
            try:
                self.record(raised)
            finally:
                self._state.ending = "closing"
                close()
                self._state.ending = "serving"

    def save(self, checkpoints: Checkpoints | None = None) -> None:
        """Save what is not on disk yet, if a session that ends like this is to be saved.

        After a signal a save that cannot be done in time is given up; the log and the stop record say why.

        Args:
            checkpoints: saves it. Default: the session's own.

        Raises:
            SaveFailedError: if it could not be saved, and there was no signal.
        """
        run = self._state.recorder
        if run is None or run.ended or self.is_inactive:
            return
        run.enter("stopping")
        checkpoints = self.serving(checkpoints)
        if checkpoints is None:
            return
        if not self.is_save_wanted():
            self._is_unsaved = self.failure() is not None
            return
        with run.phase("checkpointing"):
            try:
                self._save(checkpoints)
            except SaveFailedError as error:
                if self._state.reason.signum is None:
                    raise
                self._give_up_save(error)

    def record(self, error: BaseException | None) -> None:
        """Write the stop record and release the lock; once per session.

        Args:
            error: what stopping raised, if anything.
        """
        run, deadline = self._state.recorder, self._state.deadline.for_records
        if run is None or self.is_inactive or not self._record_lock.acquire(timeout=deadline.timeout):
            return
        try:
            self._state.ending = "recording"
            open_sessions.remove(self)
            run.end(self._stop_info(error), deadline)
        finally:
            self._record_lock.release()

    def close_writer(self) -> None:
        """Append STOP and close the writer, which the signal's thread may be doing at the same moment."""
        writer, deadline = self._state.writer, self._state.deadline.for_records
        if writer is None or self.is_inactive or getattr(writer, "closed", False):
            return
        if not self._close_lock.acquire(timeout=deadline.timeout):
            return
        try:
            _close(writer, None if self._state.is_not_owner else self.stop_log, self.last_step(), deadline)
        finally:
            self._close_lock.release()

    @property
    def closing_secs(self) -> float:
        """How long to wait for the TensorFlow session to be closed, in seconds."""
        return max(AGAIN_SECS, self._state.deadline.for_records.timeout)

    def stop_serving(self) -> None:
        """Stop serving and pushing metrics; waits until the end has been seen, as far as the moment allows."""
        if (run := self._state.recorder) is None or self.is_inactive:
            return
        if self._state.event_calls is not None:
            self._state.event_calls.finish()
        linger_secs = self._options.metrics_linger_secs if self._state.reason.signum != signal.SIGINT else 0.0
        if self._state.reason.signum is None:
            run.close(linger_secs)
        else:
            run.close(*map(self._state.deadline.linger_secs, (linger_secs, LAST_PUSH_SECS)))
        self.finish_event_calls(self._state.deadline.linger_secs(LAST_EVENTS_SECS))

    def finish_event_calls(self, secs: float) -> None:
        """Call `Options.on_event` with the last events of the session; wait for that.

        Args:
            secs: how long at most.
        """
        calls, self._state.event_calls = self._state.event_calls, None
        if calls is not None:
            calls.finish()
            calls.wait(secs)

    # In a signal's thread, where the loop's may not get there; or where another session's end ends the process.

    def save_beside(self) -> None:
        """Save a checkpoint while the loop goes on, so that nothing is lost if the loop never ends. Never raises."""
        checkpoints = self.serving()
        if checkpoints is None or not self.is_save_wanted():
            return
        try:
            self._save(checkpoints)
        except Exception as error:  # the process is about to end; the loop may still get to its own save
            self._give_up_save(error)

    def save_stalled(self, deadline: Deadline) -> tuple[str | None, int | None]:
        """Save a checkpoint of a loop that has stalled, unless it is in the middle of a step: no snapshot of that is of
        one step. Return path and step of the newest one; None without.

        Raises:
            SaveFailedError: if it could not be saved, or not in time.
        """
        checkpoints = self.serving()
        if checkpoints is None or not self.is_save_wanted():
            return None, None
        if not checkpoints.is_between_steps:
            _LOG.warning("The loop hangs in the middle of a step: no final checkpoint is saved.")
            return checkpoints.newest or (None, None)
        checkpoints.training_failed(StalledError("the loop made no progress"))
        return checkpoints.save_last("final", lambda: False, lambda: deadline, deadline)

    def write_last_records(self) -> None:
        """Write what the loop's thread writes at its end."""
        self.record(None)
        self.close_writer()
        self.stop_serving()

    # The final save. The loop's thread and a signal's may both come to it: the second one finds nothing to save.

    def serving(self, given: Checkpoints | None = None) -> Checkpoints | None:
        """Return what saves the session under way, ``given`` or its own; None where nothing is to be saved."""
        run, checkpoints = self._state.recorder, given or self._state.checkpoints
        return None if run is None or run.ended or checkpoints is None or not checkpoints.serving else checkpoints

    def is_save_wanted(self) -> bool:
        """Whether a session that ends like this is to be saved."""
        if self.signals.interrupted and isinstance(self._state.reason.body_error, KeyboardInterrupt):
            return False  # saved when the signal came; whoever sends a second one wants to be gone
        failure = self.failure()
        if isinstance(failure, LogdirInUseError):
            return False  # another chief's logdir by now
        if isinstance(failure, StalledError):
            failure = None  # the model is as good as ever
        return self._options.save_on_stop if failure is None else self._options.save_on_error

    def _save(self, checkpoints: Checkpoints) -> None:
        """Save, and record the checkpoint; `SaveFailedError` if it could not be saved, or not in time."""
        reason, deadline = self._state.reason, self._state.deadline
        if (failure := self.failure()) is not None:
            checkpoints.training_failed(failure)
        trigger: Trigger = "final" if reason.signum is None else "signal"
        saved = checkpoints.save_last(
            trigger, lambda: not self.is_save_wanted(), lambda: deadline.for_save, deadline.for_end
        )
        reason.final_checkpoint, reason.final_checkpoint_step = saved
        reason.save_error = None

    def _give_up_save(self, error: BaseException) -> None:
        """Log that there will be no final checkpoint, and why."""
        self._state.reason.save_error = error
        _LOG.error("%s", error, exc_info=None if isinstance(error, SaveFailedError) else error)

    # What is said of it.

    @property
    def loss_text(self) -> str:
        """Which checkpoint is the newest, and what is lost if the process ends now: sentences."""
        recorder, checkpoints = self._state.recorder, self._state.checkpoints
        if recorder is None:
            return loss_text(None if checkpoints is None else checkpoints.newest, None)
        # A session that is just being restored has nothing that saves yet, but a checkpoint.
        newest = recorder.saves.newest if checkpoints is None else checkpoints.newest
        return loss_text(newest, recorder.progress.snapshot().global_step)

    @property
    def unfinished_text(self) -> str:
        """What has not ended at the deadline: the begin of a sentence."""
        recorder, line = self._state.recorder, user_line(python_stacks().get(MAIN_THREAD, ()))
        if self._state.has_left_loop.is_set():
            what = _WAITS[self._state.ending or "joining"]
        elif recorder is None or recorder.progress.phase == "training":
            what = "No step ended"
        else:
            what = f"The phase {recorder.progress.phase!r} did not end"
        return what if line is None else f"{what} ({whereabouts(MAIN_THREAD, location(line), None)})"

    # Why it ends.

    def _note_error_under_way(self) -> None:
        """Take the exception that is passing through the program's ``finally``, or is handled in its ``except``, for
        what the training loop raised."""
        error, reason = sys.exc_info()[1], self._state.reason
        if error is None or reason.body_error is not None or id(error) == reason.handled_before:
            return
        if self.is_exhausted(error):
            reason.exhausted = True
        else:
            reason.body_error = error

    def failure(self) -> BaseException | None:
        """Return the error that makes the end a failure, as far as there is one yet."""
        try:
            self._state.coord.raise_requested_exception()
        except BaseException as error:  # asked for, not handled: stopping raises it
            return error
        body_error = self._state.reason.body_error
        return None if body_error is None or self.is_clean(body_error) else body_error

    def is_clean(self, error: BaseException) -> bool:
        """Return whether an error of the training loop is only the way in which it ended.

        Exhausted input is; so is ``sys.exit()`` with 0 or nothing, an interrupt, any exit after a signal, a block
        that is let go without having been left, and a run that was cancelled because a stop had been requested.
        """
        if isinstance(error, SystemExit):
            return error.code in (None, 0) or self._state.reason.signum is not None
        if self._state.coord.is_clean_stop(error) or isinstance(error, (KeyboardInterrupt, GeneratorExit)):
            return True
        if self._state.reason.signum is not None and (_is_asyncios(error) or _is_of_lost_terminal(error)):
            return True
        return self._state.reason.stop_was_requested and self.is_cancelled(error)

    def _stop_info(self, error: BaseException | None) -> StopInfo:
        """Return how the session ended.

        Args:
            error: what stopping raised, if anything.
        """
        reason = self._state.reason
        body_error, signum = reason.body_error, reason.signum
        failure = None if body_error is None or self.is_clean(body_error) else body_error
        if error is None or self.is_clean(error) or (isinstance(error, SaveFailedError) and failure is not None):
            error = failure
        if signum is None and isinstance(body_error, KeyboardInterrupt):
            signum = signal.SIGINT
        facts: dict[str, Any] = {
            "final_checkpoint": reason.final_checkpoint,
            "final_checkpoint_step": reason.final_checkpoint_step,
        }
        if signum is not None:
            facts["signal"] = signal.Signals(signum).name
        if error is not None and not (reason.gave_up and signum is not None):  # then it is the signal's doing
            return StopInfo(reason="error", error=self.describe(error), **facts)
        if signum is not None:
            given_up = None if reason.save_error is None else self.describe(reason.save_error)
            return StopInfo(reason="signal", error=given_up, **facts)
        if reason.had_finished:
            return StopInfo(reason="completed", **facts)
        if reason.exhausted or (body_error is not None and self._state.coord.is_clean_stop(body_error)):
            return StopInfo(reason="exhausted", **facts)
        return StopInfo(reason="requested" if reason.stop_was_requested else "completed", **facts)

    # Whether there is anything to end, and the process's other sessions.

    @property
    def is_inactive(self) -> bool:
        """Whether this session is to be left alone: in a forked child of its process, and when the interpreter ends and
        has stopped it."""
        return self._gone or self._pid not in (None, os.getpid())

    def others_watching(self) -> bool:
        """Return whether there are others that a signal to the process stops, and that have not ended yet."""
        return any(each.signals.is_watching for each in self._others())

    def others_check_stop(self) -> bool:
        """Return whether the main thread asks another one whether to stop."""
        return any(each._state.coord.loop_checks_stop for each in self._others())

    def end_others(self, signum: int, at: float | None) -> None:
        """Save and record the others, since the process is about to end by a signal, which came at that time."""
        for each in self._others():
            each._ended_by(signum, at)

    def _others(self) -> list[Ending]:
        endings = [each for each in open_sessions.endings() if isinstance(each, Ending)]
        return [each for each in endings if each is not self and not each.is_inactive]

    def _ended_by(self, signum: int, at: float | None) -> None:
        if self._options.handle_signals and not self.is_inactive:
            if self._state.reason.signum is None:
                self._state.deadline.signalled(at)
                self._state.reason.signum = signum
            self._state.coord.request_stop()
            self.save_beside()
            self.write_last_records()

    def deactivate(self) -> None:
        """Do nothing from now on, whatever is called: what the interpreter still finalizes can start no threads."""
        self._gone = True
        self.signals.deactivate()


def _close(writer: Any, last: Any, step: int | None, deadline: Deadline) -> None:
    """Append a last session log, unless it is None, and close the writer; what fails is logged.

    Args:
        writer: the summary writer; only our own knows a time limit.
        last: the session log.
        step: its step.
        deadline: until when to wait for the disk.
    """
    try:
        if last is not None:
            writer.add_session_log(last, step)
        if hasattr(writer, "sync"):
            writer.close(deadline.timeout)
        else:
            writer.close()
    except (EventsWriteError, WaitTimeoutError) as error:  # what ended the session is what its end is to raise
        _LOG.error("%s", error)


def _is_asyncios(error: BaseException) -> bool:
    """Whether an error is the cancellation of an asyncio task, with which a Ctrl-C ends it."""
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and isinstance(error, asyncio.CancelledError)


def _is_of_lost_terminal(error: BaseException | None) -> bool:
    """Whether an error comes from a terminal that is gone: the program has printed something."""
    return isinstance(error, OSError) and error.errno == errno.EIO and drop_lost_terminal()
