"""`StopSignals`: SIGTERM and Ctrl-C stop a training between two steps, within `Options.signal_grace_secs`.

The training's thread sees `should_stop()` at its next step, saves, and ends; then the process ends as the signal would
have ended it. A thread watches the deadline: where the training does not come to its next step, it writes the stop
record and ends the process. Nothing is saved then: in the middle of a step the state is of no step.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable
from contextlib import suppress

from supervisor_core.clock import Clock
from supervisor_core.errors import SaveFailedError
from supervisor_core.events.telemetry import StopReason, Trigger
from supervisor_core.options import Options
from supervisor_core.runtime.blocking_call import BlockingCall
from supervisor_core.runtime.coordinator import Coordinator, text_of
from supervisor_core.runtime.deadline import NEVER, Deadline, ExitTimer
from supervisor_core.runtime.retry import Backoff, is_outside_fault
from supervisor_core.runtime.signals import SignalWatch
from supervisor_core.supervision.session_recorder import StopInfo
from supervisor_core.training.saver import Saver

_LOG = logging.getLogger("supervisor_core")

STOP_GRACE_SECS = 120.0
"""How long a final save that fails is tried again without a signal, and threads are waited for, in seconds."""
RESERVE_SHARE, RESERVE_SECS = 0.2, 2.0
"""The part of the grace time, and at most how much of it in seconds, kept for the last records."""
INTERRUPT_SHARE = 0.5
"""Which part of the grace time after a Ctrl-C a training has to come to its next step."""
AGAIN_SECS, DYING_SECS = 1.0, 0.05
"""What the last records have after a second signal, and what the process has to die, in seconds."""
IN_A_THREAD = (
    "SIGTERM and Ctrl-C are not handled: this session begins in the thread %r, and Python has signals handled by the "
    "main thread alone. SIGTERM ends this process without a final checkpoint; begin the session in the main thread, or "
    "have a handler of the program's call request_stop()."
)


class StopSignals:
    """The signals of one session.

    Args:
        coord: is asked to stop.
        options: which signals are handled, and the grace time.
        record: writes the stop record, from any thread; called where the training's thread does not get there.
        save_now: called at `Options.save_signal`.
        work_done: returns a number that grows with the training's steps.
        clock: replaced in tests.
    """

    def __init__(
        self,
        coord: Coordinator,
        options: Options,
        *,
        record: Callable[[Deadline], object],
        save_now: Callable[[], object],
        work_done: Callable[[], int],
        clock: Clock,
    ) -> None:
        self._coord = coord
        self._grace_secs = options.signal_grace_secs
        self._ends = options.handle_signals
        self._record = record
        self._save_now = save_now
        self._clock = clock
        self._finished = threading.Event()
        self._arrived = threading.Event()  # the training has come to its end: nothing interrupts it any more
        self._exit_timer = ExitTimer()
        self.is_interrupt_due = False
        """Whether the training was ended by a Ctrl-C that was not raised yet; known after `end`."""
        self.deadline = NEVER
        """When everything has to be over; `NEVER` without a signal."""
        others = {} if options.save_signal is None else {int(signal.Signals[options.save_signal]): self._save}
        self._watch = SignalWatch(
            self._signalled,
            on_again=self._signalled_again,
            others=others,
            ends=options.handle_signals,
            work_done=work_done,
            clock=clock,
        )

    @property
    def signum(self) -> int | None:
        """The signal that asked for the end; None without one."""
        return self._watch.received

    @property
    def for_save(self) -> Deadline:
        """Until when there is time to save."""
        return self.deadline.earlier(min(RESERVE_SECS, RESERVE_SHARE * self._grace_secs))

    def begin(self) -> None:
        """Watch signals from now on; only the main thread can, and any other says in the log that it does not."""
        if self._ends and threading.current_thread() is not threading.main_thread():
            _LOG.warning(IN_A_THREAD, threading.current_thread().name)
        self._watch.__enter__()

    def settle(self) -> None:
        """Take a signal that has come and was not acted on yet."""
        self._arrived.set()
        signum = self._watch.catch_up()
        if signum is not None and self.deadline is NEVER:
            self._set_deadline()

    def end(self) -> None:
        """Stop watching; the process ends as the first signal would have ended it, if there was one.

        After a Ctrl-C that was not raised yet it returns, for the session to raise `KeyboardInterrupt` where the
        program leaves it: a traceback as short as that of a loop without a session.
        """
        self._finished.set()
        try:
            self._watch.__exit__(None, None, None)
            if threading.current_thread() is threading.main_thread():
                self._watch.finish()
        except KeyboardInterrupt:
            self.is_interrupt_due = True
        finally:
            self._exit_timer.disarm()

    def take_interrupt(self) -> bool:
        """Return whether `KeyboardInterrupt` is to be raised now; once."""
        is_due, self.is_interrupt_due = self.is_interrupt_due, False
        return is_due

    def _set_deadline(self) -> None:
        received_at = self._watch.received_at
        since = self._clock.monotonic() if received_at is None else received_at
        self.deadline = Deadline(since + self._grace_secs, self._clock)

    def _signalled(self, signum: int) -> None:
        self._set_deadline()
        name, watch = signal.Signals(signum).name, self._watch
        ends = watch.ends_process(signum)
        if ends:
            _LOG.warning("%s: shutting down within %.0f s (a second one: at once).", name, self._grace_secs)
            self._exit_timer.arm(self.deadline)
        else:
            _LOG.warning("%s: should_stop() is true now; another handler of the signal ends the process, or not.", name)
        self._coord.request_stop()
        if not ends:
            return
        if self._finished.is_set():
            self._exit_timer.disarm()
            return
        share = self.for_save.remaining(self._grace_secs * INTERRUPT_SHARE)
        if signum == signal.SIGINT and not self._arrived.wait(share):
            watch.interrupt()
            if watch.wait_interrupted(self.for_save.timeout):
                self._exit_timer.disarm()  # the program's own clean-up takes the time that it takes
                return
        if not self._finished.wait(self.for_save.timeout) and not watch.received_again:
            _LOG.error("The training did not come to its next step within %.0f s of %s; the process ends now.",
                       self._grace_secs, name)  # fmt: skip
            self._end_process(signum, self.deadline)

    def _signalled_again(self, signum: int) -> None:
        if not self._watch.ends_process(signum):
            return
        if signum == signal.SIGINT and self._watch.wait_interrupted(AGAIN_SECS):
            self._exit_timer.disarm()
            return
        _LOG.error("%s again: the process ends at once.", signal.Signals(signum).name)
        self._end_process(signum, Deadline.after(AGAIN_SECS, self._clock))

    def _end_process(self, signum: int, deadline: Deadline) -> None:
        with suppress(RuntimeError):  # no more threads: then there are no last records
            writing = BlockingCall(lambda: self._record(deadline), name="supervisor-last-records")
            writing.wait(deadline.earlier(DYING_SECS).timeout)
        self._watch.end_process(signum)

    def _save(self, signum: int) -> None:
        _LOG.info("%s: a checkpoint is saved at the next step; training continues.", signal.Signals(signum).name)
        self._save_now()


def failure_of(error: BaseException | None, coord: Coordinator, signum: int | None) -> BaseException | None:
    """Return what makes an end a failure; None for a clean one.

    Args:
        error: what the program raised in the block, if anything.
        coord: was stopped with an error, or not.
        signum: the signal that asked for the end.
    """
    if error is None:
        try:
            coord.raise_requested_exception()
        except BaseException as stopped_by:
            return stopped_by
        return None
    if isinstance(error, SystemExit):
        return None if error.code in (None, 0) or signum is not None else error
    return None if isinstance(error, (GeneratorExit, KeyboardInterrupt)) else error


def save_last(
    saver: Saver, step: int, signals: StopSignals, options: Options, clock: Clock, failure: BaseException | None = None
) -> None:
    """Save the last step; where the outside world refuses it, try again as long as there is time.

    Args:
        saver: saves it.
        step: the step.
        signals: the session's.
        options: how long to wait between two attempts.
        clock: replaced in tests.
        failure: the error that ended the training: it puts the checkpoint in doubt.

    Raises:
        Exception: what kept it from being saved.
    """
    trigger: Trigger = "final" if signals.signum is None else "signal"
    until = signals.for_save if signals.signum is not None else Deadline.after(STOP_GRACE_SECS, clock)
    backoff = Backoff(initial_secs=options.retry_initial_secs, max_secs=options.retry_max_secs)
    failures, pause = 0, threading.Event()
    if failure is not None:
        saver.training_failed(failure)
    while True:
        try:
            saver.save(step, trigger, signals.for_save)
            return
        except Exception as error:
            failures += 1
            delay = backoff.next_delay(failures)
            if isinstance(error, SaveFailedError) or not is_outside_fault(error) or until.remaining() < delay:
                raise
            _LOG.warning("The final checkpoint could not be saved, trying again in %.1f s: %s", delay, text_of(error))
            pause.wait(delay)


def stop_info(
    error: BaseException | None,
    failure: BaseException | None,
    signum: int | None,
    was_requested: bool,
    final: tuple[str, int] | None,
) -> StopInfo:
    """Return how a session ended.

    Args:
        error: what the program raised in the block.
        failure: what makes the end a failure.
        signum: the signal that asked for the end.
        was_requested: whether a stop was requested before.
        final: path and step of the newest checkpoint.
    """
    if signum is None and isinstance(error, KeyboardInterrupt):
        signum = int(signal.SIGINT)
    path, step = final or (None, None)
    text = None if failure is None else f"{type(failure).__name__}: {text_of(failure)}"
    name = None if signum is None else signal.Signals(signum).name
    reason: StopReason = "requested" if was_requested else "completed"
    if signum is not None:
        reason = "signal"
    elif text is not None:
        reason = "error"
    return StopInfo(reason=reason, error=text, signal=name, final_checkpoint=path, final_checkpoint_step=step)
