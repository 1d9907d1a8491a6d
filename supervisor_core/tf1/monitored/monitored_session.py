"""`MonitoredSession` and `SingularMonitoredSession`: the arguments of ``tf.compat.v1.train``'s (seed document 004)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from supervisor_core.options import Options
from supervisor_core.tf1.monitored.monitored import Monitored
from supervisor_core.tf1.monitored.session_creator import ChiefSessionCreator


class MonitoredSession(Monitored, tf.compat.v1.train.MonitoredSession):
    """A session that initialises or restores its model, calls hooks, and is recreated when it is lost.

    At the start, in this order: ``begin`` of each hook; the graph is finalized; the session is made and its model
    initialised or restored; queue runners are started; ``after_create_session`` of each hook. For each run:
    ``before_run`` of each hook, the run with what they ask for, ``after_run`` of each. At the end, unless by an
    exception: ``end`` of each hook. Then threads are joined and the session is closed. As a ``with`` block it takes
    `OutOfRangeError` and `StopIteration` for a clean end.

    Where hooks save checkpoints or write summaries, it is a supervised run like that of a `Supervisor`: telemetry,
    metrics, a lease on the directory of checkpoints, and SIGTERM and SIGINT turned into an orderly stop; likewise that
    of a worker in a `MonitoredTrainingSession` with a directory, which it shares with its chief.

    Args:
        session_creator: makes the TensorFlow session. Default: a `ChiefSessionCreator`; in a worker of a
            distribution strategy, the one that the strategy says.
        hooks: ``SessionRunHook`` objects, TensorFlow's own, ours, or the program's.
        stop_grace_period_secs: seconds that threads have to end when the session is closed.
        options: what the original does not know; see `Options`.

    Raises:
        RuntimeError: under eager execution.
        LogdirInUseError: if another live chief saves to the same directory.

    Example:
        hooks = [supervisor_core.CheckpointSaverHook("/runs/a", save_steps=1000)]
        creator = supervisor_core.ChiefSessionCreator(checkpoint_dir="/runs/a")
        with supervisor_core.MonitoredSession(creator, hooks) as sess:
            while not sess.should_stop():
                sess.run(train_op)
    """

    def __init__(
        self,
        session_creator: Any = None,
        hooks: Sequence[Any] | None = None,
        stop_grace_period_secs: float = 120,
        *,
        options: Options | None = None,
        _logdir: str | None = None,
    ) -> None:
        Monitored.__init__(
            self,
            session_creator,
            hooks,
            stop_grace_period_secs=stop_grace_period_secs,
            recovers=True,
            options=options,
            logdir=_logdir,
        )


class SingularMonitoredSession(Monitored, tf.compat.v1.train.SingularMonitoredSession):
    """As `MonitoredSession`, but always a chief, never recreated, and with access to the session inside.

    Args:
        hooks: ``SessionRunHook`` objects.
        scaffold: the ops that initialise and check the model.
        master: the TensorFlow master, ``""`` for this process.
        config: a ``ConfigProto`` for the session.
        checkpoint_dir: where to look for a checkpoint to restore.
        stop_grace_period_secs: seconds that threads have to end when the session is closed.
        checkpoint_filename_with_path: one checkpoint to restore.
        options: what the original does not know; see `Options`.
    """

    _facade = "SingularMonitoredSession"

    def __init__(
        self,
        hooks: Sequence[Any] | None = None,
        scaffold: Any = None,
        master: str = "",
        config: Any = None,
        checkpoint_dir: str | None = None,
        stop_grace_period_secs: float = 120,
        checkpoint_filename_with_path: str | None = None,
        *,
        options: Options | None = None,
    ) -> None:
        creator = ChiefSessionCreator(scaffold, master, config, checkpoint_dir, checkpoint_filename_with_path)
        Monitored.__init__(
            self,
            creator,
            hooks,
            stop_grace_period_secs=stop_grace_period_secs,
            recovers=False,
            options=options,
        )

    def raw_session(self) -> Any:
        """Return the session inside, a ``tf.compat.v1.Session`` that calls no hooks; None once it is closed."""
        return self._session
