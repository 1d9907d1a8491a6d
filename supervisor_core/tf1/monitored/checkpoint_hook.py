"""`CheckpointSaverHook`: saves at the start of a session, at an interval of steps or seconds, and at the end.

In a session that is not supervised `BlockingHookSaver` saves for it. In a supervised one `SnapshotService` does, in
the background, each checkpoint of exactly the step that is due: the training thread waits for the snapshot, not for the
disk. A checkpoint every 100 steps is of step 100, 200, 300, and a save blocks no longer than one on a timer.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import tensorflow as tf

from supervisor_core.base.options import Options
from supervisor_core.engine.step_lock import StepLock
from supervisor_core.events.telemetry import ThreadStatus
from supervisor_core.storage.local import absolute
from supervisor_core.tf1.checkpoint_manager import CheckpointManager, checkpoint_log
from supervisor_core.tf1.checkpoint_writer import CheckpointWriter
from supervisor_core.tf1.global_step import collected_global_step
from supervisor_core.tf1.graph import GraphRecord
from supervisor_core.tf1.lifecycle import Lifecycle
from supervisor_core.tf1.monitored.hosted_hook import StepTimer, WritingHook, writer_for
from supervisor_core.tf1.services import ServiceThread

_LOG = logging.getLogger("supervisor_core")

SMALL_BYTES = 1 << 20
"""A checkpoint of at most this size is durable when the call that caused it returns: writing it takes no longer than
the original's save, and programs, tests above all, expect the file."""
ON_DEMAND_SECS = threading.TIMEOUT_MAX / 4
"""Interval of a service that saves on request only: longer than any process lives."""
CHECK_SECS = 0.5
"""How often a thread that waits for a snapshot checks that the service is alive, in seconds."""

Save = Callable[[Callable[[], None]], str | None]
"""Saves a checkpoint and calls its argument as soon as training may continue; returns its path, or None."""


class CheckpointSaverHook(WritingHook, tf.compat.v1.train.CheckpointSaverHook):
    """Saves checkpoints: arguments, listeners and moments are those of ``tf.compat.v1.train.CheckpointSaverHook``.

    It replaces TensorFlow's, whose saves may not survive a power failure and whose event names a file that does not
    exist. In any session a checkpoint of this hook is synced and read back before it counts.

    In a supervised session training does not wait for the disk: the hook takes a snapshot between two steps and writes
    it in the background, with what `CheckpointWriter` and `Options` promise. A state that is saved already is not
    written again, transient disk errors are retried, a NaN model is not saved. A small checkpoint is durable when the
    call that caused it returns. With listeners training always waits, so that ``after_save`` finds the checkpoint; they
    are called at each save, even if nothing had to be written.

    Args:
        checkpoint_dir: directory of the checkpoints.
        save_secs: seconds between two checkpoints.
        save_steps: steps between two checkpoints; without a global step, calls.
        saver: the ``Saver``. Default: the scaffold's, or else the one in the graph's collection of savers.
        checkpoint_basename: prefix of checkpoint file names.
        scaffold: its saver is used.
        listeners: ``CheckpointSaverListener`` objects, called around each save. One whose ``after_save`` returns True
            ends the loop.
        save_graph_def: whether to write ``graph.pbtxt`` and the checkpoints' ``.meta``.

    Raises:
        ValueError: if both ``saver`` and ``scaffold`` are given, or not exactly one of ``save_secs``
            and ``save_steps``.
    """

    sleeps = True

    def __init__(
        self,
        checkpoint_dir: str,
        save_secs: float | None = None,
        save_steps: int | None = None,
        saver: Any = None,
        checkpoint_basename: str = "model.ckpt",
        scaffold: Any = None,
        listeners: Sequence[Any] | None = None,
        save_graph_def: bool = True,
    ) -> None:
        if saver is not None and scaffold is not None:
            raise ValueError("You cannot provide both saver and scaffold.")
        self._checkpoint_dir = os.fspath(checkpoint_dir)  # as the original has them
        self._save_path = os.path.join(self._checkpoint_dir, checkpoint_basename)
        self.checkpoint_dir, self.save_path = absolute(checkpoint_dir), absolute(self._save_path)
        self._save_graph_def = self.save_graph_def = save_graph_def
        self._saver = saver
        self._scaffold = scaffold
        self._timer = StepTimer(every_secs=save_secs, every_steps=save_steps)
        self._listeners = listeners or []
        # More than any call does, so that the step is always read unless _set_steps_per_run is called.
        self._steps_per_run = 1_000_000
        self._write_to(self._checkpoint_dir, None)
        self._hook_saver: BlockingHookSaver | SnapshotService | None = None
        self._at_end = False

    def _set_steps_per_run(self, steps_per_run: int) -> None:
        """Set the steps per call, so that the step is read only when a save may be due."""
        self._steps_per_run = steps_per_run

    @property
    def interval_secs(self) -> float | None:
        """Seconds between two checkpoints; None if the interval is in steps."""
        return self._timer.every_secs

    @property
    def interval_steps(self) -> int | None:
        """Steps between two checkpoints; None if the interval is in seconds."""
        return self._timer.every_steps

    @property
    def listens(self) -> bool:
        """Whether listeners, or a subclass, must be called around each save, in the training thread."""
        return bool(self._listeners) or self.is_extended

    @property
    def is_active(self) -> bool:
        """Whether this hook decides when to save, rather than a timer."""
        return self._hook_saver is not None and not self._hook_saver.on_timer

    def begin(self) -> None:
        """Find writer and global step; call the listeners' ``begin``, which may add to the graph.

        Raises:
            RuntimeError: in a graph without a global step, except in a supervised session.
        """
        self._at_end = False
        self._hook_saver = None
        self._summary_writer = writer_for(self._checkpoint_dir) if self._host is None else None
        self._find_step()
        for listener in self._listeners:
            listener.begin()

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Save the initial state."""
        step = self._read_step(session)
        self._hook_saver = self._new_hook_saver()
        if isinstance(self._hook_saver, BlockingHookSaver):
            self._hook_saver.begin()
        self._save(session, step)
        self._timer.update_last_triggered_step(step)

    def before_run(self, run_context: Any) -> Any:
        """Fetch the global step."""
        return self._step_args()

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Save if it is due."""
        if self.is_due(self._stale_step(run_values) + self._steps_per_run):
            self.wake(run_context)

    def wake(self, run_context: Any) -> None:
        """Save if it is due."""
        step = self._read_step(run_context.session)
        if self.is_due(step):
            self._timer.update_last_triggered_step(step)
            if self._save(run_context.session, step):
                run_context.request_stop()

    def end(self, session: Any) -> None:
        """Save the last state, unless it is saved already.

        Raises:
            SaveFailedError: if it could not be saved, in a supervised session; in others the error itself.
        """
        step = self._read_step(session)
        hook_saver = self._hook_saver
        if hook_saver is None or hook_saver.at_end:
            self._at_end = True
            if step != self._timer.last_triggered_step():
                self._save(session, step)
            elif hook_saver is not None:
                hook_saver.finish()
        for listener in self._listeners:
            listener.end(session, step)

    def _save(self, session: Any, step: int) -> bool:
        """Save the present state; return whether a listener requests a stop."""
        if self._hook_saver is None and self._host is None:  # called by hand, without after_create_session
            self._hook_saver = self._new_hook_saver()
        for listener in self._listeners:
            listener.before_save(session, step)
        if self._hook_saver is not None and not self._hook_saver.save(
            session, step, is_last=self._at_end, until_written=self.listens
        ):
            return False
        stop = False
        for listener in self._listeners:
            if listener.after_save(session, step):
                _LOG.info("A CheckpointSaverListener requested that training be stopped. listener: %s", listener)
                stop = True
        return stop

    def _new_hook_saver(self) -> BlockingHookSaver | SnapshotService | None:
        """What saves in a new session; None if the saver has no variables."""
        if self._host is not None:
            saver: SnapshotService | None = self._host.hook_saver(self)
            return saver
        return BlockingHookSaver(self._get_saver, self.save_path, self._save_graph_def, self._summary_writer)

    def _get_saver(self) -> Any:
        """Return the saver. Of the original's own name, since programs override it.

        Raises:
            RuntimeError: if none was given and the graph's collection does not hold exactly one.
        """
        if self._saver is None and self._scaffold is not None:
            return self._scaffold.saver
        if self._saver is None:
            key = tf.compat.v1.GraphKeys.SAVERS
            savers = tf.compat.v1.get_collection(key)
            if len(savers) != 1:
                found = "No items" if not savers else "More than one item"
                raise RuntimeError(f"{found} in collection {key}. Pass the saver, or a scaffold, to the constructor.")
            self._saver = savers[0]
        return self._saver


class BlockingHookSaver:
    """Saves while the training thread waits: for sessions that are not supervised.

    Like ``Saver.save``, but a checkpoint that exists is complete: it is written to a staging directory, synced, read
    back and moved into place, then the state file is replaced. Nothing is added to the graph.

    Args:
        saver: returns the saver.
        save_path: prefix of the checkpoints' paths.
        save_graph_def: whether to write ``graph.pbtxt`` and the checkpoints' ``.meta``.
        writer: the summary writer of the checkpoint directory.
    """

    on_timer, at_end = False, True

    def __init__(self, saver: Callable[[], Any], save_path: str, save_graph_def: bool, writer: Any) -> None:
        self._find_saver = saver
        self._save_path = save_path
        self._save_graph_def = save_graph_def
        self._writer = writer
        self._saver: CheckpointWriter | None = None

    def begin(self) -> None:
        """Write ``graph.pbtxt``, and graph and meta graph to the events file."""
        graph = tf.compat.v1.get_default_graph()
        record = GraphRecord.of(graph, self._find_saver())
        if self._save_graph_def:
            record.write_file(os.path.dirname(self._save_path))
        record.write_events(self._writer)

    def save(self, session: Any, step: int, *, is_last: bool, until_written: bool) -> bool:
        """Save; raise why it failed."""
        _LOG.info("Saving checkpoints for %d into %s.", step, self._save_path)
        if self._saver is None:
            self._saver = self._new_saver(session.graph)
        result = self._saver.save(session, "final" if is_last else "timer")
        if result.cause is not None:
            raise result.cause
        if result.path is not None:  # a saver without variables saves nothing
            self._writer.add_session_log(checkpoint_log(result.path), step)
        return True

    def finish(self) -> None:
        """Do nothing: like the original this does not save a step twice."""

    def _new_saver(self, graph: Any) -> CheckpointWriter:
        saver = self._find_saver()
        tf.io.gfile.makedirs(os.path.dirname(self._save_path) or ".")
        meta_graph_def = GraphRecord.of(graph, saver).meta_graph_def if self._save_graph_def else None
        return CheckpointWriter(
            graph=graph,
            saver=saver,
            save_path=self._save_path,
            global_step=collected_global_step(graph),
            meta_graph_def=meta_graph_def,
            step_lock=StepLock(),
            options=Options(),
            blocking=True,
        )


@dataclass
class _Request:
    taken: threading.Event = field(default_factory=threading.Event)
    written: threading.Event = field(default_factory=threading.Event)
    path: str | None = None


class SnapshotService(ServiceThread):
    """Saves one hook's checkpoints on a timer or on request; its target is a `Save`."""

    lifecycle: Lifecycle
    """The session's; the time that training waits is counted in its recorder."""
    checkpoints: CheckpointManager
    """Takes and writes the checkpoints."""
    _asked: _Request | None = None
    _to_retry = False

    @property
    def on_timer(self) -> bool:
        """Whether it saves on its own timer."""
        return self._timer_interval_secs != ON_DEMAND_SECS

    @property
    def at_end(self) -> bool:
        """Whether to save when the session ends."""
        return self.lifecycle.options.save_on_stop

    def save(self, session: Any, step: int, *, is_last: bool, until_written: bool) -> bool:
        """Save the present state unless it is saved already; return whether it is known to be durable.

        Args:
            is_last: whether the session ends after this save.
            until_written: wait until the checkpoint is durable; otherwise only until the snapshot is taken.

        Raises:
            SaveFailedError: if the last checkpoint could not be saved.
        """
        if is_last:
            self.finish()
            return self.checkpoints.is_saved
        if self.checkpoints.is_saved:
            if self.ident is None:
                self.start()
            return True
        checkpoint_writer = self.checkpoints.checkpoint_writer
        wait = until_written or not checkpoint_writer.consistent or checkpoint_writer.size_bytes <= SMALL_BYTES
        progress, started = self.lifecycle.recorder.progress, self.lifecycle.clock.monotonic()
        try:
            with progress.held():
                return self.save_now(until_written=wait) is not None
        finally:
            if progress.phase == "training":
                progress.blocked(self.lifecycle.clock.monotonic() - started)

    def finish(self) -> None:
        """Save what changed since the last save without a new step; `SaveFailedError` if it could not be saved."""
        self.lifecycle.ending.save(self.checkpoints)

    def save_now(self, *, until_written: bool) -> str | None:
        """Save the present state; return its path once it is written, None if it was not.

        Called by the training thread, between two steps. Starts the service if needed.

        Args:
            until_written: wait until it is durable or has failed. Otherwise only until training may continue; returns
                None.
        """
        request = _Request()
        self._asked = request
        if self.ident is None:
            self.start()
        else:
            self.wake()
        moment = request.written if until_written else request.taken
        while not moment.wait(CHECK_SECS) and self.is_alive():
            continue
        return request.path

    def run_loop(self) -> None:
        """Save if it is time, if requested, or if the last save failed."""
        request, self._asked = self._asked, None
        if request is None and not self.on_timer and not self._to_retry:
            return
        request = request or _Request()
        self._to_retry = True
        try:
            save: Any = self._target
            request.path = save(request.taken.set)
            self._to_retry = False
        finally:
            request.taken.set()
            request.written.set()

    def status(self) -> ThreadStatus:
        """Return the service's health; its interval is None if it saves on request only."""
        status = super().status()
        return status if self.on_timer else replace(status, interval_secs=None)
