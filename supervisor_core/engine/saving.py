"""Saving, as it is the same for all facades: the newest checkpoint, the record of a save, the last save of a session.

A facade's `Checkpoints` says how a state is captured and written. The last save is tried again while there is time, and
given up at the deadline with what that costs.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from supervisor_core.base.clock import Clock
from supervisor_core.base.errors import SaveFailedError
from supervisor_core.base.options import Options
from supervisor_core.base.wire import delimited
from supervisor_core.engine.coordinator import text_of
from supervisor_core.engine.deadline import NEVER, Deadline
from supervisor_core.engine.retry import Backoff, is_outside_fault
from supervisor_core.engine.session_recorder import SessionRecorder
from supervisor_core.events.telemetry import CheckpointRecord, Trigger

_LOG = logging.getLogger("supervisor_core")
_PAUSE = threading.Event()  # never set

POLL_SECS = 0.2
"""How often whoever waits for the last save looks whether a signal has brought the deadline forward, in seconds."""

Newest = tuple[str, int | None] | None
"""Path and step of the newest checkpoint; None without one."""


class Checkpoints:
    """Saves what a session trains; each facade has a subclass.

    Args:
        options: for the waits between two attempts.
    """

    serving = True
    """Whether the session saves checkpoints at all."""

    def __init__(self, options: Options, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self._backoff = Backoff(initial_secs=options.retry_initial_secs, max_secs=options.retry_max_secs)
        self._recorder: SessionRecorder | None = None
        self._writer: Any = None
        self.newest: Newest = None
        """Path and step of the newest checkpoint; None without one."""

    # What a facade has of its own.

    @property
    def is_between_steps(self) -> bool:
        """Whether a checkpoint can be saved at this moment, from any thread."""
        raise NotImplementedError

    def training_failed(self, error: BaseException) -> None:
        """Say that training has ended with an error: what is saved from now on is in doubt."""
        raise NotImplementedError

    def save_now(self, trigger: Trigger = "signal") -> object:
        """Save a checkpoint as soon as that is possible, while training goes on; called in a thread that may wait.

        Raises:
            Exception: what kept it from being saved.
        """
        raise NotImplementedError

    def _try_last(self, trigger: Trigger, has_failed: Callable[[], bool], deadline: Deadline) -> object:
        """Try once to save what is not on the disk yet; see `save_last`.

        Raises:
            Exception: what kept it from being saved.
        """
        raise NotImplementedError

    def _may_pass(self, error: BaseException) -> bool:
        """Return whether an error may pass by itself, so that the last save is tried again."""
        return is_outside_fault(error)

    def _session_log(self, path: str) -> Any:
        """Return TensorBoard's own record of a checkpoint, as the session's writer takes it."""
        text = path.encode("utf-8", "replace")  # a string with other bytes makes the event unreadable for TensorBoard
        return b"\x08\x03" + delimited(2, text)  # SessionLog(status=CHECKPOINT, checkpoint_path=path)

    # What they have in common.

    def save_last(
        self,
        trigger: Trigger,
        has_failed: Callable[[], bool],
        deadline: Callable[[], Deadline],
        retry_until: Deadline,
    ) -> tuple[str | None, int | None]:
        """Save what is not on the disk yet; return path and step of the newest checkpoint, as far as there is one.

        Called in the thread of the loop when it has ended; and in a signal's thread while it has not: then what can be
        saved without waiting for the loop's end is.

        Args:
            has_failed: whether the session has turned out to be broken meanwhile, so that nothing is to be saved.
            deadline: returns until when it has to be saved; a signal may bring it forward.
            retry_until: until when to try again after a disk or network error.

        Raises:
            SaveFailedError: if it could not be saved, or not in time.
        """

        def has_time(secs: float) -> bool:
            left_secs = min(deadline().remaining(), retry_until.remaining())
            return left_secs > 0 and left_secs >= secs

        failures = 0
        while True:
            try:
                self._try_last(trigger, has_failed, deadline())
                return self.newest or (None, None)
            except SaveFailedError as error:
                raise self._given_up(text_of(error)) from error
            except Exception as error:
                failures += 1
                text = f"{type(error).__name__}: {text_of(error)}"
                if not self._may_pass(error):
                    raise self._given_up(text) from error
                delay = self._backoff.next_delay(failures)
                again = Deadline.after(delay, self._clock)
                if has_time(delay):
                    _LOG.warning("The final checkpoint could not be saved, trying again in %.1f s: %s", delay, text)
                while has_time(again.remaining()):
                    if again.is_over:
                        break
                    _PAUSE.wait(again.remaining(POLL_SECS))
                else:
                    raise self._given_up(f"there is no time to try again; {text}") from error

    def _given_up(self, reason: str) -> SaveFailedError:
        """Return the error of a last checkpoint that is given up, with what that costs."""
        step = None if self._recorder is None else self._recorder.progress.snapshot().global_step
        return SaveFailedError(f"The final checkpoint could not be saved ({reason}). {loss_text(self.newest, step)}")

    def _record(
        self, recorder: SessionRecorder, writer: Any, record: CheckpointRecord, deadline: Deadline = NEVER
    ) -> None:
        """Record a save that has ended: in records, metrics and the log, and where it is whole for TensorBoard, too.

        Args:
            recorder: the session's that saved.
            writer: its writer, or None.
            deadline: until when to wait for the disk.
        """
        recorder.saved(record, deadline)
        if record.error is None and record.step is not None and writer:
            writer.add_session_log(self._session_log(record.path or ""), record.step)


def loss_text(newest: Newest, step: int | None) -> str:
    """Return which checkpoint is the newest, and what is lost if the process ends now: one sentence or two.

    Args:
        step: the last step; None where it is not known.
    """
    if newest is None:
        return f"There is no checkpoint: all steps up to {step} are lost." if step else "There is no checkpoint."
    path, saved = newest
    if saved is None:
        return f"The newest checkpoint is {path}."
    text = f"The newest checkpoint is {path} (step {saved})."
    if step is None or step <= saved:
        return text
    return f"{text} Step {step} is lost." if step == saved + 1 else f"{text} Steps {saved + 1} to {step} are lost."
