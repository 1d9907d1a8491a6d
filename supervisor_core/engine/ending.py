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

`StopSignals`: what a signal does to a session, in the signal's own thread; `Ending` is the loop's part.

    recorded      the signal's time begins the deadline; a C timer ends the process should Python hang (`ExitTimer`)
    announced     ``should_stop()`` is true, except after a Ctrl-C that the program may catch to train on
    saved         a checkpoint, beside the loop, as far as that is possible: the loop may never get to its own save
    interrupted   Ctrl-C: a loop that has not ended by half of the time gets its `KeyboardInterrupt`
    awaited       the loop's thread stops the session, and then ends the process as the signal would have
    ended         where it does not by the deadline, the last records are written here, and the process is ended

SIGTERM, SIGHUP and SIGQUIT do the same. A second signal ends the process within a second.
"""

from __future__ import annotations

import errno
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

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
from supervisor_core.engine.blocking_call import BlockingCall
from supervisor_core.engine.coordinator import RuntimeCoordinator, text_of
from supervisor_core.engine.deadline import JOIN_SECS, Deadline, ExitTimer, StopDeadline
from supervisor_core.engine.environment import LAST_PUSH_SECS
from supervisor_core.engine.recorder import StopInfo
from supervisor_core.engine.saving import Checkpoints, loss_text
from supervisor_core.engine.session_recorder import SessionRecorder
from supervisor_core.engine.signal_watch import SignalWatch, drop_lost_terminal
from supervisor_core.events.telemetry import Trigger
from supervisor_core.process.stacks import MAIN_THREAD, location, python_stacks, user_line, whereabouts

if TYPE_CHECKING:
    from supervisor_core.notify.callable import EventCalls

_LOG = logging.getLogger("supervisor_core")
_PAUSE = threading.Event()  # never set
_SAID = threading.Lock()  # taken once, by the thread that logs it

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

IN_A_THREAD = (
    "No signals are handled: this session begins in the thread %r, and Python calls signal handlers in the main thread "
    "only. SIGTERM ends this process without a final checkpoint. Open the session in the main thread, or call "
    "request_stop() from a signal handler of the program."
)

INTERRUPT_SHARE = 0.5
"""Which part of the stop timeout after a Ctrl-C a loop that asks ``should_stop()`` has to end by itself."""
DYING_SECS, AGAIN_SECS = 0.05, 1.0
"""What the process has to die at the end of that time, and for its last records after a second signal, in seconds."""
RETURN_SECS = 3.0
"""How long a run may take after a Ctrl-C to return by itself, before the services are stopped, in seconds."""
LOOK_SECS = 1.0
"""Between two looks at a loop that hangs."""
UNWIND_SECS = 1.0
"""How long after a second Ctrl-C the main thread has to come out of native code, in seconds."""


@dataclass
class StopReason:
    """What has been seen so far of one session's end; `Ending` decides what it amounts to."""

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


@dataclass(kw_only=True)
class SessionState:
    """One session, and then the next; plain data."""

    coord: RuntimeCoordinator
    """The coordinator of its threads."""
    logdir: str | None
    """The run's directory; None where nothing is written."""
    writer: Any
    """The summary writer, or None."""
    deadline: StopDeadline
    """Until when its end has time."""
    checkpoints: Checkpoints | None = None
    """Saves its checkpoints; None where none are saved, and where another run owns the logdir."""
    recorder: SessionRecorder | None = None
    """Records it; None before the first one, and where the logdir was refused."""
    event_calls: EventCalls | None = None
    """Calls `Options.on_event` with its events; None where that is not set."""
    tf_session: Any = None
    """The TensorFlow session; None before it is ready, while it is recovered, and for other frameworks."""
    is_ready: bool = False
    """Whether it was said to be ready."""
    is_not_owner: bool = False
    """Whether the logdir belongs to another process's run: then nothing is written there but what the program adds to
    its events file itself."""
    reason: StopReason = field(default_factory=StopReason)
    """Why it ends, as far as is known."""
    has_left_loop: threading.Event = field(default_factory=threading.Event)
    """Set when the loop's thread has come to `Ending.stop`."""
    ending: str | None = None
    """What its end waits for now, for the log; None before the end."""


class Ending:
    """The ending of one session after the other; see the module's docstring. A facade with errors of its own kind, or
    another way to save, has a subclass.

    Args:
        options: what is to be saved.
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

    def is_hopeless(self) -> bool:
        """Whether the loop will not come to its next step, so that no stop works: it makes no progress for as long as
        something is to be done about it, its thread is at the same place twice, and nothing can be saved without it."""
        recorder, checkpoints = self._state.recorder, self.serving()
        if recorder is None or self._state.has_left_loop.is_set():
            return False
        before = recorder.progress.snapshot()
        if before.act_after_secs is None or before.progress_age_secs <= before.act_after_secs:
            return False
        if checkpoints is not None and checkpoints.is_between_steps:
            return False
        stack = python_stacks().get(MAIN_THREAD)
        self._state.has_left_loop.wait(LOOK_SECS)
        is_same = stack is not None and stack == python_stacks().get(MAIN_THREAD)
        return is_same and recorder.progress.snapshot().progress_age_secs >= before.progress_age_secs

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


class StopSignals:
    """The signals of one session after the other.

    Args:
        options: which signals are handled.
    """

    def __init__(self, ending: Ending, state: SessionState, options: Options, clock: Clock) -> None:
        self._ending = ending
        self._state = state
        self._options = options
        self._clock = clock
        self._watch: SignalWatch | None = None
        self._own_watch: SignalWatch | None = None  # that of `watch_until_stopped`
        self._noted_at: float | None = None
        self._note_lock = threading.Lock()
        self._finished = threading.Event()
        self._exit_timer = ExitTimer()

    def begin(self, *, in_child: bool) -> int | None:
        """Forget the session before; return the signal that came while this one was prepared.

        Args:
            in_child: whether the session before was that of the process that this one was forked from.
        """
        if in_child and self._own_watch is not None:
            self._watch = self._own_watch = None
        self._finished.clear()
        return self._watch.received if self._watch else None

    # The watch, in the main thread.

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Turn a signal into a stop for the length of a block, then end as the signal would have."""
        watch = self._new_watch()
        try:
            if watch is None:
                yield
                return
            try:
                with watch:
                    self._watch = watch
                    try:
                        yield
                    finally:
                        self._watch = None
                        self._finished.set()
            except Exception as error:
                if self._state.reason.gave_up and self._ending.is_cancelled(error):  # no training could have failed yet
                    self._finish(watch)
                raise
            self._finish(watch)
        finally:
            self._exit_timer.disarm()

    def watch_until_stopped(self) -> None:
        """Do as `watched`, where there is no block: until the session is stopped."""
        if self._watch is None and (watch := self._new_watch()) is not None:
            self._own_watch = self._watch = watch.__enter__()

    def stopped(self) -> None:
        """End the watch of `watch_until_stopped`, and the process if a signal asked for that.

        Raises:
            KeyboardInterrupt: after a Ctrl-C, unless it was raised before.
        """
        watch, self._own_watch = self._own_watch, None
        if watch is None or self._ending.is_inactive:
            return
        self._watch = None
        self._finished.set()
        try:
            watch.__exit__(None, None, None)
            if threading.current_thread() is threading.main_thread():
                self._finish(watch)
        finally:
            self._exit_timer.disarm()

    def deactivate(self) -> None:
        """End the watch, whoever had begun it."""
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.__exit__(None, None, None)

    @property
    def is_watching(self) -> bool:
        """Whether a signal stops this session, and it has not ended."""
        return self._watch is not None and self._watch.installed and self._options.handle_signals

    @property
    def received(self) -> int | None:
        """The signal that this process has got; None without one."""
        return None if self._watch is None else self._watch.received

    @property
    def interrupted(self) -> bool:
        """Whether a Ctrl-C was handed to the program."""
        return self._watch is not None and self._watch.interrupted

    def raise_lost_interrupt(self) -> None:
        """Raise the `KeyboardInterrupt` of a Ctrl-C that came before there was a loop, and was lost on its way: native
        code that calls Python, and finalizers, drop what is raised in them."""
        if self.interrupted:
            raise KeyboardInterrupt

    def wait(self, secs: float) -> None:
        """Wait for a signal, up to this many seconds, if one is watched for."""
        if self._watch is not None and self._watch.installed:
            self._watch.wait_received(secs)

    def catch_up(self, grace_secs: float) -> None:
        """Bring what is known of a signal up to date, now that the session stops, and see that there is a deadline.

        Args:
            grace_secs: seconds that the stop may take without a signal.
        """
        reason, deadline = self._state.reason, self._state.deadline
        self._reset_if_gone_on()
        watch = self._watch
        if watch is not None and reason.signum is None and (signum := watch.catch_up()) is not None:
            self._note(watch, signum)  # whose thread has not come to it yet
        if reason.signum is None:
            deadline.stopped(grace_secs)
        elif (watch := self._watch) is None or watch.interrupted:  # the program has taken what time it wanted
            deadline.stopped(AGAIN_SECS if watch is not None and watch.received_again else JOIN_SECS)
        elif not watch.ends_process(reason.signum):  # likewise: a handler of its own has let it go on
            deadline.stopped(deadline.stop_timeout_secs)

    def _reset_if_gone_on(self) -> None:
        """End as without a signal, where the program has caught its `KeyboardInterrupt` and trained on."""
        watch, reason = self._watch, self._state.reason
        if watch is None or not watch.has_gone_on or isinstance(reason.body_error, KeyboardInterrupt):
            return
        watch.reset()
        reason.signum = reason.save_error = None
        self._state.deadline.reset()

    def _finish(self, watch: SignalWatch) -> None:
        """End the process as a signal would have; of several sessions that it stops, the last one to end does that."""
        if self._ending.others_watching():
            return
        if (signum := watch.received) is not None and watch.ends_process(signum) and not watch.interrupted:
            self._ending.end_others(signum, watch.received_at)
        watch.finish()

    def _new_watch(self) -> SignalWatch | None:
        """Return a watch for the session's signals, not yet entered; None where the options want none."""
        options = self._options
        if not options.handle_signals and options.save_signal is None:
            return None
        if threading.current_thread() is not threading.main_thread() and _SAID.acquire(blocking=False):
            _LOG.warning(IN_A_THREAD, threading.current_thread().name)
        return SignalWatch(
            self._signalled,
            on_again=self._signalled_again,
            others={} if options.save_signal is None else {int(signal.Signals[options.save_signal]): self._save_now},
            ends=options.handle_signals,
            work_done=self._ending.work_done,
            clock=self._clock,
        )

    # A signal, in a thread of its own.

    def _signalled(self, signum: int) -> None:
        watch, name = self._watch, signal.Signals(signum).name
        if watch is None:  # the block has just been left
            return
        self._note(watch, signum)
        if watch.ends_process(signum):
            _LOG.warning(
                "%s: shutting down within %.0f s (a second one: at once).", name, self._state.deadline.stop_timeout_secs
            )
            self._exit_timer.arm(self._state.deadline.for_end)
            if self._watch is None or watch.interrupted:  # just before: what has disarmed the timer then came too early
                self._exit_timer.disarm()
            self._end_session(watch, signum)
        else:
            _LOG.warning("%s: should_stop() is true now. Another handler decides whether the process ends.", name)
            self._state.coord.request_stop()
            self._save_beside()

    def _end_session(self, watch: SignalWatch, signum: int) -> None:
        """End the session, and the process, by the deadline, whatever the loop's own thread does."""
        state, checks_stop = self._state, self._loop_checks_stop
        # A program may catch the interrupt of a loop that never asks, and train on with all of its services.
        can_go_on = signum == signal.SIGINT and not checks_stop and state.is_ready
        if not can_go_on:
            state.coord.request_stop()
        if signum != signal.SIGINT and self._ending.is_hopeless():
            _LOG.error("%s: the process ends now. %s", self._ending.unfinished_text, self._ending.loss_text)
            self._end_process(watch, signum)
            return
        self._save_beside()
        if not checks_stop and self._loop_checks_stop:  # the signal came before the loop asked for the first time
            checks_stop, can_go_on = True, False
            state.coord.request_stop()
        if signum == signal.SIGINT and self._interrupt(watch, checks_stop=checks_stop, can_go_on=can_go_on):
            return
        if signum != signal.SIGINT and not checks_stop and not state.has_left_loop.is_set():
            _LOG.warning("The training loop does not ask should_stop(): the process ends now. %s",
                         self._ending.loss_text)  # fmt: skip
            self._end_process(watch, signum)
        elif not self._await(self._wait_finished) and not watch.received_again:
            _LOG.error("%s within %.0f s of %s; the process ends now. %s", self._ending.unfinished_text,
                       state.deadline.stop_timeout_secs, signal.Signals(signum).name,
                       self._ending.loss_text)  # fmt: skip
            self._end_process(watch, signum)

    def _interrupt(self, watch: SignalWatch, *, checks_stop: bool, can_go_on: bool) -> bool:
        """Raise `KeyboardInterrupt` in a loop that has not ended by itself; return whether it was raised."""
        state, deadline = self._state, self._state.deadline
        state.has_left_loop.wait(
            deadline.for_work.remaining(deadline.stop_timeout_secs * INTERRUPT_SHARE) if checks_stop else 0
        )
        if state.has_left_loop.is_set():
            return False
        if not watch.interrupted:  # by a second Ctrl-C, during the save
            watch.interrupt()
        if can_go_on and not watch.wait_interrupted(deadline.for_work.remaining(RETURN_SECS)):
            state.coord.request_stop()  # which releases a run that waits for the input's threads
        if not self._await(watch.wait_interrupted):
            watch.wait_interrupted(deadline.for_end.remaining() / 2)  # the save took all the time
        if watch.interrupted:
            self._exit_timer.disarm()  # the program's own clean-up takes the time that it takes
        return watch.interrupted

    def _signalled_again(self, signum: int) -> None:
        """End the process now. A second Ctrl-C is `KeyboardInterrupt`, where the main thread can be interrupted."""
        if (watch := self._watch) is None or not watch.ends_process(signum):
            return
        deadline = self._state.deadline
        deadline.stopped(AGAIN_SECS)
        if signum == signal.SIGINT and watch.wait_interrupted(UNWIND_SECS):
            self._exit_timer.disarm()
            return
        deadline.stopped(AGAIN_SECS)
        _LOG.error("%s again: the process ends at once. %s", signal.Signals(signum).name, self._ending.loss_text)
        self._end_process(watch, signum)

    def _save_now(self, signum: int) -> None:
        """Save at `Options.save_signal`; training goes on."""
        name, checkpoints = signal.Signals(signum).name, self._ending.serving()
        if checkpoints is None:
            _LOG.warning("%s: there is nothing to save here.", name)
            return
        _LOG.info("%s: a checkpoint is saved; training continues.", name)
        try:
            checkpoints.save_now()
        except Exception as error:  # training goes on, and the next save may succeed
            _LOG.warning("%s: the checkpoint could not be saved: %s", name, self._ending.describe(error))

    def _save_beside(self) -> None:
        if not self._state.has_left_loop.is_set():
            self._ending.save_beside()

    @property
    def _loop_checks_stop(self) -> bool:
        """Whether the main thread has asked whether to stop, so that its loop ends by itself."""
        return self._state.coord.loop_checks_stop or self._ending.others_check_stop()

    def _note(self, watch: SignalWatch, signum: int) -> None:
        """Begin a signal's deadline, once: the other thread that knows of it may have replaced the deadline since."""
        with self._note_lock:
            at = watch.received_at
            if at is None or at != self._noted_at:
                self._noted_at = at
                self._state.deadline.signalled(at)
            self._state.reason.signum = signum

    def _await(self, wait: Callable[[float], object]) -> bool:
        """Wait for something, or the end of the session, as long as there is time; return whether there was."""
        deadline = self._state.deadline
        while not deadline.for_work.is_over:
            if self._wait_finished() or wait(min(0.2, deadline.for_work.timeout)):
                return True
        return self._wait_finished()

    def _wait_finished(self, secs: float = 0.0) -> bool:
        if self._finished.wait(secs) and self._ending.others_watching():
            _PAUSE.wait(secs)
        return self._finished.is_set() and not self._ending.others_watching()

    def _end_process(self, watch: SignalWatch, signum: int) -> None:
        """Write the last records, as far as there is time, and end the process by the signal; not if the program's own
        clean-up has begun meanwhile, after the `KeyboardInterrupt` of a second Ctrl-C."""

        def end() -> None:
            self._ending.write_last_records()
            self._ending.end_others(signum, watch.received_at)

        with suppress(RuntimeError):  # no more threads: then there are no last records
            writing = BlockingCall(end, name="supervisor-last-records")
            writing.wait(self._state.deadline.for_end.earlier(DYING_SECS).timeout)
        if signum == signal.SIGINT and (watch.interrupted or watch.received is None):
            # The main thread has come out of native code after all, and may have trained on since.
            self._exit_timer.disarm()
            self._state.coord.request_stop()
            _LOG.warning("The session has ended: what the program trains from here on is not saved.")
        else:
            watch.end_process(signum)


def _close(writer: Any, last: Any, step: int | None, deadline: Deadline) -> None:
    """Append a last session log, unless it is None, and close the writer; what fails is logged.

    Args:
        writer: the summary writer; only our own knows a time limit.
        last: the session log.
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
