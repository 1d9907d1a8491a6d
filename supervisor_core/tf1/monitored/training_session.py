"""`MonitoredTrainingSession`: a monitored session with everything that a training wants, from one call."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from supervisor_core.options import Options
from supervisor_core.tf1.monitored.checkpoint_saver_hook import CheckpointSaverHook
from supervisor_core.tf1.monitored.monitored_session import MonitoredSession
from supervisor_core.tf1.monitored.session_creator import ChiefSessionCreator, WorkerSessionCreator
from supervisor_core.tf1.monitored.step_counter_hook import StepCounterHook
from supervisor_core.tf1.monitored.summary_saver_hook import SummarySaverHook
from supervisor_core.tf1.monitored.worker_context import (
    collective_save_interval,
    creator_in,
    current_worker_context,
    directory_in,
    is_collective,
)

USE_DEFAULT = inspect.signature(tf.compat.v1.train.MonitoredTrainingSession).parameters["save_summaries_steps"].default
"""Stands for "use the default" where None means "do without": TensorFlow's own, which programs may pass on."""


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

    Source: seed document 004 and ``tf.compat.v1.train.MonitoredTrainingSession``; arguments, defaults and the order of
    hooks are the original's: chief-only hooks, step counter, summaries, checkpoints, ``hooks``.

    Args:
        master: the TensorFlow master, ``""`` for this process.
        is_chief: whether this process initialises, restores, saves and writes; others wait for it.
        checkpoint_dir: where checkpoints and events go, and what is restored from. None writes nothing.
        scaffold: the ops that initialise and check the model, and its saver. Default: a new one.
        hooks: ``SessionRunHook`` objects.
        chief_only_hooks: more of them, for the chief alone.
        save_checkpoint_secs: seconds between checkpoints; None or 0: not on the clock. Default: 600, unless
            ``save_checkpoint_steps`` is given.
        save_summaries_steps: steps between summaries; None or 0: not on steps. Default: 100, unless
            ``save_summaries_secs`` is given.
        save_summaries_secs: seconds between summaries; None or 0: not on the clock.
        config: a ``ConfigProto`` for the session.
        stop_grace_period_secs: seconds that threads have to end when the session is closed.
        log_step_count_steps: steps between two rates of steps per second; None or 0: none.
        max_wait_secs: how long others wait for the chief, in seconds.
        save_checkpoint_steps: steps between checkpoints; None or 0: not on steps.
        summary_dir: where events go, if not to ``checkpoint_dir``.
        save_graph_def: whether to write ``graph.pbtxt`` and the checkpoints' ``.meta``.
        options: what the original does not know; see `Options`.

    Raises:
        RuntimeError: under eager execution.
        ValueError: if checkpoints, or summaries, are wanted both on steps and on the clock.
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
    """Return steps and seconds; where one of them is given, the other is None."""
    if steps is USE_DEFAULT and secs is USE_DEFAULT:
        return default
    return (None if steps is USE_DEFAULT else steps), (None if secs is USE_DEFAULT else secs)


def _is_wanted(interval: tuple[Any, Any]) -> bool:
    return any(value and value > 0 for value in interval)
