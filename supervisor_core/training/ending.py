"""`RunEnding`: how the session of a training of any framework ends.

A state can be captured in the training's thread only, between two steps. So a signal has the loop come to its next
step, where it is saved. In a phase that does not train, as an evaluation, what was captured when it began is saved.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from typing import Protocol

from supervisor_core.clock import Clock
from supervisor_core.engine import open_sessions
from supervisor_core.engine.ending import Ending
from supervisor_core.engine.loop_exit import LoopExit
from supervisor_core.engine.session_state import SessionState
from supervisor_core.errors import SupervisorError
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
        if isinstance(self._state.checkpoints, Saver):
            self._state.checkpoints.loop_ended(self._run.global_step)

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
