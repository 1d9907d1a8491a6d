"""Arrays that are split over the processes of a training: each process writes its pieces, and reads what it needs.

What each process has of an array whole, as of replicated parameters, is in Orbax's files, written by process 0.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from supervisor_core.base.errors import CheckpointError, DamagedCheckpointError, UnreadableCheckpointError
from supervisor_core.checkpoint import jax_files, safetensors_file
from supervisor_core.checkpoint.blocks import IN_THREAD, BlockWriter
from supervisor_core.checkpoint.jax_files import FOLDER, Piece
from supervisor_core.checkpoint.safetensors_file import ArrayBytes, Written
from supervisor_core.checkpoint.sealed_files import SealedFiles
from supervisor_core.storage.local import LOCAL
from supervisor_core.training.ranks import Ranks
from supervisor_core.training.tree import mapped, path_below

Index = tuple[slice, ...]


class Sharded:
    """Stands in a state tree for an array that is split.

    Args:
        array: the array; of random keys, if that is what they are.
    """

    def __init__(self, array: jax.Array) -> None:
        self.array = array
        probe = array.addressable_shards[0].data
        numbers = jax.eval_shape(_numbers, probe)
        self.dtype = numbers.dtype
        self.shape = (*array.shape, *numbers.shape[probe.ndim :])

    def pieces(self, path: str) -> Iterator[tuple[Piece, Any]]:
        """Yield the pieces that this process writes, in host memory.

        Args:
            path: the array's place in the tree.
        """
        for shard in self.array.addressable_shards:
            if shard.replica_id == 0:
                numbers = np.asarray(_numbers(shard.data))
                first = tuple(part.start or 0 for part in shard.index)
                first += (0,) * (numbers.ndim - len(first))
                yield Piece(path, first, numbers.shape, self.shape, str(self.dtype)), numbers


class Stored:
    """An array that was read in pieces: those that this process needs.

    Args:
        shape: the array's.
        dtype: its dtype.
        pieces: its pieces.
    """

    def __init__(self, shape: tuple[int, ...], dtype: Any, pieces: list[tuple[Piece, Any]]) -> None:
        self.shape = shape
        self.dtype = dtype
        self._pieces = pieces

    @property
    def ndim(self) -> int:
        """The number of its dimensions."""
        return len(self.shape)

    def __getitem__(self, index: Index) -> Any:
        """Return a part of the array."""
        wanted = _bounds(index, self.shape)
        part = np.zeros([end - begin for begin, end in wanted], self.dtype)
        for piece, numbers in self._pieces:
            if (common := _overlap(piece, wanted)) is not None:
                inside = tuple(
                    slice(low - begin, high - begin) for (low, high), begin in zip(common, piece.first, strict=True)
                )
                to = tuple(
                    slice(low - begin, high - begin) for (low, high), (begin, _) in zip(common, wanted, strict=True)
                )
                part[to] = numbers[inside]
        return part

    def whole(self) -> Any:
        """Return all of it."""
        return self[()]


class ShardedArrays:
    """The pieces in a checkpoint, as a kind of array: see `supervisor_core.training.tree.ArrayKind`.

    Args:
        present: returns the program's own arrays that are split, by their paths in the tree.
    """

    name = "sharded"
    file = FOLDER
    copies_memory = False

    def __init__(self, present: Callable[[], Mapping[str, Sharded]]) -> None:
        self._present = present
        self._written = False

    def matches(self, value: Any) -> bool:
        """See `ArrayKind.matches`."""
        return isinstance(value, Sharded)

    def check(self, value: Any) -> None:
        """See `ArrayKind.check`."""

    def copy(self, value: Any, into: Any = None) -> Any:
        """See `ArrayKind.copy`: the pieces are written already.

        Raises:
            CheckpointError: if they are not: one process alone has only its own.
        """
        if not self._written:
            raise CheckpointError("An array is split over the processes, and not all of them save.")
        return None

    def save(self, arrays: Mapping[str, Any], path: str, blocks: BlockWriter = IN_THREAD) -> Written:
        """See `ArrayKind.save`: all processes have written them. Whether they have NaN is not known."""
        os.stat(path)
        return Written()

    def load(self, files: SealedFiles, names: Collection[str]) -> Mapping[str, Any]:
        """See `ArrayKind.load`; returns `Stored`. Files in which there is nothing that this process needs are not
        read."""
        found = jax_files.files_of(files, names)
        present = self._present()
        wanted: dict[str, set[str]] = {}
        for path, pieces in found.items():
            for piece, file in pieces:
                if path not in present or any(_overlap(piece, part) is not None for part in _needed(present[path])):
                    wanted.setdefault(file, set()).add(path)
        read: dict[str, list[tuple[Piece, Any]]] = {path: [] for path in found}
        for file in wanted:
            for name, data in safetensors_file.read(files, file, None, _allocate).items():
                piece = jax_files.piece_of(name)
                try:
                    read[piece.path].append((piece, data.view(_dtype(piece, files)).reshape(piece.shape)))
                except ValueError as error:
                    raise DamagedCheckpointError(
                        f"{files.path(file)}: a piece has not the bytes of its shape"
                    ) from error
        stored = {
            path: Stored(pieces[0][0].whole, _dtype(pieces[0][0], files), read[path]) for path, pieces in found.items()
        }
        return {name: stored[jax_files.shared_path(name)] for name in names}

    # What the ranks do before a save: `supervisor_core.training.ranks.SplitState`.

    def split(self) -> dict[str, Any]:
        """Return this process's pieces by their names, in host memory."""
        self._written = True
        pieces = (item for path, array in self._present().items() for item in array.pieces(path))
        return {piece.name: numbers for piece, numbers in pieces}

    def release(self) -> None:
        """Say that no save follows."""
        self._written = False


def is_key(array: jax.Array) -> bool:
    """Return whether an array is one of typed random keys."""
    return bool(jnp.issubdtype(array.dtype, jax.dtypes.prng_key))


def sharded_in(objects: Mapping[str, Any]) -> dict[str, Sharded]:
    """Return the arrays that are split in state trees, by their paths in the tree of a checkpoint.

    Args:
        objects: the trees, by the objects' names.
    """
    found: dict[str, Sharded] = {}

    def note(leaf: Any, path: str) -> None:
        if isinstance(leaf, Sharded):
            found[path] = leaf

    for name, tree in objects.items():
        mapped(tree, note, path_below("objects", name))
    return found


def write_pieces(ranks: Ranks, pieces: Mapping[str, Any], directory: str) -> None:
    """Write this process's pieces into a checkpoint's directory, durably; called by all processes, and waits for them.

    Raises:
        OSError: why one of them could not write; on every process.
        RanksError: if another process has ended.
    """
    text = None
    try:
        if pieces:
            _write(os.path.join(directory, FOLDER), f"{ranks.rank}.safetensors", pieces)
    except Exception as error:  # the others wait for this
        text = f"{type(error).__name__}: {error}"
    for rank, other in enumerate(ranks.exchange(text)):
        if other is not None:
            raise OSError(f"The pieces of arrays could not be written: rank {rank}: {other}")


def _write(folder: str, name: str, pieces: Mapping[str, Any]) -> None:
    def bytes_of(piece: Any) -> ArrayBytes:
        return ArrayBytes("U8", (piece.nbytes,), piece.nbytes, lambda: iter([_bytes(piece)]))

    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, name)
    safetensors_file.write(path, {name: bytes_of(piece) for name, piece in pieces.items()})
    LOCAL.sync((path,), folder)


def _bytes(piece: Any) -> Any:
    return np.ascontiguousarray(piece).reshape(-1).view(np.uint8)


def _numbers(array: jax.Array) -> jax.Array:
    return jax.random.key_data(array) if is_key(array) else array


def _needed(array: Sharded) -> list[list[tuple[int, int]]]:
    return [_bounds(shard.index, array.shape) for shard in array.array.addressable_shards]


def _bounds(index: Index, shape: tuple[int, ...]) -> list[tuple[int, int]]:
    whole = (*index, *(slice(None),) * (len(shape) - len(index)))
    return [part.indices(length)[:2] for part, length in zip(whole, shape, strict=True)]


def _overlap(piece: Piece, part: list[tuple[int, int]]) -> list[tuple[int, int]] | None:
    """Return what a piece and a part have in common; None for nothing."""
    if len(part) != len(piece.shape):
        return [(begin, begin + length) for begin, length in zip(piece.first, piece.shape, strict=True)]
    common = [
        (max(begin, low), min(begin + length, high))
        for begin, length, (low, high) in zip(piece.first, piece.shape, part, strict=True)
    ]
    return common if all(low < high for low, high in common) else None


def _allocate(array: safetensors_file.Array) -> tuple[memoryview, Callable[[], Any]]:
    memory = np.empty(array.bytes, np.uint8)
    return memory.data, lambda: memory


def _dtype(piece: Piece, files: SealedFiles) -> Any:
    try:
        return jnp.dtype(piece.dtype)
    except TypeError as error:
        raise UnreadableCheckpointError(
            f"{files.path(FOLDER)}: it has an array of {piece.dtype}, which this program does not read"
        ) from error
