"""`Saver`: the checkpoints of one training: captured between two steps, written in a thread of its own.

The training thread only copies the state to host memory. One save is under way at a time; while it is, one that falls
due waits for the next step after it.
"""

from __future__ import annotations

import logging
import math
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from queue import SimpleQueue
from typing import Any

from supervisor_core.base.clock import Clock
from supervisor_core.base.errors import NoUsableCheckpointError, SaveFailedError, UnreadableCheckpointError
from supervisor_core.base.options import Options
from supervisor_core.checkpoint import contents
from supervisor_core.checkpoint.blocks import URGENT, BlockWriter
from supervisor_core.checkpoint.manifest import Manifest, limits_of
from supervisor_core.checkpoint.recovery import CheckpointChoice, Skipped, log_skipped, set_damaged_aside
from supervisor_core.checkpoint.retention import doubt_of
from supervisor_core.checkpoint.sealed_files import SealedFiles
from supervisor_core.checkpoint.sealed_store import Decode, Sealed, SealedStore, StagedFiles
from supervisor_core.checkpoint.tree_file import require_training
from supervisor_core.engine.coordinator import text_of
from supervisor_core.engine.deadline import NEVER, Deadline
from supervisor_core.engine.ending import SessionState
from supervisor_core.engine.environment import refuse_unwritable, versions
from supervisor_core.engine.retry import is_outside_fault
from supervisor_core.engine.saving import POLL_SECS, Checkpoints
from supervisor_core.engine.session_history import SessionHistory
from supervisor_core.events.record_fields import shared
from supervisor_core.events.telemetry import CheckpointRecord, ThreadState, ThreadStatus, Trigger
from supervisor_core.run.fold.goodput import COMPLETED
from supervisor_core.run.model.words import counted
from supervisor_core.training.save_point import Due, SavePolicy
from supervisor_core.training.state import Captured, Exactness, TrainingState
from supervisor_core.training.tree import Room, read_tree, write_tree

_LOG = logging.getLogger("supervisor_core")

_WRITING, _RECORDING = "is still being written", "is written, and its record in the events file is not"


_NOTHING = Captured(tree={}, counters={}, names=(), not_captured=(), data_position=None)


@dataclass
class Job:
    """One save."""

    step: int
    trigger: Trigger
    captured: Captured = _NOTHING
    blocked_secs: float = 0.0
    in_place: bool = False
    """Whether the state is written as it is, while the training waits."""
    is_abandoned: bool = False
    """Whether the training does not wait for that any more: the state may change."""
    done: threading.Event = field(default_factory=threading.Event)
    """Set when it has ended."""
    error: Exception | None = None
    """What kept it from being saved."""
    path: str | None = None
    """The whole checkpoint's directory."""
    version: int = 0
    """`Saver.state_changed` was called so often before."""


class Saver(Checkpoints):
    """The checkpoints of one session; see the module's docstring. Called by the training's thread.

    Args:
        policy: when, and how many are kept.
        session: the session; its coordinator is asked to stop after too many failures in a row.
        options: retries and verification.
        due: is kept up to date; looked at after each step.
    """

    name = "checkpoint"
    """The service's name in heartbeats and metrics."""
    format = contents.STATE_TREE
    """The format of its checkpoints, for the manifest. A subclass with another one writes and reads its files."""
    names_directory = True
    """Whether the name of the checkpoints' directory is this project's; else the program's."""
    how_to_observe = "; Options(verify_resume=20) would recompute 20 steps and compare them"
    """What would observe a resume."""

    def __init__(
        self,
        store: SealedStore,
        state: TrainingState,
        policy: SavePolicy,
        *,
        session: SessionState,
        options: Options,
        due: Due,
        clock: Clock,
    ) -> None:
        super().__init__(options, clock)
        self._store = store
        self._state = state
        self._policy = policy
        self._session = session
        self._recorder, self._writer = session.recorder, session.writer
        self._versions = versions()
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._current: Job | None = None
        self._held: Job | None = None
        self._room = Room()
        self._blocks = BlockWriter(has_process=options.snapshot == "copy")
        self._is_awaited = threading.Event()
        self._put_lock = threading.Lock()
        self._stage = _WRITING
        self._skipped: Sequence[Skipped] = ()
        self._failures_in_a_row = 0
        self._health = ThreadStatus(name=self.name, state="idle", interval_secs=policy.save_secs)
        self._failure: str | None = None
        self._stopped = self._is_warned = False
        self._said: set[str] = set()
        self._due = due
        self._left_at: tuple[int, int] | None = None
        self._version = self._saved_version = 0
        self._thread = threading.Thread(target=self._work, name=self.name, daemon=True)

    @property
    def is_idle(self) -> bool:
        """Whether no save is under way."""
        return self._current is None

    @property
    def is_between_steps(self) -> bool:
        """See `Checkpoints.is_between_steps`: there is a copy that `save_held` would save."""
        return self._held is not None

    @property
    def _hanging_text(self) -> str:
        """What the save under way is at: part of a sentence."""
        job = self._current
        return "another save is under way" if job is None else f"the checkpoint of step {job.step} {self._stage}"

    def refuse_unwritable(self) -> None:
        """Raise `SaveFailedError` where no checkpoint could be saved; see `environment.refuse_unwritable`."""
        refuse_unwritable(self._store.directory, self._options, is_own=self.names_directory)

    def start(self, step: int, restored: Sealed | None) -> None:
        """Begin: the next checkpoint falls due from now on."""
        if restored is not None:
            self.newest = restored.path, restored.manifest.step
            self._skipped = restored.skipped
            self._said.update(restored.manifest.limits)
            if self._writer is not None and restored.manifest.doubt is not None:
                self._writer.take_up_losses(restored.manifest.doubt.losses)
        log_skipped(self._skipped, None if restored is None else restored.path)
        self._plan_in(self._policy.save_secs, step)
        self._thread.start()

    def outlook(self, exactness: Exactness, step: int) -> str:
        """Return the verdict on a resume as it begins, and what will observe it; without the last period."""
        if not exactness.is_exact:
            return exactness.verdict.removesuffix(".")
        last = self._recorder.history.last_step if self._recorder is not None else None
        if last is not None and last > step:
            return f"{exactness.verdict} yet; {counted(last - step, 'recomputed step')} will be compared"
        return f"{exactness.verdict}{self.how_to_observe}"

    def training_failed(self, error: BaseException) -> None:
        """See `Checkpoints.training_failed`."""
        self._failure = f"{type(error).__name__}: {text_of(error)}"

    def status(self) -> ThreadStatus:
        """Return the health of the saving thread."""
        state: ThreadState = "failed" if self._failures_in_a_row else "idle"
        if self._stopped:
            state = "stopped"
        elif self._current is not None:
            state = "ticking"
        return replace(self._health, state=state)

    def save_due(self, step: int, trigger: Trigger) -> bool:
        """Save in the background, unless this step is saved; return False while another save is under way: ask again
        after the next step."""
        if self._current is not None:
            return False
        if self._is_on_disk(step):
            self._plan(step)
        else:
            self._hand_over(step, trigger)
        return True

    def hold(self, step: int) -> bool:
        """Keep a copy of this moment, in memory: what `save_held` saves, until `release_held`. Return whether there is
        a new one: not where this step is saved, or a copy is kept. One that cannot be made is only logged."""
        under_way = self._current
        if self._options.snapshot == "shards":  # there is no memory for a copy
            return False
        if self._held is not None or self._is_on_disk(step) or (under_way is not None and under_way.step == step):
            return False
        try:
            captured = self._state.capture(step)
        except Exception as error:  # the next save tells whether it lasts
            reason = f"{type(error).__name__}: {text_of(error)}"
            _LOG.warning("A signal in this phase saves nothing, as the state cannot be copied: %s", reason)
            return False
        self._held = Job(step, "signal", captured, version=self._version)
        return True

    def release_held(self) -> None:
        """Let the copy go."""
        self._held = None

    def save_held(self, trigger: Trigger, deadline: Deadline = NEVER) -> bool:
        """Save the copy that `hold` has made, unless it is saved, from any thread; return whether there was one.

        Raises:
            SaveFailedError: if it takes longer than the deadline.
            Exception: what kept it from being saved.
        """
        held = self._held
        if held is None:
            return False
        if self.wait_until_saved(deadline) and self._is_on_disk(held.step):
            return True
        held = replace(held, trigger=trigger, done=threading.Event())
        if self._put(held, deadline, is_held=True):
            self._wait_for(held, deadline)
        return True

    def wait_until_saved(self, deadline: Deadline = NEVER) -> bool:
        """Wait until no save is under way; return False at the deadline."""
        under_way = self._current
        if under_way is None:
            return True
        self._is_awaited.set()
        return under_way.done.wait(deadline.timeout)

    def refuse(self, step: int, reason: str) -> None:
        """Record that a checkpoint fell due and is not saved."""
        self._plan(step)
        error = SaveFailedError(f"The checkpoint of step {step} is not saved: {reason}.")
        self._finished(Job(step, "timer", error=error), None, 0.0)

    def save(self, step: int, trigger: Trigger, deadline: Deadline = NEVER) -> str | None:
        """Save now, and return the checkpoint's path when it is durable; that of the newest if this step is saved.

        Raises:
            SaveFailedError: if it takes longer than the deadline.
            Exception: what kept it from being saved.
        """
        if not self.wait_until_saved(deadline):
            raise SaveFailedError(self._hanging_text)
        if self.newest is not None and self._is_on_disk(step):
            return self.newest[0]
        job = self._hand_over(step, trigger, deadline)
        self._wait_for(job, deadline)
        return job.path

    def save_now(self, trigger: Trigger = "signal") -> None:
        """See `Checkpoints.save_now`: at the end of the step under way."""
        self._due.ask(trigger)

    def state_changed(self) -> None:
        """The state has changed without a step, as at an epoch's end: a checkpoint of this step is not of this state,
        and the next save of the same step is made."""
        self._version += 1

    def began_again(self, step: int) -> None:
        """The framework has begun its loop again, at this step: the state is another one, and the next save is due as
        after a start."""
        self.state_changed()
        self._plan(step)

    def loop_ended(self, step: int) -> None:
        """Say that the loop has ended after this step, and that it is left by the thread that calls."""
        self._left_at = threading.get_ident(), step

    def _try_last(self, trigger: Trigger, has_failed: Callable[[], bool], deadline: Deadline) -> None:
        """See `Checkpoints`; only the loop's own thread can capture the state."""
        if self._left_at is not None and self._left_at[0] == threading.get_ident():
            self.save(self._left_at[1], trigger, deadline)
        elif not self.save_held(trigger, deadline):
            self._save_at_next_step(deadline)

    def _save_at_next_step(self, deadline: Deadline) -> None:
        """Have a loop that never asks whether to stop save at its next step; wait for that."""
        session, asked_at = self._session, self._health.ticks
        if session.coord.loop_checks_stop or session.has_left_loop.is_set():
            return  # it ends by itself, and saves then
        self.save_now()
        while self._health.ticks == asked_at or not self.is_idle:
            if session.has_left_loop.wait(deadline.remaining(POLL_SECS)) or session.coord.loop_checks_stop:
                return
            if deadline.is_over:
                raise SaveFailedError("no step ended in time" if self.is_idle else self._hanging_text)

    def stop(self, deadline: Deadline = NEVER) -> None:
        """End the thread, after the save that is under way, or at the deadline."""
        if self._stopped:
            return
        with self._put_lock:
            self._stopped = True
        if self._thread.is_alive():
            self._jobs.put(None)
            self._thread.join(deadline.timeout)

    def read(self, start_over: bool) -> tuple[Sealed, Any] | tuple[None, Sequence[Skipped]]:
        """Return the newest usable checkpoint and its tree; or None and what was skipped.

        Raises:
            NoUsableCheckpointError: if there are checkpoints, and none verifies.
        """
        decoded: list[Any] = []

        def decode(files: SealedFiles) -> None:
            decoded[:] = ()  # one that did not verify, before the next is read
            decoded.append(self._read_files(files))

        history = None if self._recorder is None else self._recorder.history
        found = self._newest_to_verify(history, decode) or self._store.newest_usable(
            start_over=start_over, decode=decode
        )
        sealed = Sealed.chosen(found)
        if sealed is None:
            self._skipped = found.skipped
            return None, found.skipped
        return sealed, decoded[0]

    def _newest_to_verify(self, history: SessionHistory | None, decode: Decode) -> CheckpointChoice | None:
        """Return the newest checkpoint that is at least `Options.verify_resume` steps before the last one reached.
        None if no steps are asked for, the training was completed, or there is none, which is logged."""
        steps = self._options.verify_resume
        if not steps or history is None or history.last_step is None or history.previous_outcome in COMPLETED:
            return None
        reached = history.last_step
        with suppress(NoUsableCheckpointError):
            found = self._store.newest_usable(start_over=True, decode=decode, latest_step=reached - steps)
            if found.chosen is not None:
                return found
        _LOG.warning(
            "Options.verify_resume: no usable checkpoint is %d steps before step %d, the last one reached: the newest "
            "is restored.", steps, reached,
        )  # fmt: skip
        return None

    def _is_on_disk(self, step: int) -> bool:
        """Return whether the newest checkpoint is of this step and state, and has not been deleted since."""
        if self.newest is None or step != self.newest[1] or self._saved_version != self._version:
            return False
        return os.path.isdir(self.newest[0])

    def _plan(self, step: int) -> None:
        """Plan the next checkpoint after one of this step, which serves what was asked for until now."""
        self._due.asked_by = None
        self._plan_in(self._policy.save_secs, step)

    def _plan_in(self, secs: float | None, step: int) -> None:
        at = math.inf if secs is None else self._clock.monotonic() + secs
        self._due.plan(at, math.inf if self._policy.save_steps is None else step + self._policy.save_steps)

    def _put(self, job: Job, deadline: Deadline = NEVER, *, is_held: bool = False) -> bool:
        """Have the saving thread write a job, after the one under way: a signal's thread may have put one there.

        Args:
            deadline: until when to wait for the one under way.
            is_held: whether it is a copy of an earlier moment. It is not written where the training has gone on
                meanwhile, and has saved that step or a later one, or has ended: False is returned.
        """
        while True:
            if not self.wait_until_saved(deadline):
                raise SaveFailedError(self._hanging_text)
            ended, saved_step = self._health.ticks, None if self.newest is None else self.newest[1]
            is_late = is_held and saved_step is not None and (saved_step > job.step or self._is_on_disk(job.step))
            with self._put_lock:  # not for longer than this: a disk that hangs must not hold up the end
                if is_late or (is_held and self._stopped):
                    return False
                if self._current is None and self._health.ticks == ended:
                    self._current = job
                    self._jobs.put(job)
                    return True

    def _wait_for(self, job: Job, deadline: Deadline) -> None:
        self._is_awaited.set()
        if not job.done.wait(deadline.timeout):
            raise SaveFailedError(self._hanging_text)
        if job.error is not None:
            raise job.error

    def _hand_over(self, step: int, trigger: Trigger, deadline: Deadline = NEVER) -> Job:
        started = self._clock.monotonic()
        self._plan(step)
        job = Job(step, trigger, version=self._version, in_place=self._options.snapshot == "shards")
        try:
            job.captured = self._state.capture(step, in_place=job.in_place, room=self._room)
            self._warn_of(job)
        except Exception as error:
            job.error = error
            self._finished(job, None, self._clock.monotonic() - started)
            job.done.set()
            return job
        job.blocked_secs = job.captured.blocked_secs + self._clock.monotonic() - started
        self._put(job, deadline)
        if job.in_place and not job.done.wait(deadline.timeout):
            job.is_abandoned = True
        return job

    def _warn_of(self, job: Job) -> None:
        """Say what a resume from this checkpoint will lack: each sentence once in a session, and none of those that
        the session's own resume has said."""
        lacks = [text for text in job.captured.not_captured if text not in self._said]
        new = lacks + [text for text in limits_of(job.captured.compared) if text not in self._said]
        self._said.update(new)
        if new:
            will = "will" if lacks else "may"
            _LOG.warning("A resume from the checkpoint of step %d %s not be exact: %s", job.step, will, " ".join(new))

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            started = self._clock.monotonic()
            sealed: Sealed | None = None
            self._stage = _WRITING
            try:
                if self._skipped:
                    set_damaged_aside(self._store, self._skipped)
                    self._skipped = ()
                sealed = self._write(job)
                job.path = sealed.path
            except Exception as error:
                job.error = error
            self._stage = _RECORDING
            secs = job.blocked_secs + self._clock.monotonic() - started
            if job.in_place:
                job.blocked_secs = secs
            try:
                self._finished(job, sealed, secs)
            except Exception as error:  # this thread goes on: later saves, and the end, wait for it
                _LOG.exception("The save of step %d cannot be recorded.", job.step)
                job.error = job.error or error
            finally:
                if not job.in_place and (self._held is None or self._held.captured is not job.captured):
                    self._room.keep(job.captured.tree, self._state.kinds)
                self._current = None
                job.done.set()
                del job  # with the copy of the state, as far as the next one has no room in it

    def _write(self, job: Job) -> Sealed:
        """Write a checkpoint, and seal it; in the saving thread."""
        losses = self._losses_not_finite()  # of the moment that is saved: writing may take minutes
        self._is_awaited.clear()
        if job.trigger in URGENT:
            self._is_awaited.set()
        self._blocks.begin(self._policy.save_secs, self._is_awaited.is_set)
        return self._store.save(
            self._manifest(job),
            lambda directory: self._write_files(directory, job, losses),
            staging=job.captured.staging,
            max_to_keep=self._policy.max_to_keep,
            keep_every_n_hours=self._policy.keep_every_n_hours,
            read_back=self._options.verify_checkpoints,
            decode=self._check_saved,
            blocks=self._blocks,
        )

    def _losses_not_finite(self) -> tuple[str, ...]:
        """Return the losses whose newest values are NaN or infinite, of all that were logged so far."""
        return () if self._writer is None else self._writer.losses_not_finite()

    def _write_files(self, directory: str, job: Job, losses: tuple[str, ...]) -> StagedFiles:
        with_nan, files = write_tree(directory, job.captured.tree, self._state.kinds, self._blocks)
        if job.is_abandoned:
            raise SaveFailedError("The training went on before its state was written.")
        name = None if with_nan is None else with_nan.removeprefix("objects/")
        return StagedFiles(doubt_of(self._failure, losses, name), files)

    def _check_saved(self, files: SealedFiles) -> None:
        """Check that what was saved will be read again."""
        try:
            contents.check(files, self.format, trust=self._options.trust_pickled, may_write=True)
        except UnreadableCheckpointError as error:
            if not self._is_warned:
                _LOG.warning("This checkpoint would be passed over by a restart: %s", error)
            self._is_warned = True

    def _read_files(self, files: SealedFiles) -> Any:
        contents.require_format(files, self.format)
        tree = read_tree(files, self._state.kinds)
        require_training(files, tree)
        return tree

    def _manifest(self, job: Job) -> Manifest:
        return Manifest(
            **shared(Manifest, job.captured),
            format=self.format,
            step=job.step,
            saved_at=self._clock.wall(),
            captured=job.captured.names,
            facts=dict(self._state.facts()),
            versions=self._versions,
        )

    def _finished(self, job: Job, sealed: Sealed | None, secs: float) -> None:
        """Record a save that has ended; after a failure plan the next attempt, or stop the run."""
        error = job.error
        text = None if error is None else f"{type(error).__name__}: {text_of(error)}"
        doubt = None if sealed is None else sealed.manifest.doubt
        limits = (*job.captured.not_captured, *limits_of(job.captured.compared))
        health = self._health
        self._health = replace(
            health, ticks=health.ticks + 1, failures=health.failures + (sealed is None),
            last_tick_at=self._clock.wall(), last_tick_secs=secs, last_error=text,
        )  # fmt: skip
        self._failures_in_a_row = self._failures_in_a_row + 1 if sealed is None else 0
        if sealed is not None:
            self.newest, self._saved_version = (sealed.path, job.step), job.version
        recorder = self._recorder
        assert recorder is not None  # before the session's begin
        self._record(
            recorder,
            self._writer,
            CheckpointRecord(
                **{**shared(CheckpointRecord, job.captured, job), "error": text, "not_captured": limits},
                session=recorder.session_id,
                bytes=None if sealed is None else sealed.manifest.bytes,
                secs=secs,
                consistent=None if sealed is None else True,
                verified=self._options.verify_checkpoints if sealed is not None else None,
                doubt=None if doubt is None else doubt.text,
            ),
        )
        if error is not None:
            self._after_failure(error, job)

    def _after_failure(self, error: Exception, job: Job) -> None:
        most = self._options.max_save_failures
        if not (is_outside_fault(error) or isinstance(error, SaveFailedError)) and job.trigger == "timer":
            self._session.coord.request_stop(error)  # no retry cures it
        elif most is not None and self._failures_in_a_row > most:
            failed = SaveFailedError(
                f"{self._failures_in_a_row} saves in a row failed, the last one with: {self._health.last_error}"
            )
            failed.__cause__ = error
            self._session.coord.request_stop(failed)
        elif self._policy.save_secs is not None:
            self._plan_in(min(self._policy.save_secs, self._backoff.next_delay(self._failures_in_a_row)), job.step)
