"""`MonitoredSession`, `SingularMonitoredSession` and `MonitoredTrainingSession`: public monitored sessions.

Source: seed document 004; arguments, defaults and order of hooks are those of ``tf.compat.v1.train``.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from supervisor_core.base.options import Options
from supervisor_core.tf1.monitored.checkpoint_hook import CheckpointSaverHook
from supervisor_core.tf1.monitored.hooks import StepCounterHook, SummarySaverHook
from supervisor_core.tf1.monitored.session import Monitored
from supervisor_core.tf1.monitored.session_creator import (
    ChiefSessionCreator,
    WorkerSessionCreator,
    collective_save_interval,
    creator_in,
    current_worker_context,
    directory_in,
    is_collective,
)


class MonitoredSession(Monitored, tf.compat.v1.train.MonitoredSession):
    """A session that initialises or restores its model, calls hooks, and is recreated when it is lost.

    At the start, in this order: ``begin`` of each hook; the graph is finalized; the session is created and its model
    initialised or restored; queue runners are started; ``after_create_session`` of each hook. For each call of ``run``:
    ``before_run`` of each hook, the call with what they ask for, ``after_run`` of each. At the end, unless by an
    exception: ``end`` of each hook. Then threads are joined and the session is closed. In a ``with`` block
    `OutOfRangeError` and `StopIteration` are a clean end.

    If hooks save checkpoints or write summaries, it is a supervised run like that of a `Supervisor`: telemetry,
    metrics, a lock on the checkpoint directory, and SIGTERM and SIGINT shut it down. So is a worker of a
    `MonitoredTrainingSession` with a directory, which it shares with its chief.

    Args:
        session_creator: creates the TensorFlow session. Default: a `ChiefSessionCreator`; in a worker of a
            distribution strategy, the one that the strategy requires.
        hooks: ``SessionRunHook`` objects, of TensorFlow, of this package or of the program.
        stop_grace_period_secs: seconds that threads have to stop when the session is closed.
        options: additions to the original; see `Options`.

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
    """As `MonitoredSession`, but always a chief, never recreated, and with access to the wrapped session.

    Args:
        hooks: ``SessionRunHook`` objects.
        scaffold: the ops that initialise and check the model.
        master: the TensorFlow master, ``""`` for this process.
        config: a ``ConfigProto`` for the session.
        checkpoint_dir: where to look for a checkpoint to restore.
        stop_grace_period_secs: seconds that threads have to stop when the session is closed.
        checkpoint_filename_with_path: one checkpoint to restore.
        options: additions to the original; see `Options`.
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
        """Return the wrapped ``tf.compat.v1.Session``, which calls no hooks; None once it is closed."""
        return self._session


USE_DEFAULT = inspect.signature(tf.compat.v1.train.MonitoredTrainingSession).parameters["save_summaries_steps"].default
"""Means "use the default", since None means "do without". It is TensorFlow's own, which programs may pass on."""


class _TrainingSession(MonitoredSession):
    _facade = "MonitoredTrainingSession"


def MonitoredTrainingSession(  # noqa: N802 - the original's name
    master: str = "",
    is_chief: bool = True,
    checkpoint_dir: str | None = None,
    scaffold: Any = None,
    hooks: Sequence[Any] | None = None,
    chief_only_hooks: Sequence[Any] | None = None,
    save_checkpoint_secs: Any = USE_DEFAULT,
    save_summaries_steps: Any = USE_DEFAULT,
    save_summaries_secs: Any = USE_DEFAULT,
    config: Any = None,
    stop_grace_period_secs: float = 120,
    log_step_count_steps: int | None = 100,
    max_wait_secs: float = 7200,
    save_checkpoint_steps: Any = USE_DEFAULT,
    summary_dir: str | None = None,
    save_graph_def: bool = True,
    *,
    options: Options | None = None,
) -> MonitoredSession:
    """Return a `MonitoredSession` that saves checkpoints and summaries, and resumes where the last one stopped.

    Hooks are called in the original's order: chief-only hooks, step counter, summaries, checkpoints, ``hooks``.

    Args:
        master: the TensorFlow master, ``""`` for this process.
        is_chief: whether this process initialises, restores, saves and writes; workers wait for it.
        checkpoint_dir: directory of checkpoints and events, also for restoring. None: nothing is written.
        scaffold: the ops that initialise and check the model, and its saver. Default: a new one.
        hooks: ``SessionRunHook`` objects.
        chief_only_hooks: more hooks, for the chief only.
        save_checkpoint_secs: seconds between checkpoints; None or 0: not by time. Default: 600, unless
            ``save_checkpoint_steps`` is given.
        save_summaries_steps: steps between summaries; None or 0: not on steps. Default: 100, unless
            ``save_summaries_secs`` is given.
        save_summaries_secs: seconds between summaries; None or 0: not by time.
        config: a ``ConfigProto`` for the session.
        stop_grace_period_secs: seconds that threads have to stop when the session is closed.
        log_step_count_steps: steps between two values of steps per second; None or 0: none.
        max_wait_secs: how long workers wait for the chief, in seconds.
        save_checkpoint_steps: steps between checkpoints; None or 0: not on steps.
        summary_dir: directory of events. Default: ``checkpoint_dir``.
        save_graph_def: whether to write ``graph.pbtxt`` and the checkpoints' ``.meta``.
        options: additions to the original; see `Options`.

    Raises:
        RuntimeError: under eager execution.
        ValueError: if checkpoints, or summaries, are requested both by steps and by time.
        LogdirInUseError: if another live chief saves to ``checkpoint_dir``.
        NoUsableCheckpointError: if there are checkpoints and none can be read.

    Example:
        with supervisor_core.MonitoredTrainingSession(checkpoint_dir="/runs/a", hooks=[StopAtStepHook(100000)]) as sess:
            while not sess.should_stop():
                sess.run(train_op)
    """
    summaries = _interval(save_summaries_steps, save_summaries_secs, (100, None))
    checkpoints = _interval(save_checkpoint_steps, save_checkpoint_secs, (None, 600))
    scaffold = scaffold or tf.compat.v1.train.Scaffold()
    events_dir, saves_dir = summary_dir or checkpoint_dir, checkpoint_dir
    context = current_worker_context()
    creator: Any
    if context is not None:
        is_chief = context.is_chief
        events_dir = directory_in(context, events_dir, context.should_save_summary)
        saves_dir = directory_in(context, saves_dir, context.should_checkpoint)
        checkpoints = collective_save_interval(checkpoints) if is_collective(context) else checkpoints
        creator = creator_in(context, scaffold, config, checkpoint_dir, max_wait_secs)
    elif is_chief:
        creator = ChiefSessionCreator(scaffold, master, config, checkpoint_dir)
    else:
        events_dir = saves_dir = None
        creator = WorkerSessionCreator(scaffold, master, config, max_wait_secs)
    own: list[Any] = []
    if events_dir and log_step_count_steps and log_step_count_steps > 0:
        own.append(StepCounterHook(output_dir=events_dir, every_n_steps=log_step_count_steps))
    if events_dir and _is_wanted(summaries):
        steps, secs = summaries
        own.append(SummarySaverHook(scaffold=scaffold, save_steps=steps, save_secs=secs, output_dir=events_dir))
    if saves_dir and _is_wanted(checkpoints):
        steps, secs = checkpoints
        own.append(
            CheckpointSaverHook(
                saves_dir, save_steps=steps, save_secs=secs, scaffold=scaffold, save_graph_def=save_graph_def
            )
        )
    hooks, chief_only = list(hooks or ()), list(chief_only_hooks or ()) if is_chief else []
    every = [*chief_only, *own, *hooks] if context is None else [*hooks, *chief_only, *own]
    return _TrainingSession(creator, every, stop_grace_period_secs, options=options, _logdir=checkpoint_dir)


def _interval(steps: Any, secs: Any, default: tuple[Any, Any]) -> tuple[Any, Any]:
    """Return steps and seconds between two; if only one is given, the other is None."""
    if steps is USE_DEFAULT and secs is USE_DEFAULT:
        return default
    return (None if steps is USE_DEFAULT else steps), (None if secs is USE_DEFAULT else secs)


def _is_wanted(interval: tuple[Any, Any]) -> bool:
    return any(value and value > 0 for value in interval)
