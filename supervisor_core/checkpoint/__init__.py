"""Checkpoints without tensorflow: list, verify, keep and delete them.

    recovery    choose one, set damaged ones aside: the same for both kinds
    store       one kind: TensorFlow's        bundle, bundle_writer, state_file, ledger
    sealed_store the other: directories       manifest, sealed_files, contents: what a resume decodes
    search      the stores below a directory
    retention   which to keep
    guard       who publishes, and the check before each change

`CheckpointStore` is public. Nothing here loads tensorflow; fsspec is loaded for paths that are not local
(`supervisor_core.storage`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from supervisor_core.base.lazy import lazy_names

if TYPE_CHECKING:
    from supervisor_core.checkpoint.store import CheckpointStore

__all__ = ["CheckpointStore"]

__getattr__, __dir__ = lazy_names(__name__, {"checkpoint.store": "CheckpointStore"})
