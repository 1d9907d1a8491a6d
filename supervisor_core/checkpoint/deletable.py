"""`deletable_files`: which files of a checkpoint a session may delete or move away.

Names come from files that anybody who may write into the logdir can write: the state file, the ledger. So a name alone
proves nothing. What may be deleted is named as this run's checkpoints are, in their own directory; and it is an index,
data or graph file by its ending, or, in the older format, a plain file that ends with the format's mark.
"""

from __future__ import annotations

import os
from collections.abc import Collection

from supervisor_core.checkpoint.filesystem import Filesystem
from supervisor_core.checkpoint.naming import CheckpointNames, files_of
from supervisor_core.checkpoint.table import MAGIC


def deletable_files(
    filesystem: Filesystem, directory: str, name: str, listing: Collection[str], names: CheckpointNames
) -> list[str]:
    """Return the names of one checkpoint's files that may be deleted, in the order of their deletion.

    Args:
        filesystem: that of the directory.
        directory: where this run's checkpoints are.
        name: what the checkpoint is called, without directories.
        listing: the names in the directory.
        names: what this run's checkpoints are called.
    """
    if not names.matches(name):
        return []
    files = files_of(name, listing)
    endings = [names.ending(file) for file in files]
    has_data = "data" in endings
    return [
        file
        for file, ending in zip(files, endings, strict=True)
        if ending in ("data", "meta") or (ending == "index" and has_data) or _is_table(filesystem, directory, file)
    ]


def _is_table(filesystem: Filesystem, directory: str, file: str) -> bool:
    try:
        with filesystem.open(os.path.join(directory, file)) as reader:
            return reader.read_at(max(0, reader.size - len(MAGIC)), len(MAGIC)) == MAGIC
    except OSError:  # what cannot be read is not proven to be a checkpoint's
        return False
