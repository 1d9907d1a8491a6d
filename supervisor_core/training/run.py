"""`Run`: one supervised session of a training of any framework; `supervise` makes it."""

from __future__ import annotations

import logging
import math
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import FrameType, TracebackType
from typing import Any

from supervisor_core.base.clock import SYSTEM_CLOCK, Clock
from supervisor_core.base.errors import SaveFailedError, SupervisorError
from supervisor_core.base.log import visible_level
from supervisor_core.base.options import Options
from supervisor_core.checkpoint.sealed_store import Sealed, SealedStore
from supervisor_core.engine import open_sessions
from supervisor_core.engine.coordinator import RuntimeCoordinator, text_of
from supervisor_core.engine.deadline import Deadline
from supervisor_core.engine.ending import Ending, SessionState
from supervisor_core.engine.environment import versions
from supervisor_core.engine.lifecycle import Notifies, SessionLifecycle
from supervisor_core.engine.loop_exit import LoopExit
from supervisor_core.engine.session_recorder import SessionRecorder
from supervisor_core.events.file_writer import FileWriter
from supervisor_core.events.telemetry import ResumeRecord, ServiceInterval, Trigger
from supervisor_core.process.stacks import location, user_line
from supervisor_core.run.fold.first_error import killed_worker
from supervisor_core.run.status import RunStatus
from supervisor_core.storage.local import absolute, join
from supervisor_core.training.save_point import Due, SavePoint, SavePolicy
from supervisor_core.training.saver import Saver
from supervisor_core.training.state import Exactness, TrainingState
from supervisor_core.training.state_notes import StateNotes
from supervisor_core.training.step_loop import LEFT_EARLY, Goal, steps_of
from supervisor_core.training.values import Values

_LOG = logging.getLogger("supervisor_core")

MOST_LETTERS = 200
"""Of the names, or values, that are said to differ."""
CHECKPOINTS = "checkpoints"
"""The checkpoints' directory in the logdir."""

_START = b"\x08\x01"  # SessionLog.status = START


STOP_GRACE_SECS = 120.0
"""How long a final save that fails is tried again without a signal, and threads are waited for, in seconds."""


class RunEnding(Ending):
    """How the session of a `Run` ends; see `Ending`.

    A state can be captured in the training's thread only, between two steps. So a signal has the loop come to its next
    step, where it is saved. In a phase that does not train, as an evaluation, what was captured when it began is saved.

    Args:
        run: the session.
        state: what is known of it.
        options: see `Options`.
        clock: replaced in tests.
    """

    def __init__(self, run: Run, state: SessionState, options: Options, clock: Clock) -> None:
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

    def describe(self, error: BaseException) -> str:
        """See `Ending.describe`; with the line of the program that it came from."""
        if (worker := killed_worker(f"{text_of(error)}\n{error.__cause__ or ''}")) is not None:
            return f"{type(error).__name__}: {worker}"
        frames = traceback.extract_tb(error.__traceback__)
        line = user_line([f"{frame.filename}:{frame.lineno or 0} {frame.name}" for frame in frames])
        kind, _, text = super().describe(error).partition(": ")
        return f"{kind}: {text}" if line is None else f"{kind} at {location(line)}: {text}"

    def is_save_wanted(self) -> bool:
        """See `Ending.is_save_wanted`."""
        if not self.saves or self._run.loss_is_finite is False:
            return False
        if isinstance(self._state.reason.body_error, KeyboardInterrupt):
            return False  # raised in the middle of a step
        return super().is_save_wanted()


class RunLifecycle(SessionLifecycle[RunEnding]):
    """Begins the session of a `Run`."""

    not_begun = "The run has not begun: enter it with `with supervise(...) as run:`."


class Run(Notifies):
    """One supervised session; made by `supervise`. Its methods are called by the training's thread.

    Args:
        logdir: the run's directory; a relative one is below the present working directory, whatever that becomes.
        state: what a checkpoint holds.
        options: see `Options`.
        policy: when checkpoints are saved.
        facade: what the program called, for records.
        task: a worker's name in its cluster, as ``worker:1``: it writes a heartbeat file only. None for the chief.
        saver: what saves: `Saver`, or a subclass of it for checkpoints in a framework's own format.
        first_step: the step of a new run.
        clock: replaced in tests.
    """

    def __init__(
        self,
        logdir: str,
        *,
        state: TrainingState,
        options: Options,
        policy: SavePolicy,
        facade: str = "supervise",
        task: str | None = None,
        saver: Callable[..., Saver] = Saver,
        first_step: int = 0,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.logdir = logdir = absolute(logdir)
        self.options, self.state = options, state
        self._policy, self._task = policy, task
        self._new_saver, self._clock = saver, clock
        self._coord = RuntimeCoordinator(clock=clock)
        self._directory = join(logdir, CHECKPOINTS)
        SealedStore(self._directory)  # which refuses a remote one
        self._writer: FileWriter | None = None
        self._saver: Saver | None = None
        self._lifecycle = RunLifecycle(
            partial(RunEnding, self),
            coord=self._coord,
            options=options,
            facade=facade,
            logdir=logdir,
            writer=None,
            is_chief=task is None,
            task=task,
            checkpoint_interval_secs=policy.save_secs,
            clock=clock,
            snapshots=("copy", "shards") if state.can_be_read_in_place else ("copy",),
        )
        self._session, self._ending = self._lifecycle.state, self._lifecycle.ending
        self._step, self._due = first_step, Due()
        self._notes = StateNotes(state, self._due, clock)
        self._read: tuple[Saver, Sealed | None, Any] | None = None
        self._restored: Sealed | None = None
        self._change = options.on_restore
        self._exactness: Exactness | None = None
        self._loss_finite: bool | None = None
        self._ended = self._is_interrupt_due = False
        self.is_entered = False
        """Whether the session has begun."""
        self.goal = Goal(state.counters, logdir)
        self.save_point = SavePoint(state, lambda: self._step)
        self.unfinished: str | None = None
        """What it means if the interpreter ends and the session has not: the record's error. None: no failure."""
        self.when_recorded: Callable[[], object] = bool
        """Called when the last checkpoint and the stop record are written, before the process ends by a signal."""
        self._step_ended: Callable[[float], None] = lambda ended: None
        self._monotonic = time.monotonic if clock is SYSTEM_CLOCK else clock.monotonic

    def __repr__(self) -> str:
        """Name the run, and where its session stands."""
        recorder = self._session.recorder
        phase = "not begun" if recorder is None else "ended" if self._ended else recorder.progress.phase
        return f"<Run {self.logdir!r}: step {self._step}, {phase}>"

    # The session's life.

    def __enter__(self) -> Run:
        """Begin: take the logdir, restore, start to save and to watch signals.

        Raises:
            LogdirInUseError: if another live process trains there.
            NoUsableCheckpointError: if there are checkpoints, and none can be read.
            CheckpointError: if an object refuses its state, or no checkpoint could be saved.
        """
        self.begin()
        self.restore()
        return self

    def begin(self) -> None:
        """Do the first half of `__enter__`, for a framework that restores a part before the other objects are there:
        take the logdir, read the newest checkpoint (`read_tree`), watch signals."""
        if self.is_entered:
            raise RuntimeError("This run was entered before; call supervise() again for another session.")
        self.is_entered = True
        open_sessions.stop_left()
        after_attempt = SealedStore(self._directory).newest_attempt() if self._task is None else 0
        recorder = self._lifecycle.begin(self._stop_at_exit, ends_with_call=True, after_attempt=after_attempt)
        with self._ends_on_error():
            self._ending.signals.watch_until_stopped()
            if self._task is None:
                self._session.writer = self._writer = FileWriter(self.logdir)
                recorder.write_to(self._writer)
            self._begin(recorder)

    def restore(self) -> None:
        """Do the second half: restore, record the session, start to save."""
        with self._ends_on_error():
            self._restore(self._recorder_now)
        self._lifecycle.loop_begins()

    @contextmanager
    def _ends_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self.end(error)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End: save what is not on disk, write the stop record, release the logdir; then end as a signal would have.

        Raises:
            KeyboardInterrupt: after a Ctrl-C that ended the training between two steps.
            SaveFailedError: if the final checkpoint could not be saved, and nothing else was raised.
            Exception: an error that a service had stopped the training with.
        """
        self.end(error)
        if self._is_interrupt_due:
            self._is_interrupt_due = False
            raise KeyboardInterrupt

    def _begin(self, recorder: SessionRecorder) -> None:
        store = SealedStore(self._directory, publisher=recorder.publisher)
        saver = self._new_saver(
            store, self.state, self._policy,
            session=self._session, options=self.options, due=self._due, clock=self._clock,
        )  # fmt: skip
        with recorder.phase("restoring"):
            if self._task is None:
                saver.refuse_unwritable()
            self._read = saver, *saver.read(self.options.unusable_checkpoints == "start_over")

    @property
    def read_tree(self) -> Any:
        """The state tree of the checkpoint that `restore` is about to restore; None for a new run, and afterwards."""
        return None if self._read is None or self._read[1] is None else self._read[2]

    def change_structure(self, tree: Any) -> None:
        """Call `Options.on_restore`, once: before the first object is restored, or a framework restores it itself."""
        change, self._change = self._change, None
        if change is not None and isinstance(tree, dict):
            change(tree["objects"])

    def _restore(self, recorder: SessionRecorder) -> None:
        assert self._read is not None
        (saver, sealed, tree), self._read = self._read, None
        with recorder.phase("restoring"):
            skipped = tree if sealed is None else sealed.skipped
            self.state.probe()
            if self.options.on_restore is None:
                self.state.says_changes = partial(self.notify, severity="warn")
            if sealed is not None:
                self.change_structure(tree)
                self._restored, manifest = sealed, sealed.manifest
                self._step = step = manifest.step
                self._exactness = self.state.resume(manifest, tree, versions())
                at, size = manifest.saved_at, manifest.bytes
                recorder.saves.restored(
                    path=sealed.path, step=step, saved_at=at, size_bytes=size, is_good=manifest.doubt is None
                )
        self.goal.restored()
        self._saver, exactness = saver, self._exactness  # before the restore there is nothing to save
        if sealed is not None and exactness is not None and self._task is None:
            _LOG.log(visible_level(_LOG), "Resumed from %s at step %d: %s.", sealed.path, self._step,
                     saver.outlook(exactness, self._step))  # fmt: skip
        if self._writer is not None:
            self._writer.add_session_log(_START, self._step)
        if sealed is None:
            recorder.progress.step_read(self._step)
        self._lifecycle.ready(
            skipped=skipped,
            services=[ServiceInterval(name=saver.name, interval_secs=self._policy.save_secs)],
            restored_checkpoint=None if sealed is None else sealed.path,
            restored_step=None if sealed is None else sealed.manifest.step,
            resume_exact=None if exactness is None else exactness.is_exact,
            resume_reasons=() if exactness is None else exactness.reasons,
        )
        if self._task is None:
            self._lifecycle.services.add(saver)
            saver.start(self._step, sealed)
            self._session.checkpoints = saver
            self._notes.begin(self._writer if self.options.write_telemetry else None, recorder.session_id, self._step)
        recorder.enter("training")
        self._step_ended = recorder.progress.step_ended
        recorder.progress.begins(self._monotonic())

    # What the program calls.

    @property
    def global_step(self) -> int:
        """The number of steps done, by this and the earlier sessions."""
        return self._step

    @property
    def restored(self) -> str | None:
        """The checkpoint that was restored; None for a new run."""
        return None if self._restored is None else self._restored.path

    @property
    def exactness(self) -> Exactness | None:
        """Whether the resume was exact, as far as is known by now; None for a new run."""
        found, recorder = self._exactness, self._session.recorder
        return found if found is None or recorder is None else found.seen_by(recorder.resume_check)

    @property
    def newest_checkpoint(self) -> str | None:
        """The newest whole checkpoint's directory; None where there is none."""
        newest = None if self._saver is None else self._saver.newest
        return None if newest is None else newest[0]

    @property
    def loss_is_finite(self) -> bool | None:
        """Whether the watched loss was finite when it was last logged; None before."""
        return self._loss_finite

    @property
    def writer(self) -> FileWriter | None:
        """The run's summary writer; None for a worker."""
        return self._writer

    @property
    def metrics_url(self) -> str | None:
        """Where Prometheus finds this process's metrics; None where none are served."""
        return self._recorder_now.metrics_url

    def run_status(self) -> RunStatus:
        """Return the session at this moment, as the metrics show it."""
        return self._recorder_now.status()

    def step(self) -> None:
        """Say that one step of the training has ended. Saves in the background if a checkpoint is due."""
        now = self._monotonic()
        self._step_ended(now)
        self._step = step = self._step + 1
        due = self._due
        if now >= due.at or step >= due.step:
            self._save_due()

    def count_step(self) -> None:
        """Say that one step has ended, where nothing can be saved yet: `save_if_due` follows."""
        self._step_ended(self._monotonic())
        self._step += 1

    def save_if_due(self) -> None:
        """Save in the background if a checkpoint is due: between two steps, after `count_step`."""
        if self._step >= self._due.step or self._monotonic() >= self._due.at:
            self._save_due()

    def began_again(self, step: int) -> None:
        """For an adapter: the framework has begun its loop again within the session, at this step."""
        self._recorder_now.progress.rewound(step)
        self._step = step
        if self._saver is not None:
            self._saver.began_again(step)

    def describe(self, error: BaseException) -> str:
        """Return an exception's type, place and text, as the session's record has them."""
        return self._ending.describe(error)

    def moved(self) -> None:
        """Say that the training makes progress that is no step, as a batch whose gradients are only accumulated."""
        if self._session.recorder is not None:
            self._session.recorder.progress.moved(self._monotonic())

    def steps(self, until: int) -> Iterator[int]:
        """Yield the number of each step from the restored one up to ``until``; ends early when a stop is requested. A
        step is counted when the next one is asked for.
        Without ``with`` the loop is the session: it begins and ends with it.

        Args:
            until: the run's last step, over all sessions.
        """
        return steps_of(self, until)

    def left_step(self, is_done: bool) -> None:
        """For an adapter that knows: the loop over `steps` is left in its body, and whether the step is done."""
        self.save_point.is_in_step = False
        if is_done:
            self.step()

    def should_stop(self) -> bool:
        """Return whether the training is to end: a signal came, a stop was requested, or it is finished. Cheap."""
        return self._coord.should_stop() or self.goal.is_finished

    def stop_probe(self) -> Callable[[], object]:
        """Return the quickest `should_stop`, for every step: what it returns is true if the training is to end."""
        return self._coord.stop_probe()

    @property
    def stop_signal(self) -> str | None:
        """The name of the signal that asked for the end, as ``SIGTERM``; None without one."""
        return None if self._signum is None else signal.Signals(self._signum).name

    def request_stop(self) -> None:
        """Ask the training to end at its next step; from any thread. The next start trains on: see `finish`."""
        self._coord.request_stop()

    def finish(self) -> None:
        """Complete the training after the present step, as for early stopping: a later start makes no step, unless it
        has more steps or epochs. In several processes call it in each of them, in the same step.

        Example:
            for step in run.steps(10_000):
                if train_step() < 0.01:
                    run.finish()
        """
        self.goal.finish()
        self.state_changed()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Be in a phase (one of `supervisor_core.base.options.PHASES`) while the block runs, with its own hang timeout.

        A phase that does not train begins with a copy of the state in memory, unless this step is saved: a signal
        within the phase saves it.

        Example:
            with run.phase("evaluating"):
                accuracy = evaluate(model)
        """
        has_copy = name != "training" and self._hold()
        try:
            with self._recorder_now.phase(name):
                yield
        finally:
            if has_copy and self._saver is not None:
                self._saver.release_held()
            self._recorder_now.progress.begins(self._monotonic())

    def state_changed(self) -> None:
        """Say that the state has changed without a step, as at an epoch's end: the next save of this step is made."""
        if self._saver is not None:
            self._saver.state_changed()

    def _hold(self) -> bool:
        """A phase begins that does not train: save what is due, or keep a copy for a signal in it; return whether."""
        saver = self._saver
        if saver is None or self._task is not None or self._loss_finite is False or self._ended:
            return False
        if not self.save_point.is_in_step:
            self.save_if_due()
        if self.options.save_on_stop and self._ending.signals.is_watching:
            with self.save_point.moment() as step, self._recorder_now.progress.held():
                has_copy = step is not None and saver.hold(step)
            if has_copy and self._ending.signals.received is not None:  # its thread may have found none
                self._ending.save_beside()
            return has_copy
        return False

    def save(self) -> str | None:
        """Save a checkpoint now; return its directory when it is durable. None for a worker.

        Within a step, as the body of a loop over `steps`, it is saved when the step has ended, in the background, and
        None is returned: before that the state may be of half a step.

        Raises:
            SaveFailedError: if the watched loss is not finite.
            OSError, CheckpointError: why it could not be saved.
        """
        if self._task is not None or self._saver is None:
            return None
        if self._loss_finite is False:
            raise SaveFailedError(f"The watched loss {self.options.watched_loss!r} is not finite: nothing is saved.")
        if self.save_point.is_in_step:
            self.ask_for_save()
            return None
        with self._recorder_now.progress.held():
            path = self._saver.save(self._step, "manual")
        self._notes.saved(self._step)
        return path

    def wait_until_saved(self) -> None:
        """Wait until no checkpoint is being written: the newest one is durable, or has failed."""
        if self._saver is not None:
            with self._recorder_now.progress.held():
                self._saver.wait_until_saved()

    def log(self, tag: str | Mapping[str, Any], value: Any = None, step: int | None = None) -> None:
        """Write scalars into the run's events file.

        Args:
            tag: the tag; or tags with their values.
            value: the value, where ``tag`` is one: a number, or an array with one, which is waited for.
            step: the step that they are of. Default: the present one.
        """
        values = tag if isinstance(tag, Mapping) else {tag: value}
        for name, item in values.items():
            number = float(item.detach() if hasattr(item, "detach") else item)
            if name == self.options.watched_loss and math.isfinite(number) is not self._loss_finite:
                self._loss_finite = math.isfinite(number)
                self._recorder_now.loss_read(self._loss_finite)
            if self._writer is not None:
                self._writer.scalar(name, number, self._step if step is None else step)

    def watch_values(self, values: Values, frame: FrameType | None = None, *, compares: bool = True) -> None:
        """For an adapter: a loop begins; compare values from now on.

        Args:
            frame: what asks for its first step; None for a framework's own loop.
            compares: whether the restored checkpoint is of this loop.
        """
        self.state.values = values
        values.decided = self.options.kept_values or {}
        self.values_read(values.begin(frame, self.state.compared if compares else {}))

    def first_step_ended(self, frame: FrameType | None = None, item: Any = None) -> bool:
        """For an adapter: one of the first steps has ended. Return whether the next one is to be looked at, too."""
        values = self.state.values
        if values is None:
            return False
        self.values_read(values.step_ended(frame, item))
        return not values.is_over

    def values_read(self, differing: Sequence[tuple[str, str, str]]) -> None:
        """For an adapter: which values that no checkpoint restores are not those at the restored save.

        Args:
            differing: name, value before, value now.
        """
        if differing and self._task is None:
            names, before, now = (", ".join(texts)[:MOST_LETTERS] for texts in zip(*differing, strict=True))
            step = self._step if self._restored is None else self._restored.manifest.step
            found = ResumeRecord(session=self._recorder_now.session_id, tag=names, step=step, before=before, now=now)
            _LOG.warning("The resume is not exact: %s.", found.text)
            self._recorder_now.resume_checked(found)

    # How it works inside.

    @property
    def _recorder_now(self) -> SessionRecorder:
        return self._lifecycle.recorder

    @property
    def _signum(self) -> int | None:
        return self._session.reason.signum

    def ask_for_save(self, trigger: Trigger = "manual") -> None:
        """Ask for a checkpoint at the end of the step under way; from any thread."""
        self._due.ask(trigger)

    def _save_due(self) -> None:
        saver = self._saver
        if saver is None or self._ended or not self._notes.note(self._step):
            return
        if self._loss_finite is False:
            saver.refuse(self._step, f"the watched loss {self.options.watched_loss!r} is not finite")
        else:
            with self._recorder_now.progress.held():
                if saver.save_due(self._step, self._due.asked_by or "timer"):
                    self._notes.saved(self._step)
        self._recorder_now.progress.begins(self._monotonic())

    # The end.

    def left_by(self, left: LoopExit) -> None:
        """See `RunEnding.left_by`."""
        self._ending.left_by(left)

    def left_by_unknown(self, text: str) -> None:
        """See `RunEnding.error_of_call`."""
        self.end(self._ending.error_of_call(text))

    def _stop_at_exit(self, error: BaseException | None) -> None:
        self.end(self._ending.error_at_exit(error))

    def end(self, error: BaseException | None) -> None:
        """End the session; once, and not in a forked child.

        Args:
            error: what the program raised in it.
        """
        recorder, ending = self._session.recorder, self._ending
        if recorder is None or self._ended or ending.is_inactive:
            return
        self.save_point.leave()
        if self.goal.is_left and error is None and self._restored is not None and not self.should_stop():
            self.notify(LEFT_EARLY.format(self.goal.until, self._step))
        if error is not None and not isinstance(error, GeneratorExit):
            self.state.is_mid_step = True  # where in the step it came is not known
        ending.loop_ended(error)
        raised: BaseException | None = None
        try:
            try:
                ending.stop(STOP_GRACE_SECS, save=ending.save, join=self._stop_saver, close=ending.close_writer)
            except Exception as stopped_by:
                raised = stopped_by
            self._ended = True
            self.when_recorded()
            self._recorded(ending.failure() or raised)
            ending.stop_serving()
        finally:
            if not self._ended:  # interrupted
                self._ended = True
                recorder.close(0.0)
            try:
                ending.signals.stopped()
            except KeyboardInterrupt:
                self._is_interrupt_due = True
        if error is None and raised is not None and not self._is_interrupt_due:
            raise raised

    def _stop_saver(self, secs: float) -> None:
        """End the saving thread; raise what a service has stopped the training with."""
        if self._saver is not None:
            self._saver.stop(Deadline.after(secs, self._clock))
        if self._session.reason.body_error is None:
            self._coord.raise_requested_exception()

    def _recorded(self, error: BaseException | None) -> None:
        """The last checkpoint and the stop record are written, with this error; the metrics have not ended."""

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Be around the last record."""
        yield
