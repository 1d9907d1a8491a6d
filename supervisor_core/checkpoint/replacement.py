"""How a staged checkpoint gets into its place, and how that is finished where it was interrupted; see `staging`."""

from __future__ import annotations

import os

from supervisor_core.checkpoint import bundle
from supervisor_core.errors import DamagedCheckpointError, UnreadableCheckpointError
from supervisor_core.storage.filesystem import Filesystem, Reader
from supervisor_core.storage.local import LOCAL, LocalFilesystem


def move_into_place(filesystem: Filesystem, staging: str, directory: str) -> None:
    """Move all files of a staging directory into their place, the index last, durably.

    Raises:
        OSError: if a file cannot be moved; those before it stay in place.
        LogdirInUseError: if another chief has taken the logdir over.
    """
    for file in sorted(os.listdir(staging), key=lambda file: file.endswith(".index")):
        filesystem.move(os.path.join(staging, file), os.path.join(directory, file))
    filesystem.sync((), directory or ".")


def finish_replacement(filesystem: Filesystem, staging: str, directory: str) -> str | None:
    """Finish a move that was interrupted while it replaced a checkpoint; return the prefix of the repaired checkpoint.

    Args:
        filesystem: checks before each change.
        staging: the staging directory, local.
        directory: the checkpoint's directory.

    Returns:
        None where there is nothing to finish: the move had not begun, or was a new checkpoint's, or the checkpoint in
        place is whole, or the staged files would not make it whole.

    Raises:
        OSError: if a file cannot be moved.
        LogdirInUseError: if another chief has taken the logdir over.
    """
    try:
        staged = os.listdir(staging)
    except OSError:  # no directory, or deleted
        return None
    name = next((file.removesuffix(".index") for file in staged if file.endswith(".index")), None)
    if name is None or not LOCAL.is_file(os.path.join(directory, f"{name}.index")):
        return None
    prefix = os.path.join(directory, name)
    try:
        count = bundle.read_index(os.path.join(staging, name)).num_shards
        if count <= sum(file.startswith(f"{name}.data-") for file in staged):
            return None
        if _verifies(prefix, LOCAL) or not _verifies(prefix, _Overlaid(staging)):
            return None
    except DamagedCheckpointError:
        return None
    move_into_place(filesystem, staging, directory)
    filesystem.remove_tree(staging)
    return prefix


def _verifies(prefix: str, filesystem: Filesystem) -> bool:
    try:
        bundle.verify(prefix, filesystem=filesystem)
    except UnreadableCheckpointError:  # it may be whole
        raise
    except DamagedCheckpointError:
        return False
    return True


class _Overlaid(LocalFilesystem):
    """The local files with the staged ones in their place."""

    def __init__(self, staging: str) -> None:
        self._staging = staging

    def open(self, path: str) -> Reader:
        """See `Filesystem.open`."""
        return super().open(self._newer(path))

    def is_file(self, path: str) -> bool:
        """See `Filesystem.is_file`."""
        return super().is_file(self._newer(path))

    def _newer(self, path: str) -> str:
        staged = os.path.join(self._staging, os.path.basename(path))
        return staged if os.path.lexists(staged) else path
