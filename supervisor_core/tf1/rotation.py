"""`Rotation`: what becomes of the older checkpoints when a new one is there, in step with the saver's own list.

A program may call ``sv.saver.save(...)`` by itself, beside the supervisor's saves. So the saver's list is read before
each decision and brought up to date after it, and both count the same checkpoints against ``max_to_keep``.
"""

from __future__ import annotations

import logging
import math
import os
from typing import Any

from supervisor_core.checkpoint.retention import Saved, decide
from supervisor_core.checkpoint.store import CheckpointStore

_LOG = logging.getLogger("supervisor_core")


class Rotation:
    """Records new checkpoints and deletes old ones, by a saver's ``max_to_keep`` and ``keep_checkpoint_every_n_hours``.

    Args:
        saver: a ``tf.compat.v1.train.Saver``.
        store: the checkpoints on disk.
    """

    def __init__(self, saver: Any, store: CheckpointStore) -> None:
        self._saver = saver
        self._store = store
        self._last_preserved_at: float | None = None

    def record(self, path: str, saved_at: float) -> None:
        """Make a checkpoint the newest one: first in the state file, then delete those that are one too many.

        Args:
            path: the checkpoint, which is durable.
            saved_at: wall time.

        Raises:
            OSError: if the state file cannot be written. A file that cannot be deleted is only logged.
        """
        saver_def = self._saver.saver_def
        history = self._store.history()
        # The saver's own saves write state files that do not know it.
        last_preserved_at = history.last_preserved_at or self._last_preserved_at
        listed = self._saver_list()
        known = {_key(saved.path) for saved in (*listed, Saved(path, saved_at))}
        earlier = [saved for saved in history.kept if _key(saved.path) not in known]
        older = [saved for saved in (*earlier, *listed) if _key(saved.path) != _key(path)]
        retention = decide(
            [*older, Saved(path, saved_at)],
            max_to_keep=saver_def.max_to_keep,
            keep_every_n_hours=saver_def.keep_checkpoint_every_n_hours,
            last_preserved_at=last_preserved_at,
        )
        self._store.record(path, kept=retention.keep, last_preserved_at=retention.last_preserved_at)
        self._last_preserved_at = retention.last_preserved_at
        if saver_def.max_to_keep:
            self._saver.set_last_checkpoints_with_time([(saved.path, saved.saved_at) for saved in retention.keep])
        for saved in retention.delete:
            try:
                self._store.delete(saved.path)
            except OSError as error:  # the new checkpoint is good all the same
                _LOG.warning("The old checkpoint %s cannot be deleted: %s", saved.path, error)

    def _saver_list(self) -> list[Saved]:
        """The saver's list, without what is no longer there."""
        there = {_key(item.path): item for item in self._store.candidates() if item.found}
        home = _key(self._store.logdir) + os.sep
        listed = []
        for path, moment in getattr(self._saver, "_last_checkpoints", ()):
            item = there.get(_key(path))
            if item is None and _key(path).startswith(home):
                continue
            # A saver that was told no times has infinity there, which means never to delete.
            known = math.isfinite(moment)
            saved_at = moment if known else (item.saved_at if item is not None else None) or 0.0
            listed.append(Saved(path, saved_at, known and item is not None and item.deletable))
        return listed


def _key(path: str) -> str:
    """The same for every spelling of a path."""
    return path if "://" in path else os.path.abspath(path)
