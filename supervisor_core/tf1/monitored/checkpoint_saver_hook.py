"""`CheckpointSaverHook`: checkpoints every so many steps or seconds, when a session begins, and at its end."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from supervisor_core.tf1.checkpointing import Checkpointing
from supervisor_core.tf1.monitored.runtime_hook import RuntimeHook
from supervisor_core.tf1.monitored.snapshot_service import SnapshotService
from supervisor_core.tf1.monitored.step_timer import StepTimer

_LOG = logging.getLogger("supervisor_core")


class CheckpointSaverHook(RuntimeHook, tf.compat.v1.train.CheckpointSaverHook):
    """Saves checkpoints: arguments, listeners and moments are those of ``tf.compat.v1.train.CheckpointSaverHook``.

    TensorFlow's own is replaced because it stops training while it writes, calls a save done that would not survive a
    power cut, names a file in its event that does not exist, saves again what it has just restored, ends training over
    one fault of the disk, and saves a model that is NaN. This one takes a snapshot between two steps and writes it
    beside training, with everything that `CheckpointSaver` and `Options` promise. With listeners training waits for
    the disk, since ``after_save`` is to find the checkpoint there; listeners are not called where nothing is saved,
    because it is on the disk already.

    Args:
        checkpoint_dir: where checkpoints go.
        save_secs: seconds between two checkpoints.
        save_steps: steps between two checkpoints. Without a global step: runs.
        saver: what saves. Default: the scaffold's, or else the one in the graph's collection of savers.
        checkpoint_basename: what checkpoint files are called.
        scaffold: whose saver to use.
        listeners: ``CheckpointSaverListener`` objects, called around each save. One whose ``after_save`` returns True
            ends the loop.
        save_graph_def: whether to write ``graph.pbtxt`` and the checkpoints' ``.meta``.

    Raises:
        ValueError: if both ``saver`` and ``scaffold`` are given, or not exactly one of ``save_secs``
            and ``save_steps``.
    """

    sleeps = True

    def is_due(self, step: int) -> bool:
        """Tell whether it is time at this step."""
        return self._timer.is_due(step)

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
        self.checkpoint_dir = os.fspath(checkpoint_dir)
        self.save_path = os.path.join(self.checkpoint_dir, checkpoint_basename)
        self.save_graph_def = save_graph_def
        self._saver = saver
        self._scaffold = scaffold
        self._timer = StepTimer(every_secs=save_secs, every_steps=save_steps)
        self._listeners = tuple(listeners or ())
        self.watches_runs = save_steps is not None or bool(self._listeners)
        self._checkpoints: Checkpointing | None = None
        self._service: SnapshotService | None = None

    @property
    def output_dir(self) -> str:
        """The directory whose events file says what was saved."""
        return self.checkpoint_dir

    @property
    def interval_secs(self) -> float | None:
        """Seconds between two checkpoints; None where they are saved on steps."""
        return self._timer.every_secs

    @property
    def interval_steps(self) -> int | None:
        """Steps between two checkpoints; None where they are saved on the clock."""
        return self._timer.every_steps

    def find_saver(self) -> Any:
        """Return what saves.

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

    def begin(self) -> None:
        """Have the listeners begin, which may add to the graph."""
        self.runtime.make_directory(self.checkpoint_dir)
        for listener in self._listeners:
            listener.begin()

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Begin to save; a checkpoint of the present moment first, unless it is on the disk."""
        checkpoints = self.runtime.checkpoints_of(self)
        if checkpoints is None:
            self.watches_runs = False
            return
        on_timer = self.interval_secs if not self._listeners else None
        self._checkpoints = checkpoints
        self._service = self.runtime.snapshot_service(checkpoints, on_timer)
        step = self.runtime.read_step()
        if checkpoints.is_saved:
            self._service.start()
        else:
            self._save(session, step)
        self._timer.triggered(step)

    before_run = tf.compat.v1.train.SessionRunHook.before_run

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Save, if it is time."""
        if not self.watches_runs or self._service is None or not self._timer.is_due(self.runtime.step()):
            return
        step = self.runtime.read_step()
        if self._timer.is_due(step):
            self._timer.triggered(step)
            if self._save(run_context.session, step):
                run_context.request_stop()

    def end(self, session: Any) -> None:
        """Save what is not on the disk yet.

        Raises:
            SaveFailedError: if it could not be saved.
        """
        step = self.runtime.read_step()
        if self._checkpoints is not None and not self._checkpoints.is_saved and self.runtime.options.save_on_stop:
            for listener in self._listeners:
                listener.before_save(session, step)
            self.runtime.save_last(self._checkpoints)
            for listener in self._listeners if self._checkpoints.is_saved else ():
                listener.after_save(session, step)
        elif self._checkpoints is not None:
            self.runtime.save_last(self._checkpoints)
        for listener in self._listeners:
            listener.end(session, step)

    def _save(self, session: Any, step: int) -> bool:
        """Save a checkpoint of this moment; return whether a listener wants training to stop."""
        assert self._service is not None and self._checkpoints is not None
        for listener in self._listeners:
            listener.before_save(session, step)
        path = self._service.save_now(until_written=bool(self._listeners) or not self._checkpoints.consistent)
        stop = False
        for listener in self._listeners if path is not None else ():
            if listener.after_save(session, step):
                _LOG.info("A CheckpointSaverListener requested that training be stopped: %s", listener)
                stop = True
        return stop
