"""`RunEnding`: how the session of a training of any framework ends; `RunCheckpoints`: what it saves then.

A state can be captured in the training's thread only, between two steps. So a signal has the loop come to its next
step, where it is saved. In a phase that does not train, as an evaluation, what was captured when it began is saved.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from supervisor_core.clock import Clock
from supervisor_core.engine import open_sessions
from supervisor_core.engine.deadline import Deadline
from supervisor_core.engine.ending import Ending
from supervisor_core.engine.final_save import LOOK_AGAIN_SECS, given_up, save_until_saved
from supervisor_core.engine.loop_exit import LoopExit
from supervisor_core.engine.session_state import SessionState
from supervisor_core.errors import SaveFailedError, SupervisorError
from supervisor_core.events.telemetry import Trigger
from supervisor_core.options import Options
from supervisor_core.training.saver import Saver

STOP_GRACE_SECS = 120.0
"""How long a final save that fails is tried again without a signal, and threads are waited for, in seconds."""


class Training(Protocol):
    """What the end of a session needs of its `Run`."""

    @property
    def global_step(self) -> int:
        """The number of steps done."""

    @property
    def loss_is_finite(self) -> bool | None:
        """Whether the watched loss was finite when it was last logged."""

    def ask_for_save(self, trigger: Trigger = "manual") -> None:
        """Ask for a checkpoint at the end of the step under way; from any thread."""

    def recording(self) -> AbstractContextManager[None]:
        """Be around the last record."""

    def end(self, error: BaseException | None) -> None:
        """End the session; ``error`` is what the program raised in it."""

    @property
    def unfinished(self) -> str | None:
        """What it means if the interpreter ends and the session has not: the record's error. None: no failure."""


class RunEnding(Ending):
    """See the module's docstring, and `Ending`.

    Args:
        run: the session.
        state: what is known of it.
        options: see `Options`.
        clock: replaced in tests.
    """

    def __init__(self, run: Training, state: SessionState, options: Options, clock: Clock) -> None:
        super().__init__(state, options, clock)
        self._run = run
        self.saves = True
        """False once nothing may be saved any more: the state may be that after a failure."""

    def last_step(self) -> int:
        """See `Ending.last_step`."""
        return self._run.global_step

    def work_done(self) -> int:
        """See `Ending.work_done`."""
        return self._run.global_step + super().work_done()

    def record(self, error: BaseException | None) -> None:
        """See `Ending.record`."""
        with self._run.recording():
            super().record(error)

    def left_by(self, left: LoopExit) -> None:
        """A loop over a generator was left in its body: end the session; or leave it open until the process shows which
        exception has left the loop, or whether one has. Nothing is saved then.

        Args:
            left: what is known of it.
        """
        if left.is_by_error is False:
            self._run.end(None)
        elif left.error is not None:
            self._run.end(left.error)
        else:
            self.saves = False
            self._state.coord.request_stop()
            open_sessions.left(self, left)

    def loop_ended(self, error: BaseException | None) -> None:
        """Say that the loop's thread has left it; ``error`` is what the program raised in it."""
        self._state.reason.body_error = error
        if error is None:
            self._state.reason.handled_before = id(sys.exc_info()[1])  # none of the loop's
        if isinstance(self._state.checkpoints, RunCheckpoints):
            self._state.checkpoints.loop_thread = threading.get_ident()

    def error_at_exit(self, error: BaseException | None) -> BaseException | None:
        """Return the error of a session that the program has left open, if it is one; `error` is the interpreter's."""
        left = open_sessions.exit_of(self)
        if error is None and left is not None and left.is_by_error:
            return self.unknown_error(f"An exception left the loop at {left.where}.")
        if error is None and self._run.unfinished is not None:
            return self.unknown_error(self._run.unfinished)
        return error

    def error_of_call(self, text: str) -> BaseException | None:
        """Return the error of a session whose call an exception has left: the one being handled, if it is that."""
        return sys.exc_info()[1] or self.unknown_error(text)

    def unknown_error(self, text: str) -> SupervisorError | None:
        """Return the error of a session that an unknown exception has left; None after a signal: it may be an exit in
        its handler. Nothing is saved either way.

        Args:
            text: what has happened: a sentence.
        """
        self.saves = False
        self.signals.catch_up(STOP_GRACE_SECS)
        return None if self.signals.received is not None else SupervisorError(text)

    def is_save_wanted(self) -> bool:
        """See `Ending.is_save_wanted`."""
        if not self.saves or self._run.loss_is_finite is False:
            return False
        if isinstance(self._state.reason.body_error, KeyboardInterrupt):
            return False  # raised in the middle of a step
        return super().is_save_wanted()


class RunCheckpoints:
    """See `supervisor_core.engine.session_state.Checkpoints`.

    Args:
        run: the session.
        saver: what saves.
        state: what is known of the session.
        options: see `Options`.
        clock: replaced in tests.
    """

    def __init__(self, run: Training, saver: Saver, state: SessionState, options: Options, clock: Clock) -> None:
        self._run = run
        self._saver = saver
        self._state = state
        self._options = options
        self._clock = clock
        self.loop_thread = 0
        """The thread that has left the loop; 0 before."""

    @property
    def serving(self) -> bool:
        """See `Checkpoints.serving`."""
        return True

    @property
    def newest(self) -> tuple[str, int | None] | None:
        """See `Checkpoints.newest`."""
        return self._saver.newest

    @property
    def is_between_steps(self) -> bool:
        """See `Checkpoints.is_between_steps`."""
        return self._saver.has_held

    def training_failed(self, error: BaseException) -> None:
        """See `Checkpoints.training_failed`."""
        self._saver.training_failed(error)

    def save_now(self) -> None:
        """See `Checkpoints.save_now`."""
        self._run.ask_for_save("signal")

    def save_last(
        self,
        trigger: Trigger,
        has_failed: Callable[[], bool],
        deadline: Callable[[], Deadline],
        retry_until: Deadline,
    ) -> tuple[str | None, int | None]:
        """See `Checkpoints.save_last`."""
        saver, step = self._saver, self._run.global_step
        in_loop_thread = threading.get_ident() == self.loop_thread

        def save() -> None:
            if in_loop_thread:
                saver.save(step, trigger, deadline())
            elif not saver.save_held(trigger, deadline()):
                self._save_at_next_step(deadline())

        try:
            save_until_saved(save, deadline=deadline, retry_until=retry_until, options=self._options, clock=self._clock)
        except SaveFailedError as error:
            raise given_up(str(error), saver.newest, step) from error.__cause__
        return saver.newest or (None, None)

    def _save_at_next_step(self, deadline: Deadline) -> None:
        """Have a loop that never asks whether to stop save at its next step; wait for that."""
        saver, state = self._saver, self._state
        asked_at = saver.saves
        if state.coord.loop_checks_stop or state.has_left_loop.is_set():
            return  # it ends by itself, and saves then
        self._run.ask_for_save("signal")
        while saver.saves == asked_at or not saver.is_idle:
            if state.has_left_loop.wait(deadline.remaining(LOOK_AGAIN_SECS)) or state.coord.loop_checks_stop:
                return
            if deadline.is_over:
                raise SaveFailedError("no step ended in time" if saver.is_idle else saver.hanging_text)
