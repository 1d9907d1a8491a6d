"""`Shards`: the state of a model, or of its optimizer, that is split over the ranks: FSDP's, and other DTensors.

Each rank writes its own shards into ``<checkpoint>/shards``, in the format of `torch.distributed.checkpoint`, under
their paths in the tree. It reads them for any number of ranks. What is not split is in the tree, as everything else.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from supervisor_core.base.errors import CheckpointError, DamagedCheckpointError, RanksError
from supervisor_core.checkpoint import contents, shard_metadata
from supervisor_core.checkpoint.blocks import IN_THREAD, BlockWriter
from supervisor_core.checkpoint.safetensors_file import Written
from supervisor_core.checkpoint.sealed_files import OpenFile, SealedFiles
from supervisor_core.checkpoint.shard_metadata import SplitTensor
from supervisor_core.torch.ranks import TorchRanks
from supervisor_core.training.objects import Part
from supervisor_core.training.tree import mapped

_SPLIT = frozenset({"DTensor", "ShardedTensor"})


@dataclass(frozen=True)
class Shard:
    """Stands in a tree for a tensor that is split."""

    path: str
    """Its path in the tree."""
    stored: StoredShards | None = None
    """Where the shards are, once they are read."""


class ShardFiles:
    """The shards in a checkpoint's directory, as a kind of array: see `supervisor_core.training.tree.ArrayKind`.

    Args:
        whole: read whole tensors, for a model that is not, or that one process has alone.
        trust: read them for a model that is not split from any owner's checkpoint: ``Options.trust_pickled``.
    """

    name = "shards"
    file = shard_metadata.FOLDER
    copies_memory = False

    def __init__(self, *, is_split: bool, whole: bool, trust: bool = False) -> None:
        self._is_split = is_split
        self._whole = whole
        self._trust = trust

    def matches(self, value: Any) -> bool:
        """See `ArrayKind.matches`."""
        return isinstance(value, Shard)

    def check(self, value: Any) -> None:
        """See `ArrayKind.check`."""

    def copy(self, value: Any, into: Any = None) -> Any:
        """See `ArrayKind.copy`: the shards are written already."""
        return value

    def save(self, arrays: Mapping[str, Any], path: str, blocks: BlockWriter = IN_THREAD) -> Written:
        """See `ArrayKind.save`: all ranks have written them. Whether they have NaN is not known."""
        for name, shard in arrays.items():
            if name != shard.path:
                raise CheckpointError(f"The shards of {name} are saved as {shard.path}.")
        os.stat(os.path.join(path, ".metadata"))
        return Written()

    def load(self, files: SealedFiles, names: Collection[str]) -> Mapping[str, Any]:
        """See `ArrayKind.load`; returns each `Shard`, or whole tensors. Where the model is not split, shards are not
        expected, so they are read from this user's checkpoints only."""
        if not self._is_split and not self._trust:
            contents.require_owner(files, f"{files.directory} has shards, and the model is not split")
        stored = StoredShards(files, contents.read_shards(files, names))
        return stored.whole(names) if self._whole else {name: Shard(name, stored) for name in names}


class StoredShards:
    """The shards in a checkpoint, in PyTorch's format; nothing in them is unpickled before it was looked at.

    Args:
        files: the checkpoint's.
    """

    def __init__(self, files: SealedFiles, tensors: Mapping[str, SplitTensor]) -> None:
        self._files = files
        self._tensors = tensors

    def whole(self, paths: Collection[str]) -> dict[str, Any]:
        """Return tensors put together, by their paths.

        Raises:
            DamagedCheckpointError: if they cannot be read.
        """
        import torch

        found = {path: self._tensors[path] for path in paths}
        tensors = {path: torch.zeros(item.size, dtype=_dtype(item), device="cpu") for path, item in found.items()}
        self.read(tensors)
        return tensors

    def read(self, tensors: dict[str, Any]) -> None:
        """Read each tensor, or this rank's part of it, in place; without a message to the other ranks, of which one
        that failed would not come.

        Raises:
            DamagedCheckpointError: if they cannot be read.
        """
        from torch.distributed.checkpoint.api import CheckpointException
        from torch.distributed.checkpoint.state_dict_loader import _load_state_dict

        try:
            _load_state_dict(tensors, _reader(self._files, self._tensors), no_dist=True)
        except CheckpointException as error:
            raise DamagedCheckpointError(f"{self._files.path(shard_metadata.FOLDER)}: {_reason(error)}") from None


def _dtype(tensor: SplitTensor) -> Any:
    import torch

    return getattr(torch, tensor.dtype.removeprefix("torch."))


def _reader(files: SealedFiles, tensors: Mapping[str, SplitTensor]) -> Any:
    """Return PyTorch's reader, with metadata that were not unpickled, and with files that the manifest lists."""
    import torch
    from torch.distributed.checkpoint import FileSystemReader
    from torch.distributed.checkpoint.filesystem import FileSystem, _StorageInfo
    from torch.distributed.checkpoint.metadata import (
        ChunkStorageMetadata,
        Metadata,
        MetadataIndex,
        TensorProperties,
        TensorStorageMetadata,
    )

    class ListedFiles(FileSystem):
        """Opens listed files only."""

        @contextmanager
        def create_stream(self, path: Any, mode: str) -> Iterator[OpenFile]:
            with files.open(os.path.relpath(os.fspath(path), files.directory)) as file:
                yield file

    class ListedReader(FileSystemReader):
        """Reads what was looked at."""

        def read_metadata(self, *args: Any, **named: Any) -> Metadata:
            return metadata

        def _slice_file(self, file: Any, info: Any) -> io.BytesIO:
            part = file.read_at(info.offset, info.length)  # once: it may be altered between two looks
            shard_metadata.check_part(part, f"{file.path}, byte {info.offset:,}")
            return io.BytesIO(part)

    known: dict[str, Any] = {}
    where: dict[Any, Any] = {}
    for path, tensor in tensors.items():
        chunks = [ChunkStorageMetadata(torch.Size(part.offsets), torch.Size(part.sizes)) for part in tensor.parts]
        properties = TensorProperties(dtype=_dtype(tensor))
        known[path] = TensorStorageMetadata(properties, torch.Size(tensor.size), chunks)
        for part in tensor.parts:
            where[MetadataIndex(path, part.offsets)] = _StorageInfo(part.file, part.start, part.length)
    metadata = Metadata(known, planner_data=None, storage_data=where)
    reader = ListedReader(files.path(shard_metadata.FOLDER))
    reader.fs = ListedFiles()
    return reader


class Shards(Part):
    """One object whose state is split; in place of the object in a `TrainingState`. It is not probed: its state is one
    of all ranks, and to return it an optimizer makes a step.

    Args:
        name: the object's.
        get: returns its state, of this rank; the whole one on rank 0 if it is called with True. Called by all ranks.
        set: sets it, from this rank's state, or with True from the whole one. Called by all ranks.
        is_alone: whether there is one rank: its state is the whole one.
    """

    def __init__(
        self, name: str, get: Callable[[bool], Any], set: Callable[[Any, bool], object], *, is_alone: bool = False
    ) -> None:
        self._path = f"objects/{name}"
        self._get = get
        self._set = set
        self._is_alone = is_alone
        self._tree: Any = None

    def split(self) -> dict[str, Any]:
        """Return this rank's shards by their paths, as they are; called by all ranks before they are written."""
        self._tree, shards = _without_shards(self._get(False), self._path)
        return shards

    def release(self) -> None:
        """Say that no save follows: the copy is not needed any more."""
        self._tree = None

    def state_dict(self) -> Any:
        """Return the state that `split` has found, with a `Shard` for each tensor that is split.

        Raises:
            CheckpointError: without it: one rank alone has only its own shards.
        """
        if self._is_alone:
            return self._get(True)
        if self._tree is None:
            raise CheckpointError("it is split over the ranks, and not all of them save")
        return self._tree

    def load_state_dict(self, state: Any) -> None:
        """Set this rank's part of a state, as it was read; called by all ranks.

        Raises:
            CheckpointError: if other tensors were split.
        """
        saved: dict[str, StoredShards | None] = {}

        def note(leaf: Any, path: str) -> None:
            if isinstance(leaf, Shard):
                saved[leaf.path] = leaf.stored

        mapped(state, note)
        if not saved:
            self._set(state, True)
            return
        _, present = _without_shards(self._get(False), self._path)
        if other := sorted(present.keys() ^ saved.keys()):
            raise CheckpointError(f"other tensors are split than at the save, as {', '.join(other[:3])}")
        (stored,) = set(saved.values())
        if stored is None:
            raise CheckpointError("its shards were not read")
        stored.read(present)
        filled = mapped(state, lambda leaf, path: present[leaf.path] if isinstance(leaf, Shard) else leaf)
        self._set(filled, False)


def is_sharded(model: Any) -> bool:
    """Return whether a model's parameters are split over the ranks."""
    kinds = {kind.__name__ for part in (*model.modules(), *model.parameters()) for kind in type(part).__mro__}
    return not kinds.isdisjoint({"FullyShardedDataParallel", "DTensor"})  # by name: importing them takes a second


def shards_of(models: Mapping[str, Any], optimizers: Mapping[str, Any], *, is_alone: bool = False) -> dict[str, Shards]:
    """Return the sharded states of models, and of their optimizers, by name.

    Args:
        models: the models, by name; those that are not split are left out.
        optimizers: the optimizers, by name; those of models that are not split are left out.
        is_alone: whether there is one rank.

    Raises:
        RanksError: if an optimizer has parameters of several models, and one of them is split.
    """
    from torch.distributed.checkpoint.state_dict import (
        StateDictOptions,
        get_model_state_dict,
        get_optimizer_state_dict,
        set_model_state_dict,
        set_optimizer_state_dict,
    )

    def part(name: str, get: Any, set: Any, *targets: Any) -> Shards:
        return Shards(
            name,
            lambda whole: get(*targets, options=StateDictOptions(full_state_dict=whole, cpu_offload=whole)),
            lambda state, whole: set(*targets, state, options=StateDictOptions(full_state_dict=whole)),
            is_alone=is_alone,
        )

    split = {name: model for name, model in models.items() if is_sharded(model)}
    found = {name: part(name, get_model_state_dict, set_model_state_dict, model) for name, model in split.items()}
    for name, optimizer in optimizers.items():
        theirs = {id(item) for group in optimizer.param_groups for item in group["params"]}
        trained = [each for each, model in models.items() if any(id(item) in theirs for item in model.parameters())]
        if not split.keys() & trained:
            continue
        if len(trained) > 1:
            raise RanksError(
                f"The optimizer {name!r} has parameters of {' and '.join(trained)}, and {', '.join(split)} is split "
                "over the ranks: give each model an optimizer of its own."
            )
        model = models[trained[0]]
        found[name] = part(name, get_optimizer_state_dict, set_optimizer_state_dict, model, optimizer)
    return found


def write(shards: Mapping[str, Any], directory: str, group: Any) -> None:
    """Write this rank's shards into a new directory of all ranks, durably; called by all ranks, and waits for them.

    Raises:
        OSError: why a rank could not write; on every rank.
    """
    from torch.distributed import checkpoint
    from torch.distributed.checkpoint.api import CheckpointException

    try:
        checkpoint.save(
            dict(shards), storage_writer=checkpoint.FileSystemWriter(directory, sync_files=True), process_group=group
        )
    except CheckpointException as error:
        raise OSError(f"The shards could not be written: {_reason(error)}") from None


def write_shards(ranks: TorchRanks, shards: Mapping[str, Any], directory: str) -> None:
    """Write this rank's shards into a checkpoint's directory; see `write`.

    Raises:
        OSError: why a rank could not write; on every rank.
        RanksError: if another rank has ended.
    """
    with ranks.together() as group:
        write(shards, os.path.join(directory, ShardFiles.file), group)


def _reason(error: Any) -> str:
    """Return what PyTorch's error, which is no ``Exception``, says of each rank, without its stack."""
    return "; ".join(f"rank {rank}: {type(why).__name__}: {why}" for rank, (why, _) in error.failures.items())


def _without_shards(tree: Any, path: str) -> tuple[Any, dict[str, Any]]:
    """Return a state tree with a `Shard` for each tensor that is split, and those tensors by their paths."""
    shards: dict[str, Any] = {}

    def leaf(value: Any, path: str) -> Any:
        if type(value).__name__ not in _SPLIT:
            return value
        shards[path] = value
        return Shard(path)

    return mapped(tree, leaf, path), shards


def refuse_split(optimizer: Any) -> None:
    """Do nothing, but for an optimizer that splits its state in its own way.

    Raises:
        RanksError: for a ``ZeroRedundancyOptimizer``.
    """
    if type(optimizer).__name__ == "ZeroRedundancyOptimizer":
        raise RanksError(
            "The state of a ZeroRedundancyOptimizer is split over the ranks in a way of its own, which is not saved: "
            "use an optimizer whose state each rank has, or in a loop of your own FSDP's fully_shard()."
        )
