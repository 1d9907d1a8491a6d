"""How a supervised session ends: every ending, from its cause to its last write, in the order in which it happens.

    training    until the loop leaves its block, the program calls ``stop()`` or ``close()``, a signal comes, another
                chief takes the logdir over, or the interpreter ends
    stopping    a stop is requested: `Stopping.stop`, or `Stopping._signalled` in the signal's thread
    saving      what is not on disk, if a session that ends like this is to be saved: `Stopping.save`
    joining     services, queue runners and loops have the time that is left to end
    recording   the stop record; the lock is released: `Stopping.record`
    closing     STOP, and the writer is closed: `Stopping.close_writer`
    ended       metrics linger, then the process ends as a signal would have ended it: `Stopping.signals`

There is one `Deadline`: made at the signal, or at a stop without one, and handed down to everything that waits. The
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import tensorflow as tf

from supervisor_core.clock import Clock
from supervisor_core.errors import SaveFailedError
from supervisor_core.options import Options
from supervisor_core.runtime.blocking_call import BlockingCall
from supervisor_core.runtime.dead_man import DeadMan
from supervisor_core.runtime.signals import SignalWatch
from supervisor_core.tf1 import open_sessions
from supervisor_core.tf1 import private_symbols as private
from supervisor_core.tf1.checkpoint_manager import CheckpointManager
from supervisor_core.tf1.final_save import FinalSave
from supervisor_core.tf1.signals import watch_signals
from supervisor_core.tf1.stop_state import JOIN_SECS, Ending, Grace, close_in_time

if TYPE_CHECKING:
    from supervisor_core.tf1.lifecycle import Lifecycle

_LOG = logging.getLogger("supervisor_core")
_PAUSE = threading.Event()  # never set
_STOP = tf.compat.v1.SessionLog(status=tf.compat.v1.SessionLog.STOP)

INTERRUPT_SHARE = 0.5
"""Which part of the grace time after a Ctrl-C a loop that asks ``should_stop()`` has to end by itself."""
DYING_SECS, AGAIN_SECS = 0.05, 1.0
"""What the process has to die at the end of that time, and for its last records after a second signal, in seconds."""
RETURN_SECS = 3.0
"""How long a run may take after a Ctrl-C to return by itself, before the services are stopped, in seconds."""
UNWIND_SECS = 1.0
"""How long after a second Ctrl-C the main thread has to come out of native code, in seconds."""


class Stopping:
    """The ending of one session after the other; see the module's docstring.

    Args:
        session: what ends.
        options: grace time and what is to be saved.
        clock: the time.
    """

    def __init__(self, session: Lifecycle, options: Options, clock: Clock) -> None:
        self.facts = Ending()
        self._session = session
        self._options = options
        self._clock = clock
        self._pid: int | None = None
        self._gone = False
        self._grace = Grace(options.signal_grace_secs, clock)
        self._left = threading.Event()
        self._finished = threading.Event()
        self._watch: SignalWatch | None = None
        self._own_watch: SignalWatch | None = None
        self._dead_man = DeadMan()
        self._final_save = FinalSave(session, options, self._grace)
        self._record_lock, self._close_lock = threading.RLock(), threading.RLock()

    def begin(self) -> None:
        """Forget the ending of the session before. A signal that came while this one was prepared still counts."""
        pid = os.getpid()
        if (
            self._pid not in (None, pid) and self._own_watch is not None
        ):  # that of the process that this one is a child of
            self._watch = self._own_watch = None
        self._pid = pid
        handled = id(sys.exc_info()[1])
        self.facts = Ending(signum=self._watch.received if self._watch else None, handled_before=handled)
        if self.facts.signum is None:
            self._grace.forget()
        self._left.clear()
        self._finished.clear()

    def begun(self, at_exit: Callable[[BaseException | None], object]) -> None:
        """Have the session stopped when the interpreter ends, should nothing else stop it.

        Args:
            at_exit: stops it; is given the exception that ends the interpreter, if there is one.
        """
        open_sessions.opened(self, at_exit)

    def comes_to_exit(self, error: BaseException | None) -> None:
        """Record that the interpreter ends: there was no block, and no thread is waited for."""
        self.facts.body_error, self.facts.ignores_live_threads = error, True

    @property
    def hands_off(self) -> bool:
        """Whether this session is to be left alone: in a forked child of its process, and when the interpreter ends and
        has stopped it."""
        return self._gone or self._pid not in (None, os.getpid())

    def leave_alone(self) -> None:
        """Do nothing from now on, whatever is called: what the interpreter still finalizes can start no threads."""
        watch, self._watch, self._gone = self._watch, None, True
        if watch is not None:
            watch.__exit__(None, None, None)

    def is_abandoned_in(self, logdir: str | None) -> bool:
        """Whether the program has closed the TensorFlow session, of a run in this directory, and stopped nothing."""
        return self._session.logdir == logdir and private.CLOSED.get(self._session.session, False)

    @contextmanager
    def signals(self) -> Iterator[None]:
        """Turn SIGTERM and SIGINT into an orderly stop for the length of a block, then end as the signal would have."""
        watch = self._watch_signals()
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
            except tf.errors.CancelledError:
                if self.facts.gave_up:  # there was no training yet that could have failed
                    self._finish(watch)
                raise
            self._finish(watch)
        finally:
            self._dead_man.disarm()

    def watch_until_stopped(self) -> None:
        """Do as `signals`, where there is no block: until the session is stopped."""
        if self._watch is None and (watch := self._watch_signals()) is not None:
            self._own_watch = self._watch = watch.__enter__()

    def raise_lost_interrupt(self) -> None:
        """Raise the `KeyboardInterrupt` of a Ctrl-C that came before there was a loop, and was lost on its way: native
        code that calls Python, and finalizers, drop what is raised in them."""
        if self._watch is not None and self._watch.interrupted:
            raise KeyboardInterrupt

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
        self.facts.stop_was_requested |= coord.should_stop()
        self.facts.note_error_under_way()
        self._forget_signal_if_gone_on()
        watch = self._watch if self.facts.signum is None else None
        if watch is not None and (signum := watch.catch_up()) is not None:
            self._note_signal(watch, signum)  # whose thread has not come to it yet
        self._press(grace_secs)
        self._left.set()
        coord.request_stop()
        raised: BaseException | None = None
        try:
            try:
                save()
            finally:
                join(self._grace.join_secs(grace_secs))
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
            SaveFailedError: if it could not be saved, and no signal presses.
        """
        run = self._session.begun
        if run is None or run.ended or self.hands_off:
            return
        run.enter("stopping")
        checkpoints = self._final_save.checkpoints(checkpoints)
        if checkpoints is None or not self._final_save.is_wanted(self._was_interrupted()):
            return
        with run.phase("checkpointing"):
            try:
                self._final_save.save(checkpoints, self._was_interrupted)
            except SaveFailedError as error:
                if self.facts.signum is None:
                    raise
                self._final_save.give_up(error)

    def record(self, error: BaseException | None) -> None:
        """Write the stop record and release the lock; once per session.

        Args:
            error: what stopping raised, if anything.
        """
        run, deadline = self._session.begun, self._grace.for_records
        if run is None or self.hands_off or not self._record_lock.acquire(timeout=deadline.timeout):
            return
        try:
            open_sessions.closed(self)
            run.end(self.facts.outcome(error, self._session.coord), deadline)
        finally:
            self._record_lock.release()

    def close_writer(self) -> None:
        """Append STOP and close the writer, which the signal's thread may be doing at the same moment."""
        writer, deadline = self._session.writer, self._grace.for_records
        if writer is None or self.hands_off or getattr(writer, "closed", False):
            return
        if not self._close_lock.acquire(timeout=deadline.timeout):
            return
        try:
            close_in_time(writer, None if self._session.is_guest else _STOP, deadline)
        finally:
            self._close_lock.release()

    def stop_serving(self) -> None:
        """Stop serving metrics; lingers until the end has been seen, as far as the moment allows."""
        if (run := self._session.begun) is None or self.hands_off:
            return
        linger_secs = self._options.metrics_linger_secs if self.facts.signum != signal.SIGINT else 0.0
        run.close(linger_secs if self.facts.signum is None else self._grace.for_work.remaining(linger_secs))

    def stopped(self) -> None:
        """End the watch of `watch_until_stopped`, and the process if a signal asked for that."""
        watch, self._own_watch = self._own_watch, None
        if watch is None or self.hands_off:
            return
        self._watch = None
        self._finished.set()
        try:
            watch.__exit__(None, None, None)
            if threading.current_thread() is threading.main_thread():
                self._finish(watch)
        finally:
            self._dead_man.disarm()

    def _finish(self, watch: SignalWatch) -> None:
        """End the process as a signal would have; of several sessions that it stops, the last one to end does that."""
        if open_sessions.others_watching(self):
            return
        if (signum := watch.received) is not None and watch.ends_process(signum) and not watch.interrupted:
            open_sessions.end_others(self, signum, watch.received_at)
        watch.finish()

    @property
    def is_heeded(self) -> bool:
        """Whether the main thread asks whether to stop."""
        return self._session.coord.is_heeded

    @property
    def is_watching(self) -> bool:
        """Whether a signal stops this session, and it has not ended."""
        return self._watch is not None and self._watch.installed and self._options.handle_signals

    def ended_by(self, signum: int, at: float | None) -> None:
        """Save and record; another session of this process is about to end it by a signal, which came at that time."""
        if self._options.handle_signals and not self.hands_off:
            if self.facts.signum is None:
                self._grace.signalled(at)
                self.facts.signum = signum
            self._session.coord.request_stop()
            self._save_beside()
            self._write_last_records()

    @property
    def closing_secs(self) -> float:
        """How long to wait for the TensorFlow session to be closed, in seconds."""
        return max(AGAIN_SECS, self._grace.for_records.timeout)

    # A signal, in a thread of its own.

    def _signalled(self, signum: int) -> None:
        """End the session, and the process, by the deadline, whatever the loop's own thread does."""
        watch, coord, name = self._watch, self._session.coord, signal.Signals(signum).name
        if watch is None:  # the block has just been left
            return
        grace_secs = self._options.signal_grace_secs
        self._note_signal(watch, signum)
        heeded = coord.is_heeded or any(other.is_heeded for other in open_sessions.others(self))
        ends = watch.ends_process(signum)
        if ends:
            _LOG.warning("%s: shutting down within %.0f s (a second one: at once).", name, grace_secs)
        else:
            _LOG.warning("%s: should_stop() is true now; another handler of the signal ends the process, or not.", name)
        if ends:
            self._dead_man.arm(self._grace.deadline)
            if self._watch is None:  # the block was left just before: its end has disarmed nothing
                self._dead_man.disarm()
        goes_on = ends and signum == signal.SIGINT and not heeded and self._session.is_ready
        if not goes_on:  # else the program may catch the interrupt and train on, with all of its services
            coord.request_stop()
        if not self._left.is_set():
            self._save_beside()
        if not ends:
            return  # a handler of the program's decides when, and how, the process ends
        if signum == signal.SIGINT:
            self._left.wait(self._grace.for_work.remaining(grace_secs * INTERRUPT_SHARE) if heeded else 0.0)
            if not self._left.is_set():
                watch.interrupt()
                if goes_on and not watch.wait_interrupted(self._grace.for_work.remaining(RETURN_SECS)):
                    coord.request_stop()  # which releases a run that waits for the input's threads
                if not self._await(watch.wait_interrupted):
                    watch.wait_interrupted(self._grace.deadline.remaining() / 2)  # the save took all the time
                if watch.interrupted:
                    self._dead_man.disarm()  # the program's own clean-up takes the time that it takes
                    return
        elif not heeded and not self._left.is_set():
            _LOG.warning("The training loop does not ask should_stop(): the process ends now.")
            self._end_process(watch, signum)
            return
        if not self._await(self._wait_finished) and not watch.received_again:
            _LOG.error("The session did not end within %.0f s of %s; the process ends now.", grace_secs, name)
            self._end_process(watch, signum)

    def _forget_signal_if_gone_on(self) -> None:
        """End as without a signal, where the program has caught its `KeyboardInterrupt` and trained on."""
        watch = self._watch
        if watch is None or not watch.has_gone_on or isinstance(self.facts.body_error, KeyboardInterrupt):
            return
        watch.forget()
        self.facts.signum = self.facts.save_error = None
        self._grace.forget()

    def _note_signal(self, watch: SignalWatch, signum: int) -> None:
        self._grace.signalled(watch.received_at)
        self.facts.signum = signum

    def _signalled_again(self, signum: int) -> None:
        """End the process now. A second Ctrl-C is `KeyboardInterrupt`, where the main thread can be interrupted."""
        if (watch := self._watch) is None or not watch.ends_process(signum):
            return
        self._grace.stopped(AGAIN_SECS)
        if signum == signal.SIGINT and watch.wait_interrupted(UNWIND_SECS):
            self._dead_man.disarm()
            return
        self._grace.stopped(AGAIN_SECS)
        _LOG.error("%s again: the process ends at once.", signal.Signals(signum).name)
        self._end_process(watch, signum)

    def _await(self, wait: Callable[[float], object]) -> bool:
        """Wait for something, or the end of the session, as long as there is time; return whether there was."""
        while not self._grace.for_work.is_over:
            if self._wait_finished() or wait(min(0.2, self._grace.for_work.timeout)):
                return True
        return self._wait_finished()

    def _wait_finished(self, secs: float = 0.0) -> bool:
        if self._finished.wait(secs) and open_sessions.others_watching(self):
            _PAUSE.wait(secs)
        return self._finished.is_set() and not open_sessions.others_watching(self)

    def _end_process(self, watch: SignalWatch, signum: int) -> None:
        """Write the last records, as far as there is time, and end the process by the signal."""

        def end() -> None:
            self._write_last_records()
            open_sessions.end_others(self, signum, watch.received_at)

        with suppress(RuntimeError):  # no more threads: then there are no last records
            writing = BlockingCall(end, name="supervisor-last-records")
            writing.wait(self._grace.deadline.earlier(DYING_SECS).timeout)
        watch.end_process(signum)

    def _write_last_records(self) -> None:
        self.record(None)
        self.close_writer()
        self.stop_serving()

    def _save_beside(self) -> None:
        """Save a checkpoint while the loop goes on, so that nothing is lost whatever becomes of the loop."""
        checkpoints = self._final_save.checkpoints()
        if checkpoints is None or not self._final_save.is_wanted(self._was_interrupted()):
            return
        try:
            self._final_save.save(checkpoints, self._was_interrupted)
        except Exception as error:  # the process is about to end; the loop may still get to its own save
            self._final_save.give_up(error)

    def _was_interrupted(self) -> bool:
        return self._watch is not None and self._watch.interrupted

    def _press(self, grace_secs: float) -> None:
        """See to it that there is a deadline."""
        if self.facts.signum is None:
            self._grace.stopped(grace_secs)
        elif (watch := self._watch) is None or watch.interrupted:  # the program has taken what time it wanted
            self._grace.stopped(AGAIN_SECS if watch is not None and watch.received_again else JOIN_SECS)
        elif not watch.ends_process(self.facts.signum):  # likewise: a handler of its own has let it go on
            self._grace.stopped(self._options.signal_grace_secs)

    def _watch_signals(self) -> SignalWatch | None:
        return watch_signals(
            self._options,
            self._signalled,
            self._signalled_again,
            self._final_save.checkpoints,
            lambda: 0 if (run := self._session.begun) is None else run.progress.changes,
            self._clock,
        )
