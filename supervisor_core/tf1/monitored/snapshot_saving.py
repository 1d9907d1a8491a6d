"""`SnapshotSaving`: how a `CheckpointSaverHook` saves in a session of ours: beside training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from supervisor_core.tf1.checkpoint_manager import CheckpointManager
from supervisor_core.tf1.monitored.snapshot_service import SnapshotService

if TYPE_CHECKING:
    from supervisor_core.tf1.monitored.runtime import MonitoredRuntime

SMALL_BYTES = 1 << 20
"""A checkpoint of at most so many bytes is on the disk when the step that made it returns: writing it takes no longer
than the original's save does, and programs, tests above all, look for it there."""


class SnapshotSaving:
    """Saves one hook's checkpoints through the session's snapshot service.

    Args:
        runtime: the run that they belong to.
        checkpoints: takes them.
        service: the thread that writes them, not yet started.
        on_timer: whether the service saves on a timer of its own.
    """

    def __init__(
        self, runtime: MonitoredRuntime, checkpoints: CheckpointManager, service: SnapshotService, on_timer: bool
    ) -> None:
        self.on_timer = on_timer
        """Whether the service saves by itself."""
        self._runtime = runtime
        self._checkpoints = checkpoints
        self._service = service

    @property
    def at_end(self) -> bool:
        """Whether a checkpoint is wanted when the session ends."""
        return self._runtime.options.save_on_stop

    def begin(self, session: Any) -> None:
        """Do nothing: the run has recorded the graph."""

    def save(self, session: Any, step: int, *, is_last: bool, until_written: bool) -> bool:
        """Have this moment saved, unless it is on the disk; return whether it is there.

        Raises:
            SaveFailedError: if it is the last, and could not be saved.
        """
        checkpoints = self._checkpoints
        if is_last:
            self._runtime.save_last(checkpoints)
            return checkpoints.is_saved
        if checkpoints.is_saved:
            self._service.ensure_started()
            return True
        wait = until_written or not checkpoints.consistent or checkpoints.size_bytes <= SMALL_BYTES
        with self._runtime.waiting_for_save():
            return self._service.save_now(until_written=wait) is not None

    def finish(self) -> None:
        """Save what has changed since the last save though the step has not."""
        self._runtime.save_last(self._checkpoints)
