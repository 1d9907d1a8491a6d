"""`CheckpointManager`: when to save, and where the result is recorded.

`CheckpointWriter` writes one checkpoint; here it is decided whether there is anything to write, the result goes to the
events file, the metrics and the log, and a failure becomes an error that says what to do.
"""

from __future__ import annotations

import glob
import logging
import os
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import tensorflow as tf

from supervisor_core.base.clock import SYSTEM_CLOCK, Clock
from supervisor_core.base.errors import SaveFailedError
from supervisor_core.base.options import Options
from supervisor_core.checkpoint import ledger
from supervisor_core.checkpoint.blocks import URGENT
from supervisor_core.engine.blocking_call import BlockingCall
from supervisor_core.engine.coordinator import text_of
from supervisor_core.engine.deadline import NEVER, Deadline
from supervisor_core.engine.environment import refuse_unwritable
from supervisor_core.engine.saving import POLL_SECS, Checkpoints
from supervisor_core.engine.session_recorder import SessionRecorder
from supervisor_core.events.file_writer import FileWriter
from supervisor_core.events.telemetry import Trigger
from supervisor_core.storage.local import local_path
from supervisor_core.tf1 import private_symbols as private
from supervisor_core.tf1.checkpoint_writer import CheckpointWriter, SaveResult
from supervisor_core.tf1.restore import RestoreInfo
from supervisor_core.tf1.session import SupervisedSession
from supervisor_core.tf1.tf_errors import is_outside_fault

_LOG = logging.getLogger("supervisor_core")

_HANGS = "it is still being saved, and no time is left"
_NEVER_RISES = (
    "The global step %s has not moved since the last checkpoint, though %d runs have ended: each checkpoint is written "
    "over %s. Check that the training op increments it: optimizer.minimize(loss, global_step=global_step)."
)


class CheckpointManager(Checkpoints):
    """Takes the checkpoints of one supervisor, session after session. Thread-safe.

    Args:
        interval_secs: seconds between two checkpoints; None where they are not taken on the clock.
    """

    serving = False
    """Whether the session's checkpoint service was started: without it nothing is saved at the end either."""

    def __init__(
        self, checkpoint_writer: CheckpointWriter, interval_secs: float | None, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        super().__init__(checkpoint_writer.options, clock)
        self.checkpoint_writer = checkpoint_writer
        """Writes them."""
        self.interval_secs = interval_secs
        self._lock = checkpoint_writer.lock
        self._last_lock = threading.Lock()  # of the save at the end
        self._last_failure: str | None = None  # of the save at the end
        self._sess: Any = None
        self._counted = (0, 0)  # changes and steps of the session up to the newest checkpoint
        self._warned = False

    def attach(self, sess: Any, run: SessionRecorder, writer: Any, restore_info: RestoreInfo) -> None:
        """Begin a session: checkpoints are taken of ``sess`` from now on.

        Args:
            writer: the run's summary writer, or None.
            restore_info: where its model came from. Damaged checkpoints that were passed over are set aside before the
                first save.
        """
        restored = restore_info.restored
        with self._lock:
            self._sess, self._recorder, self._writer = sess, run, writer
            path = None if restored is None else restored.path
            ours = isinstance(writer, FileWriter)
            doubted = self.checkpoint_writer.attach(
                run.publisher,
                holds=run.holds,
                restored=path,
                skipped=restore_info.skipped,
                losses=writer.losses_not_finite if ours else tuple,
            )
            if ours:
                writer.take_up_losses(doubted)
            self.serving = False
            self._last_failure = None
            self.newest = None if restored is None else (restored.path, restored.step)
            self._counted = (run.progress.changes, run.progress.steps)

    def training_failed(self, error: BaseException) -> None:
        """See `Checkpoints.training_failed`."""
        self.checkpoint_writer.training_failed(error)

    @property
    def is_saved(self) -> bool:
        """Whether no run has changed anything since the newest checkpoint, so that memory is as the disk."""
        with self._lock:
            is_current = self._recorder is not None and self._recorder.progress.changes == self._counted[0]
            return self.newest is not None and self._counts_all and is_current and _is_there(self.newest[0])

    @property
    def has_changed(self) -> bool:
        """Whether a run is known to have changed something since the newest checkpoint."""
        with self._lock:
            changes = 0 if self._recorder is None else self._recorder.progress.changes
            return self._counts_all and changes > self._counted[0]

    @property
    def is_between_steps(self) -> bool:
        """Whether no step is under way, as far as steps are counted."""
        return self._counts_all and self.checkpoint_writer.step_lock.is_free

    @property
    def _counts_all(self) -> bool:
        """Whether each run that changes the model is counted: not those of other processes, through a server."""
        return isinstance(self._sess, SupervisedSession) and not getattr(self._sess.plain_session(), "sess_str", "")

    def wait_until_saved(self, timeout_secs: float) -> None:
        """Wait until no save is under way, at most for this many seconds."""
        self.checkpoint_writer.hurry()
        if self._lock.acquire(timeout=timeout_secs):
            self._lock.release()

    def save(
        self, trigger: Trigger, taken: Callable[[], None] = lambda: None, deadline: Deadline = NEVER
    ) -> str | None:
        """Save a checkpoint now, unless nothing has changed since the last one; return its path.

        Args:
            taken: called when the snapshot is taken, and training may go on. Never where it should wait for the end.
            deadline: until when to wait for a save that is under way; half of that time, at most, for the steps.

        Raises:
            SaveFailedError: if there is no session, or another save takes too long.
            Exception: what kept it from being saved.
        """
        self.checkpoint_writer.hurry()
        if not self._lock.acquire(timeout=deadline.timeout):
            raise SaveFailedError("Another save is still under way.")
        try:
            if self._sess is None or self._recorder is None:
                raise SaveFailedError("There is no session to save: call managed_session() first.")
            run, writer = self._recorder, self._writer
            result, path = self._save_if_new(run, self._sess, trigger, taken, deadline)
        finally:
            self._lock.release()
        if result is not None:
            # Without the lock: where the disk of the events does not answer, the next checkpoint need not wait for it.
            self._record(run, writer, result.record(run.session_id), deadline)
            if result.cause is not None:
                raise result.cause
        return path

    def _save_if_new(
        self, run: SessionRecorder, sess: Any, trigger: Trigger, taken: Callable[[], None], deadline: Deadline
    ) -> tuple[SaveResult | None, str | None]:
        """Save, unless nothing has changed; return the result, None where nothing was saved, and the newest path."""
        newest, counted = self.newest, self._counted
        if not isinstance(sess, SupervisedSession):
            newest = None  # the runs of such a session are not counted, so there may always be something to save
        elif newest is not None and not _is_there(newest[0]):
            newest = self.newest = None  # somebody has deleted it
        if newest is not None and self._counts_all and run.progress.changes == counted[0]:
            return None, newest[0]  # as it stands on the disk, so it is in memory
        moment = _SaveMoment(run.progress, None if newest is None else newest[1], counted)

        def has_ended() -> bool:  # it waited for a run that came back after the last record was written
            return run.ended and trigger in URGENT

        def is_new(step: int | None) -> bool:
            new = moment.is_new(step)
            if self.checkpoint_writer.consistent:
                taken()
            return new and not has_ended()

        _LOG.info("Saving checkpoint to path %s", self.checkpoint_writer.save_path)
        longest = run.progress.longest_step_secs()
        wait_secs = deadline.remaining() / 2
        result = self.checkpoint_writer.save(
            sess, trigger, is_new, wait_secs, longest, self.interval_secs, run.progress.held
        )
        if result.consistent and not isinstance(sess, SupervisedSession):
            result.consistent = False  # its runs pass no step lock
        if result.skipped and (newest is not None or has_ended()):
            if not has_ended():
                self._counted = moment.counted
            return None, None if newest is None else newest[0]
        if result.cause is not None or result.error is not None or result.path is None:
            return result, None
        self._warn_if_stuck(result, moment.counted[0] - counted[0])
        self.newest, self._counted = (result.path, result.step), moment.counted
        self._last_failure = None
        return result, result.path

    def save_now(self, trigger: Trigger = "signal") -> object:
        """See `Checkpoints.save_now`: a snapshot is taken between two steps."""
        return self.save(trigger)

    def save_last(
        self,
        trigger: Trigger,
        has_failed: Callable[[], bool],
        deadline: Callable[[], Deadline],
        retry_until: Deadline,
    ) -> tuple[str | None, int | None]:
        """See `Checkpoints.save_last`.

        The save is made in a thread of its own, except where there are no more threads: at the interpreter's end. One
        that hangs is abandoned at the deadline.
        """
        save = partial(super().save_last, trigger, has_failed, deadline, retry_until)
        if not self._last_lock.acquire(timeout=deadline().timeout):
            raise self._given_up(self._hanging_text)
        try:
            try:
                call = BlockingCall(save, name="supervisor-final-save")
            except RuntimeError:
                return save()
            while not call.wait(deadline().remaining(POLL_SECS)):
                if deadline().is_over:
                    call.abandon()
                    raise self._given_up(self._hanging_text)
            return call.result()
        finally:
            self._last_lock.release()

    @property
    def _hanging_text(self) -> str:
        return "; ".join(filter(None, (_HANGS, self._last_failure)))

    def _try_last(self, trigger: Trigger, has_failed: Callable[[], bool], deadline: Deadline) -> None:
        if private.CLOSED.get(self._sess, False):
            _LOG.warning("The session was closed before the supervisor was stopped: no final checkpoint is saved.")
            return
        try:
            if not has_failed():
                self.save(trigger, deadline=deadline)
        except Exception as error:
            self._last_failure = f"{type(error).__name__}: {text_of(error)}"
            raise
        with self._lock:  # where training has ended, the newest checkpoint's step is the last one
            step = None if self.newest is None else self.newest[1]
            if self._recorder is not None and step is not None and self._recorder.progress.changes == self._counted[0]:
                self._recorder.progress.step_read(step)

    def _may_pass(self, error: BaseException) -> bool:
        return is_outside_fault(error)

    def _session_log(self, path: str) -> Any:
        return checkpoint_log(path)

    def _warn_if_stuck(self, result: SaveResult, runs: int) -> None:
        stuck = self.newest is not None and result.step is not None and result.step == self.newest[1]
        # After a signal a checkpoint may follow right upon another: the loop reads a last value in between.
        if stuck and not self._warned and result.trigger != "signal":
            self._warned = True
            _LOG.warning(_NEVER_RISES, result.step, runs, result.path)


def checkpoint_log(path: str | None) -> Any:
    """Return TensorBoard's own record of a checkpoint, for a writer that may be TensorFlow's."""
    return tf.compat.v1.SessionLog(status=tf.compat.v1.SessionLog.CHECKPOINT, checkpoint_path=path)


def refuse_unwritable_saves(save_path: str, options: Options) -> None:
    """Raise `SaveFailedError` where no checkpoint could be saved, or no ledger be written beside it."""
    directory = os.path.dirname(save_path)
    refuse_unwritable(directory, options)
    refuse_unwritable(os.path.join(directory, ledger.DIRECTORY), options, is_own=True)


def _is_there(path: str) -> bool:
    """Return whether a checkpoint has files, of whatever format; True in an object store, which is not asked."""
    local = local_path(path)
    return local is None or bool(glob.glob(f"{glob.escape(local)}*"))


class _SaveMoment:
    """What had been counted when a snapshot was taken, and whether that is news.

    A run is counted just after it has released the step lock. So the last one before a snapshot may be counted only
    after it, and look new at the next: a step has ended, and yet the global step is the same.
    """

    def __init__(self, progress: Any, newest_step: int | None, counted: tuple[int, int]) -> None:
        self.counted = (progress.changes, progress.steps)
        self._progress = progress
        self.newest_step = newest_step
        self._before = counted

    def is_new(self, step: int | None) -> bool:
        """Record the counts; return whether there is anything to write. Called between two steps."""
        self.counted = (self._progress.changes, self._progress.steps)
        changes, steps = (now - before for now, before in zip(self.counted, self._before, strict=True))
        return step is None or step != self.newest_step or changes != steps
