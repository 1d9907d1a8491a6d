"""`Run`: one supervised session of a training of any framework; `supervise` makes it."""

from __future__ import annotations

import atexit
import logging
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any

from supervisor_core.checkpoint.sealed_store import Sealed, SealedStore
from supervisor_core.clock import SYSTEM_CLOCK, Clock
from supervisor_core.errors import EventsWriteError, LogdirInUseError, SaveFailedError, WaitTimeoutError
from supervisor_core.events.file_writer import FileWriter
from supervisor_core.events.telemetry import Trigger
from supervisor_core.options import Options
from supervisor_core.run.status import RunStatus
from supervisor_core.runtime.coordinator import Coordinator, text_of
from supervisor_core.runtime.deadline import Deadline
from supervisor_core.runtime.service import ServiceRegistry
from supervisor_core.storage.local import join
from supervisor_core.supervision.environment import versions
from supervisor_core.supervision.session_recorder import SessionRecorder, StopInfo
from supervisor_core.training import left_open
from supervisor_core.training.finished_loops import STEPS_ONCE, finished, refuse_again
from supervisor_core.training.saver import Due, SavePolicy, Saver
from supervisor_core.training.state import Exactness, TrainingState
from supervisor_core.training.stopping import STOP_GRACE_SECS, StopSignals, failure_of, save_last, stop_info

_LOG = logging.getLogger("supervisor_core")

CHECKPOINTS = "checkpoints"
"""The checkpoints' directory in the logdir."""

_START, _STOP = b"\x08\x01", b"\x08\x02"  # SessionLog.status


class Run:
    """One supervised session; made by `supervise`. Its methods are called by the training's thread.

    Args:
        logdir: the run's directory.
        state: what a checkpoint holds.
        options: see `Options`.
        policy: when checkpoints are saved.
        facade: what the program called, for records.
        task: a worker's name in its cluster, as ``worker:1``: it writes a heartbeat file only. None for the chief.
        saver: what saves: `Saver`, or a subclass of it for checkpoints in a framework's own format.
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
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.logdir = logdir
        self.options = options
        self.state = state
        self._policy, self._facade, self._task = policy, facade, task
        self._new_saver = saver
        self._clock = clock
        self._coord = Coordinator(clock=clock)
        self._services = ServiceRegistry()
        self._directory = join(logdir, CHECKPOINTS)
        SealedStore(self._directory)  # which refuses a remote one
        self._writer: FileWriter | None = None
        self._recorder: SessionRecorder | None = None
        self._saver: Saver | None = None
        self._signals: StopSignals | None = None
        self._step, self._due = 0, Due()
        self._restored: Sealed | None = None
        self._exactness: Exactness | None = None
        self._loss_finite: bool | None = None
        self._pid = os.getpid()
        self._ended = False
        self.is_in_step = False
        """Whether a step is under way: `save` then asks for a checkpoint of its end."""
        self._record_lock = threading.Lock()
        self._final: tuple[str, int] | None = None
        self.when_recorded: Callable[[], object] = bool
        """Called when the last checkpoint and the stop record are written, before the process ends by a signal."""
        self._step_ended: Callable[[float], None] = lambda ended: None
        self._monotonic = time.monotonic if clock is SYSTEM_CLOCK else clock.monotonic

    def __repr__(self) -> str:
        """Name the run, and where its session stands."""
        phase = "not begun" if self._recorder is None else "ended" if self._ended else self._recorder.progress.phase
        return f"<Run {self.logdir!r}: step {self._step}, {phase}>"

    # The session's life.

    def __enter__(self) -> Run:
        """Begin: take the logdir, restore, start to save and to watch signals.

        Raises:
            LogdirInUseError: if another live process trains there.
            NoUsableCheckpointError: if there are checkpoints, and none can be read.
            CheckpointError: if an object refuses its state.
        """
        if self._recorder is not None:
            raise RuntimeError("This run was entered before; call supervise() again for another session.")
        left_open.end_left()
        self._pid = os.getpid()
        chief = self._task is None
        self._recorder = recorder = SessionRecorder(
            logdir=self.logdir,
            facade=self._facade,
            options=self.options,
            writer=None,
            services=self._services,
            checkpoint_interval_secs=self._policy.save_secs,
            is_chief=chief,
            task=self._task,
            on_taken_over=self._coord.request_stop,
            after_attempt=SealedStore(self._directory).newest_attempt() if chief else 0,
            on_stalled=self._coord.request_stop,
            clock=self._clock,
        )
        self._signals = signals = StopSignals(
            self._coord,
            self.options,
            record=self._record_at_signal,
            save_now=lambda: self.ask_for_save("signal"),
            work_done=lambda: self._step + recorder.progress.changes,  # no lock: a signal's handler asks
            clock=self._clock,
        )
        recorder.begin()
        try:
            signals.begin()
            if chief:
                self._writer = FileWriter(self.logdir)
                recorder.write_to(self._writer)
            self._begin(recorder)
        except BaseException as error:
            self._end(error)
            raise
        atexit.register(self._at_exit)
        left_open.begun(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End: save what is not on disk, write the stop record, release the logdir; then end as a signal would have.

        Raises:
            KeyboardInterrupt: after a Ctrl-C that ended the training between two steps.
            SaveFailedError: if the final checkpoint could not be saved, and nothing else was raised.
            Exception: an error that a service had stopped the training with.
        """
        self._end(error)
        if self._signals is not None and self._signals.take_interrupt():
            raise KeyboardInterrupt

    def _begin(self, recorder: SessionRecorder) -> None:
        store = SealedStore(self._directory, publisher=recorder.publisher)
        saver = self._new_saver(
            store, self.state, self._policy, recorder=recorder, writer=self._writer, coord=self._coord,
            options=self.options, versions=versions(), due=self._due, clock=self._clock,
        )  # fmt: skip
        with recorder.phase("restoring"):
            sealed, tree = saver.read(self.options.unusable_checkpoints == "start_over")
            skipped = tree if sealed is None else sealed.skipped
            self.state.probe()
            if sealed is not None:
                self._restored, self._step, saved = sealed, sealed.manifest.step, sealed.manifest
                self._exactness = self.state.resume(saved, tree, versions())
                recorder.saves.restored(
                    path=sealed.path, step=saved.step, saved_at=saved.saved_at, size_bytes=saved.bytes
                )
        self._saver, exactness = saver, self._exactness  # before the restore there is nothing to save
        if self._writer is not None:
            self._writer.add_session_log(_START, self._step)
        if sealed is None:
            recorder.progress.step_read(0)
        recorder.ready(
            restored_checkpoint=None if sealed is None else sealed.path,
            restored_step=None if sealed is None else sealed.manifest.step,
            skipped=[{"path": item.path, "reason": item.reason} for item in skipped],
            services=[{"name": saver.name, "interval_secs": self._policy.save_secs}],
            resume_exact=None if exactness is None else exactness.is_exact,
            resume_reasons=() if exactness is None else exactness.reasons,
        )
        if self._task is None:
            self._services.reserve_name(saver.name)
            self._services.add(saver)
            saver.start(self._step, sealed)
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
        """Whether the resume was exact; None for a new run."""
        return self._exactness

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

    def moved(self) -> None:
        """Say that the training makes progress that is no step, as a batch whose gradients are only accumulated."""
        if self._recorder is not None:
            self._recorder.progress.moved(self._monotonic())

    def steps(self, until: int) -> Iterator[int]:
        """Yield the number of each step from the restored one up to ``until``, and count it when the next is asked for.

        Ends early when a stop is requested.

        Args:
            until: the run's last step, over all sessions.
        """
        is_stopped = self.stop_probe()
        refuse_again(self.logdir, "steps", until, self._step, STEPS_ONCE)
        try:
            while self._step < until and not is_stopped():
                self.is_in_step = True
                yield self._step
                self.is_in_step = False
                self.step()
        finally:
            self._leave_step()
        finished(self.logdir, "steps", until, self._step)

    def left_step(self, is_done: bool) -> None:
        """For an adapter that knows: the loop over `steps` is left in its body, and whether the step is done."""
        self.is_in_step = False
        if is_done:
            self.step()

    def _leave_step(self) -> None:
        """The loop over `steps` is left: in its body the state may be of the next step already."""
        self.state.is_mid_step |= self.is_in_step
        self.is_in_step = False

    def should_stop(self) -> bool:
        """Return whether the training is to end: a signal came, or a stop was requested. Cheap."""
        return self._coord.should_stop()

    def stop_probe(self) -> Callable[[], object]:
        """Return the quickest `should_stop`, for every step: what it returns is true if the training is to end."""
        return self._coord.stop_probe()

    @property
    def stop_signal(self) -> str | None:
        """The name of the signal that asked for the end, as ``SIGTERM``; None without one."""
        return None if self._signum is None else signal.Signals(self._signum).name

    def request_stop(self) -> None:
        """Ask the training to end at its next step; from any thread."""
        self._coord.request_stop()

    def leave(self) -> None:
        """Say that the program leaves its loop early."""
        self.request_stop()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Be in a phase (one of `supervisor_core.options.PHASES`) while the block runs, with its own stall budget.

        Example:
            with run.phase("evaluating"):
                accuracy = evaluate(model)
        """
        try:
            with self._recorder_now.phase(name):
                yield
        finally:
            self._recorder_now.progress.begins(self._monotonic())

    def save(self) -> str | None:
        """Save a checkpoint now; return its directory when it is durable. None for a worker.

        In the body of a loop over `steps` it is saved when the body ends, in the background, and None is returned:
        before that the state may be of half a step.

        Raises:
            SaveFailedError: if the watched loss is not finite.
            OSError, CheckpointError: why it could not be saved.
        """
        if self._task is not None or self._saver is None:
            return None
        if self._loss_finite is False:
            raise SaveFailedError(f"The watched loss {self.options.watched_loss!r} is not finite: nothing is saved.")
        if self.is_in_step:
            self.ask_for_save()
            return None
        with self._recorder_now.progress.held():
            return self._saver.save(self._step, "manual")

    def wait_until_saved(self) -> None:
        """Wait until no checkpoint is being written: the newest one is durable, or has failed."""
        if self._saver is not None:
            with self._recorder_now.progress.held():
                self._saver.settle()

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
            if name == self.options.watched_loss:
                self._watch_loss(number)
            if self._writer is not None:
                self._writer.scalar(name, number, self._step if step is None else step)

    # How it works inside.

    @property
    def _recorder_now(self) -> SessionRecorder:
        if self._recorder is None:
            raise RuntimeError("The run has not begun: enter it with `with supervise(...) as run:`.")
        return self._recorder

    @property
    def _signum(self) -> int | None:
        """The signal that asked for the end; None without one."""
        return None if self._signals is None else self._signals.signum

    def _watch_loss(self, value: float) -> None:
        is_finite = math.isfinite(value)
        if is_finite is not self._loss_finite:
            self._loss_finite = is_finite
            self._recorder_now.loss_read(is_finite)

    def ask_for_save(self, trigger: Trigger = "manual") -> None:
        """Ask for a checkpoint at the end of the step under way; from any thread."""
        self._due.ask(trigger)

    def _save_due(self) -> None:
        saver = self._saver
        if saver is None or self._ended:
            return
        if self._loss_finite is False:
            saver.refuse(self._step, f"the watched loss {self.options.watched_loss!r} is not finite")
        else:
            with self._recorder_now.progress.held():
                saver.save_due(self._step, self._due.asked_by or "timer")
        self._recorder_now.progress.begins(self._monotonic())

    @property
    def _hands_off(self) -> bool:
        return self._ended or os.getpid() != self._pid

    def _at_exit(self) -> None:
        if not self._hands_off:
            _LOG.warning("The program ends without having left its supervised block: the session is stopped now.")
            with suppress(Exception):
                self._end(None if hasattr(sys, "ps1") else getattr(sys, "last_value", None))

    def _end(self, error: BaseException | None) -> None:
        """End the session; once, and not in a forked child."""
        recorder, signals = self._recorder, self._signals
        if self._hands_off or recorder is None or signals is None:
            return
        signals.settle()
        self._leave_step()
        if error is not None and not isinstance(error, GeneratorExit):
            self.state.is_mid_step = True  # where in the step it came is not known
        was_requested = self._coord.should_stop()
        self._coord.request_stop()
        failure = failure_of(error, self._coord, self._signum)
        raised: BaseException | None = None
        try:
            recorder.enter("stopping")
            if self._saver is not None and self._is_saved_after(error, failure):
                try:
                    with recorder.phase("checkpointing"):
                        save_last(self._saver, self._step, signals, self.options, self._clock)
                except Exception as save_error:
                    raised = save_error
                    _LOG.error("The final checkpoint could not be saved: %s; the newest is %s.",
                               text_of(save_error), self.newest_checkpoint)  # fmt: skip
            if self._saver is not None:
                self._saver.stop(signals.for_save if signals.signum else Deadline.after(STOP_GRACE_SECS, self._clock))
                self._final = self._saver.newest
            self._ended = True
            info = stop_info(error, failure or raised, self._signum, was_requested, self._final)
            self._record(info, signals.deadline if signals.signum is not None else Deadline.after(10.0, self._clock))
            self.when_recorded()
            self._recorded(failure or raised)
            linger = None if signals.signum is None else max(0.0, signals.for_save.remaining(30.0) / 2)
            recorder.close(linger if signals.signum != signal.SIGINT else 0.0)
        finally:
            if not self._ended:  # interrupted by a second Ctrl-C
                with suppress(Exception):
                    self._record_at_signal(Deadline.after(1.0, self._clock))
                    recorder.close(0.0)
            self._ended = True
            atexit.unregister(self._at_exit)
            signals.end()
        if error is not None or signals.is_interrupt_due:
            return
        if failure is not None:
            raise failure
        if raised is not None:
            raise SaveFailedError(f"The final checkpoint could not be saved: {text_of(raised)}") from raised

    def _is_saved_after(self, error: BaseException | None, failure: BaseException | None) -> bool:
        if self._task is not None or self._loss_finite is False:
            return False
        if isinstance(failure, LogdirInUseError) or isinstance(error, KeyboardInterrupt):
            return False  # another's by now; or raised in the middle of a step
        return self.options.save_on_stop if failure is None else self.options.save_on_error

    def _record_at_signal(self, deadline: Deadline) -> None:
        """Write the stop record from a signal's thread: the training's own does not come to its next step."""
        if self._saver is not None:
            self._final = self._saver.newest
        self._record(stop_info(None, None, self._signum, True, self._final), deadline)

    def _recorded(self, error: BaseException | None) -> None:
        """The last checkpoint and the stop record are written, with this error; the metrics have not ended."""

    def _record(self, info: StopInfo, deadline: Deadline) -> None:
        recorder, writer = self._recorder, self._writer
        if recorder is None or not self._record_lock.acquire(timeout=deadline.timeout):
            return
        try:
            recorder.end(info, deadline)
            if writer is not None and not writer.closed:
                with suppress(EventsWriteError, WaitTimeoutError):  # the writer's thread has logged why
                    writer.add_session_log(_STOP, self._step)
                    writer.close(deadline.timeout)
        finally:
            self._record_lock.release()
