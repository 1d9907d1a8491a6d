"""What a distribution strategy makes of a monitored session: who initialises, who saves, who writes summaries.

Source: ``MonitoredTrainingSession`` under a worker context of TensorFlow's distribute coordinator.
"""

from __future__ import annotations

import logging
import os
from typing import Any

from supervisor_core.tf1 import private_symbols as private
from supervisor_core.tf1.monitored.session_creator import ChiefSessionCreator, WorkerSessionCreator

_LOG = logging.getLogger("supervisor_core")

_COLLECTIVE = frozenset({"CollectiveAllReduceStrategy", "CollectiveAllReduceStrategyV1", "MultiWorkerMirroredStrategy"})
"""Strategies whose saves and summaries may hold collective operations, which hang unless every worker runs them."""
COLLECTIVE_SAVE_STEPS = 1000
"""Steps between checkpoints under these, where seconds were asked for: clocks are not the same everywhere."""


def current_worker_context() -> Any:
    """Return TensorFlow's worker context of this thread; None where no distribution strategy runs it."""
    try:
        get: Any = private.WORKER_CONTEXT.load()
    except AttributeError:
        return None
    return get()


def is_collective(context: Any) -> bool:
    """Return whether every worker has to save, and to write summaries, at the same steps."""
    return type(private.STRATEGY.get(context)).__name__ in _COLLECTIVE


def directory_in(context: Any, directory: str | None, is_allowed: bool) -> str | None:
    """Return where this worker writes what is wanted in a directory.

    Args:
        context: the worker context.
        directory: what the program asked for.
        is_allowed: whether the strategy lets this worker write there.

    Returns:
        The directory, or None: it writes nothing. Under a collective strategy a worker that may not write there has a
        directory of its own below it.
    """
    if not directory or is_allowed:
        return directory
    if not is_collective(context):
        return None
    name = f"tmp_{context.task_type}_{context.task_id}" if context.task_type else "tmp"
    return os.path.join(directory, name)


def collective_save_interval(interval: tuple[Any, Any]) -> tuple[Any, Any]:
    """Return steps and seconds between checkpoints as collective operations can keep them: in steps."""
    steps, secs = interval
    if not secs:
        return interval
    _LOG.warning(
        "Checkpoints of a collective strategy cannot be saved on the clock, since workers would wait for each other: "
        "save_checkpoint_secs is ignored, one is saved every %d steps. Pass save_checkpoint_steps.",
        COLLECTIVE_SAVE_STEPS,
    )
    return steps or COLLECTIVE_SAVE_STEPS, None


def creator_in(
    context: Any, scaffold: Any, config: Any = None, checkpoint_dir: str | None = None, max_wait_secs: float = 7200
) -> Any:
    """Return what makes this worker's sessions: initialised or restored by itself, or awaited, as the strategy says."""
    merged = context.session_config
    if config is not None:
        own, merged = merged, type(config).FromString(config.SerializeToString())
        if own is not None:
            merged.MergeFrom(own)
    if context.experimental_should_init:
        return ChiefSessionCreator(scaffold, context.master_target, merged, checkpoint_dir)
    return WorkerSessionCreator(scaffold, context.master_target, merged, max_wait_secs)


def default_creator() -> Any:
    """Return what makes the sessions of a program that does not say: a chief's, or what a strategy says."""
    context = current_worker_context()
    return ChiefSessionCreator() if context is None else creator_in(context, None)
