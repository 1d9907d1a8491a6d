"""`CheckpointSaverHook`: checkpoints every so many steps or seconds, when a session begins, and at its end."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from supervisor_core.tf1.monitored.hook_saving import BlockingSaving, Saving
from supervisor_core.tf1.monitored.own_hook import OwnHook, writer_for
from supervisor_core.tf1.monitored.step_timer import StepTimer

_LOG = logging.getLogger("supervisor_core")


class CheckpointSaverHook(OwnHook, tf.compat.v1.train.CheckpointSaverHook):
    """Saves checkpoints: arguments, listeners and moments are those of ``tf.compat.v1.train.CheckpointSaverHook``.

    TensorFlow's own is replaced because it calls a save done that would not survive a power cut, and names a file in
    its event that does not exist. In any session a checkpoint of this one is synced and read back before it counts.

    In a session of ours training does not wait for the disk either: this hook takes a snapshot between two steps,
    written beside training with everything that `CheckpointWriter` and `Options` promise; what is on the disk is not
    written again, a fault of the disk is retried, and a model that is NaN is not saved. A small checkpoint is on
    the disk when the step that made it returns. With listeners training always waits, since ``after_save`` is to find
    the checkpoint there; they are called at each save, one at which nothing had to be written included.

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
        self._checkpoint_dir = self.checkpoint_dir = os.fspath(checkpoint_dir)
        self._save_path = self.save_path = os.path.join(self.checkpoint_dir, checkpoint_basename)
        self._save_graph_def = self.save_graph_def = save_graph_def
        self._saver = saver
        self._scaffold = scaffold
        self._timer = StepTimer(every_secs=save_secs, every_steps=save_steps)
        self._listeners = listeners or []
        # More than any run does, so that the step is always looked at, unless somebody says how many it does.
        self._steps_per_run = 1_000_000
        self._summary_writer: Any = None
        self._saving: Saving | None = None
        self._at_end = False

    def _set_steps_per_run(self, steps_per_run: int) -> None:
        """Take the steps that one run does, so that the step is only read when it may be due."""
        self._steps_per_run = steps_per_run

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

    @property
    def listens(self) -> bool:
        """Whether somebody wants to be called around each save, in the thread that trains."""
        return bool(self._listeners) or self.is_extended

    @property
    def watches_runs(self) -> bool:
        """Whether it has to look when to save."""
        return self._saving is not None and not self._saving.on_timer

    def is_due(self, step: int) -> bool:
        """Return whether it is time at this step."""
        return self._timer.should_trigger_for_step(step)

    def begin(self) -> None:
        """Find writer and global step, and have the listeners begin, which may add to the graph.

        Raises:
            RuntimeError: in a graph without a global step, except in a session of ours.
        """
        self._at_end = False
        self._saving = None
        self._summary_writer = writer_for(self.checkpoint_dir) if self._host is None else None
        self._find_step()
        for listener in self._listeners:
            listener.begin()

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Save a checkpoint of the present moment."""
        step = self._read_step(session)
        self._saving = self._new_saving()
        if self._saving is not None:
            self._saving.begin(session)
        self._save(session, step)
        self._timer.update_last_triggered_step(step)

    def before_run(self, run_context: Any) -> Any:
        """Ask for the step."""
        return self._step_args()

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Save, if it is time."""
        if self.is_due(self._stale_step(run_values) + self._steps_per_run):
            self.wake(run_context)

    def wake(self, run_context: Any) -> None:
        """Save, if it is time."""
        step = self._read_step(run_context.session)
        if self.is_due(step):
            self._timer.update_last_triggered_step(step)
            if self._save(run_context.session, step):
                run_context.request_stop()

    def end(self, session: Any) -> None:
        """Save what is not on the disk yet.

        Raises:
            SaveFailedError: if it could not be saved, in a session of ours; in others, whatever kept it from that.
        """
        step = self._read_step(session)
        saving = self._saving
        if saving is None or saving.at_end:
            self._at_end = True
            if step != self._timer.last_triggered_step():
                self._save(session, step)
            elif saving is not None:
                saving.finish()
        for listener in self._listeners:
            listener.end(session, step)

    def _save(self, session: Any, step: int) -> bool:
        """Save a checkpoint of this moment; return whether a listener wants training to stop."""
        if self._saving is None and self._host is None:  # driven by hand, with no word of the session
            self._saving = self._new_saving()
        for listener in self._listeners:
            listener.before_save(session, step)
        if self._saving is not None and not self._saving.save(
            session, step, is_last=self._at_end, until_written=self.listens
        ):
            return False
        stop = False
        for listener in self._listeners:
            if listener.after_save(session, step):
                _LOG.info("A CheckpointSaverListener requested that training be stopped. listener: %s", listener)
                stop = True
        return stop

    def _new_saving(self) -> Saving | None:
        """What saves in a new session; None for a saver that has nothing to save."""
        if self._host is not None:
            return self._host.saving(self)
        return BlockingSaving(self._get_saver, self._save_path, self._save_graph_def, self._summary_writer)

    def _get_saver(self) -> Any:
        """Return what saves. Of the original's own name, since programs override it.

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
