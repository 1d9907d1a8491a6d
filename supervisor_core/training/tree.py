"""State trees: what ``state_dict()`` returns, copied to host memory, written to files and read again.

A tree is made of dicts, lists, tuples and leaves: None, booleans, numbers, texts, bytes and arrays. In a checkpoint's
directory it becomes

    tree.json               the structure; see `supervisor_core.checkpoint.tree_file`
    numpy.safetensors       the arrays of one kind by name, in the file or directory of that kind
"""

from __future__ import annotations

import base64
import math
import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

from supervisor_core.base.errors import (
    CheckpointError,
    DamagedCheckpointError,
    SaveFailedError,
    UnreadableCheckpointError,
)
from supervisor_core.checkpoint import contents, safetensors_file
from supervisor_core.checkpoint.blocks import IN_THREAD, BlockWriter
from supervisor_core.checkpoint.nan_check import has_nan
from supervisor_core.checkpoint.pickles import require_short
from supervisor_core.checkpoint.safetensors_file import Array, ArrayBytes, Written
from supervisor_core.checkpoint.sealed_files import SealedFiles
from supervisor_core.checkpoint.tree_file import MAX_DEPTH, STRUCTURE, encode, read_structure


class ArrayKind(Protocol):
    """The arrays of one framework."""

    name: str
    """Its name in ``tree.json``: lower-case letters."""
    file: str
    """Name of its file, or directory, in a checkpoint."""

    @property
    def copies_memory(self) -> bool:
        """Whether `copy` returns memory that only the copy has."""

    def matches(self, value: Any) -> bool:
        """Return whether a leaf is an array of this kind. Must not import the framework."""

    def check(self, value: Any) -> None:
        """Do nothing for an array that can be saved. Neither copies it nor waits for a device.

        Raises:
            TypeError: for any other; says what it is.
        """

    def copy(self, value: Any, into: Any = None) -> Any:
        """Return a copy in host memory, which later changes of the value do not reach.

        Args:
            into: an earlier copy of the same type and shape, to be overwritten; None for new memory.

        Raises:
            TypeError: see `check`.
        """

    def save(self, arrays: Mapping[str, Any], path: str, blocks: BlockWriter = IN_THREAD) -> Written:
        """Write copies, by name, into a new file or directory; return what is known of it.

        Args:
            blocks: what writes the bytes of files that this project writes itself.
        """

    def load(self, files: SealedFiles, names: Collection[str]) -> Mapping[str, Any]:
        """Read them from a checkpoint that anybody may have written.

        Args:
            files: the checkpoint's.
            names: those that its tree has.

        Raises:
            DamagedCheckpointError: if they are not what was saved.
            UnreadableCheckpointError: if this program does not read them; the checkpoint is left alone.
        """


class NumpyArrays:
    """``numpy.ndarray`` and its scalars."""

    name = "numpy"
    file = contents.NUMPY
    copies_memory = True

    def matches(self, value: Any) -> bool:
        """See `ArrayKind.matches`."""
        numpy = sys.modules.get("numpy")
        return numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic))

    def check(self, value: Any) -> None:
        """See `ArrayKind.check`."""
        dtype = value.dtype
        if dtype.newbyteorder("=").str[1:] not in _NAMES:
            raise TypeError(f"an array of {dtype}, which a checkpoint cannot hold")

    def copy(self, value: Any, into: Any = None) -> Any:
        """See `ArrayKind.copy`."""
        import numpy as np

        self.check(value)
        if into is None:
            return np.array(value, copy=True, order="C")
        np.copyto(into, value)
        return into

    def save(self, arrays: Mapping[str, Any], path: str, blocks: BlockWriter = IN_THREAD) -> Written:
        """See `ArrayKind.save`."""
        return safetensors_file.write(path, {name: _numbers(array) for name, array in arrays.items()}, blocks)

    def load(self, files: SealedFiles, names: Collection[str]) -> Mapping[str, Any]:
        """See `ArrayKind.load`."""
        return safetensors_file.read(files, self.file, names, _allocate)


_DTYPES = {
    "BOOL": "bool", "U8": "u1", "I8": "i1", "U16": "<u2", "I16": "<i2", "F16": "<f2", "U32": "<u4", "I32": "<i4",
    "F32": "<f4", "U64": "<u8", "I64": "<i8", "F64": "<f8", "C64": "<c8",
}  # fmt: skip
_NAMES = {"b1" if name == "bool" else name.lstrip("<"): kind for kind, name in _DTYPES.items()}


def _numbers(array: Any) -> ArrayBytes:
    import numpy as np

    def pieces() -> Iterator[Any]:
        whole = np.asarray(array)  # also of a scalar of numpy's
        yield whole.astype(array.dtype.newbyteorder("<"), order="C", copy=False).reshape(-1).view(np.uint8)

    return ArrayBytes(_NAMES[array.dtype.newbyteorder("=").str[1:]], array.shape, array.nbytes, pieces)


def _allocate(array: Array) -> tuple[memoryview, Callable[[], Any]]:
    import numpy as np

    dtype = np.dtype(_DTYPES[array.dtype])
    memory = np.empty(array.bytes, np.uint8)
    return memory.data, lambda: memory.view(dtype).reshape(array.shape).astype(dtype.newbyteorder("="), copy=False)


def array_with_nan(arrays: Mapping[str, Any]) -> str | None:
    """Return the name of the first of these ``numpy`` arrays that has NaN; None where none has."""
    import numpy as np

    memory = {name: np.asarray(array).reshape(-1).view(np.uint8) for name, array in arrays.items()}
    return next((name for name, bits in memory.items() if has_nan(arrays[name].dtype.name, bits)), None)


class Copied(NamedTuple):
    """A leaf's copy in host memory; or the leaf, where it is written while the training waits."""

    kind: str
    value: Any


class Room:
    """The memory of copies that are written, for the next ones: to get new pages takes longer than to copy."""

    def __init__(self) -> None:
        self._free: dict[Any, list[Any]] = {}

    def take(self, kind: ArrayKind, value: Any) -> Any:
        """Return memory for the copy of an array; None without any."""
        free = self._free.get((kind.name, value.dtype, tuple(value.shape))) if kind.copies_memory else None
        return free.pop() if free else None

    def keep(self, tree: Any, kinds: tuple[ArrayKind, ...]) -> None:
        """Keep the copies of a tree, which nobody needs any longer, and no others."""
        names = {kind.name for kind in kinds if kind.copies_memory}
        free: dict[Any, list[Any]] = {}

        def keep(leaf: Any, _: str) -> None:
            if isinstance(leaf, Copied) and leaf.kind in names and leaf.value.nbytes >= _WORTH_BYTES:
                key = (leaf.kind, leaf.value.dtype, tuple(leaf.value.shape))
                free.setdefault(key, []).append(leaf.value)

        mapped(tree, keep)
        self._free = free


_WORTH_BYTES = 256 << 10
"""Below this size malloc keeps the memory itself."""


def copy_tree(
    tree: Any, kinds: tuple[ArrayKind, ...], path: str = "state", *, in_place: bool = False, room: Room | None = None
) -> Any:
    """Return a tree with copies of its containers, and a `Copied` for each array, unless it is one already.

    Args:
        path: its name, for errors.
        in_place: refer to the arrays, as they are: nothing may change them until they are written.
        room: where copies go; None for new memory.

    Raises:
        CheckpointError: for a value that cannot be saved; names its path and its type.
    """

    def array(kind: ArrayKind, value: Any) -> Copied:
        if not in_place:
            kind.check(value)
            return Copied(kind.name, kind.copy(value, None if room is None else room.take(kind, value)))
        kind.check(value)
        return Copied(kind.name, value)

    return _walked(tree, kinds, path, array, 0)


def check_tree(tree: Any, kinds: tuple[ArrayKind, ...], path: str = "state") -> None:
    """Raise what `copy_tree` would; copies no array, and waits for no device."""
    _walked(tree, kinds, path, lambda kind, value: kind.check(value), 0)


def _walked(
    tree: Any, kinds: tuple[ArrayKind, ...], path: str, array: Callable[[ArrayKind, Any], object], depth: int
) -> Any:
    if tree is None or type(tree) in (bool, int, float, str, bytes, Copied):
        return tree
    if depth > MAX_DEPTH:
        raise CheckpointError(f"{path} is nested deeper than {MAX_DEPTH} levels: it may contain itself.")
    if isinstance(tree, Mapping):
        return {
            _key(key, path): _walked(item, kinds, f"{path}[{key!r}]", array, depth + 1) for key, item in tree.items()
        }
    if isinstance(tree, (list, tuple)):
        items = [_walked(item, kinds, f"{path}[{number}]", array, depth + 1) for number, item in enumerate(tree)]
        return tuple(items) if isinstance(tree, tuple) else items
    if isinstance(tree, bytes):
        return bytes(tree)
    for base in (int, float, str):  # an enum, a scalar of numpy's
        if isinstance(tree, base):
            return base(tree)
    for kind in kinds:
        if kind.matches(tree):
            try:
                return array(kind, tree)
            except TypeError as error:
                raise CheckpointError(f"{path} is {error}; expected numbers.") from error
    raise CheckpointError(
        f"{path} is a {type(tree).__module__}.{type(tree).__qualname__}, which cannot be saved; expected arrays, "
        "numbers, texts, None, and dicts, lists and tuples of them. Return those from state_dict()."
    )


def other_dtypes(saved: Any, present: Any, path: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield the arrays of a state tree that have another dtype than at the same path of another one.

    Args:
        saved: a tree that was read.
        present: a tree of the program.

    Yields:
        The array's path, its saved dtype, its present one.
    """
    if isinstance(saved, Mapping) and isinstance(present, Mapping):
        for key, item in saved.items():
            if key in present:
                yield from other_dtypes(item, present[key], path_below(path, key))
    elif isinstance(saved, (list, tuple)) and isinstance(present, (list, tuple)):
        for number, (one, other) in enumerate(zip(saved, present, strict=False)):
            yield from other_dtypes(one, other, path_below(path, number))
    else:
        before, now = (str(getattr(item, "dtype", "")).rpartition(".")[2] for item in (saved, present))
        if before and now and before != now:
            yield path, before, now


def write_tree(directory: str, tree: Any, kinds: tuple[ArrayKind, ...], blocks: BlockWriter = IN_THREAD) -> Written:
    """Write what `copy_tree` returned into a directory; return what is known of its files.

    Raises:
        OSError: if it cannot be written.
        SaveFailedError: if the arrays of a kind are gone.
        CheckpointError: if there are more values besides the arrays than a checkpoint holds.
    """
    arrays: dict[str, dict[str, Any]] = {}
    structure = _encode(tree, arrays, "")
    written = Written()
    for kind in kinds:
        if found := arrays.get(kind.name):
            try:
                new = kind.save(found, os.path.join(directory, kind.file), blocks)
                written = Written(written.with_nan or new.with_nan, written.files + new.files)
            except Exception as error:
                if isinstance(error, (OSError, SaveFailedError)):
                    raise
                raise OSError(f"{kind.file} could not be written: {error}") from error
    with open(os.path.join(directory, STRUCTURE), "xb") as file:
        file.write(encode(structure))
    return written


def read_tree(files: SealedFiles, kinds: tuple[ArrayKind, ...]) -> Any:
    """Read the tree of a training; arrays come back as those of their kinds.

    Raises:
        DamagedCheckpointError: if it is no tree.
        UnreadableCheckpointError: if it has arrays of a kind that is not among them, or that this program cannot read.
    """
    structure = read_structure(files)
    by_name = {kind.name: kind for kind in kinds}
    loaded: dict[str, Mapping[str, Any]] = {}
    for name, paths in structure.names.items():
        if name not in by_name:
            raise UnreadableCheckpointError(
                f"{files.directory}: it has arrays of {name!r:.40}, which this program does not read; expected "
                f"{', '.join(by_name)}"
            )
        loaded[name] = by_name[name].load(files, paths)
    try:
        return structure.build(lambda kind, path: loaded[kind][path])
    except KeyError as error:
        raise DamagedCheckpointError(f"{files.directory}: its arrays lack {error.args[0]!r:.80}") from error
    except ValueError as error:
        raise DamagedCheckpointError(f"{files.path(STRUCTURE)}: it holds no state tree: {error}") from error


def _key(key: Any, path: str) -> Any:
    try:
        require_short(key)
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}, which no checkpoint can have.") from error
    if key is None or type(key) in (bool, int, str):
        return key
    if isinstance(key, tuple):
        return tuple(_key(item, path) for item in key)
    for base in (int, str):
        if isinstance(key, base):
            return base(key)
    raise CheckpointError(f"{path} has the key {key!r:.80} ({type(key).__qualname__}); expected a text or a number.")


def _encode(tree: Any, arrays: dict[str, dict[str, Any]], path: str) -> Any:
    if isinstance(tree, Copied):
        own = arrays.setdefault(tree.kind, {})
        name = path if path not in own else f"{path}#{len(own)}"  # keys of two types, with one text
        own[name] = tree.value
        return {"array": [tree.kind, name]}
    if isinstance(tree, float) and not math.isfinite(tree):
        return {"float": repr(tree)}
    if isinstance(tree, bytes):
        return {"bytes": base64.b64encode(tree).decode("ascii")}
    if isinstance(tree, dict):
        items = tree.items()
        return {
            "dict": [[_encode(key, arrays, ""), _encode(item, arrays, path_below(path, key))] for key, item in items]
        }
    if isinstance(tree, tuple):
        return {"tuple": [_encode(item, arrays, path_below(path, number)) for number, item in enumerate(tree)]}
    if isinstance(tree, list):
        return [_encode(item, arrays, path_below(path, number)) for number, item in enumerate(tree)]
    return tree


def path_below(path: str, key: Any) -> str:
    """Return the path of an item in a tree, as the names of arrays have it."""
    part = str(key).replace("/", "|")
    return f"{path}/{part}" if path else part


def mapped(tree: Any, of_leaf: Callable[[Any, str], Any], path: str = "") -> Any:
    """Return a state tree with what a function returns for each leaf and its path.

    Args:
        path: the tree's own path.
    """
    if isinstance(tree, Mapping):
        return {key: mapped(item, of_leaf, path_below(path, key)) for key, item in tree.items()}
    if type(tree) in (list, tuple):
        items = enumerate(tree)
        return type(tree)(mapped(item, of_leaf, path_below(path, number)) for number, item in items)
    return of_leaf(tree, path)
