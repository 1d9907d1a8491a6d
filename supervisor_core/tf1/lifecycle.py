"""`Lifecycle`: one supervised session of the graph-mode facades.

The facade is TensorFlow's API; this is what happens behind it until the session ends. How it ends is in
`supervisor_core.engine.ending`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf

from supervisor_core.base.options import refuse_resume_options
from supervisor_core.checkpoint.guard import Publisher
from supervisor_core.engine import open_sessions
from supervisor_core.engine.chief_status import ChiefStatus
from supervisor_core.engine.coordinator import RuntimeCoordinator
from supervisor_core.engine.ending import Ending
from supervisor_core.engine.lifecycle import Notifies, SessionLifecycle
from supervisor_core.engine.step_lock import StepLock
from supervisor_core.events.telemetry import RecoveryRecord, ServiceInterval
from supervisor_core.run.status import RunStatus
from supervisor_core.tf1 import private_symbols as private
from supervisor_core.tf1.checkpoint_manager import CheckpointManager
from supervisor_core.tf1.cluster.wait import SessionContext
from supervisor_core.tf1.restore import Restored, RestoreInfo
from supervisor_core.tf1.session import SupervisedSession
from supervisor_core.tf1.tf_errors import error_text

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


class Lifecycle(SessionLifecycle[GraphEnding], SessionContext):
    """The sessions of a graph-mode facade: begin, become ready, recover, end. A session manager works for it.

    Args:
        arguments: see `SessionLifecycle`.
    """

    not_begun = "There is no session yet: call managed_session() or prepare_or_wait_for_session() first."

    def __init__(self, **arguments: Any) -> None:
        refuse_resume_options(arguments["options"], arguments["facade"])
        super().__init__(GraphEnding, **arguments)
        self.clock = self._clock
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
        for each in open_sessions.endings():
            if isinstance(each, GraphEnding) and each.is_abandoned_in(logdir):
                each.record(None)
        self.state.checkpoints = self._checkpoints
        if logdir and self._recording["task"] is not None:
            wait_secs = self.options.finished_wait_secs
            self._chief = ChiefStatus(logdir, finished_wait_secs=wait_secs, clock=self._clock)

    def supervise(self, sess: Any, global_step: Any) -> Any:
        """Return a session that does what this one does, supervised; this one itself if it is none of TensorFlow's.

        Args:
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

    def coordinate(self, coord: RuntimeCoordinator) -> None:
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
        self.restoring()

    def recovered(self, sess: Any, restore_info: RestoreInfo, error: str, losses: int, secs: float) -> None:
        """Record that another TensorFlow session has taken the place of the one that was lost.

        Args:
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

    @property
    def session(self) -> str:
        """See `SessionContext.session`."""
        return self.recorder.session_id

    @property
    def starts_over(self) -> bool:
        """Whether `Options.unusable_checkpoints` says so."""
        return self.options.unusable_checkpoints == "start_over"

    def publisher(self, directory: str) -> Publisher | None:
        """Return the run's publisher in its own directory."""
        return self.recorder.publisher if self.recorder.saves_in(directory) else None

    def wait(self, secs: float) -> bool:
        """Wait for a number of seconds; return whether a stop was requested."""
        return self.state.coord.wait_for_stop(secs)

    def restoring(self) -> None:
        """Record the phase "restoring"."""
        self.recorder.enter("restoring")

    def waiting_for(self, what: str | None) -> None:
        """Record what the run waits for."""
        self.recorder.waiting_for(what)

    def gave_up(self) -> None:
        """Record that the session gave up because of the stop request."""
        self.state.reason.gave_up = True

    def owns(self, session: str) -> bool:
        """Return whether the model is this session's, or its predecessor's if that crashed."""
        return self.recorder.can_adopt_model_of(session)

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
