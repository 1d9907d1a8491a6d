"""Checkpoints without tensorflow: list, verify, keep and delete them, and let only one process write them.

    store       the checkpoints of a logdir            bundle        reads and verifies one checkpoint
    recovery    which there are, which to resume from  bundle_writer writes one
    retention   which to keep                          state_file    the ``checkpoint`` state file
    logdir_lock one live chief per logdir              ledger        what a killed save leaves to be finished
    guard       the check before each change           staging       where a checkpoint is until it is whole

`CheckpointStore` is public. Nothing here loads tensorflow; TensorBoard is loaded for paths that are not local
(`supervisor_core.storage`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from supervisor_core.lazy import lazy_names

if TYPE_CHECKING:
    from supervisor_core.checkpoint.store import CheckpointStore

__all__ = ["CheckpointStore"]

__getattr__, __dir__ = lazy_names(__name__, {"checkpoint.store": "CheckpointStore"})
