"""`JaxArrays`: the arrays of JAX in checkpoints, in Orbax's format.

They are in ``<checkpoint>/orbax``, under their names in the tree: Orbax's own ``PyTreeCheckpointer().restore`` reads
them as nested dicts.
"""

from __future__ import annotations

import math
import os
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

from supervisor_core.base.errors import DamagedCheckpointError, SaveFailedError, UnreadableCheckpointError
from supervisor_core.checkpoint import contents, jax_files
from supervisor_core.checkpoint.blocks import IN_THREAD, BlockWriter
from supervisor_core.checkpoint.manifest import SPARSE_BYTES, SPARSE_RATIO
from supervisor_core.checkpoint.safetensors_file import Written
from supervisor_core.checkpoint.sealed_files import SealedFiles
from supervisor_core.jax.shards import Sharded, Stored, is_key
from supervisor_core.training.tree import array_with_nan


class Numbers(np.ndarray[Any, Any]):
    """An array of JAX that was read, in host memory."""


class JaxArrays:
    """``jax.Array``, on any devices of this process, with numbers of any type that JAX has.

    An array of JAX never changes, so a reference is a copy as long as no function takes its memory over
    (``donate_argnums``). Where none does, the saving thread copies it to host memory, and the training waits for
    nothing. Otherwise the training's thread copies it, which waits for the step.
    """

    name = "jax"
    file = contents.ORBAX

    def __init__(self) -> None:
        self.by_reference = False
        """Whether arrays stay where they are until they are written: no function takes over the memory of its
        arguments."""
        self.present_bytes = 0
        """The size of the program's own arrays: as much may be read, however little it takes when it is compressed."""

    @property
    def copies_memory(self) -> bool:
        """See `ArrayKind.copies_memory`."""
        return not self.by_reference

    def matches(self, value: Any) -> bool:
        """See `ArrayKind.matches`."""
        return isinstance(value, jax.Array)

    def check(self, value: Any) -> None:
        """See `ArrayKind.check`."""
        if not value.is_fully_addressable:
            raise TypeError("an array of which this process has only a part")

    def copy(self, value: Any, into: Any = None) -> Any:
        """See `ArrayKind.copy`."""
        self.check(value)
        if self.by_reference:
            value.copy_to_host_async()
            return value
        if into is None:
            return np.array(value)
        np.copyto(into, np.asarray(value))
        return into

    def save(self, arrays: Mapping[str, Any], path: str, blocks: BlockWriter = IN_THREAD) -> Written:
        """See `ArrayKind.save`.

        Raises:
            SaveFailedError: if a function has taken over the memory of one, or one has a name that is not read.
        """
        on_host = {name: self._on_host(array, name) for name, array in arrays.items()}
        by_path = {tuple(name.split("/")): array for name, array in on_host.items()}
        try:
            for keys in by_path:
                jax_files.require_name(keys)
        except ValueError as error:
            raise SaveFailedError(f"The arrays of JAX cannot be saved: {error}.") from error
        _checkpointer().save(path, nested(by_path))
        return Written(array_with_nan(on_host))

    def load(self, files: SealedFiles, names: Collection[str]) -> Mapping[str, Any]:
        """See `ArrayKind.load`; returns `Numbers`."""
        path, listed = files.path(self.file), files.below(self.file)
        most = self.present_bytes + SPARSE_BYTES + SPARSE_RATIO * sum(map(files.size, listed))
        metadata = jax_files.read_metadata(files, self.file, names)
        with folder_of(files, self.file, listed, metadata) as folder:
            return self._loaded(path, folder, names, most)

    def _loaded(self, path: str, folder: str, names: Collection[str], most: int) -> Mapping[str, Any]:
        """Return the arrays in a folder; ``path`` is its own, for errors."""
        try:
            claimed = dict(_sizes(_checkpointer().metadata(folder)))
            if claimed.keys() != set(names) or sum(claimed.values()) > most:
                raise DamagedCheckpointError(
                    f"{path}: it has other arrays than the tree, or larger ones than this program"
                )
            restored = leaves(_checkpointer().restore(folder))
            return {"/".join(keys): np.asarray(item).view(Numbers) for keys, item in restored}
        except (DamagedCheckpointError, MemoryError):
            raise
        except Exception as error:
            raise UnreadableCheckpointError(f"{path} cannot be loaded: {type(error).__name__}: {error}") from error

    def _on_host(self, array: Any, name: str) -> Any:
        if isinstance(array, np.ndarray):
            return array
        try:
            return np.array(array)
        except RuntimeError as error:
            if not array.is_deleted():
                raise
            self.by_reference = False
            raise SaveFailedError(
                f"The memory of {name} was taken over by a function that has it donated, before it was copied. From "
                "now on the state is copied before the next step."
            ) from error


def _checkpointer() -> ocp.Checkpointer:
    """Return what reads and writes for this process alone, without a word to the others of a training."""
    number = jax.process_index()
    alone = ocp.options.MultiprocessingOptions(
        primary_host=number, active_processes={number}, barrier_sync_key_prefix=f"tb-supervisor-{number}"
    )
    options = alone if jax.process_count() > 1 else ocp.options.MultiprocessingOptions()
    handler = ocp.PyTreeCheckpointHandler(multiprocessing_options=options)
    return ocp.Checkpointer(handler, multiprocessing_options=options)


def _sizes(metadata: Any) -> Iterator[tuple[str, int]]:
    """Yield the arrays in Orbax's metadata, and the bytes that each of them takes, or a part that is read at once."""
    tree = getattr(metadata, "item_metadata", metadata)
    for keys, item in leaves(getattr(tree, "tree", tree)):
        parts = [item.shape, getattr(item.storage, "chunk_shape", None) or ()]
        yield "/".join(keys), max(map(math.prod, parts)) * np.dtype(item.dtype).itemsize


def nested(by_path: Mapping[tuple[str, ...], Any]) -> dict[str, Any]:
    """Return leaves, given by their paths, as nested dicts."""
    tree: dict[str, Any] = {}
    for (*folders, last), leaf in by_path.items():
        inner = tree
        for folder in folders:
            inner = inner.setdefault(folder, {})
        inner[last] = leaf
    return tree


def leaves(tree: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the leaves of nested dicts, with their paths."""
    if isinstance(tree, Mapping):
        for name, item in tree.items():
            yield from leaves(item, (*path, name))
    else:
        yield path, tree


_DESCRIPTORS = "/proc/self/fd"
"""Where Linux has the open files of a process by their numbers."""


@contextmanager
def folder_of(files: SealedFiles, folder: str, listed: Collection[str], metadata: bytes) -> Iterator[str]:
    """Yield a folder to read Orbax's files from: who may write there can lead a name elsewhere at any moment.

    It has links to files that are open, and were compared with the manifest, and a copy of the metadata that were
    looked at. A checkpoint of this user's is read where it is.

    Args:
        files: the checkpoint's. folder: Orbax's. listed: the files in it. metadata: the content of its `METADATA`.

    Raises:
        DamagedCheckpointError, UnreadableCheckpointError: if a file is not the one in the manifest.
    """
    if not os.path.isdir(_DESCRIPTORS) or contents.is_own(files):
        for name in listed:
            with files.open(name) as file:
                file.check()
        yield files.path(folder)
        return
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="tb-supervisor-orbax-"))
        for name in listed:
            os.makedirs(os.path.dirname(os.path.join(directory, name)), exist_ok=True)
            if name == f"{folder}/{jax_files.METADATA}":
                with open(os.path.join(directory, name), "wb") as copy:
                    copy.write(metadata)
                continue
            file = stack.enter_context(files.open(name))
            file.check()
            os.symlink(f"{_DESCRIPTORS}/{file.fileno()}", os.path.join(directory, name))
        yield os.path.join(directory, folder)


def is_in_place(value: Any) -> bool:
    """Return whether a value is an object of Flax NNX, as a module or an optimizer: its state is set in place."""
    nnx = sys.modules.get("flax.nnx")
    if nnx is None:
        return False
    return isinstance(value, getattr(nnx, "Pytree", None) or nnx.Object)


def pytree_of(value: Any) -> Any:
    """Return a value's state as a pytree: that of an NNX object, otherwise itself."""
    if is_in_place(value):
        from flax import nnx

        return nnx.state(value)
    return value


def to_tree(pytree: Any) -> Any:
    """Return a pytree's leaves, by path, as a state tree; waits for nothing."""
    found = jax.tree_util.tree_flatten_with_path(pytree)[0]
    by_path = {tuple(map(_part, path)): _encoded(leaf) for path, leaf in found}
    return by_path[()] if () in by_path else nested(by_path)


def from_tree(saved: Any, like: Any) -> Any:
    """Return a pytree of the structure of ``like``, with saved leaves, on the devices of its leaves.

    Raises:
        ValueError: if its leaves are not those of ``like``, by path, shape and type.
    """
    with_paths, structure = jax.tree_util.tree_flatten_with_path(like)
    present = {tuple(map(_part, path)): leaf for path, leaf in with_paths}
    found = dict(leaves(saved))
    if present.keys() != found.keys():
        lacks, has = (
            ", ".join("/".join(path) for path in sorted(paths)[:3]) or "none"
            for paths in (present.keys() - found.keys(), found.keys() - present.keys())
        )
        raise ValueError(
            f"its arrays are others than this program's: only in the program: {lacks}; only in the checkpoint: {has}"
        )
    decoded = []
    for path, leaf in present.items():
        try:
            decoded.append(_decoded(found[path], leaf))
        except ValueError as error:
            raise ValueError(f"{'/'.join(path) or 'an array'} {error}") from error
    return jax.tree_util.tree_unflatten(structure, decoded)


def on_devices(saved: Any) -> Any:
    """Return a state tree with its arrays of JAX on the default device."""

    def placed(leaf: Any) -> Any:
        return jnp.asarray(np.asarray(leaf)) if isinstance(leaf, Numbers) else leaf

    return jax.tree_util.tree_map(placed, saved)


def arrays_of(pytree: Any) -> list[jax.Array]:
    """Return the arrays of JAX in a pytree."""
    return [leaf for leaf in jax.tree_util.tree_leaves(pytree) if isinstance(leaf, jax.Array)]


def local(pytree: Any) -> Any:
    """Return a pytree without the arrays that this process shares with others."""
    return jax.tree_util.tree_map(
        lambda leaf: leaf if not isinstance(leaf, jax.Array) or leaf.is_fully_addressable else None, pytree
    )


def _part(key: Any) -> str:
    for name in ("key", "idx", "name"):
        if hasattr(key, name):
            return str(getattr(key, name))
    return str(key)


def _encoded(leaf: Any) -> Any:
    if isinstance(leaf, np.generic):
        return "scalar", np.asarray(leaf)
    if not isinstance(leaf, jax.Array):
        return leaf
    if not leaf.size and not is_key(leaf):
        return "empty", str(leaf.dtype), list(leaf.shape)
    is_whole = leaf.is_fully_addressable or leaf.is_fully_replicated
    here = leaf if leaf.is_fully_addressable or not is_whole else leaf.addressable_data(0)
    if is_key(leaf):
        return "key", str(jax.random.key_impl(leaf)), jax.random.key_data(here) if is_whole else Sharded(leaf)
    if not is_whole:
        return Sharded(leaf)
    return ("weak", here) if leaf.weak_type and not leaf.shape else here


def _decoded(saved: Any, like: Any) -> Any:
    """Return a leaf with the saved numbers, on the devices of ``like``."""
    kind, content = (saved[0], saved[1:]) if isinstance(saved, tuple) else ("", (saved,))
    if kind == "scalar":
        return content[0][()]
    if kind == "key":
        return _placed_keys(content[1], content[0], like)
    if kind == "empty":
        return _placed(np.zeros(content[1], content[0]), like)
    if kind == "weak":
        weak = jnp.asarray(content[0].item())
        if weak.dtype != content[0].dtype:
            return _placed(content[0], like)
        is_shared = isinstance(like, jax.Array) and not like.is_fully_addressable
        return jax.jit(lambda: content[0].item(), out_shardings=like.sharding)() if is_shared else weak
    return _placed(saved, like) if isinstance(saved, (Numbers, Stored)) else saved


def _placed_keys(numbers: Any, implementation: str, like: Any) -> Any:
    """Return random keys of saved numbers, on the devices of ``like``."""

    def keys(part: Any) -> Any:
        return wrap(jnp.asarray(np.asarray(part)))

    wrap = partial(jax.random.wrap_key_data, impl=implementation)
    if not isinstance(like, jax.Array) or like.is_fully_addressable:
        return _placed(keys(numbers.whole() if isinstance(numbers, Stored) else numbers), like)
    found = jax.eval_shape(wrap, jax.ShapeDtypeStruct(numbers.shape, numbers.dtype))
    _check_same(found, like)
    return jax.make_array_from_callback(like.shape, like.sharding, lambda index: keys(numbers[index]))


def _check_same(array: Any, like: Any) -> None:
    for name in ("shape", "dtype"):
        saved, now = getattr(array, name), getattr(like, name, None)
        if now is not None and isinstance(like, jax.Array) and saved != now:
            raise ValueError(f"has the {name} {saved} in the checkpoint, and {now} in this program")


def _placed(array: Any, like: Any) -> Any:
    _check_same(array, like)
    if isinstance(like, jax.Array) and not like.is_fully_addressable:  # device_put would ask the other processes
        return jax.make_array_from_callback(like.shape, like.sharding, lambda index: np.asarray(array[index]))
    if isinstance(array, Stored):
        array = array.whole()
    array = np.asarray(array) if isinstance(array, Numbers) else array
    if isinstance(like, jax.Array) and like.committed:
        return jax.device_put(array, like.sharding)
    return jnp.asarray(array)
