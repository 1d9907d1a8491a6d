"""`ChiefSessionCreator` and `WorkerSessionCreator`: create the TensorFlow session of a `MonitoredSession`.

Source: the classes of these names in ``tf.compat.v1.train``. `SessionManager` improves them: recovery skips damaged
checkpoints, waiting polls with backoff, a session whose model does not get ready is closed.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from supervisor_core.storage.local import absolute
from supervisor_core.tf1 import private_symbols as private
from supervisor_core.tf1.cluster.wait import SessionContext
from supervisor_core.tf1.restore import RestoreInfo
from supervisor_core.tf1.session_manager import ReadyFlag, SessionManager, ready_flag_for


class _ScaffoldedSessionCreator(tf.compat.v1.train.SessionCreator):
    """Base class: creates a session manager for a scaffold."""

    restore_info = RestoreInfo()
    """Where the last session's model came from; of one that was kept without the step."""

    def __init__(self, scaffold: Any, master: str, config: Any) -> None:
        self._scaffold = scaffold or tf.compat.v1.train.Scaffold()
        self._master = master
        self._config = config
        self._ready_flag: ReadyFlag | None = None
        self._context: SessionContext | None = None

    def use_context(self, context: SessionContext) -> None:
        """Create the next sessions for a run, which is notified and may interrupt."""
        self._context = context

    def _ready_manager(self) -> SessionManager:
        self._scaffold.finalize()
        graph = tf.compat.v1.get_default_graph()
        if self._ready_flag is None:
            with unfinalized(graph) as may_grow:
                self._ready_flag = ready_flag_for(graph) if may_grow else None
        return SessionManager(
            local_init_op=self._scaffold.local_init_op,
            local_init_feed_dict=self._scaffold.local_init_feed_dict,
            ready_op=self._scaffold.ready_op,
            ready_for_local_init_op=self._scaffold.ready_for_local_init_op,
            graph=graph,
            ready_flag=self._ready_flag,
            context=self._context,
        )


class ChiefSessionCreator(_ScaffoldedSessionCreator):
    """Creates a session whose model is restored from a checkpoint, or else initialised.

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
        # Absolute: sessions are also created when one was lost.
        self._checkpoint_dir = checkpoint_dir and absolute(checkpoint_dir)
        self._checkpoint_filename_with_path = checkpoint_filename_with_path and absolute(checkpoint_filename_with_path)

    def create_session(self) -> Any:
        """Finalize the graph and return a session whose model is ready.

        Raises:
            RuntimeError: if the model is not ready after it was restored or initialised.
            ValueError: if both a directory and a file name were given.
            NoUsableCheckpointError: if there are checkpoints and none can be read.
        """
        manager = self._ready_manager()
        sess = manager.prepare_session(
            self._master,
            saver=self._scaffold.saver,
            checkpoint_dir=self._checkpoint_dir,
            checkpoint_filename_with_path=self._checkpoint_filename_with_path,
            config=self._config,
            init_op=self._scaffold.init_op,
            init_feed_dict=self._scaffold.init_feed_dict,
            init_fn=self._scaffold.init_fn,
        )
        self.restore_info = manager.restore_info
        return sess


class WorkerSessionCreator(_ScaffoldedSessionCreator):
    """Creates a session once the chief has made the model ready.

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
            tf.errors.DeadlineExceededError: if the model was not ready in time; the message names what was missing.
            tf.errors.CancelledError: if a stop was requested while waiting.
            RunFinishedError: if the run has finished; the monitored session ends without an error then.
        """
        return self._ready_manager().wait_for_session(
            self._master, config=self._config, max_wait_secs=self._max_wait_secs
        )


_LOG = logging.getLogger("supervisor_core")

_COLLECTIVE = frozenset({"CollectiveAllReduceStrategy", "CollectiveAllReduceStrategyV1", "MultiWorkerMirroredStrategy"})
"""Strategies whose saves and summaries may contain collective operations, which hang unless every worker runs them."""
COLLECTIVE_SAVE_STEPS = 1000
"""Steps between checkpoints under these if seconds were requested: the workers' clocks differ."""


def current_worker_context() -> Any:
    """Return this thread's worker context of TensorFlow's distribute coordinator; None without one."""
    try:
        get: Any = private.WORKER_CONTEXT.load()
    except AttributeError:
        return None
    return get()


def is_collective(context: Any) -> bool:
    """Return whether all workers must save and write summaries at the same steps."""
    return type(private.STRATEGY.get(context)).__name__ in _COLLECTIVE


def directory_in(context: Any, directory: str | None, is_allowed: bool) -> str | None:
    """Return the directory that this worker writes to.

    Args:
        directory: the directory that the program requested.
        is_allowed: whether the strategy lets this worker write there.

    Returns:
        The directory; None if this worker writes nothing. Under a collective strategy a worker that may not write there
        gets its own directory below it.
    """
    if not directory or is_allowed:
        return directory
    if not is_collective(context):
        return None
    name = f"tmp_{context.task_type}_{context.task_id}" if context.task_type else "tmp"
    return os.path.join(directory, name)


def collective_save_interval(interval: tuple[Any, Any]) -> tuple[Any, Any]:
    """Return steps and seconds between checkpoints, in steps only: collective operations cannot follow clocks."""
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
    """Return a chief's or a worker's session creator, as the strategy's context says."""
    merged = context.session_config
    if config is not None:
        own, merged = merged, type(config).FromString(config.SerializeToString())
        if own is not None:
            merged.MergeFrom(own)
    if context.experimental_should_init:
        return ChiefSessionCreator(scaffold, context.master_target, merged, checkpoint_dir)
    return WorkerSessionCreator(scaffold, context.master_target, merged, max_wait_secs)


def default_creator() -> Any:
    """Return the session creator of a program that passes none: a chief's, or the strategy's."""
    context = current_worker_context()
    return ChiefSessionCreator() if context is None else creator_in(context, None)


@contextmanager
def unfinalized(graph: Any) -> Iterator[bool]:
    """Let a graph grow while the block runs; finalize it again afterwards if it was finalized.

    Yields whether the graph may grow: without `private_symbols.UNFINALIZE` a finalized graph stays finalized. Needed
    because scaffolds finalize the graph before the saver is known.
    """
    if not graph.finalized or not unfinalize(graph):
        yield not graph.finalized
        return
    try:
        yield True
    finally:
        graph.finalize()


def unfinalize(graph: Any) -> bool:
    """Let a finalized graph grow again; return whether this TensorFlow supports that."""
    undo = private.UNFINALIZE.get(graph)
    if undo is not None:
        undo()
    return undo is not None
