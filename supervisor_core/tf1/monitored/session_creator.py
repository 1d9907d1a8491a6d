"""`ChiefSessionCreator` and `WorkerSessionCreator`: make the TensorFlow session of a `MonitoredSession`.

Source: the classes of these names in ``tf.compat.v1.train``. What is better comes from `SessionManager`: recovery
walks back over damaged checkpoints, waiting polls with backoff, a session that cannot be made ready is closed.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from supervisor_core.checkpoint.recovery import Skipped
from supervisor_core.tf1.cluster.announcement import Announcement, announcement_for
from supervisor_core.tf1.cluster.surroundings import Surroundings
from supervisor_core.tf1.monitored.unfinalized import unfinalized
from supervisor_core.tf1.restore import Restored
from supervisor_core.tf1.session_manager import SessionManager


class _ScaffoldedSessionCreator(tf.compat.v1.train.SessionCreator):
    """What chief and worker have in common: a scaffold, and a manager for what it holds."""

    def __init__(self, scaffold: Any, master: str, config: Any) -> None:
        self._scaffold = scaffold or tf.compat.v1.train.Scaffold()
        self._master = master
        self._config = config
        self._manager: SessionManager | None = None
        self._announcement: Announcement | None = None
        self._surroundings: Surroundings | None = None

    @property
    def restored(self) -> Restored | None:
        """What the last session was restored from; None when it was initialised, here or by the chief."""
        return None if self._manager is None else self._manager.restored

    @property
    def skipped(self) -> tuple[Skipped, ...]:
        """The damaged checkpoints that the last session passed over, newest first."""
        return () if self._manager is None else self._manager.skipped

    @property
    def adopted(self) -> bool:
        """Whether the last session's model was found alive in the cluster, and kept as it was."""
        return self._manager is not None and self._manager.adopted

    def work_in(self, surroundings: Surroundings) -> None:
        """Make the next sessions for a run, which is told of it and may interrupt it."""
        self._surroundings = surroundings

    def _ready_manager(self) -> SessionManager:
        self._scaffold.finalize()
        graph = tf.compat.v1.get_default_graph()
        if self._announcement is None:
            with unfinalized(graph) as may_grow:
                self._announcement = announcement_for(graph) if may_grow else None
        self._manager = SessionManager(
            local_init_op=self._scaffold.local_init_op,
            local_init_feed_dict=self._scaffold.local_init_feed_dict,
            ready_op=self._scaffold.ready_op,
            ready_for_local_init_op=self._scaffold.ready_for_local_init_op,
            graph=graph,
            announcement=self._announcement,
            surroundings=self._surroundings,
        )
        return self._manager


class ChiefSessionCreator(_ScaffoldedSessionCreator):
    """Makes a session whose model is restored from a checkpoint, or else initialised.

    Args:
        scaffold: the ops that initialise and check the model. Default: a new one, with TensorFlow's defaults.
        master: the TensorFlow master, ``""`` for this process.
        config: a ``ConfigProto`` for the session.
        checkpoint_dir: where to look for checkpoints. None: the model is initialised.
        checkpoint_filename_with_path: one checkpoint to restore, whatever the state file says.
    """

    def __init__(
        self,
        scaffold: Any = None,
        master: str = "",
        config: Any = None,
        checkpoint_dir: str | None = None,
        checkpoint_filename_with_path: str | None = None,
    ) -> None:
        super().__init__(scaffold, master, config)
        self._checkpoint_dir = checkpoint_dir
        self._checkpoint_filename_with_path = checkpoint_filename_with_path

    def create_session(self) -> Any:
        """Finalize the graph and return a session whose model is ready.

        Raises:
            RuntimeError: if the model is not ready after it was restored or initialised.
            ValueError: if both a directory and a file name were given.
            NoUsableCheckpointError: if there are checkpoints and none can be read.
        """
        return self._ready_manager().prepare_session(
            self._master,
            saver=self._scaffold.saver,
            checkpoint_dir=self._checkpoint_dir,
            checkpoint_filename_with_path=self._checkpoint_filename_with_path,
            config=self._config,
            init_op=self._scaffold.init_op,
            init_feed_dict=self._scaffold.init_feed_dict,
            init_fn=self._scaffold.init_fn,
        )


class WorkerSessionCreator(_ScaffoldedSessionCreator):
    """Makes a session once the chief has made the model ready.

    Args:
        scaffold: the ops that check the model. Default: a new one, with TensorFlow's defaults.
        master: the TensorFlow master.
        config: a ``ConfigProto`` for the session.
        max_wait_secs: how long to wait for the chief, in seconds.
    """

    def __init__(
        self, scaffold: Any = None, master: str = "", config: Any = None, max_wait_secs: float = 30 * 60
    ) -> None:
        super().__init__(scaffold, master, config)
        self._max_wait_secs = max_wait_secs

    def create_session(self) -> Any:
        """Finalize the graph and return a session whose model is ready.

        Raises:
            tf.errors.DeadlineExceededError: if it was not ready in time; the text says what was missing.
            tf.errors.CancelledError: if a stop was requested while waiting.
            RunFinishedError: if the run has finished, and begins no more; the session takes that for its end.
        """
        return self._ready_manager().wait_for_session(
            self._master, config=self._config, max_wait_secs=self._max_wait_secs
        )
