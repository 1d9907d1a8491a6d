"""`Unfinished`: what a save that fails leaves on disk, and how to be rid of it."""

from __future__ import annotations

import logging
import os

from supervisor_core.checkpoint import bundle
from supervisor_core.checkpoint.filesystem import filesystem_for
from supervisor_core.checkpoint.store import CheckpointStore
from supervisor_core.errors import DamagedCheckpointError

_LOG = logging.getLogger("supervisor_core")


class Unfinished:
    """A checkpoint that is about to be written. Made before the first byte of it.

    Args:
        store: the checkpoints on disk.
        prefix: where it is going to be.
    """

    def __init__(self, store: CheckpointStore, prefix: str) -> None:
        self._store = store
        self._filesystem, self._prefix = filesystem_for(prefix)
        self._directory, self._name = os.path.split(self._prefix)
        # Without a global step, or done again after a restart, a checkpoint replaces another one of its name.
        self._replaces = self._filesystem.is_file(f"{self._prefix}.index")

    def discard(self) -> None:
        """Delete what there is of it; one that was there before stays, if it is whole. Never raises `OSError`."""
        try:
            self._discard_parts()
            if self._replaces:
                try:
                    bundle.verify(self._prefix)
                    return
                except DamagedCheckpointError as error:
                    _LOG.warning("%s was replaced by half: %s", self._prefix, error)
            self._store.delete(self._prefix)
        except OSError as error:  # the save's own error is the one to hear of
            _LOG.warning("What a failed save left of %s cannot be deleted: %s", self._prefix, error)

    def _discard_parts(self) -> None:
        for entry in self._filesystem.list_names(self._directory or "."):
            path = os.path.join(self._directory, entry)
            if entry == f"{self._name}_temp":
                self._filesystem.remove_tree(path)
            elif entry.startswith((f"{self._name}.index.tempstate", f"{self._name}.part-")) or (
                entry.startswith(f"{self._name}.data-") and ".tempstate" in entry
            ):
                self._filesystem.remove(path)
