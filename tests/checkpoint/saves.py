"""A session without a framework: it saves as a checkpoint service does, and dies on request."""

from __future__ import annotations

import os
import signal
from types import SimpleNamespace
from typing import Any

from supervisor_core.checkpoint.guard import Publisher
from supervisor_core.checkpoint.store import CheckpointStore, StagedCheckpoint
from supervisor_core.tf1.retention import CheckpointRetention

KEEP = 3
CHANGES = ("mkdir", "replace", "unlink", "remove", "rmdir")


class Saver:
    """What retention needs of TensorFlow's saver."""

    saver_def = SimpleNamespace(max_to_keep=KEEP, keep_checkpoint_every_n_hours=None)

    def __init__(self, kept: list[tuple[str, float]]) -> None:
        self._last_checkpoints = kept

    def set_last_checkpoints_with_time(self, kept: list[tuple[str, float]]) -> None:
        """Take over a list."""
        self._last_checkpoints = kept


class Run:
    """One session that saves."""

    def __init__(self, logdir: str, publisher: Publisher, writer: Any, restored: str | None = None) -> None:
        self._writer = writer
        self._publisher = publisher
        self._store = CheckpointStore(logdir, publisher=publisher)
        self._store.finish_moves()
        history = self._store.history().kept
        saver = Saver([(saved.path, saved.saved_at) for saved in history])
        self._retention = CheckpointRetention(saver, self._store, restored=restored and os.path.join(logdir, restored))
        self._saves = 0

    def save(self, step: int, saved_at: float) -> None:
        """Save a step, as `tf1.saving` does."""
        if not self._saves:
            self._retention.take_over()
            self._store.sweep_leftovers(alone=True)
        self._saves += 1
        path = os.path.join(self._store.logdir, f"model.ckpt-{step}")
        staged = StagedCheckpoint(self._store, path)
        seed = 100 * self._publisher.attempt + self._saves  # no two saves write the same values
        tensors = {"w": self._writer.floats(30, seed=seed), "global_step": self._writer.step(step)}
        self._writer.write_bundle(staged.path, tensors)
        self._store.sync(staged.path)
        plan = self._retention.announce(staged.destination(staged.path), saved_at)
        staged.publish(staged.path)
        self._retention.record(plan)


class Killer:
    """Counts the changes of the file system, and kills the process before one of them."""

    def __init__(self, at: int) -> None:
        self.count = 0
        self._at = at
        for name in CHANGES:
            setattr(os, name, self._counted(getattr(os, name)))

    def _counted(self, change: Any) -> Any:
        def counted(*arguments: Any, **keywords: Any) -> Any:
            self.count += 1
            if self.count == self._at:
                os.kill(os.getpid(), signal.SIGKILL)
            return change(*arguments, **keywords)

        return counted
