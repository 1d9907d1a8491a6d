"""`Lifecycle`: one supervised session of the graph-mode facades, from the first line to the last.

The facade is TensorFlow's API; this is what happens behind it: begin, ready, save, finish, end, and what a signal does.
"""

from __future__ import annotations

import logging
import signal
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from supervisor_core.clock import SYSTEM_CLOCK, Clock
from supervisor_core.events.telemetry import Trigger
from supervisor_core.options import Options
from supervisor_core.runtime.coordinator import Coordinator
from supervisor_core.runtime.registry import ServiceRegistry
from supervisor_core.runtime.signals import SignalWatch
from supervisor_core.supervision.chief_watch import ChiefWatch
from supervisor_core.supervision.supervised_run import SupervisedRun
from supervisor_core.tf1 import private_symbols as private
from supervisor_core.tf1.checkpointing import Checkpointing
from supervisor_core.tf1.ending import Ending
from supervisor_core.tf1.origin import Origin
from supervisor_core.tf1.restore import Restored

_LOG = logging.getLogger("supervisor_core")

LOOP_SHARE = 0.5
"""Which part of the grace time after a signal the training loop has to end by itself, before a checkpoint is saved
beside it."""

_OPEN: weakref.WeakSet[Lifecycle] = weakref.WeakSet()


class Lifecycle:
    """The session under way, and the one before it: begins, ends, and is stopped by signals.

    Args:
        coord: the coordinator.
        options: how the run behaves.
        facade: what the program called.
        logdir: the run's directory; None where nothing is written.
        writer: the run's summary writer, or None.
        is_chief: whether this process writes.
        task: what a worker is called in its cluster; None for a chief, and for a process that belongs to none.
        checkpoints: takes the checkpoints; None where none are taken, or they are not known yet: see `use`.
        checkpoint_interval_secs: seconds between two. Default: what ``checkpoints`` says.
        clock: the time.
    """

    def __init__(
        self,
        *,
        coord: Coordinator,
        options: Options,
        facade: str,
        logdir: str | None,
        writer: Any,
        is_chief: bool,
        task: str | None = None,
        checkpoints: Checkpointing | None,
        checkpoint_interval_secs: float | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.services = ServiceRegistry()
        self.checkpoints = checkpoints
        self._interval_secs = checkpoint_interval_secs
        if checkpoints is not None:
            self._interval_secs = checkpoints.interval_secs
        self._coord = coord
        self._options = options
        self._facade = facade
        self._logdir = logdir
        self._writer = writer
        self._is_chief = is_chief
        self._task = task
        self._clock = clock
        self._run: SupervisedRun | None = None
        self._session: Any = None
        self._ending = Ending()
        self._finished = threading.Event()
        self._watch: SignalWatch | None = None
        self._close_lock = threading.Lock()
        self._chief: ChiefWatch | None = None

    @property
    def run(self) -> SupervisedRun:
        """The session under way, or the last one.

        Raises:
            RuntimeError: before the first session.
        """
        if self._run is None:
            raise RuntimeError(
                "There is no session yet: call managed_session() or prepare_or_wait_for_session() first."
            )
        return self._run

    @property
    def session(self) -> Any:
        """The TensorFlow session under way, or the last one; None before it is ready."""
        return self._session

    @property
    def has_begun(self) -> bool:
        """Whether there is, or was, a session since the last `begin`; not when the logdir was refused."""
        return self._run is not None

    @property
    def options(self) -> Options:
        """How the run behaves."""
        return self._options

    @property
    def ending(self) -> Ending:
        """What has been seen so far of the session's end."""
        return self._ending

    def begin(self) -> SupervisedRun:
        """Begin a session; one that is still open ends as requested.

        Raises:
            LogdirInUseError: if another live chief holds the logdir.
        """
        if self._run is not None:
            self.end(None)
            self._run.close(0.0)
            self.services.clear()
        for other in list(_OPEN):  # a program may close a session, never stop its supervisor, and begin another
            if other._logdir == self._logdir and private.CLOSED.get(other._session, False):
                other.end(None)
        self._ending = Ending(signum=self._watch.received if self._watch else None)
        self._finished.clear()
        self._run = None
        if self._logdir and self._task is not None:
            wait_secs = self._options.finished_wait_secs
            self._chief = ChiefWatch(self._logdir, finished_wait_secs=wait_secs, clock=self._clock)
        run = SupervisedRun(
            logdir=self._logdir,
            facade=self._facade,
            options=self._options,
            writer=self._writer,
            services=self.services,
            checkpoint_interval_secs=self._interval_secs,
            is_chief=self._is_chief,
            task=self._task,
            on_taken_over=lambda error: self._coord.request_stop(error),
            clock=self._clock,
        )
        run.begin()
        self._run = run
        _OPEN.add(self)
        return run

    def use(self, checkpoints: Checkpointing) -> None:
        """Have the session's last checkpoint, and one at a signal, saved by this."""
        self.checkpoints = checkpoints

    def coordinate(self, coord: Coordinator) -> None:
        """Go on with another coordinator; a signal that came meanwhile asks it to stop at once."""
        self._coord = coord
        if self._ending.signum is not None:
            coord.request_stop()

    def ready(self, sess: Any, origin: Origin, services: Sequence[Mapping[str, Any]]) -> None:
        """Take note that the session is ready, and of where its model came from."""
        self._session = sess
        restored = origin.restored
        if self.checkpoints is not None:
            self.checkpoints.attach(sess, self.run, self._writer, restored, origin.skipped)
        self._note_restored(restored)
        self.run.ready(
            restored_checkpoint=None if restored is None else restored.path,
            restored_step=origin.step,
            adopted=origin.adopted,
            skipped=[{"path": item.path, "reason": item.reason} for item in origin.skipped],
            state_problem=None if restored is None else restored.state_problem,
            services=services,
        )

    def recovering(self) -> None:
        """Take note that the TensorFlow session is lost, and another one is on its way."""
        self._session = None
        self.run.enter("restoring")

    def recovered(self, sess: Any, origin: Origin, error: str, losses: int, secs: float) -> None:
        """Take note that another TensorFlow session has taken the place of the one that was lost.

        Args:
            sess: the new one.
            origin: where its model came from.
            error: what was raised when the old one was lost.
            losses: how often that happened until now.
            secs: how long it took.
        """
        self._session = sess
        self.run.recovered(
            error=error,
            losses=losses,
            step=self.run.progress.snapshot().global_step,
            checkpoint=None if origin.restored is None else origin.restored.path,
            at_step=origin.step,
            secs=secs,
        )
        self._note_restored(origin.restored)

    def kept_back(self) -> str | None:
        """Return why a worker must not begin: its run has finished; see `ChiefWatch.look`. Of a chief, nothing."""
        return None if self._chief is None else self._chief.look()

    def finished(self) -> None:
        """Take note that there is nothing to do: the run had finished when this process came. Asks for a stop."""
        self._ending.had_finished = True
        self._coord.request_stop()

    def service_failed(self, name: str, error: BaseException, tick: int) -> None:
        """Take note of a service's failed tick: the heartbeat that says so is written at once."""
        _LOG.info("Service %s: tick %d failed: %s", name, tick, error)
        if self._run is not None:
            self._run.beat()

    def finish(self, checkpoints: Checkpointing | None = None) -> None:
        """Stop training in good order: save what is not on disk yet. After an error only with `Options.save_on_error`.

        Args:
            checkpoints: saves it. Default: what `use` said.

        Raises:
            SaveFailedError: if the final checkpoint could not be saved, with the last cause.
        """
        if self._run is None or self._run.ended:
            return
        self.run.enter("stopping")
        checkpoints = checkpoints or self.checkpoints
        if checkpoints is None or not checkpoints.serving or not self._is_wanted_last():
            return
        with self.run.phase("checkpointing"):
            self._save_last(checkpoints)

    def end(self, error: BaseException | None) -> None:
        """Say that the session has ended; once per session.

        Args:
            error: what stopping raised, if anything.
        """
        if self._run is not None:
            _OPEN.discard(self)
            self._run.end(self._ending.outcome(error, self._coord))

    def close_writer(self, stop_log: Any) -> None:
        """Append STOP and close the writer, which a signal's deadline may be doing at the same moment."""
        with self._close_lock:
            self._writer.add_session_log(stop_log)
            self._writer.close()

    def stop_serving(self) -> None:
        """Stop serving metrics; lingers until the end has been seen, as far as the moment allows."""
        if self._run is None:
            return
        watch = self._watch
        if watch is None or watch.received_at is None:
            self._run.close()
        elif watch.received == signal.SIGINT:
            self._run.close(0.0)
        else:
            left = watch.received_at + self._options.signal_grace_secs - self._clock.monotonic()
            self._run.close(min(self._options.metrics_linger_secs, max(0.0, left)))

    @contextmanager
    def signals(self, stop_log: Any) -> Iterator[None]:
        """Turn SIGTERM and SIGINT into an orderly stop for the length of a block, then end as the signal would have.

        Args:
            stop_log: the ``SessionLog`` to append when the loop does not end in time.
        """
        if not self._options.handle_signals:
            yield
            return
        watch = SignalWatch(lambda signum: self._on_signal(signum, stop_log), clock=self._clock)
        try:
            with watch:
                self._watch = watch
                try:
                    yield
                finally:
                    self._finished.set()
                    self._watch = None
        except tf.errors.CancelledError:
            if self._ending.gave_up:  # there was no training yet that could have failed
                watch.finish()
            raise
        watch.finish()

    def _note_restored(self, restored: Restored | None) -> None:
        if restored is not None:
            self.run.saves.restored(
                path=restored.path, step=restored.step, saved_at=restored.saved_at, size_bytes=restored.bytes
            )

    def _save_last(self, checkpoints: Checkpointing) -> None:
        trigger: Trigger = "final" if self._ending.signum is None else "signal"
        path, step = checkpoints.save_last(trigger, lambda: not self._is_wanted_last())
        self._ending.final_checkpoint, self._ending.final_checkpoint_step = path, step

    def _is_wanted_last(self) -> bool:
        """Whether a session that ends like this is to be saved."""
        return self._options.save_on_error if self._has_failed() else self._options.save_on_stop

    def _has_failed(self) -> bool:
        """Whether the session has an error, or was interrupted: then its variables are not to be trusted."""
        body_error = self._ending.body_error
        if body_error is not None and not self._ending.is_clean(body_error, self._coord):
            return True
        try:
            self._coord.raise_requested_exception()
        except BaseException:  # asked for, not handled: stopping raises it
            return True
        return False

    def _on_signal(self, signum: int, stop_log: Any) -> None:
        """Stop in good order within the grace time. Runs in the signal watch's thread."""
        name = signal.Signals(signum).name
        grace_secs = self._options.signal_grace_secs
        _LOG.warning("%s: stopping in good order, within %.0f s (Ctrl-C once more: at once).", name, grace_secs)
        deadline = self._clock.monotonic() + grace_secs
        self._ending.signum = signum
        self._coord.request_stop()
        if self._finished.wait(grace_secs * LOOP_SHARE):
            return
        checkpoints = self.checkpoints
        if checkpoints is not None and checkpoints.serving and self._is_wanted_last():
            _LOG.warning("The training loop does not end by itself: a checkpoint is saved beside it.")
            try:
                self._save_last(checkpoints)
            except Exception:  # the process is about to end; the loop may still get to its own save
                _LOG.exception("The checkpoint could not be saved")
        if self._finished.wait(max(0.0, deadline - self._clock.monotonic())):
            return
        _LOG.error("The training loop did not end within %.0f s of %s; the process ends now.", grace_secs, name)
        self.end(None)
        if self._writer is not None:
            self.close_writer(stop_log)
        if self._watch is not None:
            self._watch.end_process()
