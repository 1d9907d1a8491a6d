"""`Lifecycle`: one supervised session of the graph-mode facades, and `managed_session`, its ``with`` block.

The facade is TensorFlow's API; this is what happens behind it until the session ends. How it ends is in
`supervisor_core.engine.ending`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import tensorflow as tf

from supervisor_core.base.clock import SYSTEM_CLOCK, Clock
from supervisor_core.base.options import Options, refuse_verify_resume
from supervisor_core.checkpoint.guard import Publisher
from supervisor_core.engine import open_sessions
from supervisor_core.engine.chief_status import ChiefStatus
from supervisor_core.engine.coordinator import Coordinator
from supervisor_core.engine.ending import Ending
from supervisor_core.engine.lifecycle import Notifies, SessionLifecycle
from supervisor_core.engine.session_state import StopReason
from supervisor_core.engine.step_lock import StepLock
from supervisor_core.events.file_writer import FileWriter
from supervisor_core.events.telemetry import RecoveryRecord, ServiceInterval
from supervisor_core.run.status import RunStatus
from supervisor_core.tf1 import private_symbols as private
from supervisor_core.tf1.checkpoint_manager import CheckpointManager
from supervisor_core.tf1.checkpoint_writer import CheckpointWriter
from supervisor_core.tf1.cluster.connect import close_with_timeout
from supervisor_core.tf1.cluster.task import task_name
from supervisor_core.tf1.cluster.wait import SessionContext
from supervisor_core.tf1.restore import Restored, RestoreInfo
from supervisor_core.tf1.session import SupervisedSession
from supervisor_core.tf1.tf_errors import error_text, explain_finalized

_LOG = logging.getLogger("supervisor_core")

RELEASE_AFTER_SECS = 30.0
"""How long threads may take to end by themselves before the session is closed under them, in seconds, if half of
``stop_grace_secs`` is not less."""


class GraphEnding(Ending):
    """The end of a session of the graph-mode facades, with TensorFlow's errors; see `Ending`."""

    stop_log = tf.compat.v1.SessionLog(status=tf.compat.v1.SessionLog.STOP)  # the writer may be TensorFlow's

    def is_exhausted(self, error: BaseException) -> bool:
        """See `Ending.is_exhausted`."""
        return isinstance(error, (tf.errors.OutOfRangeError, StopIteration))

    def is_cancelled(self, error: BaseException) -> bool:
        """See `Ending.is_cancelled`."""
        return type(error) is tf.errors.CancelledError

    def describe(self, error: BaseException) -> str:
        """See `Ending.describe`."""
        return error_text(error)

    def is_abandoned_in(self, logdir: str | None) -> bool:
        """Whether the program has closed the TensorFlow session, of a run in this directory, and stopped nothing."""
        return self._state.logdir == logdir and private.CLOSED.get(self._state.tf_session, False)


def end_abandoned(logdir: str | None) -> None:
    """End the sessions in a directory whose TensorFlow session a program has closed without stopping anything."""
    for each in open_sessions.endings():
        if isinstance(each, GraphEnding) and each.is_abandoned_in(logdir):
            each.record(None)


class Lifecycle(SessionLifecycle[GraphEnding]):
    """The sessions of a graph-mode facade: begin, become ready, recover, end.

    Args:
        arguments: see `SessionLifecycle`.
    """

    not_begun = "There is no session yet: call managed_session() or prepare_or_wait_for_session() first."

    def __init__(self, **arguments: Any) -> None:
        refuse_verify_resume(arguments["options"], arguments["facade"])
        super().__init__(GraphEnding, **arguments)
        self.step_lock = StepLock(clock=self._clock)
        """Keeps steps out while a snapshot is taken."""
        self._checkpoints: CheckpointManager | None = None
        self._chief: ChiefStatus | None = None

    def require_ownership(self) -> None:
        """Raise `LogdirInUseError` where checkpoints would be written into the logdir of another run."""
        if self._refusal is not None and self._checkpoints is not None:
            raise self._refusal

    @property
    def checkpoints(self) -> CheckpointManager | None:
        """What takes the session's checkpoints; None where none are taken."""
        return None if self.state.checkpoints is None else self._checkpoints

    def _prepare(self) -> None:
        logdir = self.state.logdir
        end_abandoned(logdir)
        self.state.checkpoints = self._checkpoints
        if logdir and self._recording["task"] is not None:
            wait_secs = self.options.finished_wait_secs
            self._chief = ChiefStatus(logdir, finished_wait_secs=wait_secs, clock=self._clock)

    def supervise(self, sess: Any, global_step: Any) -> Any:
        """Return a session that does what this one does, supervised; this one itself if it is none of TensorFlow's.

        Args:
            sess: the session.
            global_step: what counts its steps, or None.
        """
        if isinstance(sess, SupervisedSession) or type(sess) is not tf.compat.v1.Session:
            return sess
        return SupervisedSession(
            plain=sess,
            step_lock=self.step_lock,
            observer=self.recorder.progress,
            global_step=global_step,
            clock=self._clock,
        )

    def use(self, checkpoints: CheckpointManager) -> None:
        """Have the session's last checkpoint, and one at a signal, saved by this."""
        self._checkpoints = checkpoints
        self._recording["checkpoint_interval_secs"] = checkpoints.interval_secs
        if not self.state.is_not_owner:
            self.state.checkpoints = checkpoints

    def coordinate(self, coord: Coordinator) -> None:
        """Go on with another coordinator; a signal that came meanwhile asks it to stop at once."""
        self.state.coord = coord
        if self.state.reason.signum is not None:
            coord.request_stop()

    def session_ready(self, sess: Any, restore_info: RestoreInfo, services: Sequence[ServiceInterval]) -> None:
        """Record that the session is ready, and where its model came from."""
        restored = restore_info.restored
        self.state.tf_session = sess
        self.loop_begins()
        if self.checkpoints is not None:
            self.checkpoints.attach(sess, self.recorder, self.state.writer, restore_info)
        self._note_restored(restored)
        self.ready(
            skipped=restore_info.skipped,
            services=services,
            restored_checkpoint=None if restored is None else restored.path,
            restored_step=restore_info.step,
            adopted=restore_info.adopted,
            state_problem=None if restored is None else restored.state_problem,
        )

    def recovering(self) -> None:
        """Record that the TensorFlow session is lost, and another one is on its way."""
        self.state.tf_session = None
        self.recorder.enter("restoring")

    def recovered(self, sess: Any, restore_info: RestoreInfo, error: str, losses: int, secs: float) -> None:
        """Record that another TensorFlow session has taken the place of the one that was lost.

        Args:
            sess: the new one.
            restore_info: where its model came from.
            error: what was raised when the old one was lost.
            losses: how often that happened until now.
            secs: how long it took.
        """
        self.state.tf_session = sess
        record = RecoveryRecord(
            session=self.recorder.session_id,
            error=error,
            losses=losses,
            step=self.recorder.progress.snapshot().global_step,
            restored_checkpoint=None if restore_info.restored is None else restore_info.restored.path,
            restored_step=restore_info.step,
            secs=secs,
        )
        self.recorder.recovered(record)
        self._note_restored(restore_info.restored)

    def kept_back(self) -> str | None:
        """Return why a worker must not begin: its run has finished; see `ChiefStatus.check`. Of a chief, nothing."""
        return None if self._chief is None else self._chief.check()

    def finished(self) -> None:
        """Record that there is nothing to do: the run had finished when this process came. Asks for a stop."""
        self.state.reason.had_finished = True
        self.state.coord.request_stop()

    def service_failed(self, name: str, error: BaseException, tick: int) -> None:
        """Record a service's failed tick: the heartbeat that says so is written at once."""
        _LOG.info("Service %s: tick %d failed: %s", name, tick, error)
        if self.state.recorder is not None:
            self.state.recorder.beat()

    def _note_restored(self, restored: Restored | None) -> None:
        if restored is not None:
            self.recorder.saves.restored(
                path=restored.path, step=restored.step, saved_at=restored.saved_at, size_bytes=restored.bytes
            )


def lifecycle_of(supervisor: Any) -> Lifecycle:
    """Return what works behind a `Supervisor`'s API, built from its attributes.

    Only from attributes that the original has too. So a subclass whose constructor is a copy of the original's, or
    which sets some of them itself after the constructor, gets what they say.
    """
    options: Options = supervisor._options
    logdir = supervisor._absolute(supervisor._shared_logdir or supervisor._logdir)
    writer = supervisor.summary_writer
    if writer is None and supervisor.is_chief and logdir and options.write_telemetry:
        writer = FileWriter(logdir)  # of our own, for the telemetry
    lifecycle = Lifecycle(
        coord=supervisor.coord,
        options=options,
        facade="Supervisor",
        logdir=logdir,
        writer=writer,
        is_chief=supervisor.is_chief,
        task=None if supervisor.is_chief else task_name(options, supervisor._graph),
    )
    save_path = supervisor._absolute(supervisor.save_path)
    if supervisor.is_chief and save_path and supervisor.saver and supervisor.save_model_secs:
        checkpoint_writer = CheckpointWriter(
            graph=supervisor._graph,
            saver=supervisor.saver,
            save_path=save_path,
            global_step=supervisor.global_step,
            meta_graph_def=supervisor._meta_graph_def,
            step_lock=lifecycle.step_lock,
            options=options,
        )
        lifecycle.use(CheckpointManager(checkpoint_writer, supervisor.save_model_secs))
    return lifecycle


@contextmanager
def managed_session(
    supervisor: tf.compat.v1.train.Supervisor,
    lifecycle: Lifecycle,
    *,
    prepared: Callable[[Any], object],
    close_summary_writer: bool,
    master: str,
    config: Any,
    start_standard_services: bool,
) -> Iterator[Any]:
    """Prepare a session, yield it, save and stop; see `Supervisor.managed_session`.

    A subclass may override what is called here, with the arguments that the original passes: no others are passed.
    """
    with lifecycle.ending.signals.watched():
        try:
            try:
                sess = supervisor.prepare_or_wait_for_session(
                    master=master, config=config, start_standard_services=start_standard_services
                )
                prepared(sess)
            except BaseException:
                _give_up(supervisor, lifecycle, close_summary_writer)
                raise
            # A run that blocks in a dequeue is released by closing the session, before the time for a stop is over.
            supervisor.coord.register_release(sess.close, after_secs=RELEASE_AFTER_SECS)
            yield from _guarded(supervisor, lifecycle, sess, close_summary_writer)
        finally:
            lifecycle.ending.stop_serving()


def _guarded(
    supervisor: tf.compat.v1.train.Supervisor, lifecycle: Lifecycle, sess: Any, close_summary_writer: bool
) -> Iterator[Any]:
    reason = lifecycle.state.reason
    try:
        try:
            yield sess
        except BaseException as error:
            if lifecycle.ending.is_inactive:
                raise
            reason.stop_was_requested |= supervisor.coord.should_stop()
            reason.body_error = error
            if not isinstance(error, Exception):
                raise
            explain_finalized(error)
            supervisor.request_stop(error)
        finally:
            _stop(supervisor, reason, close_summary_writer)
    finally:
        if not lifecycle.ending.is_inactive:  # whose TensorFlow has no threads that could close anything
            close_with_timeout(sess, lifecycle.ending.closing_secs)
    if reason.body_error is not None and not lifecycle.ending.is_clean(reason.body_error):
        raise reason.body_error  # which the coordinator ignores if a stop had been requested before


def _stop(supervisor: tf.compat.v1.train.Supervisor, reason: StopReason, close_summary_writer: bool) -> None:
    body_error = reason.body_error
    reason.ignores_live_threads = True
    try:
        supervisor.stop(close_summary_writer=close_summary_writer)
    except BaseException as error:
        if body_error is not None and error is not body_error and error.__context__ is None:
            error.__context__ = body_error
        raise


def _give_up(supervisor: tf.compat.v1.train.Supervisor, lifecycle: Lifecycle, close_summary_writer: bool) -> None:
    """End what a failed preparation has begun; its own error is the one that counts."""
    if not lifecycle.has_begun:  # refused: not a word into the run of the one at work
        if lifecycle.state.writer is not None:
            lifecycle.state.writer.close()
        return
    lifecycle.state.reason.ignores_live_threads = True
    try:
        supervisor.stop(close_summary_writer=close_summary_writer)
    except Exception as error:
        _LOG.info("Stopping after a failed preparation failed: %s", error)


class RunMethods(Notifies):
    """What a facade offers of its run beyond the original's API: its status, its metrics, a checkpoint now."""

    @property
    def _lifecycle(self) -> Lifecycle:
        """The facade's sessions; each facade says which."""
        raise NotImplementedError

    @property
    def metrics_url(self) -> str | None:
        """Where Prometheus finds this process's metrics; None where none are served."""
        return self._lifecycle.recorder.metrics_url

    def run_status(self) -> RunStatus:
        """Return the session at this moment: what ``supervisor_core.metrics.RunCollector`` shows of it.

        Example, for a program that serves prometheus_client's default registry already:
            prometheus_client.REGISTRY.register(RunCollector(lambda: [sv.run_status()]))
        """
        return self._lifecycle.recorder.status()

    def evaluating(self) -> AbstractContextManager[None]:
        """Say that what happens in the ``with`` block is evaluation: it has a hang timeout of its own."""
        return self._lifecycle.recorder.phase("evaluating")

    def save_checkpoint(self) -> str | None:
        """Save a checkpoint now, beside the service's own; return its path, None where nothing is saved.

        Raises:
            SaveFailedError: if there is no session.
            OSError, tf.errors.OpError: what kept it from being saved.
        """
        checkpoints = self._lifecycle.checkpoints
        if checkpoints is None:
            return None
        with self._lifecycle.recorder.progress.held():
            return checkpoints.save("manual")


class RunContext(SessionContext):
    """The context of a session manager that works for a supervised run.

    Args:
        lifecycle: the run; one of its sessions must be in progress.
        clock: replaced in tests.
    """

    def __init__(self, lifecycle: Lifecycle, clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__(clock)
        self._lifecycle = lifecycle

    @property
    def session(self) -> str:
        """The id of the run's present session."""
        return self._lifecycle.recorder.session_id

    @property
    def starts_over(self) -> bool:
        """Whether `Options.unusable_checkpoints` says so."""
        return self._lifecycle.options.unusable_checkpoints == "start_over"

    def publisher(self, directory: str) -> Publisher | None:
        """Return the run's publisher in its own directory."""
        run = self._lifecycle.recorder
        return run.publisher if run.saves_in(directory) else None

    def wait(self, secs: float) -> bool:
        """Wait for a number of seconds; return whether a stop was requested."""
        return self._lifecycle.state.coord.wait_for_stop(secs)

    def restoring(self) -> None:
        """Record the phase "restoring"."""
        self._lifecycle.recorder.enter("restoring")

    def waiting_for(self, what: str | None) -> None:
        """Record what the run waits for."""
        self._lifecycle.recorder.waiting_for(what)

    def gave_up(self) -> None:
        """Record that the session gave up because of the stop request."""
        self._lifecycle.state.reason.gave_up = True

    def kept_back(self) -> str | None:
        """Return why this worker must wait, from the chief's lock file."""
        return self._lifecycle.kept_back()

    def owns(self, session: str) -> bool:
        """Return whether the model is this session's, or its predecessor's if that crashed."""
        return self._lifecycle.recorder.can_adopt_model_of(session)
