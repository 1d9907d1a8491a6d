"""`StopSignals`: what a signal does to a session, in the signal's own thread; `ending` is the loop's part.

    recorded      the signal's time begins the deadline; a C timer ends the process should Python hang (`ExitTimer`)
    announced     ``should_stop()`` is true, except after a Ctrl-C that the program may catch to train on
    saved         a checkpoint, beside the loop, as far as that is possible: the loop may never get to its own save
    interrupted   Ctrl-C: a loop that has not ended by half of the time gets its `KeyboardInterrupt`
    awaited       the loop's thread stops the session, and then ends the process as the signal would have
    ended         where it does not by the deadline, the last records are written here, and the process is ended

SIGTERM, SIGHUP and SIGQUIT do the same. A second signal ends the process within a second.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

from supervisor_core.base.clock import Clock
from supervisor_core.base.options import Options
from supervisor_core.engine.blocking_call import BlockingCall
from supervisor_core.engine.deadline import JOIN_SECS, ExitTimer
from supervisor_core.engine.saving import Checkpoints
from supervisor_core.engine.session_state import SessionState
from supervisor_core.engine.signal_watch import SignalWatch

_LOG = logging.getLogger("supervisor_core")
_PAUSE = threading.Event()  # never set
_SAID = threading.Lock()  # taken once, by the thread that logs it
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
UNWIND_SECS = 1.0
"""How long after a second Ctrl-C the main thread has to come out of native code, in seconds."""


class SessionEnd(Protocol):
    """What a signal's thread uses of `Ending`; see there."""

    @property
    def is_inactive(self) -> bool:
        """Whether this session is to be left alone."""

    @property
    def loss_text(self) -> str:
        """Which checkpoint is the newest, and what is lost without a final one."""

    @property
    def unfinished_text(self) -> str:
        """What has not come to its end: a clause."""

    def work_done(self) -> int:
        """A number that rises while something is done for the end."""

    def is_cancelled(self, error: BaseException) -> bool:
        """Whether an error only says that something was cancelled."""

    def describe(self, error: BaseException) -> str:
        """Return an error for people."""

    def serving(self) -> Checkpoints | None:
        """Return what saves the session under way; None where nothing is to be saved."""

    def save_beside(self) -> None:
        """Save a checkpoint while the loop goes on. Never raises."""

    def write_last_records(self) -> None:
        """Write what the loop's thread writes at its end."""

    def others_watching(self) -> bool:
        """Return whether the process has other sessions that the signal stops, and that have not ended yet."""

    def others_check_stop(self) -> bool:
        """Return whether the main thread asks another one whether to stop."""

    def end_others(self, signum: int, at: float | None) -> None:
        """Save and record the others."""


class StopSignals:
    """The signals of one session after the other.

    Args:
        ending: ends the session.
        state: the session.
        options: which signals are handled.
        clock: replaced in tests.
    """

    def __init__(self, ending: SessionEnd, state: SessionState, options: Options, clock: Clock) -> None:
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
